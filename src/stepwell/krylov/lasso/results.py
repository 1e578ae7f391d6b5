"""What the lasso returns, how a column may end, and what a callback is told."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepwell.arrays import Array
from stepwell.common.status import SolverStatus
from stepwell.krylov.proven import PerColumn, ProvenResult


class LassoStatus(SolverStatus):
    """Why the iteration ended for one column; ``.message`` says it in words, ``.success`` whether it is proved.

    Examples
    --------
    >>> LassoStatus.CONVERGED.success, LassoStatus.UNMATCHED.success
    (True, False)
    """

    CONVERGED = 0, 0, "the objective is proved to be within tol of the least"
    ITERATION_LIMIT = 1, 1, "the iteration limit was reached before the proof; gap says what is proved"
    STAGNATED = 2, 2, "rounding errors, or lam = 0, keep the proven gap above tol; x is the best point reached"
    UNMATCHED = 3, 2, "the adjoint of A is not its adjoint, so nothing can be proved; see adjoint_error"
    NONFINITE = 4, 2, "the right-hand side or an operator product is not finite; x is the last finite point"
    STOPPED = 5, 99, "the callback asked to stop"


@dataclass(frozen=True)
class LassoProgress:
    """What a callback is told: once before the first step (iteration 0), then after every check of the gap.

    Attributes
    ----------
    iteration : int
        Steps done.
    active : int
        Columns whose gap is not within the tolerance.
    columns : int
        All columns.
    gap : float
        The largest proven relative gap among the active columns.
    products : float
        Applications of A and its adjoint to one vector so far, over all columns.
    """

    iteration: int
    active: int
    columns: int
    gap: float
    products: float


@dataclass(repr=False)
class LassoResult(ProvenResult[LassoStatus]):
    """The solutions of all columns, each with what is proved of it.

    Attributes
    ----------
    x : array
        The solutions, one column per right-hand side (a row with ``axis=0``; a vector for a vector), in the caller's
        kind of array. Zeros are exact; with a transform those of its coefficients are.
    status : LassoStatus or list of LassoStatus
        Why each column ended; of a vector one member.
    gap : ndarray of float64
        Proven relative gap of each column: ``(f(x) − f*) / f(x) <= gap`` for the least value f*.
    objective : ndarray of float64
        f(x) = ½‖Ax − b‖² + λ‖Wx‖₁, recomputed from A at the end.
    lower : ndarray of float64
        Proven lower bound of the least value f*.
    lam : float or ndarray
        λ of each column, not squared.
    lam_max : float or ndarray
        The λ of each column from which on x = 0 is the solution without bounds: the largest entry, or group norm,
        of W Aᵀb.
    nonzeros : ndarray of int64
        Entries, or coefficients, of each column that are not zero.
    iterations : ndarray of int64
        Steps in which each column took part.
    products : ndarray of float64
        Applications of A and its adjoint to one vector, per column.
    history : list of ndarray
        Proven relative gap of each column at each check.
    method : str
        ``"admm"``, with one Cholesky factor of a dense A, or ``"fista"``.
    adjoint_error : float
        How far the adjoint of A is from its adjoint; about machine precision for a true pair.
    seconds : float
        Wall-clock time of the whole call.
    success : bool
        Whether the tolerance is proved for every column.
    reason : LassoStatus or list of LassoStatus
        The same as `status`.
    message : str
        How many columns ended how, and the worst gap.
    """

    x: Array
    status: PerColumn
    gap: NDArray[np.float64]
    objective: NDArray[np.float64]
    lower: NDArray[np.float64]
    lam: PerColumn
    lam_max: PerColumn
    nonzeros: NDArray[np.int64]
    iterations: NDArray[np.int64]
    products: NDArray[np.float64]
    history: list[NDArray[np.float64]]
    method: str
    adjoint_error: float
    seconds: float
