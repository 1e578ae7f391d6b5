"""Vectors as text."""

from __future__ import annotations

import numpy as np

from stepwell.arrays import Array, host_copy

_IN_A_ROW = 6


def on_host(values: Array) -> np.ndarray:
    """Return the values of an array of any library and device as a flat NumPy array, to be shown to a person."""
    return host_copy(values).reshape(-1)


def vector_text(title: str, values: Array) -> str:
    """Return a title and all elements, six to a line.

    Examples
    --------
    >>> print(vector_text("X =", np.array([1.0, -0.5])))
    X =
      1.000000e+00 -5.000000e-01
    """
    numbers = [f"{value:14.6e}" for value in on_host(values)]
    lines = ("".join(numbers[k : k + _IN_A_ROW]) for k in range(0, len(numbers), _IN_A_ROW))
    return "\n".join((title, *lines))
