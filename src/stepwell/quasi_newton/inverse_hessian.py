"""The inverse of the limited-memory BFGS matrix as a linear operator."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.optimize import LbfgsInvHessProduct
from scipy.sparse.linalg import LinearOperator


def two_loop(s: Any, y: Any, h0: Any, v: Any) -> Any:
    """Apply the inverse BFGS matrix to a vector: the two-loop recursion (Nocedal 1980), for any array library."""
    q, alphas = v, []
    for si, yi in zip(reversed(s), reversed(y)):
        alpha = (si * q).sum() / (si * yi).sum()
        q = q - alpha * yi
        alphas.append(alpha)
    r = h0 * q
    for si, yi, alpha in zip(s, y, reversed(alphas)):
        beta = (yi * r).sum() / (si * yi).sum()
        r = r + (alpha - beta) * si
    return r


class DeviceInverseHessian:
    """The inverse Hessian approximation of a run on a GPU: ``H @ v`` for device arrays of the caller's library.

    Pairs are asked for when they are first used: those of a narrower dtype than the variables are widened then, and
    may be more than the memory left.
    """

    def __init__(self, pairs: Callable[[], tuple[list[Any], list[Any]]], count: int, h0: Any, n: int) -> None:
        self._ask_pairs, self.n_corrs, self.h0 = pairs, count, h0
        self.shape = (n, n)

    @functools.cached_property
    def _pairs(self) -> tuple[list[Any], list[Any]]:
        return self._ask_pairs()

    @property
    def sk(self) -> list[Any]:
        """Steps, oldest first."""
        return self._pairs[0]

    @property
    def yk(self) -> list[Any]:
        """Gradient differences, oldest first."""
        return self._pairs[1]

    def __reduce__(self) -> tuple[Any, ...]:
        return _with_pairs, (self._pairs, self.h0, self.shape[0])

    def __repr__(self) -> str:
        return f"<{self.shape[0]}x{self.shape[1]} DeviceInverseHessian of {self.n_corrs} pairs>"

    def matvec(self, v: Any) -> Any:
        """Apply the operator to a vector of n elements, in whatever shape."""
        return two_loop(self.sk, self.yk, self.h0, v.reshape(-1)).reshape(v.shape)

    __matmul__ = matvec


def _with_pairs(pairs: tuple[list[Any], list[Any]], h0: Any, n: int) -> DeviceInverseHessian:
    return DeviceInverseHessian(lambda: pairs, len(pairs[0]), h0, n)


class InverseHessian(LbfgsInvHessProduct):  # type: ignore[misc]
    """The inverse Hessian approximation of a finished run, with SciPy's type and attributes.

    Unlike SciPy's it starts from the scaled diagonal of the run, not from the identity.

    It is the BFGS update of a diagonal H0 by the pairs (s, y) in order of age, so ``H @ y == s`` for the latest pair
    (the secant equation), however often the history has wrapped around.

    Parameters
    ----------
    sk, yk : (k, n) arrays, or k arrays (n,)
        Steps and gradient differences, oldest first. Rows of float64 are not copied.
    h0 : float or (n,) array
        Initial inverse Hessian: a multiple of the identity or a diagonal.
    n : int
        Number of variables.

    Examples
    --------
    >>> import numpy as np
    >>> H = InverseHessian(np.array([[1.0, 0.0]]), np.array([[2.0, 1.0]]), 0.4, 2)
    >>> H @ np.array([2.0, 1.0])
    array([1., 0.])
    """

    def __init__(self, sk: Sequence[Any], yk: Sequence[Any], h0: float | np.ndarray, n: int) -> None:
        LinearOperator.__init__(self, np.float64, (n, n))  # SciPy's own would copy the pairs
        self._s = [np.asarray(row, dtype=np.float64) for row in sk]
        self._y = [np.asarray(row, dtype=np.float64) for row in yk]
        self.h0 = h0
        self.n_corrs = len(self._s)

    @property
    def sk(self) -> np.ndarray:
        """Steps, (k, n), oldest first."""
        return np.array(self._s).reshape(self.n_corrs, self.shape[0])

    @property
    def yk(self) -> np.ndarray:
        """Gradient differences, (k, n), oldest first."""
        return np.array(self._y).reshape(self.n_corrs, self.shape[0])

    @property
    def rho(self) -> np.ndarray:
        """1 / (s . y) of each pair."""
        return np.array([1 / (s @ y) for s, y in zip(self._s, self._y)])

    def _matvec(self, v: np.ndarray) -> np.ndarray:
        wide = np.asarray(v, dtype=np.result_type(v, np.float64)).reshape(-1)  # complex vectors stay complex
        result: np.ndarray = two_loop(self._s, self._y, self.h0, wide)
        return result

    def _matmat(self, columns: np.ndarray) -> np.ndarray:
        return np.asarray(LinearOperator._matmat(self, columns))  # column by column, as `_matvec` has it

    def _adjoint(self) -> InverseHessian:
        return self

    def todense(self) -> np.ndarray:
        """Return the operator as a dense array; for small n."""
        return self._matmat(np.eye(self.shape[0]))


class InverseHessians:
    """The inverse Hessian approximations of a batch: ``hess_inv(k)`` makes the operator of problem k.

    Made when asked for, since a batch has many. Pickled, it holds the operators themselves.
    """

    def __init__(self, make: Callable[[int], Any], count: int) -> None:
        self._make, self._count = make, count

    def __call__(self, problem: int) -> Any:
        """Return the operator of one problem."""
        return self._make(problem)

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"hess_inv(k) of {self._count} problems"

    def __reduce__(self) -> tuple[Any, ...]:
        made = [self(problem) for problem in range(self._count)]
        return InverseHessians, (made.__getitem__, self._count)
