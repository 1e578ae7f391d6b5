"""Maps of voxels, whatever is fitted: images that lie beside, voxels left out, files, regions, counts, coordinates."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from stepwell.apps.files.nifti import require_same_space, write_nifti
from stepwell.apps.files.tables import write_table
from stepwell.apps.images.regions import REGIONS, averaged, region_table, require_labels
from stepwell.apps.images.running import MapRun
from stepwell.apps.images.sources import Image, open_image
from stepwell.apps.images.work import Work, fill, identity, write_npy
from stepwell.arrays.presenting import labelled
from stepwell.common.files import Unreadable
from stepwell.common.progress import as_told

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


@dataclasses.dataclass(frozen=True)
class Beside:
    """Images that may lie beside one: which voxels are fitted, relative flip angles, and regions."""

    mask: Image | None
    b1: Image | None
    labels: Image | None

    @classmethod
    def of(cls, paths: Mapping[str, Any], source: Image, scratch: str) -> Beside:
        """Return the images of the paths that are given."""
        return cls(**{name: open_beside(name, path, source, scratch) for name, path in paths.items()})


def inputs(image: Any, paths: Mapping[str, Any]) -> dict[str, Any]:
    """Return what tells the files of a run from others, for its settings."""
    image = [identity(path) for path in image] if isinstance(image, list) else identity(image)
    return {"image": image} | {name: identity(path) for name, path in paths.items()}


@dataclasses.dataclass(frozen=True)
class VoxelMaps:
    """What was made of an image: files by name, counts of voxels, and means over those that converged."""

    files: dict[str, Path]
    voxels: int
    fitted: int
    converged: int
    means: dict[str, float]


def map_voxels(
    run: MapRun,
    source: Image,
    beside: Beside,
    maps: Mapping[str, tuple[tuple[int, ...], str]],
    fit: Callable[[np.ndarray, np.ndarray | None], Mapping[str, np.ndarray]],
    *,
    level: Callable[[np.ndarray], np.ndarray],
    threshold: float,
    converged: Callable[[np.ndarray], np.ndarray],
    aliases: Mapping[str, str] | None = None,
    format: Format,
    progress: Callable[[int, int], object] | bool | None,
    step_bytes: int,
    small_steps: bool,
) -> VoxelMaps:
    """Fit every voxel of an image and write the maps.

    Parameters
    ----------
    run : MapRun
        With its settings.
    maps : dict
        Shape and dtype of each map.
    fit : callable
        ``fit(signals, field)`` is given the signals of some voxels, a row each, and their relative flip angles where an
        image of these lies beside; it returns the values of every map.
    level, threshold
        Voxels are fitted where ``level(signals)`` is above the threshold, within the mask.
    converged : callable
        Whether voxels converged, from their statuses.
    aliases : dict, optional
        Other names under which maps are written too, and what they are of.
    format, progress, step_bytes, small_steps
        Of the files; as in :func:`fill`.
    """
    folder, spatial, axis = run.account.parent, source.shape[:-1], source.axis
    if beside.labels is not None:
        require_labels(beside.labels, axis)
    work = run.start(folder / UNFINISHED, maps, spatial[axis])

    def make(block: np.ndarray, start: int, stop: int) -> dict[str, np.ndarray]:
        mask, field = (None if one is None else one.read(start, stop, axis).ravel() for one in (beside.mask, beside.b1))
        signals = block.reshape(-1, source.shape[-1])
        chosen = level(signals) > threshold
        if mask is not None:
            chosen &= mask != 0
        return put_back(fit(signals[chosen], None if field is None else field[chosen]), chosen)

    fill(source, work, make, progress=as_told(progress), step_bytes=step_bytes, small_steps=small_steps)
    run.replace()
    named = {name: work.arrays[held] for name, held in (aliases or {}).items()}
    files = write_maps({**work.arrays, **named}, source, folder, format)
    if beside.labels is not None:
        write_table(folder / REGIONS, region_table(work.arrays, beside.labels, axis, converged))
    counts, means = statistics(work, axis, converged)
    return VoxelMaps(files, math.prod(spatial), *counts, means)


def maps_in_space(
    files: Mapping[str, Path],
    meanings: Mapping[str, str],
    about: Mapping[str, Any],
    last: tuple[str, str, Any] | None = None,
) -> Any:
    """Return maps as an ``xarray.Dataset`` with x, y and z in millimetres of a NIfTI image, else voxels.

    `last` is of one map with a fourth axis: the map, the axis and its coordinate.
    """
    arrays: dict[str, Any] = {}
    spacing = [1.0, 1.0, 1.0]
    for name, path in files.items():
        opened = open_image(path, channels=last is not None and name == last[0])
        values = opened.read(0, opened.shape[opened.axis])
        if opened.kind == "nifti":
            spacing = [float(size) for size in opened.about.header.get_zooms()[:3]]
        axes = ("x", "y", "z", "" if last is None else last[1])[: values.ndim]
        arrays[name] = (axes, values, {"long_name": meanings[name]})
    shape = next(iter(arrays.values()))[1].shape
    places: dict[str, Any] = {
        axis: step * np.arange(size) for axis, step, size in zip("xyz", spacing, shape, strict=False)
    }
    return labelled(arrays, places if last is None else places | {last[1]: last[2]}, about)


def account_of_maps(files: Mapping[str, Path], meanings: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the file of each map and what it means, for the account of a run."""
    return {name: {"file": path.name, "meaning": meanings[name]} for name, path in files.items()}
