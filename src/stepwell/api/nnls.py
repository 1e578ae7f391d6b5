"""``nnls``: small least-squares problems with x ≥ 0, of any number."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from stepwell.api.blocks import are_containers, over_blocks
from stepwell.arrays.checks import read_array
from stepwell.common.checks import read_axis
from stepwell.common.progress import as_told, with_bar
from stepwell.common.typing import ArrayLike, NumberOrArray
from stepwell.derivatives import plug_for
from stepwell.lsq.arguments import Insertion, MethodName, Rule, Update, check
from stepwell.lsq.convolution import Convolution
from stepwell.lsq.family import is_number
from stepwell.lsq.result import NNLSResult
from stepwell.lsq.solving import solve


@with_bar("systems")
def nnls(
    A: ArrayLike | Convolution,
    b: ArrayLike,
    *,
    method: MethodName = "auto",
    insertion: Insertion = "guarded",
    update: Update = "cgs2",
    lam: NumberOrArray | Rule = 0.0,
    L: ArrayLike | None = None,
    noise: NumberOrArray | None = None,
    chi2: float = 1.02,
    uncertainty: Literal["variance"] | None = None,
    mask: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    which: ArrayLike | None = None,
    warm_start: ArrayLike | Literal["chain"] | None = None,
    maxiter: int | None = None,
    tol: float | None = None,
    axis: Literal[0, 1] = 0,
    threads: int | None = None,
    progress: Callable[[int, int], object] | bool | None = None,
    dim: str | None = None,
) -> NNLSResult:
    """Solve min ‖Ax − b‖² + λ²‖x‖² subject to x ≥ 0, for one system or very many.

    Parameters
    ----------
    A : array, shape (m, n) or (systems, m, n), or Convolution
        One matrix for all right-hand sides, or one for each. Any shape, rank and scale; zero and equal columns are
        legal.
    b : array, shape (m,) or (systems, m); (m, systems) with ``axis=1``
        The right-hand sides. (m, 1) is one, as in SciPy: x has shape (n,). NumPy, torch, CuPy or JAX, on the CPU or a
        CUDA device, the same as `A`; float64 or float32 (arithmetic is float64 in either case). An array of dask, cut
        into blocks of whole systems, gives a result whose fields are arrays of dask, not yet computed; a DataArray of
        xarray, of any dimensions, one of DataArrays. The bits are those of a direct call.
    method : {"auto", "qr", "gram"}, default "auto"
        ``"qr"`` keeps Q and R of the positive columns. ``"gram"`` keeps R alone, from products of columns (all formed
        once where A is shared), refines with A, and goes over to Q and R where columns are nearly dependent.
        ``"auto"`` decides by shape; `NNLSResult.choice` says how.
    insertion : {"guarded", "single"}, default "guarded"
        ``"single"`` inserts one column a step, as Lawson and Hanson do; ``"guarded"`` several that are large in the
        dual and far from parallel, and drops again those that would not become positive.
    update : {"cgs2", "mgs", "rotations", "csne"}, default "cgs2"
        How ``method="qr"`` updates its factor: classical Gram-Schmidt twice, modified Gram-Schmidt, rotations of a
        square Q, or the corrected semi-normal equations without Q. All but the first exist for comparison.
    lam : float or array, shape (systems,), or {"chi2", "discrepancy", "gcv", "lcurve"}, default 0
        λ ≥ 0 itself; it enters squared, as in :func:`stepwell.tikhonov`. Or the rule that
        chooses it for each system, as in :func:`stepwell.lsq_linear`.
    L, noise, chi2, uncertainty, mask, weights, which
        As in :func:`stepwell.lsq_linear`: a penalty λ²‖Lx‖², what rules for λ need, columns that take part, weights of
        rows, and the matrix of each system.
    warm_start : array or "chain", optional
        An x (its positive entries) or a boolean set, of shape (n,) or (systems, n), to start from; or ``"chain"``:
        each system starts from the set of the one before (in chains of 64). (n, systems) with ``axis=1``.
    maxiter : int, default 10 n + 100
        Limit on least-squares solutions per system.
    tol : float, optional
        Bound on the scaled violation. By default, and at the least, what rounding leaves: about
        6 max(m, n, 16)^(1/4) ulp of ‖b‖ + Σ ‖a_j‖ x_j, and nothing that a residual in twice the precision still
        shows where b is fitted better than that. A larger `tol` ends earlier.
    axis : {0, 1}, default 0
        The axis of a two-dimensional `b` along which the systems lie, and of a two-dimensional `warm_start` and the
        result's `x`, `dual` and `active` as well. 0: systems are rows, as a stack of matrices has them first. 1: they
        are columns, as in AX = B and in :func:`stepwell.tikhonov`. The shape of b is never used to guess it.
    threads : int, default all
        CPU threads. Systems are dealt out from a queue; a single large system uses all threads.
    progress : callable or True, optional
        True shows a bar, in a terminal or a notebook. A callable is called as ``progress(done, systems)`` after each
        part of a batch; on a GPU, where a batch is one launch, at its end. None with arrays of dask and xarray.
    dim : str, optional
        The dimension of a DataArray `b` that holds the equations of one system; all others are systems. The unknowns
        are called as the other dimension of a DataArray `A`, or else ``"unknown"``.

    Returns
    -------
    NNLSResult
        Also unpacks as ``x, residual``. Trouble in one system of a batch is that system's status.

    Raises
    ------
    ValueError, TypeError
        Where the arguments do not fit together, or a lone system (or a shared matrix) is not finite.

    Examples
    --------
    >>> import numpy as np, stepwell
    >>> A = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    >>> x, rnorm = stepwell.nnls(A, np.array([2.0, 1.0, -1.0]))
    >>> x
    array([1.5, 0. ])
    >>> many = stepwell.nnls(A, np.array([[2.0, 1.0, -1.0], [1.0, 3.0, 2.0]]))
    >>> many.x
    array([[1.5, 0. ],
           [1. , 2. ]])
    >>> many.status
    array([0, 0], dtype=int32)
    """
    if are_containers(A, b, warm_start, lam, noise, which, mask, weights) or dim is not None:
        given: dict[str, Any] = dict(
            method=method, insertion=insertion, update=update, maxiter=maxiter, tol=tol, threads=threads, L=L, chi2=chi2
        )
        given |= dict(lam=lam, noise=noise, which=which, mask=mask, weights=weights, warm_start=warm_start)
        given |= dict(uncertainty=uncertainty, progress=progress)
        lazy: NNLSResult = over_blocks(nnls, A, b, given, axis=read_axis(axis), dim=dim)
        return lazy
    b = _without_column(A, b, axis)
    plug = plug_for((A,), b, lam, weights, L, look=False)
    if plug is not None:
        options: dict[str, Any] = dict(
            warm_start=warm_start, progress=progress, method=method, insertion=insertion, update=update,
            maxiter=maxiter, tol=tol, threads=threads,
        )  # fmt: skip
        general = dict(mask=mask, weights=weights, which=which, L=L)
        others: dict[str, Any] = dict(noise=noise, uncertainty=uncertainty)
        if is_number(lam) and all(value is None for value in (general | others).values()):
            differentiable: NNLSResult = plug.nnls(A, b, lam=lam, axis=axis, **options)
            return differentiable
        return _within_bounds(plug, A, b, axis, general | {"lam": lam}, options | others | {"chi2": chi2})
    more: dict[str, Any] = dict(mask=mask, weights=weights, L=L, noise=noise, uncertainty=uncertainty)
    told = as_told(progress)
    more["chi2"] = None if isinstance(chi2, float) and chi2 == 1.02 else chi2
    batch = check(
        A, b, method, insertion, update, lam, warm_start, maxiter, tol, threads, told, axis, which=which, **more
    )
    result = solve(batch)
    assert isinstance(result, NNLSResult)
    if axis == 0 or batch.lone:
        return result
    return dataclasses.replace(result, x=result.x.T, dual=result.dual.T, active=result.active.T)


def _without_column(A: Any, b: Any, axis: int) -> Any:
    """Return a b of shape (m, 1), as SciPy takes it for one right-hand side, as a vector."""
    if isinstance(b, list | tuple):
        b = read_array("b", b)
    if getattr(b, "ndim", 0) != 2 or b.shape[1] != 1 or read_axis(axis) == 1:
        return b
    shape = A.shape if hasattr(A, "shape") else np.shape(A)
    return b[:, 0] if len(shape) == 2 and b.shape[0] == shape[0] != 1 else b


def _within_bounds(plug: Any, A: Any, b: Any, axis: int, fields: dict[str, Any], options: dict[str, Any]) -> NNLSResult:
    """Solve with derivatives what ``lsq_linear`` has within the bounds (0, ∞)."""
    from stepwell.derivatives.bounded_systems import as_nnls_result

    def plain(A: Any, b: Any, *, bounds: Any, **given: Any) -> NNLSResult:
        return nnls(A, b, **given)

    across = read_axis(axis) == 1 and b.ndim == 2
    start = options["warm_start"]
    if across:
        options["warm_start"] = start.T if getattr(start, "ndim", 0) == 2 else start
    found = plug.lsq(plain, A, b.T if across else b, fields | {"bounds": (0.0, float("inf"))}, options)
    result = found if isinstance(found, NNLSResult) else as_nnls_result(found)
    if not across:
        return result
    return dataclasses.replace(result, x=result.x.T, dual=result.dual.T, active=result.active.T)
