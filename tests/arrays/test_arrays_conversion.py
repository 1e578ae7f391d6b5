"""Arrays from one library to another: equal values and dtypes, memory shared or not as stated."""

from __future__ import annotations

import decimal
import fractions
import os
import subprocess
import sys

import numpy as np
import pytest

from stepwell import arrays

DTYPES = ["float64", "float32", "int64", "int32", "uint8", "bool"]


def some(dtype: str, shape: tuple[int, ...] = (3, 4)) -> np.ndarray:
    """Values that survive no cast to a smaller type."""
    values = np.random.default_rng(7).standard_normal(shape) * 1e3
    return values > 0 if dtype == "bool" else (abs(values) % 256 if dtype == "uint8" else values).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("convert", [arrays.as_user_array, arrays.readonly_view, arrays.copy_to_device_of])
def test_there_and_back(make, dtype, convert):
    values = some(dtype)
    template = make(np.zeros(1, "float32" if dtype == "float32" else "float64"))
    there = convert(values.copy(), template)
    assert arrays.same_library(there, template)
    assert arrays.numpy_dtype(there) == values.dtype
    np.testing.assert_array_equal(arrays.host_view(there), values)
    np.testing.assert_array_equal(arrays.host_copy(there), values)
    np.testing.assert_array_equal(arrays.to_host(there), values.astype(np.float64))
    assert arrays.to_host(there).dtype == np.float64


def test_floats_take_the_templates_dtype_on_its_device(make):
    template = make(np.zeros(1, np.float32))
    there = arrays.copy_to_device_of(some("float64"), template)
    assert there.dtype == template.dtype
    np.testing.assert_array_equal(arrays.host_view(there), some("float64").astype(np.float32))
    assert arrays.numpy_dtype(arrays.copy_to_device_of(some("int64"), template)) == np.int64


def test_read_only_values_are_copied_to_a_device(make):
    values = some("float64")
    values.flags.writeable = False
    np.testing.assert_array_equal(arrays.host_view(arrays.copy_to_device_of(values, make(np.zeros(1)))), values)


def test_a_host_copy_is_ones_own(make):
    array = make(np.arange(3.0))
    copy = arrays.host_copy(array)
    copy[0] = 7
    np.testing.assert_array_equal(arrays.host_view(array), [0, 1, 2])


def test_a_view_of_numpy_is_for_reading_only():
    values = np.zeros(3)
    view = arrays.readonly_view(values, values)
    assert np.shares_memory(view, values)
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1
    values[0] = 1  # the solver may
    assert not arrays.view_is_copy(values)


def test_a_view_of_torch_shares_memory(make_torch):
    values = np.zeros(3)
    view = arrays.readonly_view(values, make_torch(np.zeros(1)))
    assert view.data_ptr() == values.ctypes.data
    assert not arrays.view_is_copy(view)


