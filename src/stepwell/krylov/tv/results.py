"""What total variation returns, and what a callback is told."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from stepwell.arrays import Array
from stepwell.arrays.reprs import summarise
from stepwell.krylov.proven import PerColumn, ProvenProgress, ProvenResult, ProvenStatus

TVStatus = ProvenStatus


@dataclass(frozen=True)
class TVProgress(ProvenProgress):
    """What a callback is told: once before the first step (iteration 0), then after every step.

    Attributes
    ----------
    iteration : int
        Steps done in the current run; a rule for λ makes several runs.
    running : int
        Columns whose gap is not within the tolerance.
    columns : int
        All columns.
    gap : float
        The largest proven relative gap among the running columns (1.0 before the start).
    products : float
        Applications of A and its adjoint to one vector so far, over all columns.
    memory : int
        Bytes that the solver expects to hold beside the caller's own arrays.
    """

    memory: int


@dataclass(repr=False)
class TVResult(ProvenResult):
    """The images of all columns, each with what is proved of it.

    Attributes
    ----------
    x : array
        The solutions, one column per right-hand side (a row with ``axis=0``; a vector for a vector), in the caller's
        kind of array; pixels in C order.
    status : TVStatus or list of TVStatus
        Why each column ended; of a vector one member. With ``across`` all columns are one problem and end alike.
    gap : ndarray of float64
        Proven relative gap of each column: ``(f(x) − f*) / f(x) <= gap`` for the least value f*.
    objective : ndarray of float64
        f(x) = ½‖Ax − b‖² + λ TV(x), recomputed from A at the end.
    lower : ndarray of float64
        Proven lower bound of the least value f*.
    residual_range : ndarray of float64, (columns, 2)
        Proven bracket of ‖Ax* − b‖ of the exact solution.
    lam : float or ndarray
        λ of each column, not squared.
    lam_at_end : int, ndarray or None
        Where a rule searched for λ: -1 in columns whose λ ended at the lower end of the range searched, 1 at the upper
        end, 0 between. None without a search.
    iterations : ndarray of int64
        Steps in which each column took part.
    products : ndarray of float64
        Applications of A and its adjoint to one vector, per column. Set-up products, which all columns share, are
        shared evenly.
    sweeps : ndarray of int64
        Inner sweeps, which need no product, per column.
    history : list of ndarray
        Proven relative gap of each column after each step.
    dual : array
        p, the dual field of the differences, ``(axes, columns, *shape)``: hand it to `tv_gap` or to a later call.
    adjoint_error : float
        How far the adjoint of A is from its adjoint; about machine precision for a true pair.
    calls : int
        Sequential calls of A and its adjoint, as pairs: products of whole blocks count once.
    seconds : float
        Wall-clock time of the whole call.
    memory : int
        Bytes the solver expected to hold beside the caller's own arrays.
    success : bool
        Whether the tolerance is proved for every column.
    reason : TVStatus or list of TVStatus
        The same as `status`.
    message : str
        How many columns ended how, and the worst gap.
    """

    x: Array
    status: PerColumn
    gap: NDArray[np.float64]
    objective: NDArray[np.float64]
    lower: NDArray[np.float64]
    residual_range: NDArray[np.float64]
    lam: PerColumn
    lam_at_end: PerColumn | None
    iterations: NDArray[np.int64]
    products: NDArray[np.float64]
    sweeps: NDArray[np.int64]
    history: list[NDArray[np.float64]]
    dual: Array
    adjoint_error: float
    calls: int
    seconds: float
    memory: int


@dataclass(repr=False)
class TVGap:
    """What is proved of given images.

    Attributes
    ----------
    gap : ndarray of float64
        Proven relative gap of each column: ``(f(x) − f*) / f(x) <= gap``.
    objective : ndarray of float64
        f(x) = ½‖Ax − b‖² + λ TV(x); infinite where x violates the bounds.
    lower : ndarray of float64
        Proven lower bound of the least value f*.
    dual : array
        The dual field that proves it.
    adjoint_error : float
        How far the adjoint of A is from its adjoint. Where it is no adjoint nothing is proved, and `lower` is 0.
    products : ndarray of float64
        Applications of A and its adjoint to one vector, per column.
    """

    gap: NDArray[np.float64]
    objective: NDArray[np.float64]
    lower: NDArray[np.float64]
    dual: Array
    adjoint_error: float
    products: NDArray[np.float64]

    def __repr__(self) -> str:
        return summarise("TVGap", {field.name: getattr(self, field.name) for field in fields(self)})
