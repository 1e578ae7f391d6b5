"""Every complaint of nnls and Convolution: what was got, what is allowed."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import stepwell
from stepwell.lsq.solving import solve_by_update

A = np.eye(3)
b = np.ones(3)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((np.ones(3), b), {}, r"A has shape \(3,\); allowed: \(m, n\) or \(systems, m, n\)"),
        ((A, np.ones((2, 2, 3))), {"axis": 1}, r"b has shape \(2, 2, 3\); allowed: \(m, systems\) with axis=1"),
        ((A, np.float64(1.0)), {}, r"b has shape \(\); allowed: \(m,\), or \(systems, m\)"),
        ((A, np.ones(4)), {}, r"b has shape \(4,\); allowed: 3 entries per system, as A of shape \(3, 3\) has rows"),
        ((np.ones((2, 3, 3)), b), {}, r"b has shape \(3,\); allowed: \(2, 3\), as A has shape \(2, 3, 3\)"),
        ((np.ones((2, 3, 3)), np.ones((4, 3))), {}, r"b has shape \(4, 3\); allowed: \(2, 3\), as A"),
        ((A, b), {"method": "magic"}, "method is 'magic'; allowed: 'auto', 'qr', 'gram'"),
        ((A, b), {"insertion": "two"}, "insertion is 'two'; allowed: 'guarded', 'single'"),
        ((A, b), {"lam": -1}, "lam is -1; allowed: a finite number of at least 0"),
        ((A, b), {"lam": np.nan}, "lam is nan; allowed: a finite number of at least 0"),
        ((A, b), {"tol": 0}, "tol is 0; allowed: a finite number above 0 and below 1"),
        ((A, b), {"tol": np.nan}, "tol is nan; allowed: a finite number above 0 and below 1"),
        ((A, b), {"maxiter": 0}, "maxiter is 0; allowed: a whole number of at least 1"),
        ((A, b), {"threads": 0}, "threads is 0; allowed: a whole number from 1 to 4096"),
        ((A, b), {"threads": 10**9}, "threads is 1000000000; allowed: a whole number from 1 to 4096"),
        ((A, b), {"warm_start": "hot"}, "warm_start is 'hot'; allowed: an x, states \\(int8\\), a boolean set"),
        ((A, b), {"warm_start": np.ones(4)}, r"warm_start has shape \(4,\); allowed: \(3,\) or \(1, 3\)"),
        ((A, b), {"warm_start": b * np.nan}, r"warm_start is nan at index \(0, 0\); allowed: numbers other than NaN"),
        ((A, np.array([1, np.nan, 1])), {}, "b is nan at index 1; allowed: finite numbers"),
        ((np.full((3, 3), np.inf), b), {}, r"A is inf at index \(0, 0\); allowed: finite numbers"),
        ((np.full((3, 3), np.nan), np.ones((2, 3))), {}, r"A is nan at index \(0, 0\); allowed: finite numbers"),
    ],
)
def test_bad_values(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        stepwell.nnls(*arguments, **options)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((A * 1j, b), {}, "A has dtype complex128; allowed: real numbers"),
        ((A, b * 1j), {}, "b has dtype complex128; allowed: real numbers"),
        ((A, b), {"maxiter": 2.5}, "maxiter is 2.5; allowed: a whole number of at least 1"),
        ((A, b), {"lam": "much"}, "lam is 'much'; allowed: a finite number of at least 0"),
        ((A, b), {"lam": "0.1"}, "lam is '0.1'; allowed: a finite number of at least 0"),
        ((A, b), {"lam": True}, "lam is True; allowed: a finite number of at least 0"),
        ((A, b), {"tol": True}, "tol is True; allowed: a finite number above 0 and below 1"),
        ((A, b), {"maxiter": True}, "maxiter is True; allowed: a whole number of at least 1"),
        ((A, b), {"threads": True}, "threads is True; allowed: a whole number from 1 to 4096"),
        (("A", b), {}, "A is 'A'; allowed: an array of real numbers"),
        (([[1, 2], [3]], b), {}, r"A is \[\[1, 2\], \[3\]\]; allowed: an array of real numbers"),
        ((sparse.csr_array(A), b), {}, "A is a sparse csr_array; allowed: a dense array"),
        ((A, b), {"progress": 5}, "progress is 5; allowed: None or a callable"),
        ((A, b), {"warm_start": b * 1j}, "warm_start has dtype complex128; allowed: real numbers"),
    ],
)
def test_bad_types(arguments, options, message):
    with pytest.raises(TypeError, match=message):
        stepwell.nnls(*arguments, **options)


def test_libraries_are_not_mixed():
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="A is a numpy array on cpu, b a torch array on cpu; allowed: one library"):
        stepwell.nnls(A, torch.ones(3))
    with pytest.raises(TypeError, match="warm_start is a numpy array on cpu, b a torch array on cpu; allowed: one"):
        stepwell.nnls(torch.eye(3), torch.ones(3), warm_start=b)


@pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr"])
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_sparse_tensors_are_refused(layout):
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="A is a sparse Tensor; allowed: a dense array"):
        stepwell.nnls(getattr(torch.eye(3), layout)(), torch.ones(3))


def test_lists_and_integers_are_numbers():
    np.testing.assert_allclose(stepwell.nnls([[1, 0], [0, 2]], [3, -1]).x, [3, 0])
    np.testing.assert_allclose(stepwell.nnls(np.eye(2, dtype=int), np.array([2, 1])).x, [2, 1])


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((np.ones((1, 2, 3)), 4), {}, r"pulse has shape \(1, 2, 3\); allowed: \(length,\) or \(systems, length\)"),
        ((np.ones(0), 4), {}, r"pulse has shape \(0,\); allowed: .* with length >= 1"),
        ((b, -1), {}, "n is -1; allowed: an integer of at least 0"),
        ((b, 4), {"m": -2}, "m is -2; allowed: an integer of at least 0"),
        ((b, 4), {"origin": 3}, "origin is 3; allowed: an integer from 0 to 2"),
    ],
)
def test_bad_convolutions(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        stepwell.Convolution(*arguments, **options)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((b, 2.5), {}, "n is 2.5; allowed: an integer of at least 0"),
        ((b, 3), {"m": "x"}, "m is 'x'; allowed: an integer of at least 0"),
        ((b, 3), {"origin": 1.5}, "origin is 1.5; allowed: an integer from 0 to 2"),
        ((b, True), {}, "n is True; allowed: an integer of at least 0"),
        (("abc", 3), {}, "pulse is 'abc'; allowed: an array of real numbers"),
    ],
)
def test_bad_types_of_convolutions(arguments, options, message):
    with pytest.raises(TypeError, match=message):
        stepwell.Convolution(*arguments, **options)


def test_a_convolution_says_what_it_is():
    wave = stepwell.Convolution(np.ones((5, 3)), 4)
    assert wave.shape == (5, 4, 4)
    assert wave.ndim == 3
    assert repr(wave) == "Convolution(pulse of shape (5, 3), n=4, m=4, origin=0)"


def test_updates_of_studies():
    with pytest.raises(ValueError, match="update is 'luck'; allowed: 'cgs2', 'mgs', 'rotations', 'csne'"):
        solve_by_update(A, b, "luck")
    with pytest.raises(ValueError, match="lam is 1; allowed: 0 with update='rotations'"):
        solve_by_update(A, b, "rotations", lam=1)


@pytest.mark.parametrize("solve", [stepwell.nnls, stepwell.lsq_linear, stepwell.lsq_gram])
def test_calls_that_no_signature_has(solve):
    """Arguments go on as one dict; what Python says of a wrong call names the public function all the same."""
    second = "c" if solve is stepwell.lsq_gram else "b"
    with pytest.raises(TypeError, match=rf"{solve.__name__}\(\) missing 1 required positional argument: '{second}'"):
        solve(np.eye(2))
    with pytest.raises(TypeError, match=rf"{solve.__name__}\(\) got multiple values for argument '{second}'"):
        solve(np.eye(2), np.ones(2), **{second: np.ones(2)})
    with pytest.raises(TypeError, match=rf"{solve.__name__}\(\) takes .* positional arguments? but"):
        solve(*[np.eye(2)] * 9)
