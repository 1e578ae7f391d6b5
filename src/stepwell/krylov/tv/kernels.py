"""Which kernels run the inner loop and the cosine transforms of a block of images: the host's, a GPU's, or none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from stepwell.arrays import Array, device_name, dtype_name, is_cuda
from stepwell.krylov.tv.cosine_tables import CosineTables, tables_of
from stepwell.krylov.tv.shrinking import Sweep


@dataclass(frozen=True)
class Kernels:
    """Kernels for images of one shape, in one library and dtype."""

    tables: CosineTables
    module: Any
    on_host: bool = True

    @property
    def mixed(self) -> bool:
        """Whether problems in double precision can be swept in single."""
        return bool(self.tables.numbers.dtype == np.float64)

    def transform(self, block: Array, back: bool) -> Array:
        """Return the cosine coefficients of every image, or the images of coefficients."""
        return self.module.transform(self.tables, block, back)

    def run_sweeps(self, sweep: Sweep) -> tuple[Array, ...]:
        """Run the sweeps of all problems; return x, z, u, s and v."""
        found: tuple[Array, ...] = self.module.run_sweeps(self.tables, sweep)
        return found


def kernels_for(dims: tuple[int, ...], template: Array) -> Kernels | None:
    """Return the kernels for images with these sides in the kind of a template, or None where there are none."""
    on_device = is_cuda(template)
    if not on_device and device_name(template) != "cpu":
        return None
    tables = tables_of(tuple(dims), dtype_name(template.dtype))
    if tables is None:
        return None
    if on_device:
        from stepwell.krylov.tv import device

        return Kernels(tables, device, on_host=False) if device.is_fit(tables) else None
    if isinstance(template, np.ndarray):
        from stepwell.krylov.tv import host

        return Kernels(tables, host)
    from stepwell.krylov.tv import borrowed

    return Kernels(tables, borrowed)
