"""`stepwell deconvolve`: surfaces from lidar waveforms."""

from __future__ import annotations

import contextlib
import math
import pathlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

import click
import numpy as np

from stepwell.apps import waveform
from stepwell.apps.files.hdf5 import require_h5py
from stepwell.apps.files.named import HDF5
from stepwell.apps.files.points import write_points
from stepwell.apps.files.tables import write_table
from stepwell.apps.images.commands import check_packages
from stepwell.apps.waveform import gedi
from stepwell.apps.waveform.gathering import Gathered
from stepwell.cli.console import make_table
from stepwell.cli.inputs import (
    check_file,
    check_plot,
    file_trouble,
    open_place,
    place_options,
    read_range,
    refuse_input_as_output,
    usage_errors,
    writing_trouble,
)
from stepwell.cli.output import Output, first_interrupt, output_options
from stepwell.common.array_files import write_arrays
from stepwell.common.checks import read_real, require
from stepwell.common.files import replacing
from stepwell.lsq import NNLSStatus

#: Shots that are solved at a time: after each part Ctrl-C is heeded. Systems are independent, so the bits are the same.
_PART = 2000
#: What the report has in numbers.
_TOLD: tuple[tuple[Any, str], ...] = ((np.median, "thresholds"), (np.mean, "insertions"), (np.mean, "removals"))


@click.command("deconvolve")
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=pathlib.Path))
@click.option(
    "-o", "--output", "target", type=click.Path(dir_okay=False, path_type=pathlib.Path), help="npz file to write."
)
@click.option("--table", "tables", multiple=True, type=click.Path(dir_okay=False, path_type=pathlib.Path),
              metavar="OUT.csv|OUT.gpkg", help="Table of all returns to write, with their places on the earth; CSV, or "
              "GeoPackage, which needs pyogrio; may be given again.")  # fmt: skip
@click.option("--plot", type=click.Path(dir_okay=False, path_type=pathlib.Path), help="Picture of some shots to write.")
@click.option("--shots", "which", help="Shots to plot, such as 0,7; by default the first four.")
@click.option("--least", default="noise", show_default=True, metavar="noise|NUMBER",
              help="Smallest amplitude of a return: by each shot's noise, or a number (0: all). Where the file has the "
              "noise, returns that it explains are left out and the rest fitted again.")  # fmt: skip
@click.option(
    "--samples",
    type=click.IntRange(min=1),
    default=512,
    show_default=True,
    help="Window round the peak of GEDI waveforms.",
)
@click.option("--beam", help="Beam of a GEDI granule, such as BEAM0101.  [default: all]")
@click.option("--select", metavar="FIRST:LAST", help="Shots of each beam, LAST not included.  [default: all]")
@click.option("--lam", "--damping", "lam", default=0.0, show_default=True, help="Weight λ of λ²‖x‖².")
@click.option("--synthetic", type=click.IntRange(min=1), help="Make so many synthetic shots instead of reading FILE.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the synthetic shots.")
@place_options
@output_options()
def command(file: pathlib.Path | None, synthetic: int | None, output: Output, **given: Any) -> None:
    """Recover arrival times and amplitudes from lidar waveforms.

    FILE is a GEDI L1B granule as NASA distributes it (HDF5, needs h5py), or an npz file with arrays 'waveforms' and
    'pulses', or with GEDI L1B's 'tx', 'rx', 'rx_count', 'noise_mean' and 'noise_std'. --table has one row per return:
    beam, shot_number, time, latitude, longitude, elevation, amplitude, width, and heights rh25 to rh98 above the lowest
    return. The npz holds 'amplitudes', 'fit', 'status', 'residual', 'least', and per return 'return_shot',
    'return_time', 'return_amplitude'. Times count samples of the waveform; of GEDI's, cut from longer records,
    'window_start' says where each begins. Ctrl-C ends the work early: files are made from the shots so far, and the
    exit status is 130.
    """
    target, plot, tables = given["target"], given["plot"], given["tables"]
    if (file is None) == (synthetic is None):
        raise click.UsageError("give either FILE or --synthetic COUNT")
    if target is None and plot is None and not tables and output.json_file is None:
        raise click.UsageError("give -o OUT.npz, --table OUT.csv, --plot OUT.png or --json, or several of them")
    check_file(target, "-o", ("npz",))
    check_plot(plot)
    for table in tables:
        check_file(table, "--table", ("csv", "gpkg"))
    check_packages({"--table": next((table for table in tables if table.suffix.lower() == ".gpkg"), None)})
    outputs = [(target, "-o"), (plot, "--plot"), (output.json_file, "--json"), *((one, "--table") for one in tables)]
    for path, flag in outputs:
        refuse_input_as_output(file, [path], flag)
    with usage_errors():
        least = None if given["least"] == "noise" else _number("--least", given["least"])
    place = open_place(given["array"], "float64", given["device"])
    count, parts = _read(file, synthetic, given)
    _tell_unplaced(file, tables, given["beam"], output)
    chosen = shots_to_plot(given["which"], count)
    start = time.perf_counter()
    put = None if place.library == "numpy" else place.put
    how = {"lam": given["lam"], "threads": given["threads"], "put": put}
    gathered = Gathered(least, chosen if plot is not None else [], whole=target is not None)
    trouble = contextlib.nullcontext() if file is None else file_trouble(file)
    with trouble:
        interrupted = _solve(gathered, parts, count, output, how)
    _finish(gathered, time.perf_counter() - start, output, given)
    if interrupted:
        output.interrupted()
    if not np.any(gathered.of_all("status") == NNLSStatus.CONVERGED):
        first = NNLSStatus(int(gathered.of_all("status")[0])).message
        raise click.ClickException(f"none of {len(gathered.of_all('status'))} shots converged; shot 0: {first}")


