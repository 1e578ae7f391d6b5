"""`stepwell reconstruct`: slices of a phantom or of a real scan, by Tikhonov regularisation or total variation."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

import stepwell
from stepwell.api.krylov import tikhonov
from stepwell.apps.images.work import forget_finished, identity, plain, refuse_other_settings
from stepwell.apps.tomography import variation
from stepwell.apps.tomography.angles import AngleUnit
from stepwell.apps.tomography.ranks import World
from stepwell.apps.tomography.report import FORMATS, record, require_format, summary, write_volume
from stepwell.apps.tomography.scan import ORDERS, Order
from stepwell.apps.tomography.solving import Watch, choose_lam, joined, lam_of_all, make_bar
from stepwell.apps.tomography.tasks import Geometry, phantom_task, scan_task
from stepwell.apps.tomography.variation import RULES as TV_RULES
from stepwell.apps.tomography.variation import TOL as TV_TOL
from stepwell.arrays import host_copy
from stepwell.cli.inputs import (
    FiniteRange,
    NumberOrAuto,
    can_draw,
    check_folder,
    open_place,
    place_options,
    refuse_input_as_output,
    usage_errors,
    writing_trouble,
)
from stepwell.cli.output import Output, first_interrupt, output_options
from stepwell.common.checks import meant, read_real, read_whole, require, require_memory
from stepwell.common.files import write_text
from stepwell.common.json_text import json_text
from stepwell.common.threads import threads_at_most
from stepwell.distributed import RankError
from stepwell.krylov.options import METHODS, MethodChoice
from stepwell.krylov.selection import RULES

_POSITIVE = FiniteRange(min=0, min_open=True)
#: What is drawn.
PICTURES = ("montage.png", "convergence.png")


@click.command("reconstruct")
@click.argument("source", default="phantom")
@click.option("--output", "-o", "folder", type=click.Path(path_type=Path), default=Path("reconstruction"),
              show_default=True,
              help="Folder for volume.npy, montage.png, convergence.png and reconstruct.json.")  # fmt: skip
@click.option("--format", "kind", type=click.Choice(FORMATS), default=FORMATS[0], show_default=True,
              help="Of the volume: volume.npy, a TIFF stack, or HDF5 (dataset volume).")  # fmt: skip
@click.option("--overwrite", is_flag=True, help="Write over what a finished run with other settings has left.")
@click.option("--lam", default=None,
              help=f"λ itself, or a rule: {', '.join(RULES)}; with --tv {', '.join(TV_RULES)}.")  # fmt: skip
@click.option("--tv", is_flag=True, help="Total variation: edges stay sharp, the gap of every slice is proved. λ is "
              "found per slice, from --relative-noise, unless --lam is a number.")  # fmt: skip
@click.option("--across", type=_POSITIVE, metavar="WEIGHT",
              help="With --tv: couple neighbouring slices with this weight.")  # fmt: skip
@click.option("--restart", is_flag=True, help="With --tv: discard what an unfinished run has left.")
@click.option(
    "--relative-lam",
    default=0.01,
    show_default=True,
    help="λ as a fraction of ‖A‖, without --lam.",
)
@click.option("--smooth", is_flag=True, help="Penalise differences of neighbouring pixels instead of pixel values.")
@click.option("--nonnegative", is_flag=True, help="No pixel below zero; with --lam, a number or discrepancy.")
@click.option("--tol", type=float, default=None, help="Bound on every slice's relative residual; with --tv on its "
              "proven gap.  [default: 1e-4; 1e-3 with --tv]")  # fmt: skip
@click.option("--method", type=click.Choice(METHODS), default="auto", show_default=True)
@click.option("--slices", default=None, help="FIRST:LAST, counted from 0, LAST not included; default all.")
@click.option("--size", default=128, show_default=True, help="Pixels along each side of the phantom.")
@click.option("--angles", default=90, show_default=True, help="Projections of the phantom over 180 degrees.")
@click.option("--relative-noise", default=0.01, show_default=True, help="Noise added to the phantom's data, or known "
              "to be in the scan: its norm as a fraction of the norm of each slice's data.")  # fmt: skip
@click.option("--plots/--no-plots", default=True, show_default=True, help="Whether to draw; pictures need matplotlib.")
@click.option("--order", type=click.Choice(ORDERS), default=ORDERS[0], show_default=True,
              help="How the axes of the scan's projections lie.")  # fmt: skip
@click.option("--center", type=NumberOrAuto(), metavar="COLUMN|auto",
              help="Detector column of the rotation axis, counted from 0 at the centre of the first; auto: found from "
              "opposite projections.  [default: the file's, or the middle]")  # fmt: skip
@click.option("--pixel-size", type=FiniteRange(min=0, min_open=True), default=1.0, show_default=True,
              help="Width of a detector pixel: attenuation comes out per this unit of length.")  # fmt: skip
@click.option("--fan", type=(_POSITIVE, _POSITIVE), metavar="AXIS DETECTOR",
              help="Distances of the rotation axis and of the flat detector from the source, in units of --pixel-size: "
              "rays of the scan spread from a point.  [default: parallel rays]")  # fmt: skip
@click.option("--angle-range", type=FiniteRange(min=0, min_open=True), default=180.0, show_default=True,
              help="Degrees over which angles are spread evenly that the file does not have.")  # fmt: skip
@click.option("--angle-unit", type=click.Choice(["deg", "rad"]),
              help="Unit of the scan's angles.  [default: by their name, else degrees]")  # fmt: skip
@place_options
@output_options()
def command(
    source: str,
    folder: Path,
    kind: str,
    overwrite: bool,
    lam: str | None,
    tv: bool,
    across: float | None,
    restart: bool,
    relative_lam: float,
    smooth: bool,
    nonnegative: bool,
    tol: float | None,
    method: MethodChoice,
    slices: str | None,
    size: int,
    angles: int,
    relative_noise: float,
    plots: bool,
    order: Order,
    center: Any,
    pixel_size: float,
    fan: tuple[float, float] | None,
    angle_range: float,
    angle_unit: AngleUnit | None,
    array: str,
    device: str,
    threads: int | None,
    output: Output,
) -> None:
    """Reconstruct slices from projections, of parallel rays or of a fan.

    SOURCE is `phantom` (the three-dimensional Shepp–Logan head) or a scan: an .npz, .mat or HDF5 file with angles
    (`angles_deg`, `angles_rad`, or `angles`, `theta` in degrees) and either line integrals (`integrals`, `sinogram`) or
    `projections` with `flat` and `dark` (`center_column` is optional); HDF5 as synchrotrons exchange it (exchange/data,
    data_white, data_dark, theta); or line integrals alone as .npy, text, a TIFF stack or a folder of such pages. A
    sinogram of two axes is one slice. Ctrl-C ends the work early: files are made from the images so far, and the exit
    status is 130.

    The image has as many pixels a side as the detector has columns. Pixel centres and detector columns count from 0;
    the rotation axis goes through the middle of the image, at (N - 1) / 2, and falls on the detector column --center.

    With --tv slices are solved in blocks. A run that was stopped goes on where it was when the same command is given
    again.

    Under mpiexec every rank solves for some of the slices, with one λ for all; the first one prints and writes.
    """
    from scipy.optimize import OptimizeWarning

    from stepwell.apps import tomography
    from stepwell.operators import gradient, in_library_of

    world = World()
    if not world.first:
        output = replace(output, quiet=True, json_file=None)
    place = open_place(array, "float64", device)
    plots = can_draw(plots, output)
    try:
        require_format(kind)
    except ImportError as error:
        raise click.BadParameter(str(error), param_hint="--format") from None
    if tol is None:
        tol = TV_TOL if tv else 1e-4
    _check_variation(tv, across, restart, smooth, method, world.spread)
    if nonnegative and method != "auto":
        raise click.BadParameter(f"{method!r} knows no bounds; allowed: auto", param_hint="--method")
    if not tv and nonnegative and lam in RULES and lam != "discrepancy":
        raise click.BadParameter(f"{lam!r} knows no bounds; allowed: a number, discrepancy", param_hint="--lam")
    if nonnegative and lam in RULES and world.spread:
        raise click.BadParameter("over ranks a number is needed with --nonnegative", param_hint="--lam")
    _check(folder, lam, TV_RULES if tv else RULES, relative_lam, tol, size, angles, relative_noise)
    if fan is not None:
        with usage_errors():
            require(source != "phantom", "--fan", f"{fan[0]:g} {fan[1]:g}", "none beside the phantom")
            require(fan[0] < fan[1], "--fan", f"{fan[0]:g} {fan[1]:g}", "an axis between source and detector")
    if source != "phantom":
        names = (f"volume.{kind}", *PICTURES, "reconstruct.json")
        if not Path(source).exists():
            raise click.BadParameter(f"there is no file {source!r}; allowed: phantom, or a scan", param_hint="SOURCE")
        refuse_input_as_output(source, [folder / name for name in names], "-o")
    settings: dict[str, Any] = {"source": source, "lam": lam, "relative_lam": relative_lam, "smooth": smooth,
                                "tol": tol, "nonnegative": nonnegative, "method": method, "slices": slices,
                                "relative_noise": relative_noise, "order": order, "center": center,
                                "pixel_size": pixel_size, "fan": fan, "angle_range": angle_range,
                                "angle_unit": angle_unit, "format": kind, "size": size, "angles": angles, "tv": tv,
                                "across": across}  # fmt: skip
    account = folder / "reconstruct.json"
    input_of = settings | {"input": None if source == "phantom" else plain(identity(source))}
    try:
        with output.status("projection matrix"):
            if source == "phantom":
                task = phantom_task(size, angles, relative_noise, slices)
            else:
                task = scan_task(source, slices, Geometry(order, angle_range, angle_unit, center, pixel_size, fan))
            replaced = refuse_other_settings(account, input_of, overwrite)
            chosen = 0.0 if tv else choose_lam(lam, relative_lam, task.A)
        output.notes(task.notes)
        if task.axis:
            output.say(task.axis)
        count, whole_truth = task.B.shape[1], task.truth
        output.say(f"{task.name}: {count} slices of {task.shape[0]} x {task.shape[1]}, matrix "
                      f"{task.A.shape[0]} x {task.A.shape[1]}, {task.A.nnz:,} entries")  # fmt: skip
        if world.spread:
            output.say(f"{world.ranks.size} ranks, {count // world.ranks.size} slices each or one more")
            task = task.piece(*tomography.slices_of_rank(count, world.comm))
        penalty = gradient(task.shape) if smooth else None
        level = relative_noise * np.linalg.norm(task.B, axis=0) / max(1, task.B.shape[0]) ** 0.5
        level = np.nan_to_num(level, posinf=0.0)  # such slices end with a status
        A, B = task.A, task.B
        if place.library != "numpy":
            B = place.put(B)
            A = in_library_of(A, B)
        result: Any = None
        if tv:
            with make_bar(output) as bar, first_interrupt() as pressed, threads_at_most(threads):
                result = variation.solve(
                    task, A, place.put, lam, relative_noise, nonnegative=nonnegative, across=across, tol=tol,
                    output=folder, settings=input_of | {"array": array, "device": device}, restart=restart or overwrite,
                    watch=variation.Watch(bar, count, pressed),
                )  # fmt: skip
                interrupted = result is None
        else:
            with make_bar(output) as bar, first_interrupt(heed=not world.spread) as pressed, threads_at_most(threads):
                watch = Watch(bar, tol, pressed)
                with warnings.catch_warnings():  # what they say of λ stands in the table
                    warnings.simplefilter("ignore", OptimizeWarning)
                    rule, ends = chosen, None
                    if world.spread and isinstance(rule, str):
                        chosen, ends = lam_of_all(world, task, rule, penalty, level)
                    with world.ranks.holding():
                        result = tikhonov(A, B, chosen, penalty, method=method, tol=tol, noise=level, joint=True,
                                          callback=watch, bounds=(0, None) if nonnegative else None)  # fmt: skip
                    world.ranks.check()
                watch.finish(result)
                interrupted = pressed()
    except (ValueError, OSError, RankError) as error:
        raise click.ClickException(str(error)) from error
    if result is None:
        output.say(f"slices that are done stay in {folder}: the same command goes on with them")
        output.interrupted()
        return
    volume = result.volume if tv else np.ascontiguousarray(host_copy(result.x).T).reshape(-1, *task.shape)
    if world.spread:
        parts = world.gathered(replace(result, x=None, lam_at_end=ends))
        if not world.first:
            list(world.pieces(volume))
            return
        result = joined(parts)
    with writing_trouble():
        folder.mkdir(parents=True, exist_ok=True)
        if replaced:
            forget_finished(account, *(f"volume.{one}" for one in FORMATS), *PICTURES)
        used = None if result.lam is None else float(np.ravel(result.lam)[0])
        about = {"lam": used, "center": task.center, "pixel_size": pixel_size, "first_slice": task.first}
        volume, path = write_volume(folder, kind, count, world, volume, about)
        if tv:
            variation.forget(folder)
    written = [path.name]
    if plots:
        from stepwell.apps.tomography.plots import convergence, montage

        measure = "proven relative gap" if tv else "relative residual of the normal equations"
        title = f"{task.name}, λ = {result.lam[0]:.3g}, {result.method}" if result.lam is not None else task.name
        with writing_trouble():
            montage(volume, folder / PICTURES[0], first=task.first, title=title)
            where = folder / PICTURES[1]
            convergence(result.history, tol, where, first=task.first, title=title, measure=measure)
        written += PICTURES
    output.say(result.summary() if tv else summary(result))
    quality: list[float] = []
    if whole_truth is not None:
        quality = [
            tomography.signal_to_noise(image, truth) for image, truth in zip(volume, whole_truth) if np.any(truth)
        ]
        if quality:
            output.say(f"signal to noise against the truth: {min(quality):.2f} to {max(quality):.2f} dB")
    told = (result.record(quality) if tv else record(result, quality)) | {"center": task.center, "notes": task.notes}
    with writing_trouble():
        if result.success and not interrupted:
            write_text(
                account, json_text({"stepwell": stepwell.__version__, "settings": input_of, "result": told}) + "\n"
            )
            written.append(account.name)
        output.say(f"wrote {', '.join(written)} to {folder}")
        place_of = {"array": array, "device": device, "threads": threads}
        output.record(settings | place_of, told, seconds={"total": result.seconds})
    if interrupted:
        output.interrupted()
    if not result.success:
        raise click.ClickException(result.message)


def _check_variation(tv: bool, across: float | None, restart: bool, smooth: bool, method: str, spread: bool) -> None:
    """Refuse options that do not go together with --tv, or without it."""
    for given, name in ((across is not None, "--across"), (restart, "--restart")):
        if given and not tv:
            raise click.BadParameter("belongs to --tv", param_hint=name)
    if tv and smooth:
        raise click.BadParameter("is a penalty of its own; allowed: one of --tv and --smooth", param_hint="--smooth")
    if tv and method != "auto":
        raise click.BadParameter(f"{method!r} knows no total variation; allowed: auto", param_hint="--method")
    if tv and spread:
        raise click.BadParameter("is for one process; allowed: no mpiexec", param_hint="--tv")


def _check(
    folder: Path, lam: str | None, rules: Sequence[str], relative: float, tol: float, size: int, angles: int,
    relative_noise: float,
) -> None:  # fmt: skip
    """Refuse, before any work, what could not be done after it."""
    check_folder(folder, "-o")
    with usage_errors():
        if lam is not None and lam not in rules:
            try:
                number = float(lam)
            except ValueError:
                number = math.nan
            allowed = f"a number or one of {', '.join(rules)}{meant(lam, rules)}"
            require(not math.isnan(number), "--lam", lam, allowed)
            read_real("--lam", number, at_least=0)
        read_real("--relative-lam", relative, at_least=0)
        read_real("--relative-noise", relative_noise, at_least=0)
        read_whole("--size", size, 2)
        read_whole("--angles", angles, 1)
        # Each angle has an entry of the projector for every pixel, and more.
        require_memory("--size", size, 2 * size * size)
        require_memory("--angles", angles, 2 * angles * size * size)
        read_real("--tol", tol, above=0)
