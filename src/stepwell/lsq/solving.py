"""Small least-squares problems as arrays of one library: checked, and sent to where the arrays are.

`stepwell.api` takes containers and derivatives off before; derivatives call these functions themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from stepwell.arrays import is_cuda
from stepwell.arrays.checks import read_array
from stepwell.common.checks import read_choice, require
from stepwell.lsq.arguments import Update, check, check_gram, read_matrix, require_matrices, without_column
from stepwell.lsq.batch import Batch
from stepwell.lsq.convolution import Convolution
from stepwell.lsq.equalities import read_equality, solve_with_equalities
from stepwell.lsq.result import LSQResult
from stepwell.lsq.units import units_of

NO_BOUNDS = float("-inf"), float("inf")


def solve(batch: Batch) -> LSQResult:
    """Send a checked batch to where its arrays are."""
    if is_cuda(batch.b):
        from stepwell.lsq import cuda

        return cuda.solve(batch)
    from stepwell.lsq import host

    return host.solve(batch)


def solve_linear(
    A: Any, b: Any, *, bounds: Any = NO_BOUNDS, sum_bounds: Any = None, equality: Any = None, **given: Any
) -> LSQResult:
    """Solve as `stepwell.lsq_linear` does; bounds are pairs (lower, upper), or None: x ≥ 0, as `stepwell.nnls` has it.

    What else is given `stepwell.lsq.arguments.check` reads.
    """
    if sum_bounds is not None or equality is not None:
        A, b = A if isinstance(A, Convolution) else read_matrix("A", A), read_array("b", b)
        options = given | {"bounds": bounds, "sum_bounds": sum_bounds, "equality": equality}
        units = units_of(A, b, options)
        if units is not None:
            scaled, right, options = units.applied(A, b, options)
            ends = (0.0, float("inf")) if bounds is None else bounds
            return units.undone(solve_linear(scaled, right, **options), int(A.shape[-1]), ends, given.get("mask"))
    coefficients = None
    if equality is not None:
        matrix: Any = A if isinstance(A, Convolution) else read_matrix("A", A)
        right = read_array("b", b)
        if not isinstance(A, Convolution):
            require_matrices(matrix)
        A, b = matrix, right
        lead = without_column(right, tuple(matrix.shape), given.get("which") is not None)[0].shape[:-1]
        C, d = read_equality(equality, right, int(matrix.shape[-1]), tuple(map(int, lead)))
        if C.shape[0] > 1 or sum_bounds is not None or not bool((C > 0).all()):
            options = given | {"bounds": bounds, "sum_bounds": sum_bounds}
            return solve_with_equalities(matrix, right, equality, options, solve_linear)
        coefficients, sum_bounds = C[0], (d[:, 0], d[:, 0])
    return solve(check(A, b, bounds=bounds, sum_bounds=sum_bounds, coefficients=coefficients, **given))


def solve_gram(
    G: Any,
    c: Any,
    *,
    bounds: Any = NO_BOUNDS,
    bb: Any = None,
    rows: int | None = None,
    lam: Any = 0.0,
    L: Any = None,
    warm_start: Any = None,
    maxiter: int | None = None,
    tol: float | None = None,
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
    **given: Any,
) -> LSQResult:
    """Solve as `stepwell.lsq_gram` does; with ``keep_factor=True`` the result has what derivatives solve with."""
    batch = check_gram(
        G, c, bounds=bounds, bb=bb, rows=rows, lam=lam, L=L, warm_start=warm_start, maxiter=maxiter, tol=tol,
        threads=threads, progress=progress, **given,
    )  # fmt: skip
    return solve(batch)


def solve_by_update(A: Any, b: Any, update: str, *, lam: float = 0.0, **given: Any) -> LSQResult:
    """Solve as ``stepwell.nnls(A, b, method="qr")`` does, with another update of Q and R: for studies of these.

    Parameters
    ----------
    update : {"cgs2", "mgs", "rotations", "csne"}
        Classical Gram-Schmidt twice, which `nnls` uses, modified Gram-Schmidt, rotations of a square Q (without λ), or
        the corrected semi-normal equations without Q.
    """
    read_choice("update", update, get_args(Update))
    require(update != "rotations" or lam == 0, "lam", lam, "0 with update='rotations', which has none")
    return solve(check(A, b, method="qr", update=update, lam=lam, **given))
