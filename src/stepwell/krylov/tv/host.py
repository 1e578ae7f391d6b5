"""The inner loop and the cosine transforms of NumPy arrays, by the compiled kernels of ``src/host/tv``."""

from __future__ import annotations

import numpy as np

from stepwell.common.threads import default_threads
from stepwell.krylov.tv.cosine_tables import CosineTables
from stepwell.krylov.tv.shrinking import Sweep


def transform(tables: CosineTables, block: np.ndarray, back: bool) -> np.ndarray:
    """Return the cosine coefficients of every image of a block, or the images of coefficients."""
    from stepwell import _core

    found = np.array(block, dtype=tables.numbers.dtype, order="C", copy=True)
    flat = found.reshape(-1, tables.pixels)
    _core.tv_transform(list(tables.sides), tables.numbers, tables.places, flat, back, default_threads())
    return found


def run_sweeps(tables: CosineTables, sweep: Sweep) -> tuple[np.ndarray | None, ...]:
    """Run the sweeps of all problems; return x, z, u, s and v (None without bounds)."""
    from stepwell import _core

    kept, pixels, dtype = list(tables.kept), tables.pixels, tables.numbers.dtype
    whole = len(kept) == sweep.z.shape[0]

    def flat(block: np.ndarray | None) -> np.ndarray | None:
        return None if block is None else np.ascontiguousarray(block, dtype=dtype).reshape(-1, pixels)

    def field(block: np.ndarray) -> np.ndarray | None:
        return flat(block if whole else block[kept])

    image = sweep.linear.shape
    z, u = (np.zeros(sweep.z.shape, dtype) if not whole else np.empty(sweep.z.shape, dtype) for _ in range(2))
    x = np.empty(image, dtype)
    s, v = (None, None) if sweep.s is None else (np.empty(image, dtype), np.empty(image, dtype))
    parts = [part if whole else np.empty((len(kept), *image), dtype) for part in (z, u)]
    small = None
    if sweep.small is not None:
        small = np.ascontiguousarray(sweep.small, dtype=dtype).reshape(image[0], -1)
    single, numbers, x0 = None, None, None
    if sweep.single is not None and sweep.single.any():
        single, numbers, x0 = sweep.single.astype(np.uint8), tables.single_numbers, flat(sweep.x0)
    _core.tv_sweeps(
        list(tables.sides), tables.numbers, tables.places, [sweep.weights[axis] for axis in kept], sweep.rho,
        sweep.over, sweep.anisotropic, sweep.threshold, sweep.least, sweep.counts, flat(sweep.linear),
        flat(sweep.inverse), flat(sweep.solved), small, field(sweep.z), field(sweep.u), flat(sweep.s), flat(sweep.v),
        _bound(sweep.lower, tables, image), _bound(sweep.upper, tables, image), flat(parts[0]), flat(parts[1]), flat(s),
        flat(v), flat(x), default_threads(), single, numbers, x0,
    )  # fmt: skip
    if not whole:
        z[kept], u[kept] = parts
    return x, z, u, s, v


def _bound(side: np.ndarray | None, tables: CosineTables, image: tuple[int, ...]) -> np.ndarray | None:
    """Return one side of the bounds as (1 or problems, 1 or pixels)."""
    if side is None:
        return None
    side = np.asarray(side, dtype=tables.numbers.dtype)
    rows = side.shape[0]
    if side.size == rows:
        return np.ascontiguousarray(side.reshape(rows, 1))
    return np.ascontiguousarray(np.broadcast_to(side, (rows, *image[1:]))).reshape(rows, tables.pixels)
