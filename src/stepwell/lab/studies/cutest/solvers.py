"""The solvers that stand side by side: ours, SciPy's L-BFGS-B, and those that come as wheels, where installed.

Each gets the same function, start, bounds and limit on evaluations, and returns where it ended and whether it says that
it converged; nothing else that it says is used. Tolerances are each solver's own defaults, as users meet them, but for
those of Ipopt, whose default takes up to 3000 iterations.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from stepwell.arrays.places import Place

OURS, SCIPY, FLOAT32 = "Stepwell", "SciPy L-BFGS-B", "Stepwell, float32"
#: The one whose stopping rule is SciPy's: what `patience` changes is the difference to it.
IMPATIENT = "Stepwell, patience 1"

Function = Callable[[np.ndarray], tuple[float, np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Ended:
    """Where a solver ended, and whether it says that it converged."""

    x: np.ndarray
    claimed: bool
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class Solver:
    """A solver: its name for people, its package, how it is called, and whether it takes bounds and many variables."""

    name: str
    package: str
    solve: Callable[[Function, np.ndarray, np.ndarray, np.ndarray, int], Ended]
    bounds: bool = True
    large: bool = True

    @property
    def installed(self) -> bool:
        """Whether its package is there."""
        return importlib.util.find_spec(self.package) is not None


def _stepwell(dtype: Any = np.float64, **options: Any) -> Callable[..., Ended]:
    def solve(fun: Function, x0: np.ndarray, lower: np.ndarray, upper: np.ndarray, maxfun: int) -> Ended:
        import stepwell

        def rounded(x: np.ndarray) -> tuple[float, np.ndarray]:
            f, g = fun(x)
            with np.errstate(over="ignore"):
                return float(np.asarray(f, dtype)), g.astype(dtype)

        start = np.clip(x0.astype(dtype), lower, upper).astype(dtype)
        box = (lower, upper) if _has_bounds(lower, upper) else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a box without a number of single precision is told of
            chosen: Any = {"maxfun": maxfun, "threads": 1, **options}
            result = stepwell.minimize(rounded, start, jac=True, bounds=box, options=chosen)
        return Ended(np.asarray(result.x, dtype=float), bool(result.success), result.reason.name)

    return solve


def at_place(place: Place) -> Solver:
    """Return the solver with its vectors in another library, or on a GPU; functions are evaluated on the host."""

    def solve(fun: Function, x0: np.ndarray, lower: np.ndarray, upper: np.ndarray, maxfun: int) -> Ended:
        import stepwell

        def carried(x: Any) -> tuple[Any, Any]:
            f, g = fun(place.fetch(x))
            return place.put(np.float64(f)), place.put(g)

        box = (place.put(lower), place.put(upper)) if _has_bounds(lower, upper) else None
        chosen: Any = {"maxfun": maxfun, "graph": False} if place.gpu else {"maxfun": maxfun, "threads": 1}
        result = stepwell.minimize(carried, place.put(x0), jac=True, bounds=box, options=chosen)
        return Ended(place.fetch(result.x), bool(result.success), result.reason.name)

    return Solver(f"{OURS} on the GPU" if place.gpu else f"{OURS}, {place.library}", place.library, solve)


def _scipy(fun: Function, x0: np.ndarray, lower: np.ndarray, upper: np.ndarray, maxfun: int) -> Ended:
    from scipy.optimize import Bounds, minimize

    result = minimize(
        fun, x0, jac=True, method="L-BFGS-B", bounds=Bounds(lower, upper) if _has_bounds(lower, upper) else None,
        options={"maxfun": maxfun, "maxiter": maxfun},
    )  # fmt: skip
    return Ended(np.asarray(result.x), bool(result.success), str(result.message))


def _nlopt(fun: Function, x0: np.ndarray, lower: np.ndarray, upper: np.ndarray, maxfun: int) -> Ended:
    import nlopt

    last: list[np.ndarray] = [x0]

    def objective(x: np.ndarray, gradient: np.ndarray) -> float:
        last[0] = np.array(x)
        f, g = fun(x)
        if gradient.size:
            gradient[:] = g
        return f

    problem = nlopt.opt(nlopt.LD_LBFGS, x0.size)
    problem.set_min_objective(objective)
    problem.set_lower_bounds(lower)
    problem.set_upper_bounds(upper)
    problem.set_ftol_rel(1e7 * np.finfo(float).eps)  # it has none of its own; this is L-BFGS-B's
    problem.set_maxeval(maxfun)
    try:
        x = np.asarray(problem.optimize(x0))
        code = int(problem.last_optimize_result())
    except (RuntimeError, nlopt.RoundoffLimited) as error:  # "generic failure", with no point
        return Ended(last[0], False, str(error))
    return Ended(x, 0 < code < nlopt.MAXEVAL_REACHED, f"code {code}")


def _jaxopt(fun: Function, x0: np.ndarray, lower: np.ndarray, upper: np.ndarray, maxfun: int) -> Ended:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # says that it is no longer maintained
        import jax

    jax.config.update("jax_enable_x64", True)
    solver, called = _compiled_jaxopt(x0.size, maxfun)
    called[0] = fun
    x, state = solver.run(jax.numpy.asarray(x0), bounds=(jax.numpy.asarray(lower), jax.numpy.asarray(upper)))
    return Ended(np.array(x), bool(state.error <= solver.tol), f"error {float(state.error):.1e}")


@functools.cache
def _compiled_jaxopt(n: int, maxfun: int) -> tuple[Any, list[Function | None]]:
    """Return jaxopt's solver for n variables, which takes seconds to compile, and the place for the function."""
    import jax
    import jaxopt

    called: list[Function | None] = [None]
    shapes = (jax.ShapeDtypeStruct((), np.float64), jax.ShapeDtypeStruct((n,), np.float64))

    def on_host(x: Any) -> tuple[np.ndarray, np.ndarray]:
        assert called[0] is not None
        f, g = called[0](np.asarray(x))
        return np.asarray(f), np.asarray(g)

    def evaluate(x: Any) -> Any:
        return jax.pure_callback(on_host, shapes, x)

    return jaxopt.LBFGSB(evaluate, value_and_grad=True, maxiter=maxfun, implicit_diff=False), called


