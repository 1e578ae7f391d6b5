"""The inverse of the limited-memory BFGS matrix as a linear operator."""

from __future__ import annotations

import numpy as np
from scipy.sparse.linalg import LinearOperator


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
        self.sk, self.yk, self.h0 = sk.astype(np.float64), yk.astype(np.float64), h0
        self.n_corrs = len(sk)
        self.rho = 1 / np.einsum("ij,ij->i", self.sk, self.yk)

    def _matvec(self, v: np.ndarray) -> np.ndarray:
        # The two-loop recursion (Nocedal 1980).
        q = np.array(v, dtype=np.float64).reshape(-1)
        alpha = np.empty(self.n_corrs)
        for i in reversed(range(self.n_corrs)):
            alpha[i] = self.rho[i] * (self.sk[i] @ q)
            q -= alpha[i] * self.yk[i]
        r: np.ndarray = self.h0 * q
        for i in range(self.n_corrs):
            r += (alpha[i] - self.rho[i] * (self.yk[i] @ r)) * self.sk[i]
        return r

    def _adjoint(self) -> InverseHessian:
        return self

    def todense(self) -> np.ndarray:
        """Return the operator as a dense array; for small n."""
        return np.asarray(self @ np.eye(self.shape[0]))
