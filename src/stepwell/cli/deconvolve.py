"""`stepwell deconvolve`: surfaces from lidar waveforms."""

from __future__ import annotations

import pathlib
import time

import click
import numpy as np

from stepwell.checks import read_real, require
from stepwell.cli.inputs import (
    check_file,
    check_plot,
    file_trouble,
    refuse_input_as_output,
    usage_errors,
    writing_trouble,
)
from stepwell.files import replacing, write_arrays


@click.command("deconvolve")
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=pathlib.Path))
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=pathlib.Path), help="npz file to write.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=pathlib.Path), help="Picture of some shots to write.")
@click.option("--shots", "which", help="Shots to plot, such as 0,7; by default the first four.")
@click.option("--least", default=0.0, show_default=True, help="Smallest amplitude that counts as a return.")
@click.option(
    "--samples",
    type=click.IntRange(min=1),
    default=512,
    show_default=True,
    help="Window round the peak of GEDI waveforms.",
)
@click.option("--lam", "--damping", "lam", default=0.0, show_default=True, help="Weight λ of λ²‖x‖².")
@click.option("--synthetic", type=click.IntRange(min=1), help="Make so many synthetic shots instead of reading FILE.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the synthetic shots.")
def command(
    file: pathlib.Path | None,
    output: pathlib.Path | None,
    plot: pathlib.Path | None,
    which: str | None,
    least: float,
    samples: int,
    lam: float,
    synthetic: int | None,
    seed: int,
) -> None:
    """Recover arrival times and amplitudes from lidar waveforms.

    FILE is an npz file with arrays 'waveforms' and 'pulses', or with GEDI L1B's 'tx', 'rx', 'rx_count', 'noise_mean'.
    The output holds 'amplitudes', 'fit', and one row a return: 'return_shot', 'return_time', 'return_amplitude'. Times
    count samples of the waveform; of GEDI's, cut from longer records, 'window_start' says where each begins.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
    from rich.table import Table

    from stepwell.apps import waveform
    from stepwell.nnls import NNLSStatus

    if (file is None) == (synthetic is None):
        raise click.UsageError("give either FILE or --synthetic COUNT")
    if output is None and plot is None:
        raise click.UsageError("give -o OUT.npz, --plot OUT.png, or both")
    check_file(output, "-o", ("npz",))
    check_plot(plot)
    refuse_input_as_output(file, [output], "-o")
    refuse_input_as_output(file, [plot], "--plot")
    with usage_errors():
        read_real("--least", least, infinite=True)
    with file_trouble(file or "synthetic shots"):
        shots = waveform.load_shots(file, samples) if file else waveform.synthetic_shots(synthetic or 1, seed=seed)
    chosen = _shots_to_plot(which, len(shots))
    console = Console(stderr=True)
    start = time.perf_counter()
    with Progress(
        "deconvolving", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=console, transient=True
    ) as bar:
        task = bar.add_task("shots", total=len(shots))
        try:
            done = waveform.deconvolve(
                shots, lam=lam, progress=lambda count, total: bar.update(task, completed=count, total=total)
            )
        except ValueError as error:
            raise click.ClickException(str(error)) from error
    seconds = time.perf_counter() - start
    found = [done.returns(shot, least) for shot in range(len(shots))]
    result = done.result
    table = Table("status", "shots", "meaning", title=f"{len(shots)} shots in {seconds:.3g} s")
    for status in NNLSStatus:
        count = int(np.sum(result.status == int(status)))
        if count:
            table.add_row(status.name.lower(), str(count), status.message)
    Console().print(table)
    click.echo(
        f"returns a shot: {np.mean([len(times) for times, _ in found]):.1f}; "
        f"insertions {np.mean(result.insertions):.1f}, removals {np.mean(result.removals):.1f}; "
        f"largest violation {np.fmax.reduce(result.violation, initial=0.0):.1e}"
    )
    held = {
        "amplitudes": done.amplitudes,
        "fit": done.fit,
        "status": result.status,
        "residual": result.residual,
        "return_shot": np.repeat(np.arange(len(shots)), [len(times) for times, _ in found]),
        "return_time": np.concatenate([times for times, _ in found]),
        "return_amplitude": np.concatenate([sizes for _, sizes in found]),
        "window_start": np.zeros(len(shots), dtype=np.int64) if shots.start is None else shots.start,
    }
    with writing_trouble():
        if output is not None:
            with replacing(output) as opened:
                write_arrays(opened, held, compressed=True)
            click.echo(f"wrote {output}")
        if plot is not None:
            from stepwell.report.waveform import plot_shots

            plot_shots(done, plot, chosen, least)
            click.echo(f"wrote {plot}")
    if not np.any(result.status == NNLSStatus.CONVERGED):
        first = NNLSStatus(int(result.status[0])).message
        raise click.ClickException(f"none of {len(shots)} shots converged; shot 0: {first}")


def _shots_to_plot(text: str | None, count: int) -> list[int]:
    if text is None:
        return list(range(min(4, count)))
    parts = [part.strip() for part in text.split(",") if part.strip()]
    chosen = [int(part) for part in parts if part.isdecimal()]
    fits = 0 < len(parts) == len(chosen) and max(chosen) < count
    with usage_errors():
        require(fits, "--shots", text, f"integers from 0 to {count - 1} with commas between")
    return chosen