def _torchmin(fun: Function, x0: np.ndarray, lower: np.ndarray, upper: np.ndarray, maxfun: int) -> Ended:
    import torch
    import torchmin

    class Carried(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            f, g = fun(x.detach().numpy())
            ctx.gradient = torch.from_numpy(np.array(g))
            return torch.tensor(f, dtype=torch.float64)

        @staticmethod
        def backward(ctx: Any, outer: Any) -> Any:
            return outer * ctx.gradient

    result = torchmin.minimize(Carried.apply, torch.from_numpy(x0.copy()), method="l-bfgs", max_iter=maxfun)
    return Ended(result.x.detach().numpy(), bool(result.success), str(result.message))


def _ipopt(fun: Function, x0: np.ndarray, lower: np.ndarray, upper: np.ndarray, maxfun: int) -> Ended:
    import cyipopt

    result = cyipopt.minimize_ipopt(
        fun, x0, jac=True, bounds=list(zip(lower, upper)),
        options={"hessian_approximation": "limited-memory", "max_iter": maxfun, "print_level": 0},
    )  # fmt: skip
    words = result.message.decode() if isinstance(result.message, bytes) else str(result.message)
    return Ended(np.asarray(result.x), bool(result.success), words)


def _fides(fun: Function, x0: np.ndarray, lower: np.ndarray, upper: np.ndarray, maxfun: int) -> Ended:
    import logging

    import fides

    optimizer = fides.Optimizer(
        fun, ub=upper, lb=lower, verbose=logging.CRITICAL, hessian_update=fides.BFGS(),
        options={fides.Options.MAXITER: maxfun},
    )  # fmt: skip
    optimizer.minimize(x0)
    return Ended(np.asarray(optimizer.x_min), bool(optimizer.converged), str(optimizer.exitflag))


def _has_bounds(lower: np.ndarray, upper: np.ndarray) -> bool:
    return bool(np.isfinite(lower).any() or np.isfinite(upper).any())


SOLVERS: dict[str, Solver] = {
    solver.name: solver
    for solver in (
        Solver(OURS, "stepwell", _stepwell()),
        Solver(SCIPY, "scipy", _scipy),
        Solver(IMPATIENT, "stepwell", _stepwell(patience=1)),
        Solver(FLOAT32, "stepwell", _stepwell(np.float32)),
        Solver("Stepwell, first-interval", "stepwell", _stepwell(cauchy="first-interval")),
        Solver("NLopt LBFGS", "nlopt", _nlopt),
        Solver("jaxopt LBFGSB", "jaxopt", _jaxopt),
        Solver("pytorch-minimize l-bfgs", "torchmin", _torchmin, bounds=False),
        Solver("cyipopt, limited memory", "cyipopt", _ipopt),
        Solver("fides BFGS", "fides", _fides, large=False),  # a full matrix
    )
}
