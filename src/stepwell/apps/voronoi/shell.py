"""A picture to try stippling on: a nautilus shell cut in two, drawn from its equations."""

from __future__ import annotations

import numpy as np
from scipy.ndimage import gaussian_filter, shift

from stepwell.apps.voronoi.picture import Picture

#: The logarithmic spiral r = exp(_GROWTH (θ - _MOUTH)) of the shell grows about threefold a turn and ends at the mouth.
_GROWTH = np.log(3.05) / (2 * np.pi)
_MOUTH = 6 * np.pi + 0.35
#: Walls a turn between the chambers; the animal lived in front of the last one.
_WALLS = 17
_LAST = np.floor((_MOUTH - 2.05) * _WALLS / (2 * np.pi))
#: Height over width of the picture, its width in units of the mouth's radius, and where its centre lies.
_ASPECT, _WIDTH, _CENTRE = 0.88, 1.80, (0.14, 0.185)
_UMBER, _CREAM, _SHADE = np.array([0.11, 0.05, 0.03]), np.array([1.0, 0.95, 0.86]), np.array([0.36, 0.42, 0.52])


def nautilus(longest: int = 1200) -> Picture:
    """Return the picture of a shell: chambers with soft gradients, thin dark walls, and a shadow on white paper.

    Parameters
    ----------
    longest : int, default 1200
        Pixels along the longer side.

    Returns
    -------
    Picture

    Examples
    --------
    >>> nautilus(100).shape
    (88, 100)
    """
    rows, columns = max(1, round(_ASPECT * longest)), longest
    pixel = _WIDTH / columns
    down, across = np.mgrid[0:rows, 0:columns]
    x = (across + 0.5 - columns / 2) * pixel + _CENTRE[0]
    y = (down + 0.5 - rows / 2) * pixel + _CENTRE[1]
    radius = np.maximum(np.hypot(x, y), 1e-9)
    direction = np.mod(np.arctan2(-y, x) + np.pi / 4, 2 * np.pi)
    # The whorl a point lies in is counted along the spiral's arm outside it; θ is the angle at which that arm is.
    turns = (np.log(radius) / _GROWTH + _MOUTH - direction) / (2 * np.pi)
    whorl = np.ceil(turns)
    theta = direction + 2 * np.pi * whorl
    inside = theta <= _MOUTH
    brightness = np.where(inside, _shell(radius, theta, turns - whorl + 1), 1.0)
    # Light comes from the upper left.
    shadow = gaussian_filter(shift(inside.astype(float), (0.035 * columns, 0.03 * columns), order=1), 0.022 * columns)
    shell = _UMBER + brightness[..., None] * (_CREAM - _UMBER)
    paper = 1.0 - 0.42 * shadow[..., None] * (1.0 - _SHADE) / (1.0 - _SHADE).mean()
    return Picture(np.clip(np.where(inside[..., None], shell, paper), 0.0, 1.0), "nautilus")


def _shell(radius: np.ndarray, theta: np.ndarray, across: np.ndarray) -> np.ndarray:
    """Brightness inside the shell; `across` goes from 0 at the inner side of a whorl to 1 at the outer."""
    outer = np.exp(_GROWTH * np.minimum(theta - _MOUTH, 0.0))
    inner = outer * np.exp(-2 * np.pi * _GROWTH)
    thickness = (outer - inner) / 0.65  # of lines, 1 in the last whorl
    # Walls bulge towards the apex of the shell.
    chamber = (theta + 1.36 * across * (1 - across) - 0.15 * across) * _WALLS / (2 * np.pi)
    behind = chamber - np.floor(chamber)
    living = chamber >= _LAST
    forward = np.clip((chamber - _LAST) / (_MOUTH * _WALLS / (2 * np.pi) - _LAST), 0, 1)
    hollow = 0.97 - 0.62 * np.exp(-2.6 * behind) - 0.55 * (1 - across) ** 2 * 0.76 - 0.19 * across**6
    room = 0.98 - 0.62 * np.exp(-4.2 * forward) - 0.5 * (1 - across) ** 2.2 - 0.3 * across**7 - 0.22 * forward**3
    brightness = 1.15 * np.where(living, room, hollow)
    away = np.minimum(behind, 1 - behind) * outer * 2 * np.pi / _WALLS
    wall = (away < 0.006 * np.clip(thickness, 0.12, 1)) & (chamber < _LAST + 0.5)
    brightness = np.where(wall, 0.0, brightness)
    depth = (outer - radius) / (0.03 * np.clip(thickness, 0.03, 1))
    brightness = np.where(depth < 1, 0.1 + 0.3 * np.sin(np.pi * np.clip(depth, 0, 1)), brightness)
    rim = radius - inner < 0.004 * np.clip(thickness, 0.1, 1)
    return np.clip(np.where(rim, 0.0, brightness), 0.0, 1.0)
