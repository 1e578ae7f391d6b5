"""The front doors: ``tikhonov`` for regularised least squares, ``cg`` for positive definite systems."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from stepwell.arrays import to_host
from stepwell.checks import (
    read_array,
    read_switch,
    require,
    require_each,
    require_kind,
    require_shape,
)
from stepwell.krylov.inputs import (
    Problem,
    iteration_limit,
    prepare,
)
from stepwell.krylov.results import LinearResult, Progress, ends_in_words
from stepwell.krylov.rounds import OutOfRange
from stepwell.krylov.selection import RULES, Choice, choose
from stepwell.krylov.solving import DEFAULT_WIDTH, Options, solve
from stepwell.krylov.systems import PositiveSystem, TikhonovSystem
from stepwell.operators import from_functions


def tikhonov(
    A: Any,
    B: Any,
    lam: float | str | Any,
    L: Any = None,
    *,
    method: str = "auto",
    x0: Any = None,
    tol: float = 1e-6,
    max_iter: int | None = None,
    preconditioner: Any = None,
    callback: Callable[[Progress], object] | None = None,
    noise: Any = None,
    joint: bool = False,
    memory: int | None = None,
    width: int = DEFAULT_WIDTH,
) -> LinearResult:
    """Minimise ‖AX − B‖² + λ²‖LX‖² for all columns of B.

    Parameters
    ----------
    A : operator, (m, n)
        Dense or sparse matrix, LinearOperator, pair of functions ``(forward, adjoint)`` of a vector, or
        :class:`stepwell.operators.Operator`.
    B : array, (m,) or (m, k)
        Right-hand sides. A column with NaN or infinity ends with its own status; zero columns have the solution zero.
    lam : float, array of k floats, or str
        λ itself (it enters squared), or the rule that chooses it: ``"gcv"`` (generalised cross-validation),
        ``"discrepancy"`` (needs ``noise``) or ``"lcurve"``.
    L : operator, (l, n), optional
        Default: the identity. See :func:`stepwell.operators.gradient` for images.
    method : str, default "auto"
        ``"cgls"``: one column after the other. ``"pseudo-block"``: the same for all columns at once. ``"block"``: all
        columns search in one common space; fewest products. ``"prcg"``, ``"aprcg"``: one after the other, each from
        its projection on earlier directions. ``"direct"``: dense Cholesky. ``"auto"`` chooses one of them, and
        ``result.choice`` says why.
    x0 : array, (n,) or (n, k), optional
        Starting points.
    tol : float, default 1e-6
        Bound on the true relative residual ‖Aᵀ(b − Ax) − λ²LᵀLx‖ / ‖Aᵀb‖ of every column.
    max_iter : int, optional
        Bound on the iterations of each column; default twice the number of unknowns, at least 100.
    preconditioner : operator, callable or array, optional
        Approximate inverse of AᵀA + λ²LᵀL, symmetric positive definite: an operator, a function of a block, or the
        diagonal as a vector.
    callback : callable, optional
        Called with a :class:`~stepwell.krylov.Progress` before the first product (which tells the memory) and after
        every step; a true answer stops the run.
    noise : float or array of k floats, optional
        Norm of the noise in each column, for the rule ``"discrepancy"``.
    joint : bool, default False
        Let the rule choose one λ for all columns together: the columns can then share a search space.
    memory : int, optional
        Bytes for earlier directions: default 2**26 for ``"block"`` (2**30 on a GPU), 2**28 for ``"prcg"`` and
        ``"aprcg"``. More of it saves products.
    width : int, default 256
        Most columns that ``"block"`` takes into one block.

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
    """
    start = time.perf_counter()
    problem = prepare(A, B, L, x0)
    options = Options(method, tol, iteration_limit(max_iter, problem.size), preconditioner, callback, memory, width)
    for _ in range(2):
        try:
            choice = _resolve_lam(lam, problem, noise, joint)
            system = TikhonovSystem(problem.A, problem.L, choice.lams / problem.unit, problem.B)
            result = solve(problem, system, choice.lams, options, start, choice.products)
            if isinstance(lam, str):
                result.lam_at_end = choice.ends
                _warn_of_ends(lam, choice.ends)
            return result
        except OutOfRange as found:  # only of an operator that was not rescaled yet
            problem = problem.rescaled(found.size)
    raise AssertionError("unreachable")


def cg(
    H: Any,
    B: Any,
    *,
    method: str = "auto",
    x0: Any = None,
    tol: float = 1e-6,
    max_iter: int | None = None,
    preconditioner: Any = None,
    callback: Callable[[Progress], object] | None = None,
    memory: int | None = None,
    width: int = DEFAULT_WIDTH,
) -> LinearResult:
    """Solve HX = B with a symmetric positive definite H for all columns of B.

    Parameters
    ----------
    H : operator, (n, n)
        As A in :func:`tikhonov`, or one function of a vector.
    B, method, x0, tol, max_iter, preconditioner, callback, memory, width
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
    start = time.perf_counter()
    operator = from_functions(H, H, name="H") if callable(H) and not hasattr(H, "shape") else H
    problem = prepare(operator, B, None, x0, name="H", square=True)
    options = Options(method, tol, iteration_limit(max_iter, problem.size), preconditioner, callback, memory, width)
    return solve(problem, PositiveSystem(problem.A, problem.B), None, options, start)


def _warn_of_ends(rule: str, ends: np.ndarray) -> None:
    """Say which λ lie at an end of the range that the rule has searched, or at no corner."""
    text = ends_in_words(ends)
    if text:
        from scipy.optimize import OptimizeWarning

        hints = {"discrepancy": "noise is no norm that the residual has there", "gcv": "the rule finds none within"}
        hint = hints.get(rule, "the rule has nothing to go by")
        warnings.warn(f"{text}: {hint}; see lam_at_end, and give lam itself", OptimizeWarning, stacklevel=3)


def _resolve_lam(lam: Any, problem: Problem, noise: Any, joint: bool) -> Choice:
    """One λ per column, and what choosing took."""
    count = problem.columns
    joint = read_switch("joint", joint)
    levels = None if noise is None else _per_column(noise, count, "noise") / to_host(problem.scale).ravel()
    if isinstance(lam, str):
        require(lam in RULES, "lam", lam, f"numbers, and the rules {', '.join(map(repr, RULES))}")
        if lam == "discrepancy" and noise is None:
            raise ValueError("noise is None; allowed: the norm of the noise in each column, with lam='discrepancy'")
        choice = choose(problem, lam, levels, joint)
        return replace(choice, lams=choice.lams * problem.unit)
    return Choice(_per_column(lam, count, "lam"), np.zeros(count), np.zeros(count, dtype=np.int64))


def _per_column(value: Any, count: int, name: str) -> np.ndarray:
    allowed = f"one real number or one per column ({count})"
    given = read_array(name, value, allowed)
    require_kind("bool" not in str(given.dtype), name, value, allowed)
    values = to_host(given)
    require_shape(values.shape in ((), (count,)), name, values, allowed)
    require_each(np.isfinite(values) & (values >= 0), name, values, "finite numbers of at least 0")
    return np.array(np.broadcast_to(values, (count,)))
