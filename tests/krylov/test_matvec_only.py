"""Operators of vectors alone, such as ASTRA's OpTomo: they are called column by column, with vectors."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse.linalg import LinearOperator, aslinearoperator

import stepwell
from stepwell.operators.matrices import takes_blocks

random = np.random.default_rng(7)
A, B = random.normal(size=(30, 20)), random.normal(size=(30, 3))
METHODS = ["cgls", "pseudo-block", "block", "prcg", "aprcg", "direct", "auto"]


def forward(x):
    assert x.ndim == 1
    return A @ x


def backward(y):
    assert y.ndim == 1
    return A.T @ y


class Hidden(LinearOperator):
    """As SciPy's documentation has it."""

    def __init__(self):
        super().__init__(float, A.shape)

    def _matvec(self, x):
        return forward(x)

    def _rmatvec(self, y):
        return backward(y)


class LikeOpTomo(LinearOperator):
    """As ASTRA has it: float32, `rmatvec` itself overridden, no call of SciPy's __init__."""

    def __init__(self):
        self.shape = A.shape
        self.dtype = np.dtype(np.float32)

    def _matvec(self, x):
        return forward(np.ascontiguousarray(x)).ravel()

    def rmatvec(self, y):
        return backward(np.ascontiguousarray(y)).ravel()


class Duck:
    shape = A.shape

    def matvec(self, x):
        return forward(x)

    def rmatvec(self, y):
        return backward(y)


KINDS = {
    "subclass": Hidden,
    "OpTomo": LikeOpTomo,
    "duck": Duck,
    "functions": lambda: LinearOperator(A.shape, matvec=forward, rmatvec=backward, dtype=float),
    "blocks one way": lambda: LinearOperator(A.shape, matvec=forward, rmatvec=backward, matmat=lambda X: A @ X),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", KINDS)
def test_tikhonov(kind, method):
    result = stepwell.tikhonov(KINDS[kind](), B, 0.5, method=method, tol=1e-10)
    assert result.success
    np.testing.assert_allclose(result.x, np.linalg.solve(A.T @ A + 0.25 * np.eye(20), A.T @ B), atol=1e-9)
    penalised = stepwell.tikhonov(A, B, 0.5, differences(), method=method, tol=1e-10)
    assert penalised.success


def differences():
    return LinearOperator((19, 20), matvec=lambda x: np.diff(x), rmatvec=lambda y: -np.diff(y, prepend=0, append=0))


@pytest.mark.parametrize("kind", ["duck", "functions"])
def test_other_solvers(kind):
    operator = KINDS[kind]()
    assert stepwell.adjoint_error(operator) < 1e-14
    expected = np.linalg.solve(A.T @ A + 0.25 * np.eye(20), A.T @ B[:, 0])
    np.testing.assert_allclose(stepwell.ProjectedCG(operator, 0.5).solve(B[:, 0], tol=1e-10).x, expected, atol=1e-9)


def test_cg_needs_no_transpose():
    H = A.T @ A + np.eye(20)

    class Forward:
        shape = H.shape

        def matvec(self, x):
            assert x.ndim == 1
            return H @ x

    np.testing.assert_allclose(stepwell.cg(Forward(), B[:20], tol=1e-12).x, np.linalg.solve(H, B[:20]), atol=1e-9)
    with pytest.raises(TypeError, match=r"^A is a Forward whose rmatvec is not implemented"):
        stepwell.tikhonov(Forward(), B[:20], 0.5)


def test_blocks_are_used_where_they_are_defined():
    assert not takes_blocks(Hidden(), "matmat")
    assert not takes_blocks(LikeOpTomo(), "rmatmat")
    wrapped = aslinearoperator(A)
    for operator in (wrapped, wrapped.T, wrapped + wrapped, 2 * wrapped, wrapped.H):
        assert takes_blocks(operator, "matmat")
        assert takes_blocks(operator, "rmatmat")


def test_an_attribute_error_of_the_callers_own_is_told_as_it_is():
    class Broken(Duck):
        def rmatvec(self, y):
            return y.no_such_attribute

    with pytest.raises(AttributeError, match="no_such_attribute"):
        stepwell.tikhonov(Broken(), B, 0.5)
