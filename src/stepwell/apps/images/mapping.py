"""What maps of an image take beside the fits: images that lie beside it, voxels left out, files, counts and means."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from stepwell.apps.files.nifti import require_same_space, write_nifti
from stepwell.apps.images.regions import averaged
from stepwell.apps.images.sources import Image, open_image
from stepwell.apps.images.work import Work, write_npy
from stepwell.common.files import Unreadable

Format = Literal["auto", "nii.gz", "nii", "npy"]
FORMATS: tuple[str, ...] = get_args(Format)
#: The status of a voxel that was not fitted.
NOT_FITTED = -1
#: What an unfinished run leaves beside its maps.
UNFINISHED = ".unfinished"


def open_beside(name: str, path: Any, source: Image, scratch: str) -> Image | None:
    """Open a mask or a field beside an image, and bring it to the image's axes without channels."""
    if path is None:
        return None
    spatial = source.shape[:-1]
    found = open_image(path, channels=False, usual=(name, "mask", "roi", "labels", "data"), scratch=scratch)
    shape, get = found.shape, found.get
    if len(shape) == 4 and shape[-1] == 1:
        found = dataclasses.replace(found, shape=shape[:-1], get=lambda where: get((*where, slice(None)))[..., 0])
    elif spatial[-1] == 1 and shape == spatial[:-1]:  # of one slice, without its axis
        found = dataclasses.replace(found, shape=spatial, get=lambda where: get(where[:-1])[..., None])
    if found.shape != spatial:
        raise Unreadable(f"{found.path}: has shape {shape}; allowed: {spatial}, as the image without echoes")
    if source.kind == found.kind == "nifti":
        require_same_space(source.about, found.about, found.path, name)
    return found


def put_back(found: Mapping[str, np.ndarray], chosen: np.ndarray) -> dict[str, np.ndarray]:
    """Return maps of all voxels from those of the chosen ones: NaN in the others, whose status is -1."""
    maps = {}
    for name, values in found.items():
        empty = np.nan if values.dtype.kind == "f" else NOT_FITTED
        maps[name] = np.full((len(chosen), *values.shape[1:]), empty, dtype=values.dtype)
        maps[name][chosen] = values
    return maps


def write_maps(arrays: Mapping[str, np.ndarray], source: Image, folder: Path, format: Format) -> dict[str, Path]:
    """Write maps in their format, by default that of the image; return the files by name."""
    kind = format if format != "auto" else "nii.gz" if source.kind == "nifti" else "npy"
    files = {}
    for name, array in arrays.items():
        files[name] = folder / f"{name}.{kind}"
        if kind == "npy":
            write_npy(files[name], array)
        else:
            write_nifti(files[name], array, source.about if source.kind == "nifti" else None)
    return files


def statistics(
    work: Work, axis: int, converged: Callable[[np.ndarray], np.ndarray]
) -> tuple[tuple[int, int], dict[str, float]]:
    """Count voxels that were fitted and that converged, and average the maps over the latter, slab by slab."""
    fitted = good_ones = 0
    sums = dict.fromkeys(averaged(work.arrays, work.arrays["status"].ndim), 0.0)
    counts = dict.fromkeys(sums, 0)
    for slab in range(work.slabs):
        status = np.take(work.arrays["status"], slab, axis=axis)
        good = converged(status)
        fitted += int(np.count_nonzero(status != NOT_FITTED))
        good_ones += int(np.count_nonzero(good))
        for name in sums:
            values = np.take(work.arrays[name], slab, axis=axis)[good].astype(float)
            values = values[np.isfinite(values)]
            sums[name] += float(values.sum())
            counts[name] += values.size
    means = {name: sums[name] / counts[name] if counts[name] else math.nan for name in sums}
    return (fitted, good_ones), means