def _tell_unplaced(file: pathlib.Path | None, tables: Sequence[pathlib.Path], beam: str | None, output: Output) -> None:
    """Say which beams have no positions, without which a table has none; refuse a GeoPackage then."""
    if not tables:
        return
    without = ["only GEDI granules (HDF5) have positions"]
    if file is not None and file.suffix.lower() in HDF5:
        with file_trouble(file):
            without = gedi.unplaced(file, beam)
        output.notes(f"the table has no positions: {why}" for why in without)
    points = next((table for table in tables if table.suffix.lower() == ".gpkg"), None)
    if points is not None and without:
        raise click.ClickException(f"{points}: needs positions of all returns ({without[0]}); allowed: a CSV table")


def _number(flag: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    require(not math.isnan(number), flag, text, "noise, or a number")
    return read_real(flag, number, infinite=True)


def _read(file: pathlib.Path | None, synthetic: int | None, given: dict[str, Any]) -> tuple[int, Iterator[gedi.Part]]:
    """Return how many shots there are, and the shots part by part."""
    hdf5 = file is not None and file.suffix.lower() in HDF5
    if not hdf5 and (given["beam"] or given["select"]):
        raise click.UsageError("--beam and --select are for GEDI granules (HDF5)")
    if file is None or not hdf5:
        if file is None:
            with usage_errors():
                shots = waveform.synthetic_shots(synthetic or 1, seed=given["seed"])
        else:
            with file_trouble(file):
                shots = waveform.load_shots(file, given["samples"])
        cut = (shots.part(slice(first, first + _PART)) for first in range(0, len(shots), _PART))
        return len(shots), (gedi.Part("", part, len(part), {}, 0) for part in cut)
    try:
        require_h5py()
    except ImportError as error:
        raise click.BadParameter(str(error), param_hint="FILE") from None
    first, last = read_range("--select", given["select"])
    with file_trouble(file):
        counts = gedi.shot_counts(file, given["beam"])
    total = sum(max(0, min(count, count if last is None else last) - first) for count in counts.values())
    options: dict[str, Any] = {"first": first, "last": last, "samples": given["samples"], "size": _PART}
    return total, gedi.read_parts(file, given["beam"], **options)


def _solve(gathered: Gathered, parts: Iterator[gedi.Part], count: int, output: Output, how: dict[str, Any]) -> bool:
    """Solve part by part, until the end or Ctrl-C; return whether it was pressed."""
    from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn

    from stepwell.cli.progress_bar import ProgressBar

    columns = ("deconvolving", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = ProgressBar(*columns, console=output.console(), transient=True, disable=not output.moving)
    seen = 0
    with bar, first_interrupt() as pressed:
        task = bar.add_task("shots", total=count)
        for part in parts:

            def move(count: int, total: int, first: int = seen) -> None:
                bar.update(task, completed=first + count)

            gathered.count(part)
            if part.shots is not None:
                try:
                    gathered.add(waveform.deconvolve(part.shots, **how, progress=move))
                except ValueError as error:
                    raise click.ClickException(str(error)) from error
            seen += part.total
            bar.update(task, completed=seen)
            if pressed():
                break
        return pressed()


def _finish(gathered: Gathered, seconds: float, output: Output, given: dict[str, Any]) -> None:
    """Report, and write what was asked for."""
    count = len(gathered.of_all("status"))
    if not count:
        why = "; ".join(f"{number} {reason}" for reason, number in gathered.skipped.items())
        raise click.ClickException(f"{given['beam'] or 'all beams'}: no shot could be used: {why or 'there is none'}")
    table = make_table("status", "shots", "meaning")
    table.title, table.title_justify = f"{count} shots in {seconds:.3g} s", "left"
    ended = gathered.of_all("status")
    endings = {status.name.lower(): int(np.sum(ended == int(status))) for status in NNLSStatus}
    for status in NNLSStatus:
        if number := endings[status.name.lower()]:
            table.add_row(status.name.lower(), str(number), status.message)
    rows = gathered.table
    returns = len(rows["shot"]) / count
    violation = float(np.fmax.reduce(gathered.of_all("violation"), initial=0.0))
    about = "as given" if gathered.least is not None else f"by each shot's noise{gathered.how_told}"
    amplitude, taken, given_up = (float(f(gathered.of_all(name))) for f, name in _TOLD)
    output.say(
        table,
        f"returns per shot: {returns:.1f}, of amplitude {amplitude:.3g} or more ({about}); insertions {taken:.1f}, "
        f"removals {given_up:.1f}; largest violation {violation:.1e}",
    )
    if gathered.beams:
        output.say("\n".join(gathered.beams_in_words()))
    start = gathered.of_all("starts")
    flat = {"return_shot": rows["shot"], "return_time": rows["sample"] - start[rows["shot"]]}
    flat |= {"return_amplitude": rows["amplitude"]}
    with writing_trouble():
        if given["target"] is not None:
            held = {**gathered.whole_arrays(), "least": gathered.of_all("thresholds"), **flat, "window_start": start}
            with replacing(given["target"]) as opened:
                write_arrays(opened, held, compressed=True)
            output.say(f"wrote {given['target']}")
        for path in given["tables"]:
            if path.suffix.lower() == ".csv":
                write_table(path, rows)
            else:
                write_points(path, rows)
            output.say(f"wrote {path}")
        if given["plot"] is not None:
            from stepwell.apps.waveform.plots import plot_shots

            shown, labels, levels = gathered.to_plot()
            plot_shots(shown, given["plot"], None if shown is None else range(len(labels)), levels, labels=labels)
            output.say(f"wrote {given['plot']}")
        names = ("least", "samples", "beam", "select", "lam", "array", "device", "threads", "seed")
        summary: dict[str, Any] = {"shots": count, "statuses": endings, "returns_per_shot": returns}
        summary |= {"largest_violation": violation, "beams": gathered.beams_in_json()}
        output.record({name: given[name] for name in names}, summary | flat, seconds={"total": seconds})


def shots_to_plot(text: str | None, count: int) -> list[int]:
    """Read which shots are to be drawn; by default the first four."""
    if text is None:
        return list(range(min(4, count)))
    parts = [part.strip() for part in text.split(",") if part.strip()]
    chosen = [int(part) for part in parts if part.isdecimal()]
    fits = 0 < len(parts) == len(chosen) and max(chosen) < count
    with usage_errors():
        require(fits, "--shots", text, f"integers from 0 to {count - 1} with commas between")
    return chosen
