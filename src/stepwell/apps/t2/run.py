"""A whole image: read in slabs, mapped, and written in its own space; a run that was stopped goes on."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np

from stepwell.apps.images import Image, Work, fill, open_image
from stepwell.apps.images.nifti import write_nifti
from stepwell.apps.images.work import STEP_BYTES, identity, plain, write_npy
from stepwell.apps.t2.fit import NOT_FITTED, fit_voxels
from stepwell.apps.t2.maps import MAPS
from stepwell.apps.t2.model import T2Model
from stepwell.arrays import Array
from stepwell.common.checks import read_choice, read_real
from stepwell.common.files import Unreadable, write_text
from stepwell.common.temporary import scratch_folder

Format = Literal["auto", "nii.gz", "nii", "npy"]
#: A field of flip angles with larger numbers is in degrees, else relative to 180°.
DEGREES = 10.0
#: What an unfinished run leaves beside its maps.
UNFINISHED = ".unfinished"


@dataclasses.dataclass(frozen=True)
class T2Run:
    """What was made of an image.

    Attributes
    ----------
    files : dict of Path
        The map files by name.
    model : T2Model
    voxels, fitted, converged : int
        All voxels, those that were fitted, and those whose fit converged.
    means : dict of float
        Mean of each scalar map over the converged voxels.
    resumed : int
        Slabs that an earlier run had done.
    seconds : float
    """

    files: dict[str, Path]
    model: T2Model
    voxels: int
    fitted: int
    converged: int
    means: dict[str, float]
    resumed: int
    seconds: float


def map_image(
    image: str | os.PathLike[str],
    output: str | os.PathLike[str],
    te: float,
    *,
    mask: str | os.PathLike[str] | None = None,
    b1: str | os.PathLike[str] | None = None,
    threshold: float = 0.0,
    distribution: bool = True,
    errors: bool = True,
    format: Format = "auto",
    variable: str | None = None,
    restart: bool = False,
    like: Array | None = None,
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
    step_bytes: int = STEP_BYTES,
    **options: Any,
) -> T2Run:
    """Map T2 in every voxel of an image.

    Parameters
    ----------
    image : path
        Four axes, the echo last: NIfTI, .npy, .npz or MATLAB 7.3 (needs the extras ``nifti`` or ``matlab``).
    output : folder
        One file a map, named as in :data:`MAPS`, and ``t2map.json``. Until all is done the maps lie in ``.unfinished``
        there; the same call goes on with them.
    te : float
        Seconds between echoes.
    mask : path, optional
        Voxels other than zero are fitted; of the image's shape without echoes.
    b1 : path, optional
        Relative flip angle (1: as it should be), or degrees where its values are above 10: not looked for then.
    threshold : float, default 0
        Voxels whose first echo is not above it are left out.
    distribution : bool, default True
        Whether the distributions themselves are kept, as "t2dist".
    errors : bool, default True
        Whether standard errors of the myelin water fraction are computed, "sfr_se".
    format : {"auto", "nii.gz", "nii", "npy"}
        By default .nii.gz for NIfTI images, else .npy.
    variable : str, optional
        Which array of an .npz or .mat file.
    restart : bool, default False
        Discard what an earlier run has left.
    like : array, optional
        An array on the CUDA device where the systems are to be solved; by default the host.
    threads, progress
        CPU threads; ``progress(slabs done, slabs)``.
    step_bytes : int
        About how much memory one step may take.
    **options
        Of :class:`T2Model`: bins, t2, angles, t1, lam, chi2, noise, smooth, myelin, middle.
    """
    began = time.perf_counter()
    read_choice("format", format, ("auto", "nii.gz", "nii", "npy"))
    threshold = read_real("threshold", threshold)
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    with scratch_folder(folder) as scratch:
        source = open_image(image, name=variable, scratch=scratch)
        if len(source.shape) != 4:
            raise Unreadable(f"{source.path}: has shape {source.shape}; allowed: four axes, the echo last")
        spatial = source.shape[:-1]
        model = T2Model(echoes=source.shape[-1], te=te, **options)
        beside = {name: _beside(path, spatial, scratch) for name, path in (("mask", mask), ("b1", b1))}
        left_out = {"t2dist": not distribution, "sfr_se": not errors}
        kept = [name for name in MAPS if not left_out.get(name)]
        settings = {
            "model": model.as_dict(),
            "threshold": threshold,
            "maps": kept,
            "inputs": {name: identity(path) for name, path in (("image", image), ("mask", mask), ("b1", b1))},
        }
        maps = {name: _map_shape(name, spatial, model.bins) for name in kept}
        work = Work(folder / UNFINISHED, plain(settings), maps, spatial[source.axis], restart=restart)

        turn = 1.0 if beside["b1"] is None or _largest(beside["b1"]) > DEGREES else 180.0

        def make(block: np.ndarray, start: int, stop: int) -> dict[str, np.ndarray]:
            parts = {name: one if one is None else one.read(start, stop, source.axis) for name, one in beside.items()}
            solving = {"errors": errors, "like": like, "threads": threads}
            angles = None if parts["b1"] is None else turn * parts["b1"]
            return _slab(model, block, threshold, parts["mask"], angles, solving)

        fill(source, work, make, progress=progress, step_bytes=step_bytes)
        written = _finish(source, work, folder, format)
        counts, means = _statistics(work, source.axis)
        resumed = work.resumed
        run = T2Run(written, model, math.prod(spatial), *counts, means, resumed, time.perf_counter() - began)
        write_text(folder / "t2map.json", json.dumps(plain(_record(run, settings)), indent=1) + "\n")
        work.discard()
        return run


def _beside(path: Any, spatial: tuple[int, ...], scratch: str) -> Image | None:
    """Open a mask or a field beside the image."""
    if path is None:
        return None
    found = open_image(path, channels=False, scratch=scratch)
    shape = found.shape
    if len(shape) == 4 and shape[-1] == 1:
        get = found.get
        found = dataclasses.replace(found, shape=shape[:-1], get=lambda where: get((*where, slice(None)))[..., 0])
    if found.shape != spatial:
        raise Unreadable(f"{found.path}: has shape {shape}; allowed: {spatial}, as the image without echoes")
    return found


def _largest(field: Image) -> float:
    """Return the largest number of an image that is finite, slab by slab."""
    largest = 0.0
    for slab in range(field.shape[field.axis]):
        values = field.read(slab, slab + 1)
        largest = max(largest, float(np.max(values[np.isfinite(values)], initial=0.0)))
    return largest


def _map_shape(name: str, spatial: tuple[int, ...], bins: int) -> tuple[tuple[int, ...], str]:
    if name == "status":
        return spatial, "i2"
    return ((*spatial, bins) if name == "t2dist" else spatial), "f4"


def _slab(
    model: T2Model,
    block: np.ndarray,
    threshold: float,
    mask: np.ndarray | None,
    angles: np.ndarray | None,
    solving: dict[str, Any],
) -> dict[str, np.ndarray]:
    """Fit the voxels of some slabs; NaN in those left out leaves them so."""
    signals = block.reshape(-1, model.echoes)
    chosen = signals[:, 0] > threshold
    if mask is not None:
        chosen &= mask.ravel() != 0
    if angles is not None:
        angles = angles.ravel()
        angles = np.where(angles > 180, 360 - angles, angles)  # more than 180° refocuses as less does
    found = fit_voxels(model, signals[chosen], None if angles is None else angles[chosen], **solving)
    maps = {}
    for name, values in found.items():
        empty = NOT_FITTED if name == "status" else np.nan
        maps[name] = np.full((len(signals), *values.shape[1:]), empty, dtype=values.dtype)
        maps[name][chosen] = values
    return maps


def _finish(source: Image, work: Work, folder: Path, format: Format) -> dict[str, Path]:
    """Write the maps in their format."""
    kind = format if format != "auto" else "nii.gz" if source.kind == "nifti" else "npy"
    files = {}
    for name, array in work.arrays.items():
        files[name] = folder / f"{name}.{kind}"
        if kind == "npy":
            write_npy(files[name], array)
        else:
            write_nifti(files[name], array, source.about if source.kind == "nifti" else None)
    return files


def _statistics(work: Work, axis: int) -> tuple[tuple[int, int], dict[str, float]]:
    """Count voxels and average the maps over the converged ones, slab by slab."""
    fitted = converged = 0
    sums = {name: 0.0 for name in work.arrays if name not in ("status", "t2dist")}
    counts = dict.fromkeys(sums, 0)
    for slab in range(work.slabs):
        status = np.take(work.arrays["status"], slab, axis=axis)
        good = status == 0
        fitted += int(np.count_nonzero(status != NOT_FITTED))
        converged += int(np.count_nonzero(good))
        for name in sums:
            values = np.take(work.arrays[name], slab, axis=axis)[good].astype(float)
            values = values[np.isfinite(values)]
            sums[name] += float(values.sum())
            counts[name] += values.size
    means = {name: sums[name] / counts[name] if counts[name] else math.nan for name in sums}
    return (fitted, converged), means


def _record(run: T2Run, settings: dict[str, Any]) -> dict[str, Any]:
    from stepwell import __version__

    return {
        "stepwell": __version__,
        "settings": settings,
        "t2_times": run.model.t2_times.tolist(),
        "voxels": run.voxels,
        "fitted": run.fitted,
        "converged": run.converged,
        "means": run.means,
        "maps": {name: {"file": path.name, "meaning": MAPS[name]} for name, path in run.files.items()},
        "seconds": run.seconds,
    }
