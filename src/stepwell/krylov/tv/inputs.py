"""What the API does before any work: read the arguments, agree on library and units."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from stepwell.arrays import (
    Array,
    compiles_each_shape,
    copy_to_device_of,
    device_name,
    is_array,
    namespace_of,
    same_library,
    to_host,
)
from stepwell.arrays.bounds import split_bounds
from stepwell.arrays.checks import read_array, require_each, require_finite, require_one_home
from stepwell.common.checks import (
    read_choice,
    read_real,
    read_reals,
    read_sizes,
    require,
    require_kind,
    require_shape,
)
from stepwell.krylov.inputs import read_operands
from stepwell.krylov.tv.given import Given
from stepwell.krylov.tv.masks import read_widths, zero_outside
from stepwell.krylov.tv.task import Grid, Task
from stepwell.operators import Operator
from stepwell.operators.matrices import power_near

KINDS = ("isotropic", "anisotropic", "huber")
RULES = ("noise", "discrepancy")
#: Weights of differences are at most this, and at least its inverse.
MOST_WEIGHT = 1e6


def read_problem(
    A: Any, B: Any, x0: Any, dual: Any, *, shape: Any, kind: Any, eps: Any, bounds: Any, spacing: Any, across: Any,
    axis: Any, weights: Any = None, mask: Any = None, name: str = "B", start: str = "x0",
) -> Given:  # fmt: skip
    """Read all that makes the problem, but λ."""
    sides = read_shape(shape)
    kind = read_choice("kind", kind, KINDS)
    if eps is not None:
        eps = read_real("eps", eps, above=0)
    if kind == "huber" and eps is None:
        raise ValueError("eps is None; allowed: a finite number above 0 with kind='huber'")
    require(kind == "huber" or eps is None, "eps", eps, "None unless kind is 'huber'")
    steps_of = (1.0,) * len(sides)
    if spacing is not None:
        steps = read_reals("spacing", spacing, len(sides), meaning="the sides of a voxel", above=0)
        sound = all(1 / MOST_WEIGHT <= step <= MOST_WEIGHT for step in steps)
        require(sound, "spacing", spacing, f"numbers from {1 / MOST_WEIGHT:g} to {MOST_WEIGHT:g}")
        steps_of = tuple(1 / step for step in steps)
    coupling = None if across is None else read_real("across", across, above=0)
    if coupling is not None:
        sound = 1 / MOST_WEIGHT <= coupling <= MOST_WEIGHT
        require(sound, "across", across, f"a number from {1 / MOST_WEIGHT:g} to {MOST_WEIGHT:g}")

    pixels = math.prod(sides)
    image = A is None and is_image(B, sides)
    if image:
        B = namespace_of(B).reshape(B, (-1,))
    identity = A is None
    if identity:
        A = Operator(lambda block: block, lambda block: block, (pixels, pixels), name="A")
    elif hasattr(A, "shape") and len(A.shape) == 2 and A.shape[1] is not None:
        require(A.shape[1] == pixels, "shape", shape, f"sides whose product is {A.shape[1]}, the columns of A")
    operator, _, block, first, given, in_rows = read_operands(
        A, B, None, x0, "A", False, axis, data=name, start_name=start
    )
    require(
        operator.shape[1] == pixels, "shape", shape, f"sides whose product is {operator.shape[1]}, as A has columns"
    )
    grid = Grid(
        sides, int(block.shape[1]), (coupling, *steps_of) if coupling is not None else steps_of, across is not None
    )
    scale = _powers(block, common=across is not None or kind == "huber")
    block = block / copy_to_device_of(scale[None, :], block)
    lower, upper = _read_bounds(bounds, grid, block, in_rows, len(given.shape) == 1, scale)
    widths = read_widths(weights, mask, grid, kind == "anisotropic")
    if mask is not None:
        lower, upper = zero_outside(widths, lower, upper, block)
    task = Task(
        operator, block, grid, np.zeros(grid.batch), lower, upper, kind == "anisotropic",
        0.0 if eps is None else eps / (float(scale[0]) if scale.size else 1.0), identity, widths,
    )  # fmt: skip
    images = None
    if first is not None:
        require_finite(start, first)
        images = grid.images(first / copy_to_device_of(scale[None, :], first))
    field = None if dual is None else _read_dual(dual, task, scale)
    found = Given(task, given, in_rows, scale, images, field, image)
    return found.by_numpy() if compiles_each_shape(block) and device_name(block) == "cpu" else found


def is_image(array: Any, sides: tuple[int, ...]) -> bool:
    """Whether an array is one image of this shape, and no block of columns."""
    return is_array(array) and tuple(array.shape) == sides and len(sides) > 1 and sides[1:] != (1,)


def read_shape(shape: Any) -> tuple[int, ...]:
    """Read the sides of an image."""
    sides = read_sizes("shape", shape, None, meaning="the image's sides")
    require(1 <= len(sides) <= 3, "shape", shape, "one to three sides: (N,), (N, M) or (D, N, M)")
    return sides


def _powers(block: Array, common: bool) -> np.ndarray:
    """Return a power of two near the largest entry of each column, or of all of them."""
    count = int(block.shape[1])
    if not block.shape[0] or not count:
        return np.ones(count)
    xp = namespace_of(block)
    largest = to_host(xp.max(xp.abs(block), axis=0))
    sound = np.isfinite(largest) & (largest > 0)
    if common:
        largest = np.full(count, largest[sound].max() if sound.any() else 1.0)
        sound = np.ones(count, dtype=bool)
    limit = 120 if "float32" in str(block.dtype) else 1000
    return np.array([power_near(size, limit) if good else 1.0 for size, good in zip(largest.tolist(), sound.tolist())])


def _read_bounds(
    bounds: Any, grid: Grid, block: Array, in_rows: bool, vector: bool, scale: np.ndarray
) -> tuple[Array | None, Array | None]:
    if bounds is None:
        return None, None
    ends = split_bounds(bounds, "ends")
    assert ends is not None
    sides = [_read_side(side, name, grid, block, in_rows, vector) for side, name in zip(ends, ("lower", "upper"))]
    if sides[0] is not None and sides[1] is not None:
        low, high = np.broadcast_arrays(sides[0], sides[1])
        require_each(low <= high, "bounds: the lower bound", low, "at most the upper bound")
    columns = scale.reshape((-1,) + (1,) * len(grid.shape))
    found = []
    for side in sides:
        if side is not None:
            side = side / columns if np.any(np.isfinite(side) & (side != 0)) else side
            side = side[None] if grid.across else side
            if grid.across:
                side = np.broadcast_to(side, (1, grid.count, *grid.shape))
            side = copy_to_device_of(np.ascontiguousarray(side), block)
        found.append(side)
    return found[0], found[1]


def _read_side(side: Any, name: str, grid: Grid, block: Array, in_rows: bool, vector: bool) -> np.ndarray | None:
    """Read one bound as a host array ``(1 or columns, *shape)``, None where it bounds nothing."""
    argument = f"bounds: the {name} bound"
    array = read_array(argument, side)
    if array.shape and not isinstance(array, np.ndarray):
        require_one_home(argument, array, "the data", block)
    host = to_host(array)
    every = (grid.count, grid.pixels) if in_rows else (grid.pixels, grid.count)
    wanted: list[tuple[int, ...]] = [(), (grid.pixels,), grid.shape, *(() if vector else (every,))]
    require_shape(host.shape in wanted, argument, host, " or ".join(map(str, dict.fromkeys(wanted))))
    require_each(~np.isnan(host), argument, host, "numbers other than NaN")
    if np.all(np.isinf(host) & ((host < 0) == (name == "lower"))):
        return None
    require(not np.any(np.isinf(host) & ((host > 0) == (name == "lower"))), argument, side, "bounds that leave a point")
    if host.ndim == 0:
        return np.broadcast_to(host, (1, *(1,) * len(grid.shape)))
    if host.shape == every and not (vector or host.shape == grid.shape):
        host = host if in_rows else host.T
        return host.reshape((-1, *grid.shape))
    return host.reshape((1, *grid.shape))


def _read_dual(dual: Any, task: Task, scale: np.ndarray) -> Array:
    """Read a dual field and bring it to the solver's units and layout."""
    grid = task.grid
    array = read_array("dual", dual)
    wanted = (len(grid.dims), grid.count, *grid.shape)
    require_shape(tuple(array.shape) == wanted, "dual", array, f"{wanted}, axes, columns and shape")
    require_one_home("dual", array, "the data", task.B, library=False)
    require_finite("dual", array)
    field = copy_to_device_of(to_host(array), task.B) if not same_library(array, task.B) else array
    xp = namespace_of(field)
    field = xp.astype(field, task.B.dtype, copy=False)
    field = field / copy_to_device_of(scale.reshape((1, -1) + (1,) * len(grid.shape)), field)
    field = xp.reshape(field, (len(grid.dims), grid.batch, *grid.dims))
    # Differences do not reach over an edge: the last entries along each axis are zero.
    keep = np.ones(tuple(field.shape))
    for axis in range(len(grid.dims)):
        place: list[Any] = [slice(None)] * keep.ndim
        place[0], place[axis + 2] = axis, -1
        keep[tuple(place)] = 0.0
    return field * copy_to_device_of(keep, field)


def read_numbers(name: str, value: Any, count: int) -> np.ndarray:
    """Read one number, or one per column, finite and not negative."""
    allowed = f"one real number or one per column ({count})"
    array = read_array(name, value, allowed)
    require_kind("bool" not in str(array.dtype), name, value, allowed)
    values = to_host(array)
    require_shape(values.shape in ((), (count,)), name, values, allowed)
    require_each(np.isfinite(values) & (values >= 0), name, values, "finite numbers of at least 0")
    return np.array(np.broadcast_to(values, (count,)))
