"""Real scans: from counts on a detector to line integrals."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

import numpy as np

from stepwell.apps.files.named import ONLY, Named, choose_array, listed, open_named
from stepwell.apps.files.packages import ending_of
from stepwell.apps.files.tiff import read_pages
from stepwell.apps.tomography.angles import NAMES, AngleUnit, in_degrees
from stepwell.arrays.checks import read_numpy
from stepwell.common.checks import read_whole, require_shape

#: How the axes of projections may lie.
Order: TypeAlias = Literal[
    "angles,slices,detectors",
    "angles,detectors,slices",
    "slices,angles,detectors",
    "slices,detectors,angles",
    "detectors,angles,slices",
    "detectors,slices,angles",
    "angles,detectors",
    "detectors,angles",
]
ORDERS: tuple[Order, ...] = get_args(Order)
#: Names of arrays in small letters, the surest first; those of the exchange format of synchrotrons are among them.
INTEGRALS = ("integrals", "line_integrals", "sinograms", "sinogram", "sino")
PROJECTIONS = ("projections", "data", "proj", "projection")
FLAT, DARK = ("flat", "data_white", "flats", "white"), ("dark", "data_dark", "darks")
#: What pages without a name are called.
PAGES = "integrals of pages"
CENTER = ("center_column", "rotation_axis", "center", "rot_center")

#: Smallest transmission that is told apart from a dead pixel.
SMALLEST_TRANSMISSION = 1e-6
#: Whole numbers above it look like counts: no line integral is as large.
LARGEST_WHOLE = 50


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
    notes : list of str
        What a person should know of how the file was read.
    """

    integrals: np.ndarray
    angles: np.ndarray
    center: float | None
    notes: list[str] = field(default_factory=list)


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

    Examples
    --------
    >>> flat, dark = np.full((1, 4), 1100.0), np.full((1, 4), 100.0)
    >>> line_integrals(np.full((2, 1, 4), 600.0), flat, dark, border=0)[0, 0].round(4).tolist()
    [0.6931, 0.6931, 0.6931, 0.6931]
    """
    given = {"projections": projections, "flat": flat, "dark": dark}
    counts, white, black = (np.asarray(read_numpy(name, one), dtype=np.float64) for name, one in given.items())
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


def load_scan(
    path: str | os.PathLike[str],
    *,
    order: Order = ORDERS[0],
    angle_range: float = 180.0,
    angle_unit: AngleUnit | None = None,
) -> Scan:
    """Read a scan from npz, npy, MATLAB, HDF5, text, a TIFF stack, or a folder of TIFF pages.

    Parameters
    ----------
    path : path
        Arrays by name: line integrals (``integrals``, ``sinogram``, ...), or ``projections`` (or ``data``) with
        ``flat`` and ``dark``; angles (``angles_deg``, ``angles_rad``, or ``angles`` and ``theta``, in degrees);
        ``center_column`` is optional. Line integrals may have two axes, angles and detectors, of one slice.
        Projections of real numbers without ``flat`` and ``dark`` are line integrals. HDF5 may also be as synchrotrons
        exchange it: ``exchange/data``, ``data_white``, ``data_dark``, ``theta``. TIFF pages, .npy and text hold line
        integrals. Their angles are spread evenly. HDF5 needs h5py, TIFF needs tifffile.
    order : str
        How the axes of integrals or projections lie, such as ``"angles,slices,detectors"`` or ``"detectors,angles"``.
        Fields ``flat`` and ``dark`` lie as the projections do.
    angle_range : float, default 180
        Degrees over which angles are spread that the file does not have, the end not included.
    angle_unit : {"deg", "rad"}, optional
        The unit of the angles; by default what their name or the file says, else degrees.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/scan.npz", sinogram=np.zeros((90, 128)), angles=np.arange(0, 180, 2.0))
    ...     load_scan(f"{folder}/scan.npz").integrals.shape
    (90, 1, 128)
    """
    if order not in ORDERS:
        raise ValueError(f"order is {order!r}; allowed: {', '.join(ORDERS)}")
    notes: list[str] = []
    with _opened(path) as file:
        at = file.first(CENTER)
        center = None if at is None else _one_number(at, file[at])
        integrals, notes = _integrals(file, order)
        name = file.first(NAMES)
        if name is None and not set(file.shapes) <= {ONLY, PAGES}:
            held = listed(file.shapes)
            raise ValueError(f"{os.fspath(path)}: has no angles, as 'angles_deg' or 'angles_rad'; it holds {held}")
        if name is None:
            count = len(integrals)
            angles = np.arange(count) * (angle_range / max(1, count))
            notes.append(f"the file has no angles: {count} are spread evenly over {angle_range:g} degrees")
        else:
            read = np.asarray(read_numpy(name, file[name]), dtype=np.float64).ravel()
            angles = in_degrees(name, read, file.units.get(name, ""), angle_unit)
    shape = integrals.shape
    if shape[0] != angles.size:
        other = [axis for axis, size in zip(("slices", "detectors"), shape[1:]) if size == angles.size and size > 1]
        hint = f"; as many as it has {other[0]}: is it transposed? see --order" if other else ""
        raise ValueError(
            f"{os.fspath(path)}: has {angles.size} angles and {shape[0]} projections, of shape {shape} (angles, "
            f"slices, detectors); allowed: as many{hint}"
        )
    if not integrals.size:
        raise ValueError(
            f"{os.fspath(path)}: projections have shape {shape}; allowed: at least one angle, slice and detector"
        )
    return Scan(integrals, angles, center, notes)


def _integrals(file: Named, order: Order) -> tuple[np.ndarray, list[str]]:
    """Return line integrals (angles, slices, detectors) and what a person should know of them."""
    counts = file.first(PROJECTIONS)
    fields = [file.first(names) for names in (FLAT, DARK)]
    if file.first(INTEGRALS) is None and counts is not None and None not in fields:
        raw = [_ordered(read_numpy(str(one), file[str(one)]), order, one != counts) for one in (counts, *fields)]
        return line_integrals(*raw), []
    usual = (*INTEGRALS, *PROJECTIONS)
    rest = {name: shape for name, shape in file.shapes.items() if name not in (*fields, file.first(NAMES))}
    chosen = choose_array(file.path, rest, None, axes=(2, 3), usual=usual, what="scan: integrals, or projections with "
                          "flat and dark")  # fmt: skip
    values = read_numpy(chosen or "integrals", file[chosen])
    if chosen.lower() in PROJECTIONS:
        if values.dtype.kind in "iu":
            raise ValueError(
                f"{file.path}: {chosen} holds whole numbers up to {values.max()}, counts by their looks; needs 'flat' "
                "and 'dark' beside them, or line integrals as 'integrals'"
            )
        note = [f"{chosen} has no flat and dark fields beside it, and is taken for line integrals"]
        return _ordered(np.asarray(values, dtype=np.float64), order, False), note
    notes = []
    if values.dtype.kind in "iu" and values.size and values.max() > LARGEST_WHOLE:
        notes.append(
            f"whole numbers up to {values.max()} are taken for line integrals; counts of a detector need arrays "
            "'projections', 'flat' and 'dark'"
        )
    return _ordered(np.asarray(values, dtype=np.float64), order, False), notes


def _ordered(values: np.ndarray, order: Order, is_field: bool) -> np.ndarray:
    """Bring projections into the order (angles, slices, detectors), fields into (frames, slices, detectors)."""
    names = [name for name in order.split(",") if not (is_field and name == "angles")]
    if is_field and values.ndim == len(names) + 1:
        names.insert(0, "angles")  # frames, which come first
    if values.ndim == len(names) - 1 and "slices" in names:
        names.remove("slices")
    if values.ndim != len(names):
        raise ValueError(f"projections have shape {values.shape}; allowed: the axes {', '.join(names)}")
    kept = [name for name in ("angles", "slices", "detectors") if name in names]
    turned = values.transpose([names.index(name) for name in kept])
    return turned if "slices" in kept else turned[..., None, :]


@contextlib.contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[Named]:
    """Open a file of any kind as arrays by name."""
    if os.path.isdir(path) or ending_of(path) in (".tif", ".tiff"):
        pages = read_pages(path)
        yield Named(os.fspath(path), {PAGES: pages.shape}, lambda name: pages, {})
    else:
        with open_named(path) as file:
            yield file


def _one_number(name: str, value: np.ndarray) -> float:
    number = read_numpy(name, value)
    require_shape(number.size == 1, name, number, "one number")
    return float(number.reshape(()))


def sinograms(integrals: np.ndarray) -> np.ndarray:
    """Right-hand sides, a column per slice, from line integrals by (angle, slice, detector).

    Examples
    --------
    >>> sinograms(np.zeros((90, 3, 128))).shape  # 90 angles, 3 slices, 128 detectors
    (11520, 3)
    """
    integrals = np.asarray(read_numpy("integrals", integrals))
    require_shape(integrals.ndim == 3, "integrals", integrals, "(angles, slices, detectors)")
    angles, slices, detectors = integrals.shape
    return np.ascontiguousarray(integrals.transpose(0, 2, 1).reshape(angles * detectors, slices))
