"""`stepwell deconvolve`: surfaces from lidar waveforms."""

from __future__ import annotations

import pathlib
import time

import click
import numpy as np


@click.command("deconvolve")
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=pathlib.Path))
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=pathlib.Path), help="npz file to write.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=pathlib.Path), help="Picture of some shots to write.")
@click.option("--shots", "which", default="0,1,2,3", show_default=True, help="Shots to plot.")
@click.option("--samples", default=512, show_default=True, help="Window round the peak of GEDI waveforms.")
@click.option("--damping", default=0.0, show_default=True, help="Weight λ of λ²‖x‖².")
@click.option("--synthetic", type=click.IntRange(min=1), help="Make so many synthetic shots instead of reading FILE.")
@click.option("--seed", default=0, show_default=True, help="Seed of the synthetic shots.")
def command(
    file: pathlib.Path | None,
    output: pathlib.Path | None,
    plot: pathlib.Path | None,
    which: str,
    samples: int,
    damping: float,
    synthetic: int | None,
    seed: int,
) -> None:
    """Recover arrival times and amplitudes from lidar waveforms.

    FILE is an npz file with arrays 'waveforms' and 'pulses', or with GEDI L1B's 'tx', 'rx', 'rx_count', 'noise_mean'.
    The output holds 'amplitudes', 'fit', and one row a return: 'return_shot', 'return_time', 'return_amplitude'.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
    from rich.table import Table

    from stepwell.apps import waveform
    from stepwell.leastsq import NNLSStatus

    if (file is None) == (synthetic is None):
        raise click.UsageError("give either FILE or --synthetic COUNT")
    if output is None and plot is None:
        raise click.UsageError("give -o OUT.npz, --plot OUT.png, or both")
    try:
        shots = waveform.load_shots(file, samples) if file else waveform.synthetic_shots(synthetic or 1, seed=seed)
    except (ValueError, OSError, KeyError) as error:
        raise click.ClickException(f"{file or 'synthetic shots'}: {error}") from error
    chosen = _shots_to_plot(which, len(shots))
    console = Console(stderr=True)
    start = time.perf_counter()
    with Progress(
        "deconvolving", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=console, transient=True
    ) as bar:
        task = bar.add_task("shots", total=len(shots))
        try:
            done = waveform.deconvolve(
                shots, damping=damping, progress=lambda count, total: bar.update(task, completed=count, total=total)
            )
        except ValueError as error:
            raise click.ClickException(str(error)) from error
    seconds = time.perf_counter() - start
    found = [done.returns(shot) for shot in range(len(shots))]
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
        f"largest violation {np.nanmax(result.violation):.1e}"
    )
    if output is not None:
        np.savez_compressed(
            output,
            amplitudes=done.amplitudes,
            fit=done.fit,
            status=result.status,
            residual=result.residual,
            return_shot=np.repeat(np.arange(len(shots)), [len(times) for times, _ in found]),
            return_time=np.concatenate([times for times, _ in found]),
            return_amplitude=np.concatenate([sizes for _, sizes in found]),
        )
        click.echo(f"wrote {output}")
    if plot is not None:
        try:
            from stepwell.report.waveform import plot_shots

            plot_shots(done, plot, chosen)
        except ImportError as error:
            raise click.ClickException('--plot needs matplotlib: pip install "stepwell[plot]"') from error
        click.echo(f"wrote {plot}")


def _shots_to_plot(text: str, count: int) -> list[int]:
    try:
        chosen = [int(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise click.BadParameter(f"--shots must be numbers with commas between, got {text!r}") from error
    return [shot for shot in chosen if 0 <= shot < count] or [0]
