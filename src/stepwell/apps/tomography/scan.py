"""Real scans: from counts on a detector to line integrals."""

from __future__ import annotations

import contextlib
import importlib
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from stepwell.apps.files.hdf5 import open_hdf5, own_datasets, own_groups, read_dataset
from stepwell.arrays.checks import read_array
from stepwell.common.array_files import open_arrays, require_room
from stepwell.common.checks import read_whole, require_shape
from stepwell.common.files import Unreadable, damage_told, open_regular

#: How the axes of projections may lie.
Order: TypeAlias = Literal["angles,slices,detectors", "angles,detectors,slices"]
ORDERS: tuple[Order, ...] = get_args(Order)

#: Smallest transmission that is told apart from a dead pixel.
SMALLEST_TRANSMISSION = 1e-6


@dataclass
class Scan:
    """Line integrals of a parallel-beam scan and its geometry.

    Attributes
    ----------
    integrals : ndarray, (angles, slices, detectors)
        Line integrals of the attenuation.
    angles : ndarray
        Angles in degrees.
    center : float or None
        Detector column of the rotation axis; None: the middle.
    """

    integrals: np.ndarray
    angles: np.ndarray
    center: float | None


def line_integrals(projections: np.ndarray, flat: np.ndarray, dark: np.ndarray, *, border: int = 8) -> np.ndarray:
    """Line integrals −log((p − dark) / (flat − dark)) of raw projections, normalised by the border.

    Parameters
    ----------
    projections : array, (angles, slices, detectors)
        Counts.
    flat, dark : array, (slices, detectors) or (frames, slices, detectors)
        Fields without the object and without the beam; frames are averaged.
    border : int, default 8
        Columns at either edge that the object never covers: the transmission there, interpolated between the edges,
        becomes 1 in every projection and slice. 0: no such correction.

    Returns
    -------
    ndarray of float64
        Same shape as ``projections``. Dead pixels (flat not above dark) take the value of their live neighbours in
        the detector row.
    """
    given = {"projections": projections, "flat": flat, "dark": dark}
    counts, white, black = (np.asarray(read_array(name, one), dtype=np.float64) for name, one in given.items())
    white, black = (field.mean(axis=0) if field.ndim == 3 else field for field in (white, black))
    if counts.ndim != 3 or white.shape != counts.shape[1:] or black.shape != counts.shape[1:]:
        raise ValueError(
            f"flat and dark have shapes {white.shape} and {black.shape}; allowed: (slices, detectors) of the "
            f"projections, whose shape is {counts.shape}"
        )
    border = read_whole("border", border, 0, counts.shape[2] // 2, as_float=True)
    dead = white <= black
    transmission = (counts - black) / np.where(dead, 1.0, white - black)
    everywhere = np.arange(counts.shape[2])
    for row in np.flatnonzero(dead.any(axis=1)):
        live = np.flatnonzero(~dead[row])
        if not live.size:
            raise ValueError(f"flat: slice {row} has no live detector pixel")
        for frame in transmission[:, row]:
            frame[:] = np.interp(everywhere, live, frame[live])
    if border:
        left = transmission[:, :, :border].mean(axis=2, keepdims=True)
        right = transmission[:, :, -border:].mean(axis=2, keepdims=True)
        weight = np.linspace(0.0, 1.0, counts.shape[2])
        transmission /= np.maximum(left * (1 - weight) + right * weight, SMALLEST_TRANSMISSION)
    return np.asarray(-np.log(np.maximum(transmission, SMALLEST_TRANSMISSION)))


def load_scan(path: str | os.PathLike[str], *, order: Order = ORDERS[0], angle_range: float = 180.0) -> Scan:
    """Read a scan from an ``.npz`` file, HDF5, a TIFF stack, or a folder of TIFF pages.

    Parameters
    ----------
    path : path
        An ``.npz`` or HDF5 file holds ``angles_deg`` and either ``integrals`` or ``projections`` with ``flat`` and
        ``dark``; ``center_column`` is optional. HDF5 may also be as synchrotrons exchange it: ``exchange/data``,
        ``exchange/data_white``, ``exchange/data_dark``, ``exchange/theta``. TIFF pages hold line integrals, their
        angles spread evenly. HDF5 needs h5py, TIFF needs tifffile.
    order : str
        How the axes of integrals or projections lie: ``"angles,slices,detectors"`` or ``"angles,detectors,slices"``.
        Fields ``flat`` and ``dark`` lie as the projections do.
    angle_range : float, default 180
        Degrees over which the angles of TIFF pages are spread, the end not included.
    """
    if order not in ORDERS:
        raise ValueError(f"order is {order!r}; allowed: {', '.join(ORDERS)}")
    with _opened(path, angle_range) as file:
        names = file.names
        if "angles_deg" not in names:
            raise ValueError(f"{os.fspath(path)}: has no array 'angles_deg'; it holds {', '.join(sorted(names))}")
        center = _one_number("center_column", file["center_column"]) if "center_column" in names else None
        if "integrals" in names:
            integrals = _ordered(np.asarray(read_array("integrals", file["integrals"]), dtype=np.float64), order)
        elif {"projections", "flat", "dark"} <= names:
            counts = (_ordered(read_array(name, file[name]), order) for name in ("projections", "flat", "dark"))
            integrals = line_integrals(*counts)
        else:
            raise ValueError(
                f"{os.fspath(path)}: needs 'integrals', or 'projections' with 'flat' and 'dark'; "
                f"it holds {', '.join(sorted(names))}"
            )
        angles = np.asarray(read_array("angles_deg", file["angles_deg"]), dtype=np.float64)
    if integrals.ndim != 3 or integrals.shape[0] != angles.size:
        raise ValueError(
            f"{os.fspath(path)}: projections have shape {integrals.shape}, which does not go with {angles.size} angles"
        )
    if not integrals.size:
        raise ValueError(
            f"{os.fspath(path)}: projections have shape {integrals.shape}; allowed: at least one angle, slice and "
            "detector"
        )
    return Scan(integrals, angles, center)


def _ordered(values: np.ndarray, order: Order) -> np.ndarray:
    """Bring the last two axes into the order (slices, detectors)."""
    return values if order == ORDERS[0] or values.ndim < 2 else values.swapaxes(-1, -2)


class _Held:
    """Arrays by name, as `open_arrays` hands them out."""

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        self._arrays, self.names = arrays, set(arrays)

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[name]


@contextlib.contextmanager
def _opened(path: str | os.PathLike[str], angle_range: float) -> Iterator[Any]:
    """Open a file of any kind as arrays by name."""
    ending = os.path.splitext(os.fspath(path))[1].lower()
    if os.path.isdir(path) or ending in (".tif", ".tiff"):
        pages = _tiff(path)
        yield _Held({"integrals": pages, "angles_deg": np.arange(len(pages)) * (angle_range / len(pages))})
    elif ending in (".h5", ".hdf5", ".hdf", ".nxs"):
        yield _Held(_hdf5(path))
    else:
        with open_arrays(path) as file:
            yield file


def _needs(module: str, extra: str, kind: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ImportError(f"{kind} needs {module}: pip install 'stepwell[{extra}]'") from None


def _tiff(path: str | os.PathLike[str]) -> np.ndarray:
    """Read pages (angle, ., .): those of one file, or of the files of a folder in the order of their names."""
    tifffile = _needs("tifffile", "tiff", "a TIFF stack")
    if os.path.isdir(path):
        files = sorted(name for name in os.listdir(path) if name.lower().endswith((".tif", ".tiff")))
        if not files:
            raise Unreadable(f"{os.fspath(path)}: the folder holds no TIFF file")
        pages = [_tiff_file(tifffile, os.path.join(path, name)) for name in files]
        if len({page.shape for page in pages}) != 1 or pages[0].ndim != 2:
            raise Unreadable(f"{os.fspath(path)}: the pages are not images of one shape")
        return np.stack(pages)
    return _tiff_file(tifffile, path)


def _tiff_file(tifffile: Any, path: str | os.PathLike[str]) -> np.ndarray:
    """Read all pages of one file."""
    with open_regular(path) as file, damage_told(path):
        try:
            with tifffile.TiffFile(file) as opened:
                require_room(path, sum(math.prod(page.shape) * page.dtype.itemsize for page in opened.pages))
                return np.asarray(opened.asarray())
        except tifffile.TiffFileError as error:
            raise Unreadable(f"{os.fspath(path)}: is no TIFF file ({error})") from error


#: Names in the exchange format of synchrotrons -> ours.
_OTHERS = ("integrals", "center_column")
_EXCHANGE = {"data": "projections", "data_white": "flat", "data_dark": "dark", "theta": "angles_deg"}


def _hdf5(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    _needs("h5py", "hdf5", "an HDF5 file")
    with open_hdf5(path) as file:
        with damage_told(path):
            groups = own_groups(file)
            held = own_datasets(groups.get("exchange", file))
        names = _EXCHANGE if "exchange" in groups else {name: name for name in (*_EXCHANGE.values(), *_OTHERS)}
        return {ours: read_dataset(path, held[theirs]) for theirs, ours in names.items() if theirs in held}


def _one_number(name: str, value: np.ndarray) -> float:
    number = read_array(name, value)
    require_shape(number.size == 1, name, number, "one number")
    return float(number.reshape(()))


def sinograms(integrals: np.ndarray) -> np.ndarray:
    """Right-hand sides, a column per slice, from line integrals by (angle, slice, detector)."""
    integrals = np.asarray(read_array("integrals", integrals))
    require_shape(integrals.ndim == 3, "integrals", integrals, "(angles, slices, detectors)")
    angles, slices, detectors = integrals.shape
    return np.ascontiguousarray(integrals.transpose(0, 2, 1).reshape(angles * detectors, slices))
