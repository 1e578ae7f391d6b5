"""``tikhonov`` for regularised least squares, ``cg`` for positive definite systems."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from stepwell.common.checks import require
from stepwell.common.keywords import keywords_told
from stepwell.common.typing import ArrayLike, BoundsLike, Function, NumberOrArray, OperatorLike
from stepwell.derivatives import plug_for
from stepwell.krylov.calls import solve_cg, solve_tikhonov
from stepwell.krylov.options import DEFAULT_WIDTH, MethodChoice
from stepwell.krylov.results import LinearResult, Progress
from stepwell.krylov.selection import Rule


@keywords_told
def tikhonov(
    A: OperatorLike,
    B: ArrayLike,
    lam: NumberOrArray | Rule,
    L: OperatorLike | None = None,
    *,
    method: MethodChoice = "auto",
    x0: ArrayLike | None = None,
    tol: float = 1e-6,
    maxiter: int | None = None,
    axis: Literal[0, 1] = 1,
    preconditioner: OperatorLike | Function | None = None,
    callback: Callable[[Progress], object] | None = None,
    noise: NumberOrArray | None = None,
    joint: bool = False,
    memory: float | None = None,
    width: float = DEFAULT_WIDTH,
    bounds: BoundsLike | None = None,
    comm: Any = None,
) -> LinearResult:
    """Minimise ‖AX − B‖² + λ²‖LX‖² for all columns of B, within bounds where they are given.

    Parameters
    ----------
    A : operator, (m, n)
        Dense or sparse matrix, LinearOperator, :class:`stepwell.Convolution`, anything with ``shape``, ``matvec`` and
        ``rmatvec`` (called column by column), pair of functions ``(forward, adjoint)`` of a vector, or
        :class:`stepwell.operators.Operator`.
    B : array, (m,) or (m, k); (k, m) with ``axis=0``
        Right-hand sides. A column with NaN or infinity ends with its own status; zero columns have the solution zero.
    lam : float, array of k floats, or str
        λ itself (it enters squared, as in :func:`stepwell.nnls`), or the rule that chooses it: ``"gcv"`` (generalised
        cross-validation), ``"discrepancy"`` (needs ``noise``) or ``"lcurve"``.
    L : operator, (l, n), optional
        Default: the identity. See :func:`stepwell.operators.gradient` for images.
    method : {"auto", "cgls", "pseudo-block", "block", "prcg", "aprcg", "direct"}, default "auto"
        ``"cgls"``: one column after the other. ``"pseudo-block"``: the same for all columns at once. ``"block"``: all
        columns search in one common space; fewest products. ``"prcg"``, ``"aprcg"``: one after the other, each from
        its projection on earlier directions. ``"direct"``: dense Cholesky. ``"auto"`` chooses one of them, and
        ``result.choice`` says why.
    x0 : array, (n,) or (n, k), default zero
        Starting points; (k, n) with ``axis=0``.
    tol : float, default 1e-6
        Bound on the true relative residual ‖Aᵀ(b − Ax) − λ²LᵀLx‖ / ‖Aᵀb‖ of every column.
    maxiter : int, default twice the number of unknowns, at least 100 (with bounds 1000)
        Bound on the iterations of each column.
    axis : {0, 1}, default 1
        The axis of a two-dimensional `B` along which the right-hand sides lie, and of `x0` and the result's `x` as
        well. 1: they are columns, as in AX = B and in the blocks that operators are applied to. 0: they are rows, as in
        :func:`stepwell.nnls`. The shape of B is never used to guess it.
    preconditioner : operator, callable or array, optional
        Approximate inverse of AᵀA + λ²LᵀL, symmetric positive definite: an operator, a function of a block, or the
        diagonal as a vector.
    callback : callable, optional
        Called with a :class:`~stepwell.krylov.Progress` before the first product (which tells the memory) and after
        every step; a true answer, or StopIteration, stops the run.
    noise : float or array of k floats, optional
        Standard deviation of the entries of each column of B, for the rule ``"discrepancy"``: ‖AX − B‖ of a column of m
        entries is then noise √m.
    joint : bool, default False
        Let the rule choose one λ for all columns together: the columns can then share a search space.
    memory : int, default 2**26 for ``"block"`` (2**30 on a GPU), 2**28 for ``"prcg"`` and ``"aprcg"``
        Bytes for earlier directions. More of it saves products.
    width : int, default 256
        Maximum number of columns that ``"block"`` takes into one block.
    bounds : pair (lower, upper), Bounds or array, optional
        ``(0, None)``: X >= 0. Each a number, an array (n,) or one like X; None or an infinity is no bound. In whatever
        form :func:`stepwell.lsq_linear` reads, too. Zero must lie within them. L-BFGS-B takes all columns
        at once, whatever their λ; ``method`` stays ``"auto"``, and the only rule for λ is ``"discrepancy"``.
    comm : optional
        A communicator, as `stepwell.distributed.read_comm` takes it, where unknowns and equations lie over ranks: every
        rank hands in its piece of B and x0 and gets its piece of x, and A, L and the preconditioner map its pieces to
        its pieces, talking to other ranks as they like. All else is global and the same on all ranks: sizes, norms,
        statuses, ``memory``. A callback is called on every rank that has one, and stops all. ``"direct"`` is refused.

    Returns
    -------
    LinearResult
        ``x`` in the kind of B, and per column status, true residual, iterations, products and history. Its dtype is
        NumPy's ``result_type`` of A, B, L and x0, where that is float32, otherwise float64.

    Warns
    -----
    scipy.optimize.OptimizeWarning
        Where a rule chose a λ at an end of the range it searched, or an L-curve has no corner; see
        ``result.lam_at_end``.

    Examples
    --------
    >>> import numpy as np
    >>> import stepwell
    >>> random = np.random.default_rng(0)
    >>> A, B = random.normal(size=(30, 20)), random.normal(size=(30, 3))
    >>> result = stepwell.tikhonov(A, B, 0.5, method="block", tol=1e-10)
    >>> result.success
    True
    >>> exact = np.linalg.solve(A.T @ A + 0.25 * np.eye(20), A.T @ B)
    >>> bool(np.allclose(result.x, exact))
    True
    >>> bounded = stepwell.tikhonov(A, B, 0.5, bounds=(0, None))
    >>> bounded.success, float(bounded.x.min())
    (True, 0.0)
    """
    options: dict[str, Any] = dict(
        axis=axis, method=method, x0=x0, tol=tol, maxiter=maxiter, preconditioner=preconditioner, callback=callback,
        noise=noise, joint=joint, memory=memory, width=width,
    )  # fmt: skip
    plug = plug_for((A, L), B, lam, look=bounds is None and comm is None)
    if plug is None:
        return solve_tikhonov(A, B, lam, L, bounds=bounds, comm=comm, **options)
    require(bounds is None, "bounds", bounds, "None where derivatives are asked for")
    require(comm is None, "comm", comm, "None where derivatives are asked for")
    found: LinearResult = plug.tikhonov(A, B, lam, L, **options)
    return found


@keywords_told
def cg(
    H: OperatorLike | Function,
    B: ArrayLike,
    *,
    method: MethodChoice = "auto",
    x0: ArrayLike | None = None,
    tol: float = 1e-6,
    maxiter: int | None = None,
    axis: Literal[0, 1] = 1,
    preconditioner: OperatorLike | Function | None = None,
    callback: Callable[[Progress], object] | None = None,
    memory: float | None = None,
    width: float = DEFAULT_WIDTH,
    comm: Any = None,
) -> LinearResult:
    """Solve HX = B with a symmetric positive definite H for all columns of B.

    Parameters
    ----------
    H : operator, (n, n)
        As A in :func:`tikhonov`, or one function of a vector.
    B, method, x0, tol, maxiter, axis, preconditioner, callback, memory, width, comm
        As in :func:`tikhonov`; ``tol`` bounds ‖b − Hx‖ / ‖b‖, and the preconditioner approximates H⁻¹.

    Returns
    -------
    LinearResult
        As from :func:`tikhonov`, with ``lam`` None.

    Examples
    --------
    >>> import numpy as np
    >>> import stepwell
    >>> H = np.diag([1.0, 2.0, 4.0])
    >>> stepwell.cg(H, np.array([1.0, 1.0, 1.0]), tol=1e-12).x.round(6)
    array([1.  , 0.5 , 0.25])
    """
    options: dict[str, Any] = dict(
        axis=axis, method=method, x0=x0, tol=tol, maxiter=maxiter, preconditioner=preconditioner, callback=callback,
        memory=memory, width=width,
    )  # fmt: skip
    plug = plug_for((H,), B, look=comm is None)
    if plug is None:
        return solve_cg(H, B, comm=comm, **options)
    require(comm is None, "comm", comm, "None where derivatives are asked for")
    found: LinearResult = plug.cg(H, B, **options)
    return found
