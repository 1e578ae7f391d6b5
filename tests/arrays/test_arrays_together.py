"""Several arrays made or cut at once: shapes, types, and memory of their own."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from stepwell.arrays import device_address
from stepwell.arrays.together import LARGE, first_of, several_on_device, unstacked


@pytest.mark.parametrize("rows", [3, LARGE])
def test_arrays_of_jax_do_not_share_memory(rows):
    """Kernels write behind JAX's back: two of the same shape must not be one buffer."""
    jax = pytest.importorskip("jax")
    wanted = [((rows, 4), "float64"), ((rows, 4), "float64"), ((rows,), "int32"), ((rows,), "int8"), ((rows,), "int8")]
    for _ in range(2):
        made = several_on_device(wanted, jax.numpy.zeros(1))
        assert [(tuple(one.shape), str(one.dtype)) for one in made] == wanted
        spans = sorted((device_address(one), one.nbytes) for one in made)
        assert all(first + size <= then for (first, size), (then, _) in itertools.pairwise(spans))


@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
def test_parts_and_first_rows(library):
    xp = pytest.importorskip("jax.numpy" if library == "jax" else library)
    values = np.arange(12, dtype=np.int32).reshape(3, 4)
    array = xp.asarray(values)
    for part, wanted in zip(unstacked(array), values, strict=True):
        np.testing.assert_array_equal(np.asarray(part), wanted)
    for part in first_of(2, array, array):
        np.testing.assert_array_equal(np.asarray(part), values[:2])
