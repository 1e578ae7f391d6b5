"""Arguments of `scipy.optimize.minimize` as its method L-BFGS-B reads them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy
from scipy.optimize import Bounds, OptimizeResult

from stepwell.checks import require_function, warn_caller

#: The installed SciPy, as (major, minor).
VERSION = tuple(int(part) for part in scipy.__version__.split(".")[:2])
#: Stands for an option that was not given, where None may be one.
NOT_GIVEN: Any = object()
#: Options of ours, beside SciPy's.
_OWN = {"relative_gtol", "target", "time_limit", "cauchy", "line_search", "h0", "threads"}
_PRINTING = "scipy.optimize: The `disp` and `iprint` options of the L-BFGS-B solver are deprecated and have no effect."


def warn_of_unused(
    hess: Any, hessp: Any, constraints: Any, disp: Any, iprint: Any, return_all: Any, options: dict[str, Any]
) -> None:
    """Warn as SciPy does of what L-BFGS-B does not use."""
    name = "Method stepwell.scipy_method"
    if hess is not None:
        warn_caller(f"{name} does not use Hessian information (hess).", RuntimeWarning)
    if hessp is not None:
        warn_caller(f"{name} does not use Hessian-vector product information (hessp).", RuntimeWarning)
    empty = constraints is None or (isinstance(constraints, tuple | list) and not constraints)
    if not empty and np.any(constraints):
        warn_caller(f"{name} cannot handle constraints.", RuntimeWarning)
    if return_all:
        warn_caller(f"{name} does not support the return_all option.", RuntimeWarning)
    if VERSION >= (1, 15) and not (disp is NOT_GIVEN and iprint is NOT_GIVEN):
        warn_caller(_PRINTING, DeprecationWarning)
    unknown = [str(option) for option in options if option not in _OWN]
    if unknown:
        warn_caller(f"Unknown solver options: {', '.join(unknown)}")
        for option in unknown:
            options.pop(option)


def read_pairs(bounds: Any, n: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Read bounds as SciPy does: a `Bounds`, or pairs in whatever sequence; None if nothing is bounded."""
    if bounds is None:
        return None
    if isinstance(bounds, Bounds):
        low, high = np.asarray(bounds.lb, dtype=float), np.asarray(bounds.ub, dtype=float)
    else:
        low, high = _sides(bounds)
    if (high < low).any():
        raise ValueError("An upper bound is less than the corresponding lower bound.")
    if low.shape != (n,) or high.shape != (n,):
        try:
            low, high = np.broadcast_to(low, (n,)), np.broadcast_to(high, (n,))
        except ValueError:
            raise ValueError("The number of bounds is not compatible with the length of `x0`.") from None
    return None if (low == -np.inf).all() and (high == np.inf).all() else (low, high)


def _sides(pairs: Any) -> tuple[np.ndarray, np.ndarray]:
    """Split pairs, in whatever sequence, into lower and upper bounds; None, which reads as NaN, is no bound."""
    try:
        table = np.array(pairs, dtype=float)
    except (TypeError, ValueError):  # an iterator, for one
        table = np.empty(0)
    if table.ndim == 2 and table.shape[1] == 2:
        low, high = table.T
    else:  # numbers may be arrays of one element; anything else is refused here as SciPy does
        sides = zip(*pairs)
        low, high = (np.array([v if v is None else np.asarray(v).item() for v in side], dtype=float) for side in sides)
    low[np.isnan(low)], high[np.isnan(high)] = -np.inf, np.inf
    return low, high


def as_told(callback: Callable[..., Any] | None) -> Callable[[OptimizeResult], Any] | None:
    """Return how to call back: by the keyword ``intermediate_result`` if that is the only parameter, else with x."""
    require_function("callback", callback)
    if callback is None:
        return None
    try:
        names = set(inspect.signature(callback).parameters)
    except (TypeError, ValueError):
        names = set()
    if names == {"intermediate_result"}:
        return lambda state: callback(intermediate_result=state)
    return lambda state: callback(state.x)
