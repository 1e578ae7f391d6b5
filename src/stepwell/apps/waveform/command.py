"""`stepwell deconvolve`: surfaces from lidar waveforms."""

from __future__ import annotations

import dataclasses
import math
import pathlib
import time
from typing import Any

import click
import numpy as np

from stepwell.apps import waveform
from stepwell.apps.hdf5 import require_h5py
from stepwell.apps.waveform import gedi
from stepwell.arrays import host_copy
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
from stepwell.lsq import NNLSResult, NNLSStatus

#: Shots that are solved at a time: after each part Ctrl-C is heeded. Systems are independent, so the bits are the same.
_PART = 2000
#: File name endings of HDF5.
_HDF5 = (".h5", ".hdf5", ".he5")


@click.command("deconvolve")
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=pathlib.Path))
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=pathlib.Path), help="npz file to write.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=pathlib.Path), help="Picture of some shots to write.")
@click.option("--shots", "which", help="Shots to plot, such as 0,7; by default the first four.")
@click.option("--least", default="noise", show_default=True, metavar="noise|NUMBER",
              help="Smallest amplitude of a return: by each shot's noise, or a number (0: all).")  # fmt: skip
@click.option(
    "--samples",
    type=click.IntRange(min=1),
    default=512,
    show_default=True,
    help="Window round the peak of GEDI waveforms.",
)
@click.option("--beam", help="Beam of a GEDI granule, such as BEAM0101.  [default: the first]")
@click.option("--select", metavar="FIRST:LAST", help="Shots of a GEDI granule, LAST not included.  [default: all]")
@click.option("--lam", "--damping", "lam", default=0.0, show_default=True, help="Weight λ of λ²‖x‖².")
@click.option("--synthetic", type=click.IntRange(min=1), help="Make so many synthetic shots instead of reading FILE.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the synthetic shots.")
@place_options
@output_options()
def command(file: pathlib.Path | None, synthetic: int | None, voice: Output, **given: Any) -> None:
    """Recover arrival times and amplitudes from lidar waveforms.

    FILE is a GEDI L1B granule as NASA distributes it (HDF5, needs h5py), or an npz file with arrays 'waveforms' and
    'pulses', or with GEDI L1B's 'tx', 'rx', 'rx_count', 'noise_mean'. The output holds 'amplitudes', 'fit', 'status',
    'residual', 'least', and one row a return: 'return_shot', 'return_time', 'return_amplitude'. Times count samples of
    the waveform; of GEDI's, cut from longer records, 'window_start' says where each begins. Ctrl-C ends the work early:
    files are made from the shots so far, and the exit status is 130.
    """
    output, plot = given["output"], given["plot"]
    if (file is None) == (synthetic is None):
        raise click.UsageError("give either FILE or --synthetic COUNT")
    if output is None and plot is None and voice.json_file is None:
        raise click.UsageError("give -o OUT.npz, --plot OUT.png or --json, or several of them")
    check_file(output, "-o", ("npz",))
    check_plot(plot)
    for path, flag in ((output, "-o"), (plot, "--plot"), (voice.json_file, "--json")):
        refuse_input_as_output(file, [path], flag)
    with usage_errors():
        least = None if given["least"] == "noise" else _number("--least", given["least"])
    place = open_place(given["array"], "float64", given["device"])
    shots = _read(file, synthetic, given)
    chosen = _shots_to_plot(given["which"], len(shots))
    start = time.perf_counter()
    put = None if place.library == "numpy" else place.put
    done, interrupted = _solve(shots, voice, lam=given["lam"], threads=given["threads"], put=put)
    seconds = time.perf_counter() - start
    _finish(done, least, seconds, chosen, voice, given)
    if interrupted:
        voice.interrupted()
    if not np.any(done.result.status == NNLSStatus.CONVERGED):
        first = NNLSStatus(int(done.result.status[0])).message
        raise click.ClickException(f"none of {len(done.shots)} shots converged; shot 0: {first}")


