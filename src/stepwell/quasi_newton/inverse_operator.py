"""The inverse of the limited-memory BFGS matrix as SciPy's linear operator."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import LbfgsInvHessProduct
from scipy.sparse.linalg import LinearOperator

from stepwell.quasi_newton.inverse_hessian import two_loop


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

    def __init__(self, sk: Sequence[np.ndarray], yk: Sequence[np.ndarray], h0: float | np.ndarray, n: int) -> None:
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