@pytest.mark.parametrize("size", [1, 3, 1000, 300_000])
@pytest.mark.parametrize("offset", [0, 1])
def test_a_view_of_jax_does_not_change_with_the_solvers_memory(make_jax, size, offset):
    # Aligned as JAX likes it, which it then shares without asking; and not.
    memory = np.empty(size + 16)
    start = (-memory.ctypes.data // 8) % 8 + offset
    values = memory[start : start + size]
    assert (values.ctypes.data % 64 == 0) == (offset == 0)
    for k in range(20):
        values[:] = k
        view = arrays.readonly_view(values, make_jax(np.zeros(1)))
        values[:] = -1
        assert float(view.min()) == float(view.max()) == k
    assert arrays.view_is_copy(view)


@pytest.mark.parametrize("dtype", ["float64", "int64", "float32"])
@pytest.mark.parametrize("convert", [arrays.as_user_array, arrays.readonly_view])
def test_jax_keeps_dtypes_that_it_does_not_hold_by_default(convert, dtype):
    jax = pytest.importorskip("jax")
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", False)
    try:
        template = jax.numpy.zeros(1)
        values = some(dtype)
        there = convert(values, template)
        assert there.dtype == np.dtype(dtype)
        assert np.asarray(there).tobytes() == values.tobytes()
        assert jax.numpy.zeros(1).dtype == np.float32  # its setting is as before
    finally:
        jax.config.update("jax_enable_x64", before)


def test_negative_zero_and_nan_keep_their_bits(make):
    values = np.array([-0.0, np.nan, np.inf, 5e-324])
    for convert in (arrays.as_user_array, arrays.readonly_view, arrays.copy_to_device_of):
        assert arrays.host_copy(convert(values.copy(), make(np.zeros(1)))).tobytes() == values.tobytes()


def test_jax_arrays_follow_the_template_to_its_device():
    """With two devices, each in turn the usual one; what is made may follow other arrays to theirs."""
    pytest.importorskip("jax")
    program = """
import jax, numpy as np
from stepwell import arrays
first, second = jax.devices()
for usual in (None, "cpu", first, second):
    jax.config.update("jax_default_device", usual)
    for home in (first, second):
        with jax.default_device(home):
            free = jax.numpy.zeros(3)
        for template in (free, jax.device_put(np.zeros(3), home)):
            for convert in (arrays.as_user_array, arrays.readonly_view):
                made = convert(np.arange(3.0, dtype=np.float32), template)
                assert made.devices() == {home}, (usual, home, made.devices())
                other = jax.device_put(np.ones(3, np.float32), first if home == second else second)
                assert (made + other).devices() == other.devices()
            assert arrays.copy_to_device_of(np.arange(3.0), template).devices() == {home}
            assert arrays.empty_block(2, 2, template).devices() == {home}
print("good")
"""
    there = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=there)
    assert run.stdout.strip() == "good", run.stderr


def test_arrays_of_jax_are_on_the_cpu_in_tests_of_the_cpu():
    """Whatever JAX's default is on this machine; tests/conftest.py sees to it."""
    jax = pytest.importorskip("jax")
    (device,) = jax.numpy.zeros(1).devices()
    assert device.platform == "cpu"


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "bool"])
def test_one_element_is_a_number(make, shape, dtype):
    found = arrays.scalar_of(make(np.ones(shape, dtype)))
    assert (type(found), found) == (float, 1.0)


@pytest.mark.parametrize(
    "value", [2, True, np.float32(2), fractions.Fraction(2), decimal.Decimal(2), np.array([2], object)]
)
def test_what_python_has_for_numbers(value):
    assert arrays.scalar_of(value) == float(np.asarray(value).reshape(-1)[0])


def test_what_is_no_number_is_refused(make):
    with pytest.raises(TypeError, match=r"f is an array of shape \(2,\); allowed: a number"):
        arrays.scalar_of(make(np.zeros(2)))
    with pytest.raises(TypeError, match=r"f is of type .*complex.*; allowed: a number that is real"):
        arrays.scalar_of(make(np.array(1j)))
    for value in (1j, np.array([1j]), np.array([1j], object)):
        with pytest.raises(TypeError, match=r"f is of type complex.*; allowed: a number that is real"):
            arrays.scalar_of(value)
    for value in (object(), None, [1.0]):
        with pytest.raises(TypeError, match=r"f is .*; allowed: a number"):
            arrays.scalar_of(value)
    with pytest.raises(ValueError, match=r"beyond 1\.8e308"):
        arrays.scalar_of(10**400)


def test_a_graph_is_left_behind(make_torch):
    tensor = make_torch(np.ones(2)).requires_grad_()
    assert not arrays.without_graph(tensor * 2).requires_grad
    assert arrays.scalar_of((tensor * 2).sum()) == 4
    np.testing.assert_array_equal(arrays.host_view(tensor * 2), [2, 2])
    assert arrays.without_graph(3.0) == 3.0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_as_float(make, dtype):
    array = make(np.arange(3, dtype=np.int32))
    converted = arrays.as_float(array, dtype)
    assert arrays.numpy_dtype(converted) == np.dtype(dtype)
    np.testing.assert_array_equal(arrays.host_view(converted), [0, 1, 2])
    assert arrays.as_float(converted, dtype) is converted
