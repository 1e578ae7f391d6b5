"""The inverse of the limited-memory BFGS matrix as a linear operator."""

from __future__ import annotations

from typing import Any

import numpy as np
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
    """The inverse Hessian approximation of a run on a GPU: ``H @ v`` for device arrays of the caller's library."""

    def __init__(self, sk: list[Any], yk: list[Any], h0: Any, n: int) -> None:
        self.sk, self.yk, self.h0 = sk, yk, h0
        self.shape = (n, n)
        self.n_corrs = len(sk)

    def matvec(self, v: Any) -> Any:
        """Apply the operator to a vector of n elements, in whatever shape."""
        return two_loop(self.sk, self.yk, self.h0, v.reshape(-1)).reshape(v.shape)

    __matmul__ = matvec


class InverseHessian(LinearOperator):  # type: ignore[misc]
    """The inverse Hessian approximation of a finished run.

    It is the BFGS update of a diagonal H0 by the pairs (s, y) in order of age, so ``H @ y == s`` for the latest pair
    (the secant equation), however often the history has wrapped around.

    Parameters
    ----------
    sk, yk : (k, n) arrays
        Steps and gradient differences, oldest first.
    h0 : float or (n,) array
        Initial inverse Hessian: a multiple of the identity or a diagonal.

    Examples
    --------
    >>> import numpy as np
    >>> H = InverseHessian(np.array([[1.0, 0.0]]), np.array([[2.0, 1.0]]), 0.4)
    >>> H @ np.array([2.0, 1.0])
    array([1., 0.])
    """

    def __init__(self, sk: np.ndarray, yk: np.ndarray, h0: float | np.ndarray) -> None:
        n = sk.shape[1]
        super().__init__(np.float64, (n, n))
        self.sk, self.yk, self.h0 = sk.astype(np.float64, copy=False), yk.astype(np.float64, copy=False), h0
        self.n_corrs = len(sk)

    def _matvec(self, v: np.ndarray) -> np.ndarray:
        result: np.ndarray = two_loop(self.sk, self.yk, self.h0, np.asarray(v, dtype=np.float64).reshape(-1))
        return result

    def _adjoint(self) -> InverseHessian:
        return self

    def todense(self) -> np.ndarray:
        """Return the operator as a dense array; for small n."""
        return np.asarray(self @ np.eye(self.shape[0]))
