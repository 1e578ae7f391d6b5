"""Every complaint of nnls and Convolution: what was got, what is allowed."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import stepwell

A = np.eye(3)
b = np.ones(3)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((np.ones(3), b), {}, r"A must have shape \(m, n\) or \(systems, m, n\), got \(3,\)"),
        ((A, np.ones((2, 2, 3))), {}, r"b must have shape \(m,\) or \(systems, m\), got \(2, 2, 3\)"),
        ((A, np.ones(4)), {}, r"b must have 3 entries a system, as A of shape \(3, 3\) has rows, got \(4,\)"),
        ((np.ones((2, 3, 3)), b), {}, r"A of shape \(2, 3, 3\) needs b of shape \(2, 3\), got \(3,\)"),
        ((np.ones((2, 3, 3)), np.ones((4, 3))), {}, r"needs b of shape \(2, 3\), got \(4, 3\)"),
        ((A, b), {"method": "magic"}, "method must be one of 'auto', 'qr', 'gram', got 'magic'"),
        ((A, b), {"insertion": "two"}, "insertion must be one of 'guarded', 'single', got 'two'"),
        ((A, b), {"update": "luck"}, "update must be one of 'cgs2', 'mgs', 'rotations', 'csne', got 'luck'"),
        ((A, b), {"method": "gram", "update": "mgs"}, "update='mgs' belongs to method=\"qr\""),
        ((A, b), {"damping": -1}, "damping must be finite and not negative, got -1"),
        ((A, b), {"damping": np.nan}, "damping must be finite and not negative, got nan"),
        ((A, b), {"method": "qr", "update": "rotations", "damping": 1}, "has no damping"),
        ((A, b), {"tol": 0}, "tol must lie between 0 and 1, got 0"),
        ((A, b), {"tol": np.nan}, "tol must lie between 0 and 1, got nan"),
        ((A, b), {"max_iter": 0}, "max_iter must be at least 1, got 0"),
        ((A, b), {"threads": 0}, "threads must be at least 1, got 0"),
        ((A, b), {"threads": 10**9}, "threads must be at most 4096, got 1000000000"),
        ((A, b), {"warm_start": "hot"}, "warm_start must be an x, a boolean set, or \"chain\", got 'hot'"),
        ((A, b), {"warm_start": np.ones(4)}, r"warm_start must have shape \(3,\) or \(1, 3\), got \(4,\)"),
        ((A, b), {"warm_start": b * np.nan}, "warm_start must not hold NaN"),
        ((A, b), {"update": "rotations", "damping": 1}, "has no damping"),
        ((A, np.array([1, np.nan, 1])), {}, "b must be finite, got NaN or infinity"),
        ((np.full((3, 3), np.inf), b), {}, "A must be finite, got NaN or infinity"),
        ((np.full((3, 3), np.nan), np.ones((2, 3))), {}, "A must be finite, got NaN or infinity"),
    ],
)
def test_bad_values(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        stepwell.nnls(*arguments, **options)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((A * 1j, b), {}, "A must hold real numbers, got dtype complex128"),
        ((A, b * 1j), {}, "b must hold real numbers, got dtype complex128"),
        ((A, b), {"max_iter": 2.5}, "max_iter must be an integer, got 2.5"),
        ((A, b), {"damping": "much"}, "damping must be a number, got 'much'"),
        ((A, b), {"damping": "0.1"}, "damping must be a number, got '0.1'"),
        (("A", b), {}, "A must be an array of numbers, got 'A'"),
        (([[1, 2], [3]], b), {}, "A must be an array of numbers, got"),
        ((sparse.csr_array(A), b), {}, r"A must be a dense array, got csr_array; allowed: A.toarray\(\)"),
        ((A, b), {"progress": 5}, "progress must be callable, got 5"),
        ((A, b), {"warm_start": b * 1j}, "warm_start must hold real numbers or bools, got dtype complex128"),
    ],
)
def test_bad_types(arguments, options, message):
    with pytest.raises(TypeError, match=message):
        stepwell.nnls(*arguments, **options)


def test_libraries_are_not_mixed():
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="A and b must be arrays of one library, got numpy and torch"):
        stepwell.nnls(A, torch.ones(3))
    with pytest.raises(TypeError, match=r"warm_start must be an array like b \(torch on cpu\), got numpy on cpu"):
        stepwell.nnls(torch.eye(3), torch.ones(3), warm_start=b)


@pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr"])
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_sparse_tensors_are_refused(layout):
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="A must be a dense array, got Tensor"):
        stepwell.nnls(getattr(torch.eye(3), layout)(), torch.ones(3))


def test_lists_and_integers_are_numbers():
    np.testing.assert_allclose(stepwell.nnls([[1, 0], [0, 2]], [3, -1]).x, [3, 0])
    np.testing.assert_allclose(stepwell.nnls(np.eye(2, dtype=int), np.array([2, 1])).x, [2, 1])


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((np.ones((1, 2, 3)), 4), {}, r"pulse must have shape \(length,\) or \(systems, length\)"),
        ((np.ones(0), 4), {}, "with length >= 1"),
        ((b, -1), {}, "n must be at least 0, got -1"),
        ((b, 4), {"m": -2}, "m must be at least 0, got -2"),
        ((b, 4), {"origin": 3}, "origin must be a sample of the pulse, 0 to 2, got 3"),
    ],
)
def test_bad_convolutions(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        stepwell.Convolution(*arguments, **options)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((b, 2.5), {}, "n must be an integer, got 2.5"),
        ((b, 3), {"m": "x"}, "m must be an integer, got 'x'"),
        ((b, 3), {"origin": 1.5}, "origin must be an integer, got 1.5"),
        (("abc", 3), {}, "pulse must be an array of numbers, got 'abc'"),
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
