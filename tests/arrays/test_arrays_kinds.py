"""What is known of an array: its library, device, dtype, order."""

from __future__ import annotations

import fractions

import numpy as np
import pytest

from stepwell import arrays
from stepwell.arrays.kinds import kind_of


def test_plain_values_are_numpys():
    for value in (1.0, 3, [1.0], np.float64(2.0), None, fractions.Fraction(1, 3)):
        assert kind_of(value) == "numpy"
        assert not arrays.is_array(value)
        assert not arrays.is_cuda(value)


def test_an_array_is_known(make):
    array = make(np.arange(6.0).reshape(2, 3))
    assert arrays.is_array(array)
    assert arrays.same_library(array, make(np.zeros(1)))
    assert not arrays.is_cuda(array)
    assert (arrays.device_name(array), arrays.device_index(array)) == ("cpu", 0)
    assert arrays.describe_home(array) == f"a {kind_of(array)} array on cpu"
    assert kind_of(array) in type(array).__module__ + ("numpy" if isinstance(array, np.ndarray) else "")
    assert not arrays.is_traced(array)
    assert arrays.holds_double(array)
    assert not arrays.is_sparse_tensor(array)


def test_libraries_are_told_apart(make_torch, make_jax):
    three = [np.zeros(2), make_torch(np.zeros(2)), make_jax(np.zeros(2))]
    for i, one in enumerate(three):
        assert [arrays.same_library(one, other) for other in three] == [i == j for j in range(3)]


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "int32", "uint8", "bool"])
def test_dtypes_have_numpys_names(make, dtype):
    assert arrays.numpy_dtype(make(np.zeros(3, dtype))) == np.dtype(dtype)


def test_bfloat16(make_torch, make_jax):
    import jax.numpy as jnp
    import torch

    for half in (make_torch(np.ones(2)).to(torch.bfloat16), jnp.ones(2, jnp.bfloat16)):
        assert arrays.is_bfloat16(half)
        view = arrays.host_view(half)
        assert view.dtype == np.float32
        np.testing.assert_array_equal(view, [1, 1])
    assert not arrays.is_bfloat16(np.ones(2, np.float16))


def test_a_namespace_serves_arrays_and_numbers(make):
    array = make(np.arange(3.0))
    xp = arrays.namespace_of(array, 2.0, None)
    np.testing.assert_array_equal(arrays.host_view(xp.astype(array, xp.float32)), [0, 1, 2])
    assert arrays.default_dtype(xp) == array.dtype  # a double in all three


def test_jax_without_doubles():
    jax = pytest.importorskip("jax")
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", False)
    try:
        array = jax.numpy.zeros(2)
        assert not arrays.holds_double(array)
        assert arrays.default_float(array) == np.float32
        assert arrays.default_dtype(jax.numpy) == np.float32
        with arrays.jax_double():
            assert arrays.holds_double(array)
    finally:
        jax.config.update("jax_enable_x64", before)
    assert arrays.holds_double(np.zeros(2))
    assert arrays.default_float(np.zeros(2)) == np.float64


def test_traced_arrays_have_no_values(make_jax):
    import jax

    seen = []
    jax.jit(lambda x: seen.append(arrays.is_traced(x)) or x)(make_jax(np.zeros(2)))
    assert seen == [True]


@pytest.mark.parametrize("shape", [(), (5,), (3, 4), (2, 1, 3), (0, 3), (3, 0)])
def test_strides_are_those_of_numpy_in_elements(make, shape):
    array = make(np.zeros(shape))
    if 0 not in shape:
        assert arrays.strides_of(array) == tuple(step // 8 for step in np.zeros(shape).strides)
    assert len(arrays.strides_of(array)) == len(shape)


def test_order_in_memory(make):
    turned = make(np.arange(6.0).reshape(2, 3)).T
    straight = arrays.as_contiguous(turned)
    assert arrays.is_contiguous(straight) or isinstance(straight, np.ndarray)
    assert arrays.as_contiguous(straight) is straight or not isinstance(straight, np.ndarray)
    np.testing.assert_array_equal(arrays.host_view(straight), np.arange(6.0).reshape(2, 3).T)
    rows = arrays.rows_contiguous(turned)
    assert arrays.strides_of(rows)[-1] == 1
    np.testing.assert_array_equal(arrays.host_view(rows), arrays.host_view(turned))
    assert arrays.rows_contiguous(rows) is rows
    wide = make(np.arange(8.0).reshape(2, 4))[:, :3]  # strided, but its rows are in one piece
    assert arrays.rows_contiguous(wide) is wide


def test_same_order_is_that_of_a_reshape():
    rng = np.random.default_rng(0)
    for _ in range(200):
        shape, wanted = (tuple(map(int, rng.integers(1, 4, rng.integers(0, 4)))) for _ in range(2))
        equal_but_for_ones = [k for k in shape if k > 1] == [k for k in wanted if k > 1]
        flat = shape == (int(np.prod(wanted)),)
        assert arrays.same_order(shape, wanted) == (equal_but_for_ones or flat)
