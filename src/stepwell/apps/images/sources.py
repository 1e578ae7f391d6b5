"""Images in the formats that people have, opened so that a slab of them can be read at a time."""

from __future__ import annotations

import dataclasses
import gzip
import importlib.util
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from stepwell.apps.hdf5 import open_hdf5, own_datasets
from stepwell.apps.images import envi
from stepwell.common.array_files import map_array_file, open_arrays
from stepwell.common.files import Unreadable, damage_told, open_regular, require_regular, unpack

#: Packages that a format needs, by the ending of a file's name, and the extra that brings them.
NEEDS = {".nii": ("nibabel", "nifti"), ".nii.gz": ("nibabel", "nifti"), ".mat": ("h5py", "matlab")}
#: Names of the array that is taken from a file with several, unless one is named.
USUAL_NAMES = ("image", "data", "cube", "img", "signal")


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
        ``"nifti"``, ``"envi"``, ``"numpy"`` or ``"matlab"``.
    about : object
        What the format says beside the numbers: nibabel's image, or the ENVI header; else None.
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


def ending_of(path: str | os.PathLike[str]) -> str:
    """Return the ending of a name in small letters, ``.nii.gz`` as one."""
    name = Path(path).name.lower()
    return ".nii.gz" if name.endswith(".nii.gz") else Path(name).suffix


def require_package(path: str | os.PathLike[str]) -> None:
    """Raise, with the command that installs it, where the package that reads a file is missing."""
    package, extra = NEEDS.get(ending_of(path), (None, None))
    if package is not None and importlib.util.find_spec(package) is None:
        raise ModuleNotFoundError(f"{os.fspath(path)}: needs {package}: pip install 'stepwell[{extra}]'")


def open_image(
    path: str | os.PathLike[str],
    *,
    channels: bool = True,
    name: str | None = None,
    scratch: str | os.PathLike[str] | None = None,
) -> Image:
    """Open an image without reading it.

    Parameters
    ----------
    path : path
        NIfTI (``.nii``, ``.nii.gz``), ENVI (``.hdr``, or the binary file beside it), ``.npy``, ``.npz`` or MATLAB 7.3
        (``.mat``). Axes are as the format has them, channels last: (x, y, z, echo), (line, sample, band).
    channels : bool, default True
        Whether the last axis is one of channels, along which slabs never lie.
    name : str, optional
        Which array of an npz or MATLAB file; by default the only one with enough axes, or one of the usual names.
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
    require_package(path)
    ending = ending_of(path)
    if not Path(path).exists():
        raise FileNotFoundError(2, os.strerror(2), os.fspath(path))
    if ending in (".nii", ".nii.gz"):
        return _open_nifti(path, channels, scratch)
    if ending == ".npy":
        return _of_array(path, map_array_file(path), channels, "numpy")
    if ending == ".npz":
        with open_arrays(path) as held:
            chosen = _chosen(path, name, list(held.names))
            array = held[chosen] if scratch is None else held.map(chosen, scratch)
        return _of_array(path, array, channels, "numpy")
    if ending == ".mat":
        return _open_matlab(path, channels, name)
    if ending == ".hdr" or Path(f"{os.fspath(path)}.hdr").is_file() or Path(path).with_suffix(".hdr").is_file():
        cube, header = envi.map_cube(path)
        return dataclasses.replace(_of_array(path, cube, channels, "envi"), axis=0, about=header)
    raise Unreadable(
        f"{os.fspath(path)}: ends in {ending or 'nothing'}; allowed: .nii, .nii.gz, .hdr (ENVI), .npy, .npz, .mat"
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
            size = _nifti_size(path, gzip.GzipFile(fileobj=file))
            file.seek(0)
            plain = Path(unpack(gzip.GzipFile(fileobj=file), scratch, size, path, ".nii"))
    else:
        require_regular(path)
    with damage_told(path):
        image = nibabel.load(plain)
        dtype, shape = image.get_data_dtype(), tuple(int(size) for size in image.shape)
        needed, there = image.dataobj.offset + dtype.itemsize * math.prod(shape), plain.stat().st_size
    _require_numbers(path, dtype)
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
            numbers = math.prod(map(int, header.get_data_shape()))
            return int(header.get_data_offset()) + int(header.get_data_dtype().itemsize) * numbers
    raise Unreadable(f"{os.fspath(path)}: is no NIfTI image")


def _open_matlab(path: Any, channels: bool, name: str | None) -> Image:
    file = open_hdf5(path, "is not MATLAB 7.3; save it by save(..., '-v7.3')")
    with damage_told(path):
        arrays = own_datasets(file)
    large = {key: one for key, one in arrays.items() if one.ndim >= 2 and one.size > 1}
    stored = arrays[_chosen(path, name, list(large) if name is None else list(arrays))]
    _require_numbers(path, stored.dtype)
    shape = tuple(int(size) for size in stored.shape[::-1])  # MATLAB's first axis runs fastest
    spatial = shape[: len(shape) - bool(channels)]
    strides = tuple(np.cumprod((1, *shape[:-1])).tolist())
    return Image(os.fspath(path), shape, _slab_axis(spatial, strides), "matlab", lambda where: stored[where[::-1]].T)


def _chosen(path: Any, name: str | None, names: list[str]) -> str:
    """Return the array that was asked for, or the one that must be meant."""
    held = ", ".join(sorted(names)) or "no array"
    if name is not None:
        if name not in names:
            raise Unreadable(f"{os.fspath(path)}: has no array {name!r}; it holds {held}")
        return name
    usual = [one for one in USUAL_NAMES if one in names]
    if len(names) == 1 or usual:
        return names[0] if len(names) == 1 else usual[0]
    raise Unreadable(f"{os.fspath(path)}: holds {held}; say which one is the image")
