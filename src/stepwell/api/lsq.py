"""Small least-squares problems within bounds, of any number: ``lsq_linear``, and ``lsq_gram`` for normal equations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal

from stepwell.api.blocks import are_containers, over_blocks
from stepwell.arrays.bounds import split_bounds
from stepwell.common.progress import as_told, with_bar
from stepwell.common.typing import ArrayLike, BoundsLike, NumberOrArray
from stepwell.derivatives import plug_for
from stepwell.lsq.arguments import Insertion, MethodName, Rule
from stepwell.lsq.convolution import Convolution
from stepwell.lsq.result import LSQResult
from stepwell.lsq.solving import NO_BOUNDS, solve_gram, solve_linear

#: What a solution has derivatives in, and what goes with it.
_ARRAYS = ("bounds", "sum_bounds", "equality", "mask", "weights", "which", "lam", "L")


@with_bar("systems")
def lsq_linear(
    A: ArrayLike | Convolution,
    b: ArrayLike,
    bounds: BoundsLike = NO_BOUNDS,
    *,
    sum_bounds: tuple[Any, Any] | None = None,
    equality: tuple[Any, Any] | None = None,
    mask: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    which: ArrayLike | None = None,
    lam: NumberOrArray | Rule = 0.0,
    L: ArrayLike | None = None,
    noise: NumberOrArray | None = None,
    chi2: float = 1.02,
    uncertainty: Literal["variance"] | None = None,
    warm_start: ArrayLike | Literal["chain"] | None = None,
    method: MethodName = "auto",
    insertion: Insertion = "guarded",
    maxiter: int | None = None,
    tol: float | None = None,
    threads: int | None = None,
    progress: Callable[[int, int], object] | bool | None = None,
    dim: str | None = None,
) -> LSQResult:
    """Solve min ‖Ax − b‖² + λ²‖Lx‖² subject to l ≤ x ≤ u, for one system or very many.

    Parameters
    ----------
    A : array, shape (m, n) or (systems, m, n), or Convolution
        One matrix for all right-hand sides, or one for each; with `which` a dictionary of matrices, (matrices, m, n).
    b : array, shape (m,), (systems, m) or (rows, columns, ..., m)
        The right-hand sides; an image has its bands last. (m, 1) is a column vector. What comes back has the same
        shape. NumPy, torch, CuPy or JAX, on the CPU or a CUDA device, the same as `A`; float64 or float32. An array of
        dask, cut into blocks of whole systems, gives a result whose fields are arrays of dask, not yet computed; a
        DataArray of xarray one of DataArrays. Arguments that each system has its own of may be such arrays, too.
    bounds : pair, Bounds or array, default (-inf, inf)
        l and u: a number, (n,) or (systems, n) each; infinite ends, or None, are open. Equal ends fix a variable. As in
        SciPy also a ``scipy.optimize.Bounds`` or an array (2, n). Pairs (low, high), n of them or an array (n, 2), are
        read where n is not 2: two members are always l and u.
    sum_bounds : pair, optional
        The least and the largest sum of x, a number or (systems,) each: ``(1, 1)`` sums to one, ``(-inf, 1)`` to at
        most one.
    equality : pair, optional
        ``(C, d)`` with C of shape (k, n) or (n,) and k ≤ 4: Cx = d, where d is a number, (k,) or (systems, k). One
        equality with positive coefficients is met as a sum is, exactly; others to about 1e-12, by multipliers.
    mask : bool array, shape (n,) or (systems, n), optional
        Which variables take part; the others are 0.
    weights : array, shape (m,) or (systems, m), optional
        What rows of A and b are multiplied with. A row of weight 0 is absent, whatever b has there.
    which : int array, shape (systems,), optional
        The matrix of each system: A is then a dictionary of them.
    lam : float or array, shape (systems,), or {"chi2", "discrepancy", "gcv", "lcurve"}, default 0
        λ ≥ 0 itself; it enters squared, as in :func:`stepwell.tikhonov`. Or the rule that chooses it, for each system:
        ``"chi2"`` raises ‖Ax − b‖² by the factor `chi2`, ``"discrepancy"`` to what `noise` says, ``"gcv"`` is
        generalized cross-validation with the trace of all of A, ``"lcurve"`` the corner of the L-curve on 21 λ.
    L : array, shape (p, n), optional
        What is penalised is Lx; x itself without.
    noise : float or array, shape (systems,), optional
        Standard deviation of the entries of b, weights included, for the rule ``"discrepancy"``: ‖Ax − b‖² is then
        noise² times the number of rows. (:func:`stepwell.tikhonov` takes the norm of the noise instead.)
    chi2 : float, default 1.02
        The factor of the rule ``"chi2"``: by how much ‖Ax − b‖² may exceed what it is with λ = 0.
    uncertainty : {"variance"}, optional
        Whether the result has the variance of x. It follows from `noise`, or else from the residual.
    warm_start : array or "chain", optional
        An x, or the `state` of a result (int8), of shape (n,) or (systems, n), to start from; or ``"chain"``: each
        system starts from the set of the one before (in chains of 64).
    method, insertion, maxiter, tol, threads, progress, dim
        As in :func:`stepwell.nnls`.

    Returns
    -------
    LSQResult
        Also unpacks as ``x, residual``. Trouble in one system of a batch is that system's status: ``INFEASIBLE`` where
        no x is within the bounds and has the sum.

    Raises
    ------
    ValueError, TypeError
        Where the arguments do not fit together, or a lone system (or a shared matrix) is not finite.

    Examples
    --------
    >>> import numpy as np, stepwell
    >>> A = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    >>> r = stepwell.lsq_linear(A, np.array([2.0, 1.0, -1.0]), bounds=(-0.5, 1.5))
    >>> r.x, r.state
    (array([ 1.5, -0.5]), array([ 1, -1], dtype=int8))
    >>> stepwell.lsq_linear(A, np.array([0.5, 1.0, 0.2]), bounds=(0, np.inf), sum_bounds=(1, 1)).x
    array([0.65, 0.35])
    """
    bounds, sum_bounds = _read_ends(bounds, sum_bounds)
    given: dict[str, Any] = dict(
        bounds=bounds, sum_bounds=sum_bounds, equality=equality, mask=mask, weights=weights, which=which, lam=lam, L=L,
        noise=noise, chi2=chi2, uncertainty=uncertainty, warm_start=warm_start, method=method, insertion=insertion,
        maxiter=maxiter, tol=tol, threads=threads, progress=progress,
    )  # fmt: skip
    own = (bounds, sum_bounds, equality, mask, weights, which, lam, noise, warm_start)
    if are_containers(A, b, *own) or dim is not None:
        lazy: LSQResult = over_blocks(lsq_linear, A, b, given, dim=dim)
        return lazy
    plug = plug_for((A,), b, lam, L, weights, *_ends(bounds), *_ends(sum_bounds), *_ends(equality), look=False)
    if plug is not None:
        arrays = {name: given.pop(name) for name in _ARRAYS}
        differentiable: LSQResult = plug.lsq(solve_linear, A, b, arrays, given)
        return differentiable
    return solve_linear(A, b, **given)


def _ends(pair: Any) -> tuple[Any, ...]:
    return tuple(pair) if isinstance(pair, tuple | list) else ()


def _read_ends(bounds: Any, sum_bounds: Any) -> tuple[tuple[Any, Any], tuple[Any, Any] | None]:
    """Return lower and upper bounds of x and of its sum, in whatever form they were given."""
    return split_bounds(bounds, "ends") or NO_BOUNDS, split_bounds(sum_bounds, "ends", name="sum_bounds", one=True)


@with_bar("systems")
def lsq_gram(
    G: ArrayLike,
    c: ArrayLike,
    bounds: BoundsLike = NO_BOUNDS,
    *,
    bb: NumberOrArray | None = None,
    rows: int | None = None,
    sum_bounds: tuple[Any, Any] | None = None,
    mask: ArrayLike | None = None,
    lam: NumberOrArray = 0.0,
    L: ArrayLike | None = None,
    noise: NumberOrArray | None = None,
    uncertainty: Literal["variance"] | None = None,
    warm_start: ArrayLike | Literal["chain"] | None = None,
    maxiter: int | None = None,
    tol: float | None = None,
    threads: int | None = None,
    progress: Callable[[int, int], object] | bool | None = None,
) -> LSQResult:
    """Solve min xᵀGx − 2cᵀx + λ²‖Lx‖² subject to l ≤ x ≤ u: least squares whose normal equations are given.

    G is AᵀA and c is Aᵀb. (They are not A and b of :func:`lsq_linear`: min ‖Gx − c‖² is another problem as soon as a
    bound is active.) A and b themselves give twice the digits where columns are nearly dependent.

    Parameters
    ----------
    G : array, shape (n, n) or (systems, n, n)
        Symmetric (to rounding) and positive semidefinite. A column that depends on others to n ulp is not used.
    c : array, shape (n,) or (systems, n)
        Of the same library and device as `G`.
    bb : float or array, shape (systems,), optional
        bᵀb, from which the residual follows: √(bᵀb − 2cᵀx + xᵀGx), which has no digits left below 1e-6 of ‖b‖. Without,
        the residual is NaN.
    rows : int, optional
        How many equations A had, for `sigma`.
    bounds, sum_bounds, mask, lam, L, noise, uncertainty, warm_start, maxiter, tol, threads, progress
        As in :func:`lsq_linear`; λ is given.

    Returns
    -------
    LSQResult
        Its dual is c − Gx − λ²LᵀLx + μ, from G.

    Examples
    --------
    >>> import numpy as np, stepwell
    >>> A, b = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]), np.array([2.0, 1.0, -1.0])
    >>> stepwell.lsq_gram(A.T @ A, A.T @ b, bounds=(-0.5, 1.5), bb=b @ b).x
    array([ 1.5, -0.5])
    """
    bounds, sum_bounds = _read_ends(bounds, sum_bounds)
    plug = plug_for((G,), c, lam, L, *_ends(bounds), *_ends(sum_bounds), look=False)
    if plug is not None:
        given: dict[str, Any] = dict(bounds=bounds, sum_bounds=sum_bounds, mask=mask, lam=lam, L=L, gram=True)
        rest: dict[str, Any] = dict(bb=bb, rows=rows, noise=noise, uncertainty=uncertainty, warm_start=warm_start)
        rest |= dict(maxiter=maxiter, tol=tol, threads=threads, progress=progress)
        differentiable: LSQResult = plug.lsq(functools.partial(solve_gram, keep_factor=True), G, c, given, rest)
        return differentiable
    return solve_gram(
        G, c, bounds=bounds, bb=bb, rows=rows, lam=lam, L=L, warm_start=warm_start, maxiter=maxiter, tol=tol,
        threads=threads, progress=as_told(progress), sum_bounds=sum_bounds, mask=mask, noise=noise,
        uncertainty=uncertainty,
    )  # fmt: skip
