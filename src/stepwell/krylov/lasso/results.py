"""What the lasso returns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepwell.arrays import Array
from stepwell.krylov.proven import PerColumn, ProvenProgress, ProvenResult, ProvenStatus

LassoStatus = ProvenStatus
LassoProgress = ProvenProgress


@dataclass(repr=False)
class LassoResult(ProvenResult):
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
        ``"admm"``, with a factor of a dense A, or ``"fista"``.
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
