"""The three-dimensional Shepp–Logan head phantom."""

from __future__ import annotations

import math

import numpy as np

from stepwell.common.checks import read_whole, require_memory

#: Added grey value, half axes (x, y, z), centre (x, y, z), turn about z in degrees. The head of Shepp and Logan (1974)
#: with the contrasts of Toft (1996), in the common extension to ellipsoids.
ELLIPSOIDS = (
    (1.0, (0.69, 0.92, 0.81), (0.0, 0.0, 0.0), 0.0),
    (-0.8, (0.6624, 0.874, 0.78), (0.0, -0.0184, 0.0), 0.0),
    (-0.2, (0.11, 0.31, 0.22), (0.22, 0.0, 0.0), -18.0),
    (-0.2, (0.16, 0.41, 0.28), (-0.22, 0.0, 0.0), 18.0),
    (0.1, (0.21, 0.25, 0.41), (0.0, 0.35, -0.15), 0.0),
    (0.1, (0.046, 0.046, 0.05), (0.0, 0.1, 0.25), 0.0),
    (0.1, (0.046, 0.046, 0.05), (0.0, -0.1, 0.25), 0.0),
    (0.1, (0.046, 0.023, 0.05), (-0.08, -0.605, 0.0), 0.0),
    (0.1, (0.023, 0.023, 0.02), (0.0, -0.606, 0.0), 0.0),
    (0.1, (0.023, 0.046, 0.02), (0.06, -0.605, 0.0), 0.0),
)


def shepp_logan_3d(size: int) -> np.ndarray:
    """Modified Shepp–Logan phantom on a cube of voxels.

    Parameters
    ----------
    size : int
        Voxels along each side, at least 2.

    Returns
    -------
    ndarray of float64, (size, size, size)
        Grey values from 0 to 1, indexed by slice, row and column. A voxel has the value at its centre; the outermost
        centres lie at ±1.

    Examples
    --------
    >>> volume = shepp_logan_3d(32)
    >>> volume.shape, float(volume.max())
    ((32, 32, 32), 1.0)
    """
    size = read_whole("size", size, 2, as_float=True)
    require_memory("size", size, 3 * size**3)
    axis = np.linspace(-1.0, 1.0, size)
    z, y, x = axis[:, None, None], -axis[None, :, None], axis[None, None, :]
    volume = np.zeros((size,) * 3)
    for value, (a, b, c), (x0, y0, z0), degrees in ELLIPSOIDS:
        cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
        along, across = (x - x0) * cosine + (y - y0) * sine, (y - y0) * cosine - (x - x0) * sine
        inside = (along / a) ** 2 + (across / b) ** 2 + ((z - z0) / c) ** 2 <= 1.0
        volume += value * inside
    return np.where(np.abs(volume) < 1e-12, 0.0, volume)
