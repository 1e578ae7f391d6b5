"""Projection matrices for parallel and fan beams: areas of pixels cut by the strips or wedges that bins see."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp

from stepwell.arrays.checks import read_numpy, require_finite
from stepwell.common.checks import read_real, read_whole, require, require_memory, require_shape

#: Parts of a pixel smaller than this are left to its other bins.
SMALLEST_AREA = 1e-12


def parallel_beam(
    size: int | tuple[int, int], *, angles: Any, detectors: int | None = None, center: float | None = None
) -> sp.csr_matrix:
    """Projection matrix of an image for parallel rays.

    The entry of pixel and bin is the area of the pixel (a unit square) inside the strip (one unit wide) that the bin
    sees at that angle. So, up to rounding, a pixel whose shadow falls on the detector has the column sum 1 per angle,
    and a row sum is the area of the whole image inside the strip.

    Parameters
    ----------
    size : int or (int, int)
        Rows and columns of the image; one number for a square.
    angles : array of float
        Angles in degrees. At 0 the detector counts along the image's columns, at 90 against its rows.
    detectors : int, optional
        Number of bins; default: enough for the whole image, :func:`default_detectors`.
    center : float, optional
        Bin (counted from 0, may lie between bins) on which the image's centre falls; default: the detector's middle.

    Returns
    -------
    scipy.sparse.csr_matrix
        One row per angle and bin (angle by angle), one column per pixel in C order.

    Examples
    --------
    >>> A = parallel_beam(4, angles=[0.0, 90.0], detectors=4)
    >>> A.shape
    (8, 16)
    >>> A[:4].toarray()[1].reshape(4, 4)[0]  # at 0 degrees bin 1 sees the image's column 1
    array([0., 1., 0., 0.])
    """
    rows, columns = _sides(size)
    degrees = _angles(angles)
    if detectors is None:
        detectors = default_detectors((rows, columns))
    bins = read_whole("detectors", detectors, 1, as_float=True)
    middle = _middle(center, bins)
    x, y = _centres(rows, columns)
    if not degrees.size:
        return sp.csr_matrix((0, rows * columns))
    return sp.vstack([_one_angle(x, y, math.radians(angle), bins, middle) for angle in degrees], format="csr")


def fan_beam(
    size: int | tuple[int, int],
    *,
    angles: Any,
    source: float,
    detector: float,
    detectors: int,
    spacing: float = 1.0,
    center: float | None = None,
) -> sp.csr_matrix:
    """Projection matrix of an image for rays that spread from a point to a flat detector.

    A bin sees a wedge. The entry of pixel and bin is the area of the pixel (a unit square) inside that wedge, over the
    width that the wedge has at the pixel's distance from the source: the mean length of the bin's rays in the pixel.

    Parameters
    ----------
    size : int or (int, int)
        Rows and columns of the image; one number for a square.
    angles : array of float
        Angles in degrees by which source and detector are turned. At 0 the source lies below the image and the
        detector, above it, counts along the image's columns, as in :func:`parallel_beam`.
    source : float
        Distance of the source from the image's centre, in pixels of the image; beyond its corners.
    detector : float
        Distance of the detector from the source, in pixels.
    detectors : int
        Number of bins.
    spacing : float, default 1
        Width of a bin, in pixels.
    center : float, optional
        Bin (counted from 0, may lie between bins) on which the image's centre falls; default: the detector's middle.

    Returns
    -------
    scipy.sparse.csr_matrix
        One row per angle and bin (angle by angle), one column per pixel in C order.

    Examples
    --------
    >>> A = fan_beam(4, angles=[0.0], source=1e6, detector=2e6, detectors=4, spacing=2.0)
    >>> bool(np.allclose(A.toarray(), parallel_beam(4, angles=[0.0], detectors=4).toarray(), atol=1e-5))
    True
    """
    rows, columns = _sides(size)
    degrees = _angles(angles)
    bins = read_whole("detectors", detectors, 1, as_float=True)
    middle = _middle(center, bins)
    distance = read_real("source", source, above=math.hypot(rows, columns) / 2)
    length = read_real("detector", detector, above=0)
    width = read_real("spacing", spacing, above=0)
    edges = np.arctan((np.arange(bins + 1) - 0.5 - middle) * (width / length))  # as seen from the source
    x, y = _centres(rows, columns)
    if not degrees.size:
        return sp.csr_matrix((0, rows * columns))
    fans = [_one_fan(x, y, math.radians(angle), distance, edges) for angle in degrees]
    return sp.vstack(fans, format="csr")


def _middle(center: float | None, bins: int) -> float:
    """The bin on which the image's centre falls, checked."""
    require_memory("detectors", bins, 4 * bins)
    middle = (bins - 1) / 2 if center is None else read_real("center", center)
    require(abs(middle) < 2**53, "center", center, "a bin, of a number that doubles tell from its neighbours")
    return middle


def _angles(given: Any) -> np.ndarray:
    """Angles in degrees, checked."""
    degrees = np.atleast_1d(np.asarray(read_numpy("angles", given, "a list of angles in degrees"), dtype=np.float64))
    require_shape(degrees.ndim == 1, "angles", degrees, "a list of angles in degrees")
    require_finite("angles", degrees)
    return degrees


