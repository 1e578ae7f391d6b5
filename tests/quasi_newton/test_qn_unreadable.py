"""Gradients, values and a jac that cannot be read: errors that name them, what was got and what is allowed."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse

from stepwell import LBFGSB, minimize, minimize_batch

GRADIENTS_THAT_ARE_NONE = {
    "None": (lambda n: None, "is None; allowed: an array of real numbers"),
    "Nones": (lambda n: [None] * n, r"is \[None.*; allowed: an array of real numbers"),
    "a dict": (lambda n: {}, r"is \{\}; allowed: an array of real numbers"),
    "too large": (lambda n: [10**400] * n, r"is \[1000.*; allowed: an array of real numbers"),
    "sparse": (lambda n: sparse.csr_array(np.ones((1, n))), "is a sparse csr_array; allowed: a dense array"),
    "ragged": (lambda n: [[1.0], [2.0, 3.0]], "cannot be read as an array: .*; allowed: a dense array of real numbers"),
}


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("wrong", GRADIENTS_THAT_ARE_NONE)
def test_gradients_that_are_no_arrays_of_numbers(wrong, n):
    make, said = GRADIENTS_THAT_ARE_NONE[wrong]
    for call in (
        lambda: minimize(lambda x: (0.0, make(n)), np.ones(n), jac=True),
        lambda: minimize(lambda x: 0.0, np.ones(n), jac=lambda x: make(n)),
        lambda: minimize_batch(lambda x: (np.zeros(1), make(n)), np.ones((1, n)), jac=True),
    ):
        with pytest.raises((TypeError, ValueError), match=f"^the gradient {said}"):
            call()
    with pytest.raises((TypeError, ValueError), match=f"^g {said}"):
        LBFGSB(np.ones(n)).tell(0.0, make(n))


def test_gradients_of_fractions():
    start = np.array([4.0, -8.0])
    r = minimize(lambda x: (float(x @ x), [Fraction(2 * value) for value in x]), start, jac=True)
    assert np.array_equal(r.x, minimize(lambda x: (float(x @ x), 2 * x), start, jac=True).x)


def test_values_that_no_float_holds():
    for value in (10**400, -(10**400), Fraction(10**400)):
        said = f"^f is of type {type(value).__name__} and beyond 1.8e308; allowed: a number within"
        with pytest.raises(ValueError, match=said):
            minimize(lambda x, value=value: (value, 2 * x), np.ones(2), jac=True)
    for values in ([10**400], None):
        with pytest.raises(TypeError, match=r"^f is .*; allowed: an array of real numbers"):
            minimize_batch(lambda x, values=values: (values, 2 * x), np.ones((1, 2)), jac=True)


@pytest.mark.parametrize("jac", [np.ones(2), np.array(True), [2.0, 2.0], "4-point", 1])
def test_what_is_no_jac(jac):
    for call, start in ((minimize, np.ones(2)), (minimize_batch, np.ones((1, 2)))):
        with pytest.raises(ValueError, match=r"^jac is .*; allowed: None, True, a callable, '2-point'"):
            call(lambda x: 0.0, start, jac=jac)
