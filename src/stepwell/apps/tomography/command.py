"""`stepwell reconstruct`: slices of a phantom or of a real scan, by Tikhonov regularisation."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from stepwell.api.krylov import tikhonov
from stepwell.apps.tomography.ranks import World, write_stack
from stepwell.apps.tomography.scan import ORDERS, Order
from stepwell.arrays import host_copy
from stepwell.cli.console import make_table
from stepwell.cli.inputs import (
    FiniteRange,
    check_folder,
    file_trouble,
    open_place,
    place_options,
    refuse_input_as_output,
    require_matplotlib,
    usage_errors,
    writing_trouble,
)
from stepwell.cli.output import Output, first_interrupt, output_options
from stepwell.cli.progress_bar import ProgressBar
from stepwell.common.array_files import map_array_file
from stepwell.common.checks import meant, read_real, read_whole, require, require_memory
from stepwell.common.files import replacing
from stepwell.common.threads import threads_at_most
from stepwell.distributed import RankError
from stepwell.krylov import LinearResult
from stepwell.krylov import Progress as Told
from stepwell.krylov.options import METHODS, MethodChoice
from stepwell.krylov.results import ends_in_words
from stepwell.krylov.selection import RULES, Rule

_POSITIVE = FiniteRange(min=0, min_open=True)


@dataclass
class Task:
    """What is to be reconstructed: sinograms as columns, the projection matrix, and the truth where it is known."""

    name: str
    A: Any
    B: np.ndarray
    shape: tuple[int, int]
    first: int
    truth: np.ndarray | None

    def piece(self, begin: int, end: int) -> Task:
        """Return the task of some of the slices."""
        truth = None if self.truth is None else self.truth[begin:end]
        return replace(self, B=np.ascontiguousarray(self.B[:, begin:end]), truth=truth)


@click.command("reconstruct")
@click.argument("source", default="phantom")
@click.option("--output", "-o", type=click.Path(path_type=Path), default=Path("reconstruction"), show_default=True,
              help="Folder for volume.npy, montage.png and convergence.png.")  # fmt: skip
@click.option("--lam", default=None, help=f"λ itself, or a rule: {', '.join(RULES)}.")
@click.option(
    "--relative-lam",
    default=0.01,
    show_default=True,
    help="λ as a fraction of ‖A‖, without --lam.",
)
@click.option("--smooth", is_flag=True, help="Penalise differences of neighbouring pixels instead of pixel values.")
@click.option("--nonnegative", is_flag=True, help="No pixel below zero; with --lam, a number or discrepancy.")
@click.option("--tol", default=1e-4, show_default=True, help="Bound on every slice's relative residual.")
@click.option("--method", type=click.Choice(METHODS), default="auto", show_default=True)
@click.option("--slices", default=None, help="FIRST:LAST, counted from 0, LAST not included; default all.")
@click.option("--size", default=128, show_default=True, help="Pixels along each side of the phantom.")
@click.option("--angles", default=90, show_default=True, help="Projections of the phantom over 180 degrees.")
@click.option("--noise", default=0.01, show_default=True, help="Noise added to the phantom's data, or known to be in "
              "the scan: norm relative to each slice's data.")  # fmt: skip
@click.option("--plots/--no-plots", default=True, show_default=True, help="Whether to draw; pictures need matplotlib.")
@click.option("--order", type=click.Choice(ORDERS), default=ORDERS[0], show_default=True,
              help="How the axes of the scan's projections lie.")  # fmt: skip
@click.option(
    "--center", type=float, help="Detector column of the rotation axis.  [default: the file's, or the middle]"
)
@click.option("--pixel-size", type=FiniteRange(min=0, min_open=True), default=1.0, show_default=True,
              help="Width of a detector pixel: attenuation comes out per this unit of length.")  # fmt: skip
@click.option("--fan", type=(_POSITIVE, _POSITIVE), metavar="AXIS DETECTOR",
              help="Distances of the rotation axis and of the flat detector from the source, in units of --pixel-size: "
              "rays of the scan spread from a point.  [default: parallel rays]")  # fmt: skip
@click.option("--angle-range", type=FiniteRange(min=0, min_open=True), default=180.0, show_default=True,
              help="Degrees over which the angles of a TIFF stack are spread evenly.")  # fmt: skip
@place_options
@output_options()
def command(
    source: str,
    output: Path,
    lam: str | None,
    relative_lam: float,
    smooth: bool,
    nonnegative: bool,
    tol: float,
    method: MethodChoice,
    slices: str | None,
    size: int,
    angles: int,
    noise: float,
    plots: bool,
    order: Order,
    center: float | None,
    pixel_size: float,
    fan: tuple[float, float] | None,
    angle_range: float,
    array: str,
    device: str,
    threads: int | None,
    voice: Output,
) -> None:
    """Reconstruct slices from projections, of parallel rays or of a fan.

    SOURCE is `phantom` (the three-dimensional Shepp–Logan head) or a scan: an .npz file with `angles_deg` and either
    `integrals` or `projections` with `flat` and `dark` (`center_column` is optional); HDF5 with the same names, or as
    synchrotrons exchange it (exchange/data, data_white, data_dark, theta); or a TIFF stack of line integrals, or a
    folder of such pages. Ctrl-C ends the work early: files are made from the images so far, and the exit status is 130.

    Under mpiexec every rank solves for some of the slices, with one λ for all; the first one prints and writes.
    """
    from scipy.optimize import OptimizeWarning

    from stepwell.apps import tomography
    from stepwell.operators import gradient, in_library_of

    world = World()
    if not world.first:
        voice = replace(voice, quiet=True, json_file=None)
    place = open_place(array, "float64", device)
    if plots:
        require_matplotlib("--plots", "; or run with --no-plots")
    if nonnegative and method != "auto":
        raise click.BadParameter(f"{method!r} knows no bounds; allowed: auto", param_hint="--method")
    if nonnegative and lam in RULES and lam != "discrepancy":
        raise click.BadParameter(f"{lam!r} knows no bounds; allowed: a number, discrepancy", param_hint="--lam")
    if nonnegative and lam in RULES and world.spread:
        raise click.BadParameter("over ranks a number is needed with --nonnegative", param_hint="--lam")
    _check(output, lam, relative_lam, tol, size, angles, noise)
    if fan is not None:
        with usage_errors():
            require(source != "phantom", "--fan", f"{fan[0]:g} {fan[1]:g}", "none beside the phantom")
            require(fan[0] < fan[1], "--fan", f"{fan[0]:g} {fan[1]:g}", "an axis between source and detector")
    if source != "phantom":
        names = ("volume.npy", "montage.png", "convergence.png")
        if not Path(source).exists():
            raise click.BadParameter(f"there is no file {source!r}; allowed: phantom, or a scan", param_hint="SOURCE")
        refuse_input_as_output(source, [output / name for name in names], "-o")
    try:
        with voice.status("projection matrix"):
            if source == "phantom":
                task = _phantom(size, angles, noise, slices)
            else:
                task = _scan(source, slices, order, center, pixel_size, fan, angle_range)
            chosen = _lam(lam, relative_lam, task.A)
        count, whole_truth = task.B.shape[1], task.truth
        voice.say(f"{task.name}: {count} slices of {task.shape[0]} x {task.shape[1]}, matrix "
                      f"{task.A.shape[0]} x {task.A.shape[1]}, {task.A.nnz:,} entries")  # fmt: skip
        if world.spread:
            voice.say(f"{world.ranks.size} ranks, {count // world.ranks.size} slices each or one more")
            task = task.piece(*tomography.slices_of_rank(count, world.comm))
        penalty = gradient(task.shape) if smooth else None
        level = noise * np.linalg.norm(task.B, axis=0) / max(1, task.B.shape[0]) ** 0.5
        level = np.nan_to_num(level, posinf=0.0)  # such slices end with a status
        A, B = task.A, task.B
        if place.library != "numpy":
            B = place.put(B)
            A = in_library_of(A, B)
        with _bar(voice) as bar, first_interrupt(heed=not world.spread) as pressed, threads_at_most(threads):
            watch = _Watch(bar, tol, pressed)
            with warnings.catch_warnings():  # what they say of λ stands in the table
                warnings.simplefilter("ignore", OptimizeWarning)
                rule, ends = chosen, None
                if world.spread and isinstance(rule, str):
                    chosen, ends = _lam_of_all(world, task, rule, penalty, level)
                with world.ranks.holding():
                    result = tikhonov(A, B, chosen, penalty, method=method, tol=tol, noise=level, joint=True,
                                      callback=watch, bounds=(0, None) if nonnegative else None)  # fmt: skip
                world.ranks.check()
            watch.finish(result)
            interrupted = pressed()
    except (ValueError, OSError, RankError) as error:
        raise click.ClickException(str(error)) from error
    volume = np.ascontiguousarray(host_copy(result.x).T).reshape(-1, *task.shape)
    if world.spread:
        parts = world.gathered(replace(result, x=None, lam_at_end=ends))
        if not world.first:
            list(world.pieces(volume))
            return
        result = _joined(parts)
    with writing_trouble():
        output.mkdir(parents=True, exist_ok=True)
        with replacing(output / "volume.npy") as file:
            write_stack(file, count, world.pieces(volume))
    if world.spread:
        volume = map_array_file(output / "volume.npy")
    written = ["volume.npy"]
    if plots:
        from stepwell.apps.tomography.plots import convergence, montage

        title = f"{task.name}, λ = {result.lam[0]:.3g}, {result.method}" if result.lam is not None else task.name
        with writing_trouble():
            montage(volume, output / "montage.png", first=task.first, title=title)
            convergence(result.history, tol, output / "convergence.png", first=task.first, title=title)
        written += ["montage.png", "convergence.png"]
    voice.say(_summary(result))
    quality: list[float] = []
    if whole_truth is not None:
        quality = [
            tomography.signal_to_noise(image, truth) for image, truth in zip(volume, whole_truth) if np.any(truth)
        ]
        if quality:
            voice.say(f"signal to noise against the truth: {min(quality):.2f} to {max(quality):.2f} dB")
    voice.say(f"wrote {', '.join(written)} to {output}")
    settings: dict[str, Any] = {
        "source": source,
        "lam": lam,
        "relative_lam": relative_lam,
        "smooth": smooth,
        "tol": tol,
    }
    settings |= {"nonnegative": nonnegative}
    settings |= {"method": method, "slices": slices, "noise": noise, "order": order, "center": center}
    settings |= {"pixel_size": pixel_size, "fan": fan, "array": array, "device": device, "threads": threads}
    with writing_trouble():
        voice.record(settings, _record(result, quality), seconds={"total": result.seconds})
    if interrupted:
        voice.interrupted()
    if not result.success:
        raise click.ClickException(result.message)


def _lam_of_all(
    world: World, task: Task, rule: Rule, penalty: Any, level: np.ndarray
) -> tuple[float, np.ndarray | None]:
    """Choose one λ for the slices of all ranks: that of the volume as one vector, of which each rank has a piece."""
    from stepwell.apps.tomography import project_slices

    slices = task.B.shape[1]
    squares = np.concatenate(world.comm.allgather(level**2))
    noise = float(np.mean(squares)) ** 0.5 if squares.size else 0.0
    smooth = None if penalty is None else project_slices(penalty, slices)
    volume = np.ascontiguousarray(task.B.T).reshape(-1)
    found = tikhonov(
        project_slices(task.A, slices), volume, rule, smooth, noise=noise, maxiter=0, method="cgls", comm=world.comm
    )
    assert found.lam is not None
    return found.lam, None if found.lam_at_end is None else np.array([found.lam_at_end])


def _joined(parts: list[LinearResult]) -> LinearResult:
    """Put the accounts of all ranks together."""
    first = parts[0]
    lams = [part.lam for part in parts if part.lam is not None]
    ends = first.lam_at_end
    count = sum(len(part.status) for part in parts)
    return replace(
        first,
        status=[status for part in parts for status in part.status],
        residual=np.concatenate([part.residual for part in parts]),
        iterations=np.concatenate([part.iterations for part in parts]),
        products=np.concatenate([part.products for part in parts]),
        history=[history for part in parts for history in part.history],
        lam=np.concatenate(lams) if lams else None,
        calls=max(part.calls for part in parts),
        seconds=max(part.seconds for part in parts),
        memory=sum(part.memory for part in parts),
        lam_at_end=None if ends is None else np.full(count, ends[0]),
    )


class _Watch:
    """Moves the bar from 1 to the tolerance on a logarithmic scale."""

    def __init__(self, bar: ProgressBar, tol: float, pressed: Callable[[], bool]) -> None:
        self.bar, self.tol, self.pressed = bar, tol, pressed
        self.task = bar.add_task("solving", total=-math.log10(tol), note="")

    def __call__(self, told: Told) -> bool:
        done = told.columns - told.active
        reached = max(told.residual, self.tol) if told.active else self.tol
        note = f"{done}/{told.columns} slices, {told.products:.0f} products"
        if not told.iteration:
            note += f", {told.memory / 2**20:.0f} MiB needed"
        self.bar.update(self.task, completed=-math.log10(min(1.0, reached)), note=note)
        return self.pressed()

    def finish(self, result: LinearResult) -> None:
        """Show the account of all slices, those included that were not worked on."""
        done = sum(status.name == "CONVERGED" for status in result.status)
        note = f"{done}/{len(result.status)} slices, {result.products.sum():.0f} products"
        self.bar.update(self.task, completed=-math.log10(self.tol) if result.success else None, note=note)


def _record(result: LinearResult, quality: list[float]) -> dict[str, Any]:
    return {
        "method": result.method,
        "success": result.success,
        "message": result.message,
        "status": [status.name for status in result.status],
        "lam": result.lam,
        "residual": result.residual,
        "iterations": result.iterations,
        "products": result.products,
        "calls": result.calls,
        "signal_to_noise": quality or None,
    }


def _bar(voice: Output) -> ProgressBar:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
    )
    return ProgressBar(*columns, console=voice.console(), transient=True, disable=not voice.moving)


def _summary(result: LinearResult) -> Table:
    table = make_table("", "", header=False)
    table.add_row("method", result.method)
    table.add_row("", result.choice)
    if result.lam is not None:
        table.add_row("lam", ", ".join(f"{value:.4g}" for value in np.unique(result.lam)[:6]))
    ends = ends_in_words(result.lam_at_end)
    if ends:
        table.add_row("", f"{ends}; give --lam a number, or --noise its level")
    converged = sum(status.name == "CONVERGED" for status in result.status)
    table.add_row("converged", f"{converged} of {len(result.status)} slices")
    table.add_row("worst true residual", f"{np.nanmax(result.residual, initial=0.0):.2e}")
    per_slice = result.products.sum() / max(1, len(result.status))
    table.add_row("products", f"{result.products.sum():.0f} ({per_slice:.1f} a slice), {result.calls} operator calls")
    table.add_row("seconds", f"{result.seconds:.2f}")
    return table


def _check(output: Path, lam: str | None, relative: float, tol: float, size: int, angles: int, noise: float) -> None:
    """Refuse, before any work, what could not be done after it."""
    check_folder(output, "-o")
    with usage_errors():
        if lam is not None and lam not in RULES:
            try:
                number = float(lam)
            except ValueError:
                number = math.nan
            allowed = f"a number or one of {', '.join(RULES)}{meant(lam, RULES)}"
            require(not math.isnan(number), "--lam", lam, allowed)
            read_real("--lam", number, at_least=0)
        read_real("--relative-lam", relative, at_least=0)
        read_real("--noise", noise, at_least=0)
        read_whole("--size", size, 2)
        read_whole("--angles", angles, 1)
        # Each angle has an entry of the projector for every pixel, and more.
        require_memory("--angles", angles, 2 * angles * size * size)
        read_real("--tol", tol, above=0)


def _lam(given: str | None, relative: float, A: Any) -> float | Rule:
    from stepwell.apps.tomography import largest_singular_value

    if given is None:
        return relative * largest_singular_value(A)
    return given if given in RULES else float(given)


def _phantom(size: int, angles: int, noise: float, slices: str | None) -> Task:
    from stepwell.apps.tomography import add_noise, parallel_beam, shepp_logan_3d

    A = parallel_beam(size, angles=np.arange(angles) * (180.0 / angles))
    volume = shepp_logan_3d(size)
    first, last = _range(slices, size)
    truth = volume[first:last]
    B = add_noise(A @ truth.reshape(last - first, -1).T, noise)
    return Task("Shepp–Logan phantom", A, B, (size, size), first, truth)


def _scan(
    source: str,
    slices: str | None,
    order: Order,
    center: float | None,
    pixel_size: float,
    fan: tuple[float, float] | None,
    angle_range: float,
) -> Task:
    from stepwell.apps.tomography import fan_beam, load_scan, parallel_beam, sinograms

    with file_trouble(source):
        try:
            scan = load_scan(source, order=order, angle_range=angle_range)
        except ImportError as error:
            raise click.BadParameter(str(error), param_hint="SOURCE") from None
    detectors = scan.integrals.shape[2]
    first, last = _range(slices, scan.integrals.shape[1])
    middle = scan.center if center is None else center
    geometry: dict[str, Any] = {"angles": scan.angles, "detectors": detectors, "center": middle}
    if fan is None:
        A = pixel_size * parallel_beam(detectors, **geometry)
    else:  # a pixel of the image is what one of the detector sees at the axis
        pixel = pixel_size * fan[0] / fan[1]
        lengths: dict[str, Any] = {"source": fan[0] / pixel, "detector": fan[1] / pixel, "spacing": pixel_size / pixel}
        A = pixel * fan_beam(detectors, **geometry, **lengths)
    if not A.nnz:
        raise ValueError(f"{source}: no ray meets the image, with a rotation axis at column {middle:g}")
    B = sinograms(scan.integrals[:, first:last])
    return Task(Path(source).name, A, B, (detectors, detectors), first, None)


def _range(slices: str | None, count: int) -> tuple[int, int]:
    if slices is None:
        return 0, count
    try:
        parts = [int(part) if part else None for part in slices.split(":")]
        first, last, _ = slice(*parts).indices(count)
    except (TypeError, ValueError):
        first = last = 0
    require(slices.count(":") == 1 and first < last, "--slices", slices, f"FIRST:LAST, some of 0:{count}")
    return first, last
