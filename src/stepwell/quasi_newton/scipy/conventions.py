"""What `minimize` and `scipy_method` do as SciPy does: call back, and warn of what L-BFGS-B does not use."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from stepwell.arrays import Array
from stepwell.common.checks import require_function, warn_caller
from stepwell.quasi_newton.results import intermediate_result


def read_callback(callback: Callable[..., Any] | None) -> Callable[[Any, Array], Any] | None:
    """Return how to call back after an iteration, with the engine's state and the point.

    By the keyword ``intermediate_result`` if that is the only parameter, else with the point alone.
    """
    require_function("callback", callback)
    if callback is None:
        return None
    try:
        names = set(inspect.signature(callback).parameters)
    except (TypeError, ValueError):
        names = set()
    if names == {"intermediate_result"}:
        return lambda state, x: callback(intermediate_result=intermediate_result(state, x))
    return lambda state, x: callback(x)


def warn_unused(method: str, hess: Any, hessp: Any, constraints: Any) -> None:
    """Say what a method does not use, in SciPy's words."""
    for name, given, what in (("hess", hess, "Hessian"), ("hessp", hessp, "Hessian-vector product")):
        if given is not None:
            warn_caller(f"Method {method} does not use {what} information ({name}).", RuntimeWarning)
    try:
        empty = constraints is None or (hasattr(constraints, "__len__") and len(constraints) == 0)
        given = not empty and bool(np.any(constraints))
    except (TypeError, ValueError):  # of no kind that constraints have, and as little used
        given = True
    if given:
        warn_caller(f"Method {method} cannot handle constraints.", RuntimeWarning)
