"""The kernels of the host for arrays of other libraries that lie there: they are viewed as NumPy's, and given back."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from stepwell.arrays import Array, copy_to_device_of, host_view, is_array
from stepwell.krylov.tv import host
from stepwell.krylov.tv.cosine_tables import CosineTables
from stepwell.krylov.tv.shrinking import Sweep


def transform(tables: CosineTables, block: Array, back: bool) -> Array:
    """Return the cosine coefficients of every image of a block, or the images of coefficients."""
    return copy_to_device_of(host.transform(tables, host_view(block), back), block)


def run_sweeps(tables: CosineTables, sweep: Sweep) -> tuple[Array | None, ...]:
    """Run the sweeps of all problems; return x, z, u, s and v (None without bounds)."""
    given = {one.name: getattr(sweep, one.name) for one in fields(sweep)}
    viewed: dict[str, Any] = {
        name: host_view(value) for name, value in given.items() if is_array(value) and not isinstance(value, np.ndarray)
    }
    found = host.run_sweeps(tables, replace(sweep, **viewed))
    return tuple(None if part is None else copy_to_device_of(part, sweep.linear) for part in found)
