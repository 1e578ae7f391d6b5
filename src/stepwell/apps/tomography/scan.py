"""Real scans: from counts on a detector to line integrals."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from stepwell.checks import read_array, read_whole, require_shape
from stepwell.files import open_arrays

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
    counts = np.asarray(projections, dtype=np.float64)
    white, black = (np.asarray(field, dtype=np.float64) for field in (flat, dark))
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


def load_scan(path: str | os.PathLike[str]) -> Scan:
    """Read a scan from an ``.npz`` file.

    The file holds ``angles_deg`` and either ``integrals`` (angle, slice, detector) or ``projections`` with ``flat``
    and ``dark``; ``center_column`` is optional.
    """
    with open_arrays(path) as file:
        names = file.names
        if "angles_deg" not in names:
            raise ValueError(f"{os.fspath(path)}: has no array 'angles_deg'; it holds {', '.join(sorted(names))}")
        center = _one_number("center_column", file["center_column"]) if "center_column" in names else None
        if "integrals" in names:
            integrals = np.asarray(read_array("integrals", file["integrals"]), dtype=np.float64)
        elif {"projections", "flat", "dark"} <= names:
            counts = (read_array(name, file[name]) for name in ("projections", "flat", "dark"))
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
    return Scan(integrals, angles, center)


def _one_number(name: str, value: np.ndarray) -> float:
    number = read_array(name, value)
    require_shape(number.size == 1, name, number, "one number")
    return float(number.reshape(()))


def sinograms(integrals: np.ndarray) -> np.ndarray:
    """Right-hand sides, a column per slice, from line integrals by (angle, slice, detector)."""
    require_shape(np.ndim(integrals) == 3, "integrals", integrals, "(angles, slices, detectors)")
    angles, slices, detectors = integrals.shape
    return np.ascontiguousarray(integrals.transpose(0, 2, 1).reshape(angles * detectors, slices))
