"""One table of arguments, one outcome each: start, bounds and diagonal as the one reader takes them.

The same cases go through NumPy, PyTorch and JAX arrays on the CPU and, with a GPU, through arrays there.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from device_arrays import on_cpu, on_gpu

from stepwell.arrays import host_copy, jax_double, kind_of
from stepwell.quasi_newton.inputs import project_start, read_bounds, read_diagonal, read_start

inf, nan = math.inf, math.nan
F4 = np.float32


def up(x):  # the next float32 above a double that is none, or itself
    near = F4(x)
    return near if float(near) >= x else np.nextafter(near, F4(inf))


def down(x):
    return -up(-x)


def given(values, dtype="float64"):
    """An array that a case hands in, made by the library under test."""
    return ("array", np.asarray(values, dtype))


# name: (dtype and shape of x0, bounds, lower and upper as they come out, or an error and its words)
BOUNDS = {
    "none": ("float64", (3,), None, None),
    "numbers": ("float64", (3,), (-1.0, 2.0), ([-1] * 3, [2] * 3)),
    "whole numbers": ("float64", (3,), (-1, 2), ([-1] * 3, [2] * 3)),
    "one side": ("float64", (3,), (0, None), ([0] * 3, [inf] * 3)),
    "other side": ("float64", (3,), (None, 0.5), ([-inf] * 3, [0.5] * 3)),
    "infinite on both sides": ("float64", (3,), (-inf, inf), None),
    "arrays": ("float64", (3,), (given([0, 1, 2]), given([3, 4, inf])), ([0, 1, 2], [3, 4, inf])),
    "array and number": ("float64", (3,), (given([0, 1, 2]), 9.0), ([0, 1, 2], [9] * 3)),
    "number and array": ("float64", (3,), (-1, given([0, 1, 2])), ([-1] * 3, [0, 1, 2])),
    "array of one": ("float64", (3,), (given([0]), given([1])), ([0] * 3, [1] * 3)),
    "pairs": ("float64", (2,), [(0, 1), (None, 3)], ([0, -inf], [1, 3])),
    "pairs of two at n = 2": ("float64", (2,), ((0, 1), (2, 3)), ([0, 2], [1, 3])),
    "array of pairs": ("float64", (2,), given([[0, 1], [2, 3]]), ([0, 2], [1, 3])),
    "two arrays at n = 2": ("float64", (2,), (given([0, 1]), given([2, 3])), ([0, 1], [2, 3])),
    "shape of the start": ("float64", (2, 2), (given([[0, 1], [2, 3]]), 9), ([0, 1, 2, 3], [9] * 4)),
    "flat for a start with a shape": ("float64", (2, 2), (given([0, 1, 2, 3]), 9), ([0, 1, 2, 3], [9] * 4)),
    "integers": ("float64", (2,), (given([0, 1], "int32"), given([5, 6], "int32")), ([0, 1], [5, 6])),
    "single for double": ("float64", (2,), (given([0.1, 1], "float32"), 5.0), ([float(F4(0.1)), 1], [5, 5])),
    "equal": ("float64", (2,), (given([0.1, 1]), given([0.1, 1])), ([0.1, 1], [0.1, 1])),
    "double for single": (
        "float32",
        (3,),
        (given([0.1, 1 / 3, -0.3]), given([0.7, 2 / 3, 0.1])),
        ([up(0.1), up(1 / 3), up(-0.3)], [down(0.7), down(2 / 3), down(0.1)]),
    ),
    "numbers for single": ("float32", (2,), (0.1, 0.7), ([up(0.1)] * 2, [down(0.7)] * 2)),
    "equal doubles for single": ("float32", (2,), (given([0.1, 0.3]), given([0.1, 0.3])), ([F4(0.1), F4(0.3)],) * 2),
    "equal number and array for single": ("float32", (2,), (0.1, given([0.1, 0.1])), ([F4(0.1)] * 2,) * 2),
    "far below single": ("float32", (2,), (given([-1e300, -1]), 1.0), ([-np.finfo(F4).max, -1], [1, 1])),
    "beyond single": (
        "float32",
        (2,),
        (given([0, 1e39]), given([1, 1e300])),
        (ValueError, r"index 1 are \(1e\+39, 1e"),
    ),
    "number beyond single": ("float32", (2,), (1e39, None), (ValueError, r"index 0 are \(1e\+39, inf\)")),
    "crossed": ("float64", (3,), (given([0, 2, 0]), given([1, 1, 1])), (ValueError, r"index 1 \(2.0 > 1.0\)")),
    "crossed numbers": ("float64", (3,), (2, 1), (ValueError, r"lower > upper at index 0 \(2.0 > 1.0\)")),
    "not a number": ("float64", (2,), (given([0, nan]), 1.0), (ValueError, "the lower bound is nan at index 1")),
    "number that is none": ("float64", (2,), (0.0, nan), (ValueError, "the upper bound is nan at index 0")),
    "no point": ("float64", (2,), (inf, inf), (ValueError, "leaves no point")),
    "wrong length": ("float64", (3,), (given([0, 1]), 1.0), (ValueError, r"the lower bounds have shape \(2,\)")),
    "wrong shape": ("float64", (2, 3), (given(np.zeros((3, 2))), 1.0), (ValueError, r"have shape \(3, 2\)")),
    "triples": ("float64", (3,), [(0, 1, 2)] * 3, (ValueError, "pairs")),
    "text": ("float64", (3,), "abc", (ValueError, "bounds")),
    "complex": ("float64", (2,), (given([0, 1], "complex128"), 1.0), ((TypeError, ValueError), "real numbers|complex")),
}

BATCH_BOUNDS = {
    "shared": ((2, 3), (given([0, 1, 2]), 9.0), ([0, 1, 2], [9, 9, 9])),
    "own": ((2, 3), (given([[0, 1, 2], [3, 4, 5]]), 9.0), ([[0, 1, 2], [3, 4, 5]], [[9] * 3] * 2)),
    "neither": ((2, 3), (given([0, 1]), 9.0), (ValueError, r"allowed: a number or shape \(2, 3\) or \(3,\)")),
}

DIAGONALS = {
    "array": ("float64", (3,), given([1, 2, 3]), [1, 2, 3]),
    "list": ("float64", (3,), [1, 2, 3], [1, 2, 3]),
    "single for double": ("float64", (2,), given([1, 2], "float32"), [1, 2]),
    "double for single": ("float32", (2,), given([0.1, 2]), [F4(0.1), 2]),
    "flat": ("float64", (2, 2), given([1, 2, 3, 4]), [1, 2, 3, 4]),
    "zero": ("float64", (2,), given([1, 0]), (ValueError, "h0 is 0.0 at index 1; allowed: positive")),
    "negative": ("float64", (2,), given([-1, 1]), (ValueError, "h0 is -1.0 at index 0")),
    "infinite": ("float64", (2,), given([1, inf]), (ValueError, "h0 is inf at index 1")),
    "not a number": ("float64", (2,), given([nan, 1]), (ValueError, "h0 is nan at index 0")),
    "below single": ("float32", (2,), given([1, 1e-60]), (ValueError, "h0 is 0.0 at index 1")),
    "wrong shape": ("float64", (3,), given([1, 2]), (ValueError, r"h0 has shape \(2,\); allowed: \(3,\)")),
}

STARTS = {
    "double": (np.linspace(0, 1, 4), "float64"),
    "single": (np.linspace(0, 1, 4, dtype=F4), "float32"),
    "with a shape": (np.ones((2, 3)), "float64"),
    "one": (np.ones(1), "float64"),
    "empty": (np.ones(0), (ValueError, "at least one variable")),
    "infinite": (np.array([1, inf]), (ValueError, "x0 is inf at index 1; allowed: finite")),
    "not a number": (np.array([[nan, 1]]), (ValueError, r"x0 is nan at index \(0, 0\)")),
}

LIBRARIES = [*on_cpu(), *on_gpu()]


def hand_in(value, make):
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str) and value[0] == "array":
        return make(value[1])
    return tuple(hand_in(one, make) for one in value) if isinstance(value, tuple) and len(value) == 2 else value


def outcome(expected, call):
    """Call, and hold what comes out or is raised against what is expected."""
    if isinstance(expected, tuple) and isinstance(expected[0], type | tuple):
        with pytest.raises(expected[0], match=expected[1]):
            call()
        return None
    return call()


@pytest.mark.parametrize("make", LIBRARIES)
@pytest.mark.parametrize("case", BOUNDS)
def test_bounds(case, make):
    dtype, shape, bounds, expected = BOUNDS[case]
    if case == "complex" and kind_of(make(np.zeros(1))) == "cupy":
        pytest.skip("CuPy compares complex numbers")
    with in_double(make):
        variables, start = read_start(make(np.zeros(shape, dtype)))
        box = outcome(expected, lambda: read_bounds(hand_in(bounds, make), variables))
    if box is None:
        return
    for half, wanted in zip(box[:2], expected):
        assert tuple(half.shape) in ((1,), np.shape(wanted))  # a number stays one
        assert np.array_equal(np.broadcast_to(host_copy(half), np.shape(wanted)), np.asarray(wanted, dtype))
        assert str(half.dtype).rpartition(".")[2] == dtype
        assert kind_of(half) == kind_of(start)
    assert box.boxed == bool(np.isfinite(expected).all())


def test_no_finite_bound_is_no_bound():
    variables, _ = read_start(np.zeros(3))
    for bounds in (None, (-inf, inf), (None, None), [(None, None)] * 3):
        assert read_bounds(bounds, variables) is None


@pytest.mark.parametrize("make", LIBRARIES)
@pytest.mark.parametrize("case", BATCH_BOUNDS)
def test_bounds_of_a_batch(case, make):
    shape, bounds, expected = BATCH_BOUNDS[case]
    with in_double(make):
        variables, _ = read_start(make(np.zeros(shape)), batch=True)
        box = outcome(expected, lambda: read_bounds(hand_in(bounds, make), variables))
    if box is not None:
        for half, wanted in zip(box[:2], expected):
            assert tuple(half.shape) in ((1,), np.shape(wanted))
            assert np.array_equal(np.broadcast_to(host_copy(half), np.shape(wanted)), np.asarray(wanted, float))


@pytest.mark.parametrize("make", LIBRARIES)
@pytest.mark.parametrize("case", DIAGONALS)
def test_diagonals(case, make):
    dtype, shape, h0, expected = DIAGONALS[case]
    with in_double(make):
        variables, _ = read_start(make(np.zeros(shape, dtype)))
        found = outcome(expected, lambda: read_diagonal(hand_in(h0, make), variables))
    if found is not None:
        assert np.array_equal(host_copy(found), np.asarray(expected, dtype))


@pytest.mark.parametrize("make", LIBRARIES)
@pytest.mark.parametrize("case", STARTS)
def test_starts(case, make):
    values, expected = STARTS[case]
    with in_double(make):
        made = outcome(expected, lambda: read_start(make(values)))
    if made is None:
        return
    variables, start = made
    assert (variables.shape, str(variables.dtype), variables.problems) == (values.shape, expected, 1)
    assert np.array_equal(host_copy(start), values.reshape(1, -1))


@pytest.mark.parametrize("make", LIBRARIES)
def test_what_was_read_is_a_copy(make):
    """The promise is that bounds hold to the bit, whatever the caller does with his arrays."""
    if kind_of(make(np.zeros(1))) == "jax":
        pytest.skip("JAX arrays cannot be changed")
    lower, upper, h0 = make(np.zeros(3)), make(np.ones(3)), make(np.ones(3))
    variables, start = read_start(make(np.full(3, 0.5)))
    box, weights = read_bounds((lower, upper), variables), read_diagonal(h0, variables)
    for array in (lower, upper, h0):
        array[...] = 7.0
    assert [host_copy(a).tolist() for a in (box.lower, box.upper, weights)] == [[0.0] * 3, [1.0] * 3, [1.0] * 3]
    assert host_copy(project_start(start, box)).tolist() == [[0.5] * 3]


@pytest.mark.parametrize("order", ["F", "strided", "read-only"])
@pytest.mark.parametrize("make", [m for m in LIBRARIES if "numpy" in str(m.id)])
def test_odd_layouts(order, make):
    rows = np.arange(6.0).reshape(2, 3)
    odd = {"F": np.asfortranarray(rows), "strided": np.repeat(rows, 2, axis=1)[:, ::2], "read-only": rows.copy()}[order]
    odd.flags.writeable = order != "read-only"
    variables, start = read_start(odd)
    box = read_bounds((odd, odd + 1), variables)
    assert np.array_equal(start, rows.reshape(1, -1))
    assert np.array_equal(box.lower, rows.reshape(-1))
    assert box.lower.flags.c_contiguous
    assert box.lower.flags.writeable


def test_an_interval_without_a_float32_is_said():
    variables, _ = read_start(np.zeros(2, F4))
    with pytest.warns(match="1 intervals hold no float32 number"):
        box = read_bounds((np.array([0.1, 0]), np.array([np.nextafter(0.1, 1), 1])), variables)
    assert box.lower[0] == box.upper[0] == F4(0.1)


def in_double(make):
    import contextlib

    return jax_double() if kind_of(make(np.zeros(1))) == "jax" else contextlib.nullcontext()
