"""Small least-squares problems, of any number: ``lsq_linear``, its case ``nnls``, and ``lsq_gram``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from stepwell.api.blocks import are_containers, over_blocks
from stepwell.arrays.bounds import split_bounds
from stepwell.arrays.checks import read_array
from stepwell.common.checks import read_axis
from stepwell.common.keywords import answered_by, keywords_told
from stepwell.common.progress import with_bar
from stepwell.common.typing import ArrayLike, BoundsLike, NumberOrArray
from stepwell.derivatives import plug_for
from stepwell.lsq.arguments import Insertion, MethodName, Rule
from stepwell.lsq.convolution import Convolution
from stepwell.lsq.result import LSQResult, turned
from stepwell.lsq.solving import NO_BOUNDS, solve_gram, solve_linear

#: What a solution has derivatives in, and what goes with it.
_ARRAYS = ("bounds", "sum_bounds", "equality", "mask", "weights", "which", "lam", "L")
#: What systems may have their own of.
_OWN = ("bounds", "sum_bounds", "equality", "mask", "weights", "which", "lam", "noise", "warm_start")


def _lsq_linear(given: dict[str, Any]) -> LSQResult:
    """Solve within bounds of any form; `given` are all arguments of `lsq_linear`."""
    return _solve(lsq_linear, given | _read_ends(given))


def _nnls(given: dict[str, Any]) -> LSQResult:
    """Solve for x of at least 0; `given` are all arguments of `nnls`."""
    b = _without_column(given["A"], given["b"], given["axis"])
    return _solve(nnls, given | {"b": b, "bounds": None})


def _lsq_gram(given: dict[str, Any]) -> LSQResult:
    """Solve normal equations; `given` are all arguments of `lsq_gram`."""
    G, c = given.pop("G"), given.pop("c")
    given |= _read_ends(given)
    plug = plug_for((G,), c, given["lam"], given["L"], *_ends(given["bounds"]), *_ends(given["sum_bounds"]), look=False)
    if plug is not None:
        arrays = {name: given.pop(name) for name in _ARRAYS if name in given} | {"gram": True}
        found: LSQResult = plug.lsq(functools.partial(solve_gram, keep_factor=True), G, c, arrays, given)
        return found
    return solve_gram(G, c, **given)


def _solve(call: Callable[..., LSQResult], given: dict[str, Any]) -> LSQResult:
    """Solve what a public function was given: block by block, with derivatives, or as it is."""
    A, b, dim, axis = given.pop("A"), given.pop("b"), given.pop("dim"), read_axis(given.pop("axis", 0))
    if are_containers(A, b, *(given.get(name) for name in _OWN)) or dim is not None:
        if given["bounds"] is None:
            del given["bounds"]
        lazy: LSQResult = over_blocks(call, A, b, given, axis=axis, dim=dim)
        return lazy
    ends = [end for name in ("bounds", "sum_bounds", "equality") for end in _ends(given.get(name))]
    plug = plug_for((A,), b, given["lam"], given["L"], given["weights"], *ends, look=False)
    if plug is None:
        return solve_linear(A, b, axis=axis, **given)
    across = axis == 1 and b.ndim == 2
    if across:
        b, start = b.T, given["warm_start"]
        given["warm_start"] = start.T if getattr(start, "ndim", 0) == 2 else start
    arrays = {name: given.pop(name, None) for name in _ARRAYS}
    found: LSQResult = plug.lsq(solve_linear, A, b, arrays, given)
    return turned(found) if across else found


def _without_column(A: Any, b: Any, axis: int) -> Any:
    """Return a b of shape (m, 1), as SciPy takes it for one right-hand side, as a vector."""
    if isinstance(b, list | tuple):
        b = read_array("b", b)
    if getattr(b, "ndim", 0) != 2 or b.shape[1] != 1 or read_axis(axis) == 1:
        return b
    shape = A.shape if hasattr(A, "shape") else np.shape(A)
    return b[:, 0] if len(shape) == 2 and b.shape[0] == shape[0] != 1 else b


def _ends(pair: Any) -> tuple[Any, ...]:
    return tuple(pair) if isinstance(pair, tuple | list) else ()


def _read_ends(given: dict[str, Any]) -> dict[str, Any]:
    """Return lower and upper bounds of x and of its sum, in whatever form they were given."""
    bounds = split_bounds(given["bounds"], "ends") or NO_BOUNDS
    return {"bounds": bounds, "sum_bounds": split_bounds(given["sum_bounds"], "ends", name="sum_bounds", one=True)}


@with_bar("systems")
@keywords_told
@answered_by(_lsq_linear)
def lsq_linear(  # type: ignore[empty-body]
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
        Any shape, rank and scale; zero and equal columns are legal.
    b : array, shape (m,), (systems, m) or (rows, columns, ..., m)
        The right-hand sides; an image has its bands last. (m, 1) is a column vector. What comes back has the same
        shape. NumPy, torch, CuPy or JAX, on the CPU or a CUDA device, the same as `A`; float64 or float32 (arithmetic
        is float64 in either case). An array of dask, cut into blocks of whole systems, gives a result whose fields are
        arrays of dask, not yet computed; a DataArray of xarray one of DataArrays. Arguments that each system has its
        own of may be such arrays, too. The bits are those of a direct call.
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
        noise² times the number of rows.
    chi2 : float, default 1.02
        The factor of the rule ``"chi2"``: by how much ‖Ax − b‖² may exceed what it is with λ = 0.
    uncertainty : {"variance"}, optional
        Whether the result has the variance of x. It follows from `noise`, or else from the residual.
    warm_start : array or "chain", optional
        An x, the `state` of a result (int8), or the set between bounds (bool), of shape (n,) or (systems, n), to start
        from; or ``"chain"``: each system starts from the set of the one before (in chains of 64).
    method : {"auto", "qr", "gram"}, default "auto"
        ``"qr"`` keeps Q and R of the columns between bounds. ``"gram"`` keeps R alone, from products of columns (all
        formed once where A is shared), refines with A, and goes over to Q and R where columns are nearly dependent.
        ``"auto"`` decides by shape; `LSQResult.choice` says how.
    insertion : {"guarded", "single"}, default "guarded"
        ``"single"`` inserts one column per step, as Lawson and Hanson do; ``"guarded"`` several that are large in the
        dual and far from parallel, and drops again those that would not become positive.
    maxiter : int, default 50 n + 100
        Limit on least-squares solutions per system.
    tol : float, optional
        Bound on the scaled violation. Default: the rounding level of the data (see Notes for the formula). Larger
        values stop earlier; smaller ones count as the default.
    threads : int, default all
        CPU threads. Systems are dealt out from a queue; a single large system uses all threads.
    progress : callable or True, optional
        True shows a bar, in a terminal or a notebook. A callable is called as ``progress(done, systems)`` after each
        part of a batch; on a GPU, where a batch is one launch, at
        its end. None with arrays of dask and xarray.
    dim : str, optional
        The dimension of a DataArray `b` that holds the equations of one system; all others are systems. The unknowns
        are called as the other dimension of a DataArray `A`, or else ``"unknown"``.

    Returns
    -------
    LSQResult
        Also unpacks as ``x, residual``. A problem in one system of a batch shows in that system's status:
        ``INFEASIBLE`` where no x is within the bounds and has the sum.

    Raises
    ------
    ValueError, TypeError
        Where the arguments do not fit together, or a lone system (or a shared matrix) is not finite.

    Notes
    -----
    The rounding level, the default of `tol`, is about 6 max(m, n, 16)^(1/4) ulp of ‖b‖ + Σ ‖a_j‖ x_j. Where b is fitted
    better than that, the run goes on until a residual in twice the precision shows nothing more.

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


@with_bar("systems")
@keywords_told
@answered_by(_nnls)
def nnls(  # type: ignore[empty-body]
    A: ArrayLike | Convolution,
    b: ArrayLike,
    *,
    method: MethodName = "auto",
    insertion: Insertion = "guarded",
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
) -> LSQResult:
    """Solve min ‖Ax − b‖² + λ²‖x‖² subject to x ≥ 0, for one system or very many.

    The case (0, ∞) of :func:`stepwell.lsq_linear`.

    Parameters
    ----------
    A : array, shape (m, n) or (systems, m, n), or Convolution
        One matrix for all right-hand sides, or one for each.
    b : array, shape (m,) or (systems, m); (m, systems) with ``axis=1``
        The right-hand sides. (m, 1) is one, as in SciPy: x has shape (n,).
    axis : {0, 1}, default 0
        The axis of a two-dimensional `b` along which the systems lie, and of a two-dimensional `warm_start` and the
        result's `x`, `dual` and `state` as well. 0: systems are rows, as a stack of matrices has them first. 1: they
        are columns, as in AX = B and in :func:`stepwell.tikhonov`. The shape of b is never used to guess it.
    lam, L, noise, chi2, uncertainty, mask, weights, which
        As in :func:`stepwell.lsq_linear`: λ or the rule that chooses it, a penalty λ²‖Lx‖², what rules need, columns
        that take part, weights of rows, and the matrix of each system.
    warm_start, method, insertion, maxiter, tol, threads, progress, dim
        As in :func:`stepwell.lsq_linear`; so are libraries, devices, dtypes, and arrays of dask and xarray.

    Returns
    -------
    LSQResult
        Also unpacks as ``x, residual``. A problem in one system of a batch shows in that system's status.

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


@with_bar("systems")
@keywords_told
@answered_by(_lsq_gram)
def lsq_gram(  # type: ignore[empty-body]
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

    G is AᵀA and c is Aᵀb. (Do not pass them as A and b to :func:`lsq_linear`: min ‖Gx − c‖² is another problem as
    soon as a bound is active.) A and b themselves give twice the digits where columns are nearly dependent.

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
