"""Small least-squares problems as arrays of one library: checked, and sent to where the arrays are.

`stepwell.api` takes containers and derivatives off before; derivatives call these functions themselves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from stepwell.arrays import host_copy, is_array, is_cuda
from stepwell.arrays.checks import read_array
from stepwell.lsq.arguments import check, check_gram, read_matrix, without_column
from stepwell.lsq.batch import Batch
from stepwell.lsq.convolution import Convolution
from stepwell.lsq.equalities import read_equality, solve_with_equalities
from stepwell.lsq.result import AnyResult, LSQResult

NO_BOUNDS = float("-inf"), float("inf")


def solve(batch: Batch) -> AnyResult:
    """Send a checked batch to where its arrays are."""
    if is_cuda(batch.b):
        from stepwell.lsq import cuda

        return cuda.solve(batch)
    from stepwell.lsq import host

    return host.solve(batch)


def solve_linear(
    A: Any,
    b: Any,
    *,
    bounds: tuple[Any, Any] = NO_BOUNDS,
    sum_bounds: tuple[Any, Any] | None = None,
    equality: Any = None,
    mask: Any = None,
    weights: Any = None,
    which: Any = None,
    lam: Any = 0.0,
    L: Any = None,
    noise: Any = None,
    chi2: float = 1.02,
    uncertainty: Any = None,
    warm_start: Any = None,
    method: str = "auto",
    insertion: str = "guarded",
    maxiter: int | None = None,
    tol: float | None = None,
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> LSQResult:
    """Solve as `stepwell.lsq_linear` does; bounds are pairs (lower, upper)."""
    given: dict[str, Any] = dict(
        bounds=bounds, mask=mask, weights=weights, which=which, lam=lam, L=L, noise=noise, uncertainty=uncertainty,
        warm_start=warm_start, method=method, insertion=insertion, maxiter=maxiter, tol=tol, threads=threads,
        progress=progress,
    )  # fmt: skip
    coefficients = None
    if equality is not None:
        matrix: Any = A if isinstance(A, Convolution) else read_matrix("A", A)
        right = read_array("b", b)
        A, b = matrix, right
        lead = without_column(right, tuple(matrix.shape), which is not None)[0].shape[:-1]
        C, d = read_equality(equality, right, int(matrix.shape[-1]), tuple(map(int, lead)))
        if C.shape[0] > 1 or sum_bounds is not None or not bool((C > 0).all()):
            return solve_with_equalities(matrix, right, equality, given | {"sum_bounds": sum_bounds}, solve_linear)
        coefficients, sum_bounds = C[0], (d[:, 0], d[:, 0])
    result = solve(
        check(
            A,
            b,
            result=LSQResult,
            sum_bounds=sum_bounds,
            coefficients=coefficients,
            chi2=None if isinstance(chi2, float) and chi2 == 1.02 else chi2,
            **given,
        )
    )
    assert isinstance(result, LSQResult)
    return result


def solve_gram(
    G: Any,
    c: Any,
    *,
    bounds: tuple[Any, Any] = NO_BOUNDS,
    bb: Any = None,
    rows: int | None = None,
    lam: Any = 0.0,
    L: Any = None,
    warm_start: Any = None,
    maxiter: int | None = None,
    tol: float | None = None,
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
    keep_factor: bool = False,
    **given: Any,
) -> LSQResult:
    """Solve as `stepwell.lsq_gram` does; `keep_factor`: the result has what derivatives solve with."""
    batch = check_gram(
        G, c, bounds=bounds, bb=bb, rows=rows, lam=lam, L=L, warm_start=warm_start, maxiter=maxiter, tol=tol,
        threads=threads, progress=progress, **given,
    )  # fmt: skip
    if keep_factor and batch.family is not None:
        batch = dataclasses.replace(batch, family=dataclasses.replace(batch.family, keep_factor=True))
    result = solve(batch)
    assert isinstance(result, LSQResult)
    if isinstance(lam, float | int) and lam == 0:
        return result
    one = float(np.ravel(host_copy(lam))[0]) if batch.lone and is_array(lam) else lam
    return dataclasses.replace(result, lam=one)
