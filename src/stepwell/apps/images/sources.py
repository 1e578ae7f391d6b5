"""Images in the formats that people have, opened so that a slab of them can be read at a time."""

from __future__ import annotations

import dataclasses
import gzip
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stepwell.apps.files import envi, raster
from stepwell.apps.files.matlab import MatlabFile
from stepwell.apps.files.named import choose_array, shapes_of
from stepwell.apps.files.nifti import quietly
from stepwell.apps.files.packages import ending_of, refuse_dicom, require_package
from stepwell.common.array_files import map_array_file, open_arrays
from stepwell.common.files import Unreadable, damage_told, open_regular, require_regular, unpack

#: Names, in small letters, of the array that is taken from a file with several, unless one is named.
USUAL_NAMES = ("image", "data", "cube", "img", "signal", "echoes", "reflectance", "hypercube", "hsi", "y", "v", "x")
#: Endings of rasters that rasterio reads; .img is one where no ENVI header lies beside it.
RASTERS = (".tif", ".tiff", ".jp2", ".img")


@dataclasses.dataclass(frozen=True)
class Image:
    """An image on the disk.

    Attributes
    ----------
    path : str
        Where it came from.
    shape : tuple of int
        All axes; of an image with channels these are the last one.
    axis : int
        The axis along which slabs lie together on the disk.
    kind : str
        ``"nifti"``, ``"envi"``, ``"raster"``, ``"numpy"`` or ``"matlab"``.
    about : object
        What the format says beside the numbers: nibabel's image, the ENVI header, or a `RasterInfo`; else None.
    """

    path: str
    shape: tuple[int, ...]
    axis: int
    kind: str
    get: Callable[[tuple[slice, ...]], np.ndarray] = dataclasses.field(repr=False)
    about: Any = dataclasses.field(default=None, repr=False)

    def read(self, start: int, stop: int, axis: int | None = None) -> np.ndarray:
        """Return the slabs from `start` to before `stop` along an axis as float64, in C order."""
        where = [slice(None)] * len(self.shape)
        where[self.axis if axis is None else axis] = slice(start, stop)
        with damage_told(self.path):
            return np.ascontiguousarray(self.get(tuple(where)), dtype=np.float64)


def open_image(
    path: str | os.PathLike[str],
    *,
    channels: bool = True,
    axes: int | None = None,
    name: str | None = None,
    usual: Sequence[str] = USUAL_NAMES,
    scratch: str | os.PathLike[str] | None = None,
) -> Image:
    """Open an image without reading it.

    Parameters
    ----------
    path : path
        NIfTI (``.nii``, ``.nii.gz``), ENVI (``.hdr``, or the binary file beside it), GeoTIFF and other rasters
        (``.tif``, ``.jp2``), ``.npy``, ``.npz`` or MATLAB of any version (``.mat``). Axes are as the format has them,
        channels last: (x, y, z, echo), (line, sample, band).
    channels : bool, default True
        Whether the last axis is one of channels, along which slabs never lie.
    axes : int, optional
        Axes of the array that is looked for in an npz or MATLAB file; by default any number that an image may have.
    name : str, optional
        Which array of an npz or MATLAB file; by default one with so many axes: of a usual name, the only one, or the
        one that is far larger than all others.
    usual : sequence of str, optional
        Names in small letters that say which array is meant.
    scratch : folder, optional
        Where compressed files are unpacked to, as these cannot be read in parts; by default the memory.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "image.npy"
    >>> np.save(file, np.zeros((4, 5, 7)))
    >>> image = open_image(file)
    >>> image.shape, image.read(1, 3).shape
    ((4, 5, 7), (2, 5, 7))
    """
    if not Path(path).exists():
        raise FileNotFoundError(2, os.strerror(2), os.fspath(path))
    refuse_dicom(path)
    require_package(path)
    ending = ending_of(path)
    wanted: dict[str, Any] = {"axes": range(1 + bool(channels), 6) if axes is None else (axes,), "usual": usual}
    if ending in (".nii", ".nii.gz"):
        return _open_nifti(path, channels, scratch)
    if ending == ".npy":
        return _of_array(path, map_array_file(path), channels, "numpy")
    if ending == ".npz":
        with open_arrays(path) as held:
            chosen = choose_array(path, shapes_of(held), name, **wanted)
            array = held[chosen] if scratch is None else held.map(chosen, scratch)
        return _of_array(path, array, channels, "numpy")
    if ending == ".mat":
        return _open_matlab(path, channels, name, wanted)
    if ending in RASTERS[:-1]:  # whatever lies beside it: a header of another file may have the same name
        return _open_raster(path)
    if ending == ".hdr" or Path(f"{os.fspath(path)}.hdr").is_file() or Path(path).with_suffix(".hdr").is_file():
        cube, header = envi.map_cube(path)
        return dataclasses.replace(_of_array(path, cube, channels, "envi"), axis=0, about=header)
    if ending == RASTERS[-1]:
        return _open_raster(path)
    raise Unreadable(
        f"{os.fspath(path)}: ends in {ending or 'nothing'}; allowed: .nii, .nii.gz, .hdr (ENVI), .tif, .jp2, .npy, "
        ".npz, .mat"
    )