def _centres(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Where the centres of all pixels lie, x to the right and y upwards."""
    y, x = np.mgrid[0:rows, 0:columns].astype(np.float64)
    return x.ravel() - (columns - 1) / 2, (rows - 1) / 2 - y.ravel()


def default_detectors(size: int | tuple[int, int]) -> int:
    """Bins that see every corner of an image at every angle, with room to spare: 185 for 128 x 128.

    Examples
    --------
    >>> default_detectors(128)
    185
    """
    half = [n - (n - 1) // 2 - 1 for n in _sides(size)]
    return 2 * math.ceil(math.hypot(*half)) + 3


def _sides(size: int | tuple[int, int]) -> tuple[int, int]:
    """Rows and columns of the image, checked."""
    sides: tuple[Any, ...] = tuple(size) if isinstance(size, tuple | list) else (size, size)
    require(len(sides) == 2, "size", size, "a whole number or a pair of them")
    rows, columns = (read_whole("size", side, 1, as_float=True) for side in sides)
    require_memory("size", size, 8 * rows * columns)
    return rows, columns


def _one_angle(x: np.ndarray, y: np.ndarray, angle: float, bins: int, middle: float) -> sp.csr_matrix:
    """Areas of all pixels in all bins at one angle. A pixel's shadow is at most √2 wide: it meets three bins."""
    cosine, sine = math.cos(angle), math.sin(angle)
    place = x * cosine + y * sine + middle
    reach = (abs(cosine) + abs(sine)) / 2
    first = np.floor(place - reach + 0.5)  # bin i covers [i − 1/2, i + 1/2]
    left_of_edge = [_shadow_left_of(first + i - 0.5 - place, cosine, sine) for i in range(4)]
    pixel = np.arange(place.size)
    bin_numbers, pixels, areas = [], [], []
    for i in range(3):
        area = left_of_edge[i + 1] - left_of_edge[i]
        number = first + i
        seen = (area > SMALLEST_AREA) & (number >= 0) & (number < bins)
        bin_numbers.append(number[seen].astype(np.int32))
        pixels.append(pixel[seen].astype(np.int32))
        areas.append(area[seen])
    entries = (np.concatenate(areas), (np.concatenate(bin_numbers), np.concatenate(pixels)))
    return sp.csr_matrix(entries, shape=(bins, place.size))


def _one_fan(x: np.ndarray, y: np.ndarray, angle: float, distance: float, edges: np.ndarray) -> sp.csr_matrix:
    """Mean lengths of the rays of all bins in all pixels at one angle; `edges` of bins are angles at the source."""
    cosine, sine = math.cos(angle), math.sin(angle)
    across, ahead = x * cosine + y * sine, distance - x * sine + y * cosine  # from the source
    far = np.hypot(across, ahead)
    place = np.arctan2(across, ahead)
    reach = np.arcsin(math.sqrt(0.5) / far)  # no part of a pixel is seen further aside
    first = np.searchsorted(edges, place - reach, side="right") - 1  # the bin with the pixel's left end, or -1
    most = int(np.max(np.searchsorted(edges, place + reach, side="left") - first, initial=0))
    pixel = np.arange(x.size)
    bin_numbers, pixels, lengths = [], [], []
    left = np.zeros(x.size)
    for i in range(most + 1):  # from edge to edge; to the left of the first bin's left edge is nothing, or what is lost
        number = first + i
        inside = (number >= 0) & (number < len(edges))
        ray = edges[np.clip(number, 0, len(edges) - 1)]
        # The ray's line has this unit normal, to its right, and this signed distance from the pixel's centre.
        normal_x, normal_y = np.cos(ray) * cosine + np.sin(ray) * sine, np.cos(ray) * sine - np.sin(ray) * cosine
        to_line = far * np.sin(ray - place)
        up_to = np.where(inside, _shadow_left_of(to_line, normal_x, normal_y), np.where(number < 0, 0.0, 1.0))
        area, bin_left = up_to - left, number - 1
        seen = (area > SMALLEST_AREA) & (bin_left >= 0) & (bin_left < len(edges) - 1)
        widths = np.diff(edges)[bin_left[seen]] * far[seen]
        bin_numbers.append(bin_left[seen].astype(np.int32))
        pixels.append(pixel[seen].astype(np.int32))
        lengths.append(area[seen] / widths)
        left = up_to
    entries = (np.concatenate(lengths), (np.concatenate(bin_numbers), np.concatenate(pixels)))
    return sp.csr_matrix(entries, shape=(len(edges) - 1, x.size))


def _shadow_left_of(edge: np.ndarray, cosine: float | np.ndarray, sine: float | np.ndarray) -> np.ndarray:
    """Area of a unit square, turned by the angle, to the left of an edge at a signed distance from its centre.

    The square's shadow is a trapezoid: level on [−inner, inner], falling to zero at ±outer.
    """
    across, along = np.abs(cosine), np.abs(sine)
    outer, inner = (across + along) / 2, np.abs(across - along) / 2
    height = 1 / np.maximum(across, along)
    distance = np.minimum(np.abs(edge), outer)
    slope = outer - inner
    level_part = np.minimum(distance, inner) * height
    beyond = np.maximum(distance - inner, 0.0)
    # Integral of the falling flank; where the flank has no width nothing lies beyond.
    flank_part = height * beyond * (1 - 0.5 * beyond / np.where(slope > 0, slope, 1.0))
    return np.asarray(0.5 + np.sign(edge) * (level_part + flank_part))