def _number(flag: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    require(not math.isnan(number), flag, text, "noise, or a number")
    return read_real(flag, number, infinite=True)


def _read(file: pathlib.Path | None, synthetic: int | None, given: dict[str, Any]) -> waveform.Shots:
    """Read or make the shots."""
    hdf5 = file is not None and file.suffix.lower() in _HDF5
    if not hdf5 and (given["beam"] or given["select"]):
        raise click.UsageError("--beam and --select are for GEDI granules (HDF5)")
    if file is None:
        with usage_errors():
            return waveform.synthetic_shots(synthetic or 1, seed=given["seed"])
    if not hdf5:
        with file_trouble(file):
            return waveform.load_shots(file, given["samples"])
    try:
        require_h5py()
    except ImportError as error:
        raise click.BadParameter(str(error), param_hint="FILE") from None
    first, last = read_range("--select", given["select"])
    with file_trouble(file):
        count = None if last is None else last - first
        return gedi.load_gedi(file, given["beam"], first=first, count=count, samples=given["samples"])


def _solve(shots: waveform.Shots, voice: Output, **how: Any) -> tuple[waveform.Deconvolution, bool]:
    """Solve part by part, until the end or Ctrl-C."""
    from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn

    from stepwell.cli.progress_bar import ProgressBar

    parts: list[waveform.Deconvolution] = []
    columns = ("deconvolving", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = ProgressBar(*columns, console=voice.console(), transient=True, disable=not voice.moving)
    with bar, first_interrupt() as pressed:
        task = bar.add_task("shots", total=len(shots))
        for first in range(0, len(shots), _PART):
            part = _part(shots, slice(first, first + _PART))

            def move(count: int, total: int, first: int = first) -> None:
                bar.update(task, completed=first + count)

            try:
                parts.append(waveform.deconvolve(part, **how, progress=move))
            except ValueError as error:
                raise click.ClickException(str(error)) from error
            if pressed():
                break
        interrupted = pressed()
    return _joined(shots, parts), interrupted


def _part(shots: waveform.Shots, rows: slice) -> waveform.Shots:
    rest = {name: value[rows] for name in ("truth", "start") if (value := getattr(shots, name)) is not None}
    held = (shots.waveforms[rows], shots.pulses[rows], shots.origin, shots.background[rows])
    return waveform.Shots(*held, **rest)


def _joined(shots: waveform.Shots, parts: list[waveform.Deconvolution]) -> waveform.Deconvolution:
    """Put the parts together, as if they had been solved at once, in arrays of NumPy."""
    results = [part.result for part in parts]
    held: dict[str, Any] = {}
    for field in dataclasses.fields(NNLSResult):
        values = [getattr(result, field.name) for result in results]
        if hasattr(values[0], "shape"):
            held[field.name] = np.concatenate([host_copy(one) for one in values])
        else:
            held[field.name] = values[0]
    amplitudes, fit = (np.concatenate([getattr(part, name) for part in parts]) for name in ("amplitudes", "fit"))
    return waveform.Deconvolution(_part(shots, slice(len(fit))), NNLSResult(**held), amplitudes, fit)


def _finish(
    done: waveform.Deconvolution,
    least: float | None,
    seconds: float,
    chosen: list[int],
    voice: Output,
    given: dict[str, Any],
) -> None:
    """Report, and write what was asked for."""
    result, count = done.result, len(done.shots)
    thresholds = waveform.noise_threshold(done) if least is None else np.full(count, least)
    found = [done.returns(shot, thresholds[shot]) for shot in range(count)]
    table = make_table("status", "shots", "meaning")
    table.title, table.title_justify = f"{count} shots in {seconds:.3g} s", "left"
    endings = {status.name.lower(): int(np.sum(result.status == int(status))) for status in NNLSStatus}
    for status in NNLSStatus:
        if number := endings[status.name.lower()]:
            table.add_row(status.name.lower(), str(number), status.message)
    returns = float(np.mean([len(times) for times, _ in found]))
    violation = float(np.fmax.reduce(result.violation, initial=0.0))
    about = "by each shot's noise" if least is None else "as given"
    voice.say(
        table,
        f"returns a shot: {returns:.1f}, of amplitude {np.median(thresholds):.3g} or more ({about}); "
        f"insertions {np.mean(result.insertions):.1f}, removals {np.mean(result.removals):.1f}; "
        f"largest violation {violation:.1e}",
    )
    rows = {
        "return_shot": np.repeat(np.arange(count), [len(times) for times, _ in found]),
        "return_time": np.concatenate([times for times, _ in found]),
        "return_amplitude": np.concatenate([sizes for _, sizes in found]),
    }
    start = done.shots.start
    held = {"amplitudes": done.amplitudes, "fit": done.fit, "status": result.status, "residual": result.residual}
    held |= {"least": thresholds, **rows}
    held |= {"window_start": np.zeros(count, dtype=np.int64) if start is None else start}
    with writing_trouble():
        if given["output"] is not None:
            with replacing(given["output"]) as opened:
                write_arrays(opened, held, compressed=True)
            voice.say(f"wrote {given['output']}")
        if given["plot"] is not None:
            from stepwell.apps.waveform.plots import plot_shots

            plot_shots(done, given["plot"], [shot for shot in chosen if shot < count], thresholds)
            voice.say(f"wrote {given['plot']}")
        names = ("least", "samples", "beam", "select", "lam", "array", "device", "threads", "seed")
        summary = {"shots": count, "statuses": endings, "returns_per_shot": returns, "largest_violation": violation}
        voice.record({name: given[name] for name in names}, summary | rows, seconds={"total": seconds})


def _shots_to_plot(text: str | None, count: int) -> list[int]:
    if text is None:
        return list(range(min(4, count)))
    parts = [part.strip() for part in text.split(",") if part.strip()]
    chosen = [int(part) for part in parts if part.isdecimal()]
    fits = 0 < len(parts) == len(chosen) and max(chosen) < count
    with usage_errors():
        require(fits, "--shots", text, f"integers from 0 to {count - 1} with commas between")
    return chosen
