"""Several arrays of a device made or cut at once: JAX takes longer to begin a program than to run a small one."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from stepwell.arrays.conversion import jax_double
from stepwell.arrays.device import LARGE, empty_on_device
from stepwell.arrays.kinds import Array, kind_of

Wanted = tuple[tuple[int, ...], str]  # shape and dtype


def several_on_device(wanted: Sequence[Wanted], template: Array) -> list[Array]:
    """Return arrays that kernels may write, with anything in them (``empty_on_device``)."""
    if kind_of(template) != "jax" or sum(math.prod(shape) for shape, _ in wanted) < LARGE:
        return [empty_on_device(shape, dtype, template) for shape, dtype in wanted]
    import jax

    with jax_double(), jax.default_device(next(iter(template.devices()))):
        made: list[Array] = jax.block_until_ready(_zeros(tuple(wanted))())
    return made


@functools.lru_cache(maxsize=64)
def _zeros(wanted: tuple[Wanted, ...]) -> Any:
    import jax

    return jax.jit(lambda: [jax.numpy.zeros(shape, dtype) for shape, dtype in wanted])


def unstacked(array: Array) -> list[Array]:
    """Return the parts of an array along its first axis."""
    if kind_of(array) != "jax":
        return list(array)
    with jax_double():
        return list(_jax_parts()(array))


def first_of(held: int, *arrays: Array) -> list[Array]:
    """Return the first `held` rows of each."""
    if kind_of(arrays[0]) != "jax":
        return [array[:held] for array in arrays]
    with jax_double():
        return list(_jax_first()(held, *arrays))


@functools.cache
def _jax_parts() -> Any:
    import jax

    return jax.jit(lambda array: [array[k] for k in range(array.shape[0])])


@functools.cache
def _jax_first() -> Any:
    import jax

    return jax.jit(lambda held, *arrays: [array[:held] for array in arrays], static_argnums=0)
