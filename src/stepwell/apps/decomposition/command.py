"""`stepwell decompose`: lidar waveforms into Gaussians."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.table import Table

from stepwell.apps.decomposition.run import ACCOUNT, ARRAYS, TABLE, DecompositionRun, Source, decompose_file, kept_part
from stepwell.apps.files.hdf5 import require_h5py
from stepwell.apps.files.named import HDF5
from stepwell.apps.images.commands import check_packages, read_account, record_run, slab_bar
from stepwell.apps.waveform.command import shots_to_plot
from stepwell.cli.console import make_table
from stepwell.cli.inputs import (
    can_draw,
    check_folder,
    file_trouble,
    open_place,
    place_options,
    read_range,
    refuse_input_as_output,
    usage_errors,
    writing_trouble,
)
from stepwell.cli.output import Output, output_options
from stepwell.common.array_files import open_arrays
from stepwell.fit.status import FitStatus


@click.command("decompose")
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "-o", "--output", "folder", type=click.Path(path_type=Path), required=True, help="Folder for what is found."
)
@click.option("--starts", type=click.Choice(["peaks", "deconvolve"]), default="peaks", show_default=True,
              help="Where Gaussians begin: peaks and shoulders, or the returns of a deconvolution.")  # fmt: skip
@click.option("--most", type=click.IntRange(1, 20), default=8, show_default=True, help="Most Gaussians of a waveform.")
@click.option("--level", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.05, show_default=True,
              help="Chance per waveform that noise alone is called a return.")  # fmt: skip
@click.option("--samples", type=click.IntRange(min=1), default=512, show_default=True,
              help="Window round the peak of GEDI waveforms.")  # fmt: skip
@click.option("--beam", help="Beam of a GEDI granule, such as BEAM0101.  [default: all]")
@click.option("--select", metavar="FIRST:LAST", help="Shots of each beam, LAST not included.  [default: all]")
@click.option("--geopackage", is_flag=True, help="Write returns.gpkg too, which needs pyogrio.")
@click.option("--shots", "which", help="Shots of the picture, such as 0,7; by default the first four.")
@click.option("--synthetic", type=click.IntRange(min=1), help="Make so many shots, with their truth, and use them.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the synthetic shots.")
@click.option("--restart", is_flag=True, help="Discard what an unfinished run has left.")
@click.option("--overwrite", is_flag=True, help="Write over what a finished run with other settings has left.")
@click.option("--plots/--no-plots", default=True, show_default=True, help="Write shots.png.")
@place_options
@output_options()
def command(file: Path | None, folder: Path, synthetic: int | None, output: Output, **given: Any) -> None:
    """Take lidar waveforms apart into Gaussians, one per surface that the pulse met.

    FILE is a GEDI L1B granule as NASA distributes it (HDF5, needs h5py), or an npz file as `stepwell deconvolve` reads.
    OUTPUT gets returns.csv, one row per return: position, amplitude, width and energy with standard errors, and
    latitude, longitude and elevation where FILE has them; decomposition.npz, the same as arrays with a row per shot;
    decompose.json; and shots.png. A run that was stopped goes on when the same command is given again.
    """
    if (file is None) == (synthetic is None):
        raise click.UsageError("give either FILE or --synthetic COUNT")
    hdf5 = file is not None and file.suffix.lower() in HDF5
    if not hdf5 and (given["beam"] or given["select"]):
        raise click.UsageError("--beam and --select are for GEDI granules (HDF5)")
    if hdf5:
        try:
            require_h5py()
        except ImportError as error:
            raise click.BadParameter(str(error), param_hint="FILE") from None
    check_folder(folder, "-o")
    check_packages({"--geopackage": Path("returns.gpkg") if given["geopackage"] else None})
    plots = can_draw(given["plots"], output)
    place = open_place(given["array"], "float64", given["device"])
    first, last = read_range("--select", given["select"])
    made = folder / "simulated.npz"
    refuse_input_as_output(file, [folder / name for name in (ARRAYS, made.name, TABLE, ACCOUNT)], "-o")
    truth = None
    if synthetic is not None:
        truth = _simulated(synthetic, given["seed"], made)
        file = made
    assert file is not None
    where: dict[str, Any] = {"beam": given["beam"], "first": first, "last": last, "samples": given["samples"]}
    with file_trouble(file):
        source = Source(file, **where)
    chosen = shots_to_plot(given["which"], sum(source.sizes)) if plots else []
    with slab_bar(output, f"decomposing {file.name}", "shots") as tell, file_trouble(file):
        run = decompose_file(
            file, folder, **where, **{name: given[name] for name in ("starts", "most", "level", "geopackage")},
            restart=given["restart"], overwrite=given["overwrite"], threads=given["threads"],
            put=None if place.library == "numpy" else place.put, progress=tell,
        )  # fmt: skip
    summary = read_account(folder / ACCOUNT)
    written = [path.name for path in run.files] + [ACCOUNT]
    if truth is not None:
        summary["errors"] = _errors(folder, truth)
    if plots and run.done:
        with writing_trouble(), usage_errors():
            _draw(source, folder, chosen, None if truth is None else truth["position"])
        written.append("shots.png")
    with writing_trouble():
        record_run(output, summary, **{name: given[name] for name in ("array", "device", "threads")})
    output.say(_report(run, summary), *_beams(run), f"wrote {', '.join(written)} to {folder}")
    if not run.converged:
        raise click.ClickException(f"none of {run.done} shots converged" if run.done else "no shot could be used")


def _simulated(count: int, seed: int, path: Path) -> dict[str, np.ndarray]:
    """Write shots and their truth; return the latter."""
    from stepwell.apps.decomposition.simulate import simulate
    from stepwell.apps.files.foreign import made_elsewhere
    from stepwell.apps.waveform import save_shots
    from stepwell.common.array_files import write_arrays
    from stepwell.common.files import replacing

    with usage_errors():
        shots = simulate(count, seed=seed)
    truth = {"position": shots.position, "amplitude": shots.amplitude, "width": shots.width}
    with writing_trouble():
        path.parent.mkdir(parents=True, exist_ok=True)
        with made_elsewhere(path, same_stays=True) as made:  # so that a run of them that was stopped goes on
            save_shots(made, shots.shots)
        with replacing(path.with_name("truth.npz")) as opened:
            write_arrays(opened, truth, compressed=True)
    return truth


def _errors(folder: Path, truth: dict[str, np.ndarray]) -> dict[str, float]:
    """Return how many shots have as many returns as they should, and of those the median error of each parameter."""
    with open_arrays(folder / ARRAYS) as held:
        count = held["count"]
        right = count == truth["position"].shape[1]
        found = {name: held[name][right][:, : truth[name].shape[1]] for name in truth}
    errors = {name: float(np.median(np.abs(found[name] - truth[name][right]))) for name in truth if right.any()}
    return {"right_count": float(right.mean()), **errors}


def _draw(source: Source, folder: Path, chosen: list[int], truth: np.ndarray | None) -> None:
    """Draw some shots, as they lie in the file."""
    from stepwell.apps.decomposition.plots import plot_shots
    from stepwell.apps.waveform.gedi import join_shots

    with open_arrays(folder / ARRAYS) as held:
        arrays = {name: held[name] for name in held.names}
    parts, labels, places, first = [], [], [], 0
    for part in range(len(source.ranges)):
        read, found = kept_part(source, arrays, part, first)
        count = 0 if found is None else len(found.shots)
        rows = np.array([shot - first for shot in chosen if 0 <= shot - first < count], dtype=int)
        if rows.size and found is not None:
            parts.append(found.part(rows))
            about = read.shots.about or {} if read.shots is not None else {}
            for row in rows.tolist():
                words = [str(about[name][row]) for name in ("beam", "shot_number") if name in about]
                labels.append(" ".join([f"shot {first + row}", *words]))
            places += (first + rows).tolist()
        first += count
        if first > max(chosen):
            break
    if not parts:
        raise ValueError(f"--shots is {chosen[0]}; allowed: shots that could be used")
    whole = parts[0]
    if len(parts) > 1:
        import dataclasses

        names = [one.name for one in dataclasses.fields(whole) if one.name != "shots"]
        joined: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        whole = type(whole)(join_shots([part.shots for part in parts]), **joined)
    plot_shots(whole, folder / "shots.png", labels=labels, truth=None if truth is None else truth[places])


def _beams(run: DecompositionRun) -> list[str]:
    lines = []
    for beam, held in run.beams.items():
        why = ", ".join(f"{number} skipped: {reason}" for reason, number in held["skipped"].items())
        lines.append(f"{beam}: {held['done']} of {held['shots']} shots done" + (f" ({why})" if why else ""))
    return lines


def _report(run: DecompositionRun, summary: dict[str, Any]) -> Table:
    table = make_table("", "", header=False)
    resumed = f", {run.resumed} parts from an earlier run" if run.resumed else ""
    table.add_row("shots", f"{run.done:,} of {run.shots:,} done{resumed}")
    for name, number in run.statuses.items():
        table.add_row(name, f"{number:,}: {FitStatus[name.upper()].message}")
    table.add_row("returns per shot", f"{run.returns / max(1, run.done):.2f}")
    if "errors" in summary:
        errors = dict(summary["errors"])
        right = errors.pop("right_count")
        found = ", ".join(f"{name} {value:.3g}" for name, value in errors.items())
        table.add_row("against the truth", f"{100 * right:.3g} % with as many returns; median errors {found}")
    table.add_row("time", f"{run.seconds:.3g} s, {1e6 * run.seconds / max(1, run.done):.3g} µs per shot")
    return table