def _of_array(path: Any, array: np.ndarray, channels: bool, kind: str) -> Image:
    """Make an image of an array, on the disk or in memory; slabs lie along the axis with the longest strides."""
    _require_numbers(path, array.dtype)
    spatial = array.ndim - bool(channels)
    if spatial < 1:
        raise Unreadable(f"{os.fspath(path)}: has shape {array.shape}; allowed: at least {1 + bool(channels)} axes")
    return Image(
        os.fspath(path),
        tuple(array.shape),
        _slab_axis(array.shape[:spatial], array.strides),
        kind,
        lambda where: array[where],
    )


def _require_numbers(path: Any, dtype: np.dtype) -> None:
    if dtype.kind not in "biuf":
        advice = ", such as the magnitude" if dtype.kind == "c" else ""
        raise Unreadable(f"{os.fspath(path)}: holds {dtype}; allowed: real numbers{advice}")


def _slab_axis(sizes: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Return the axis with the longest strides that has more than one slab."""
    long = [axis for axis, size in enumerate(sizes) if size > 1] or [0]
    return max(long, key=lambda axis: strides[axis])


def _open_nifti(path: Any, channels: bool, scratch: Any) -> Image:
    import nibabel

    plain = Path(path)
    if ending_of(path) == ".nii.gz" and scratch is not None:
        with open_regular(path) as file, damage_told(path):
            with quietly():
                size = _nifti_size(path, gzip.GzipFile(fileobj=file))
            file.seek(0)
            plain = Path(unpack(gzip.GzipFile(fileobj=file), scratch, size, path, ".nii"))
    else:
        require_regular(path)
    with damage_told(path), quietly():
        image = nibabel.load(plain)
        dtype, shape = image.get_data_dtype(), tuple(int(size) for size in image.shape)
        needed, there = image.dataobj.offset + dtype.itemsize * math.prod(shape), plain.stat().st_size
    _require_numbers(path, dtype)
    if min(shape, default=0) < 1:
        raise Unreadable(f"{os.fspath(path)}: has shape {shape}; allowed: sizes of at least 1")
    if plain.suffix.lower() == ".nii" and there < needed:
        raise Unreadable(f"{os.fspath(path)}: holds {there} bytes; its header asks for {needed}, {shape} of {dtype}")
    spatial = shape[: len(shape) - bool(channels)]
    strides = tuple(np.cumprod((1, *shape[:-1])).tolist())  # the first axis runs fastest
    return Image(
        os.fspath(path), shape, _slab_axis(spatial, strides), "nifti", lambda where: image.dataobj[where], image
    )


def _nifti_size(path: Any, packed: gzip.GzipFile) -> int:
    """Return how many bytes an image has, by its header: what follows them is not unpacked."""
    import nibabel

    for kind in (nibabel.Nifti1Header, nibabel.Nifti2Header):
        block = packed.read(kind.sizeof_hdr)
        packed.seek(0)
        if len(block) == kind.sizeof_hdr and kind.may_contain_header(block):
            header = kind(block, check=False)
            shape = tuple(map(int, header.get_data_shape()))
            if min(shape, default=0) < 1:
                raise Unreadable(f"{os.fspath(path)}: has shape {shape}; allowed: sizes of at least 1")
            return int(header.get_data_offset()) + int(header.get_data_dtype().itemsize) * math.prod(shape)
    raise Unreadable(f"{os.fspath(path)}: is no NIfTI image")


def _open_matlab(path: Any, channels: bool, name: str | None, wanted: dict[str, Any]) -> Image:
    file = MatlabFile(path)
    chosen = choose_array(path, file.shapes, name, **wanted)
    stored = file.stored(chosen)
    if stored is None:  # version 5, which cannot be read in parts
        return _of_array(path, file[chosen], channels, "matlab")
    _require_numbers(path, stored.dtype)
    shape = file.shapes[chosen]
    spatial = shape[: len(shape) - bool(channels)]
    strides = tuple(np.cumprod((1, *shape[:-1])).tolist())
    return Image(os.fspath(path), shape, _slab_axis(spatial, strides), "matlab", lambda where: stored[where[::-1]].T)


def _open_raster(path: Any) -> Image:
    opened = raster.open_raster(path)
    shape = (int(opened.height), int(opened.width), int(opened.count))
    _require_numbers(path, np.result_type(*opened.dtypes))
    about = raster.raster_info(opened)
    return Image(os.fspath(path), shape, 0, "raster", lambda where: raster.read_lines(opened, where, path), about)
