"""What happened in a run, iteration by iteration, gathered through the public API of `stepwell.minimize`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import array_api_compat
import numpy as np

from stepwell.arrays import Array

#: Called with the start, its point and its gradient.
OnStart = Callable[["Iteration", Array, Array], None]
#: Called with each accepted iteration and its point.
OnIteration = Callable[["Iteration", Array], None]


@dataclass(frozen=True)
class Iteration:
    """One accepted point: iteration 0 is the start, whose step is None."""

    nit: int
    nfev: int
    fun: float
    gradient_norm: float
    projected_gradient: float
    step: float | None


class History:
    """Records a run of `stepwell.minimize`: pass `fun` and `callback` to it.

    Parameters
    ----------
    fun : callable
        ``fun(x) -> (f, g)``.
    bounds : None or (lower, upper)
        For the projected gradient at the start.
    on_start, on_iteration : callable, optional
        Told of the start and of each iteration as it happens. Their time is not counted in `seconds`.

    Examples
    --------
    >>> import stepwell
    >>> problem = stepwell.problems.get("torsion", nx=10, ny=10)
    >>> history = History(problem.fun, problem.bounds)
    >>> result = stepwell.minimize(
    ...     history.fun, problem.x0, jac=True, bounds=problem.bounds, callback=history.callback
    ... )
    >>> len(history.iterations) == result.nit + 1
    True
    >>> sorted(history.seconds(result))
    ['objective', 'setup', 'solver', 'total']
    """

    def __init__(
        self,
        fun: Callable[[Array], tuple[Any, Array]],
        bounds: tuple[Any, Any] | None = None,
        on_start: OnStart | None = None,
        on_iteration: OnIteration | None = None,
    ) -> None:
        self._fun, self._bounds = fun, bounds
        self._on_start, self._on_iteration = on_start, on_iteration
        self._in_objective = self._in_callback = 0.0
        self.iterations: list[Iteration] = []

    def fun(self, x: Array) -> tuple[Any, Array]:
        """Evaluate the objective; the first call is the start."""
        value, gradient = self._fun(x)
        if not self.iterations:
            began = time.perf_counter()
            norm, projected = _gradient_norms(x, gradient, self._bounds)
            start = Iteration(0, 1, float(value), norm, projected, None)
            self.iterations.append(start)
            if self._on_start is not None:
                self._on_start(start, x, gradient)
            self._in_objective += time.perf_counter() - began
        return value, gradient

    def callback(self, intermediate_result: Any) -> None:
        """Record one iteration."""
        began = time.perf_counter()
        r = intermediate_result
        iteration = Iteration(r.nit, r.nfev, r.fun, r.gradient_norm, r.projected_gradient, r.step)
        self.iterations.append(iteration)
        if self._on_iteration is not None:
            self._on_iteration(iteration, r.x)
        self._in_callback += time.perf_counter() - began

    def seconds(self, result: Any) -> dict[str, float]:
        """Return the run's times, ``total objective solver``, without what recording and printing took.

        On a GPU also ``setup``, what passed before the first evaluation: kernels are loaded or compiled.
        """
        parts = {name: result.seconds[name] for name in ("setup", "objective", "solver") if name in result.seconds}
        parts["objective"] = max(parts["objective"] - self._in_objective, 0.0)
        parts["solver"] = max(parts["solver"] - self._in_callback, 0.0)
        return {"total": sum(parts.values())} | parts


def _gradient_norms(x: Array, gradient: Array, bounds: tuple[Any, Any] | None) -> tuple[float, float]:
    """Return the Euclidean norm of the gradient and the largest element of the projected gradient."""
    xp = array_api_compat.array_namespace(gradient)
    with np.errstate(all="ignore"):
        norm = float(xp.linalg.vector_norm(gradient))
        if bounds is None:
            return norm, float(xp.max(xp.abs(gradient)))
        lower, upper = (xp.asarray(bound, dtype=x.dtype, device=array_api_compat.device(x)) for bound in bounds)
        moved = xp.minimum(xp.maximum(x - gradient, lower), upper)
        return norm, float(xp.max(xp.abs(moved - x)))
