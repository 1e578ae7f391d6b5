"""Arguments of `scipy.optimize.minimize` as its method L-BFGS-B reads them."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy

from stepwell import _core
from stepwell.arrays.bounds import split_bounds
from stepwell.common.checks import warn_caller
from stepwell.quasi_newton.differences import SCHEMES
from stepwell.quasi_newton.options import Plan, read_options

#: The installed SciPy, as (major, minor).
VERSION = tuple(int(part) for part in scipy.__version__.split(".")[:2])
#: Stands for an option that was not given, where None may be one.
NOT_GIVEN: Any = object()
#: Options of ours, beside SciPy's.
_OWN = {"relative_gtol", "target", "time_limit", "cauchy", "line_search", "h0", "threads"}
_PRINTING = "scipy.optimize: The `disp` and `iprint` options of the L-BFGS-B solver are deprecated and have no effect."
#: Limits are looked at as SciPy does, not by the engine; and one decrease below ftol is the end.
_AS_SCIPY = {"maxiter": math.inf, "maxfun": math.inf, "patience": 1}
_PLAIN = read_options(_AS_SCIPY, None)


def read_settings(
    tol: float | None, ftol: float | None, gtol: float | None, maxcor: int | None, maxls: int, own: dict[str, Any]
) -> Plan:
    """Read what the engine is told; options that are unknown warn."""
    if not maxls > 0:
        raise ValueError("maxls must be positive.")
    if not own and tol is None and ftol is None and gtol is None and maxcor == 10 and maxls == 20:
        return _PLAIN
    unknown = [option for option in own if option not in _OWN]
    if unknown:
        warn_caller(f"Unknown solver options: {', '.join(unknown)}")
    given = {name: value for name, value in own.items() if name in _OWN} | _AS_SCIPY
    for name, value in (("ftol", ftol), ("gtol", gtol)):
        value = tol if value is None else value
        if value is not None:
            # SciPy's test is never true for NaN nor always false for infinity.
            given[name] = 0.0 if math.isnan(value) else min(value, sys.float_info.max)
    if "gtol" in given:
        given["gtol"] = max(given["gtol"], 0.0)  # below 0 is SciPy's way to switch this test off
    if maxcor is not None:
        if maxcor > _core.MAX_CAPACITY:
            warn_caller(f"maxcor is {maxcor}; {_core.MAX_CAPACITY} pairs, the largest number, are kept")
        given["maxcor"] = min(maxcor, _core.MAX_CAPACITY)
    return read_options(given if maxls == 20 else given | {"maxls": maxls}, None)


def warn_ignored(disp: Any, iprint: Any, return_all: Any) -> None:
    """Warn as SciPy does of options without an effect."""
    if return_all:
        warn_caller("Method stepwell.scipy_method does not support the return_all option.", RuntimeWarning)
    if VERSION >= (1, 15) and not (disp is NOT_GIVEN and iprint is NOT_GIVEN):
        warn_caller(_PRINTING, DeprecationWarning)


def read_pairs(bounds: Any, n: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Read bounds as SciPy does: a `Bounds`, or pairs in whatever sequence."""
    sides = split_bounds(bounds, "scipy")
    if sides is None:
        return None
    low, high = (np.asarray(side, dtype=float) for side in sides)
    if low.shape != (n,) or high.shape != (n,):
        try:
            low, high = np.broadcast_to(low, (n,)), np.broadcast_to(high, (n,))
        except ValueError:
            raise ValueError("The number of bounds is not compatible with the length of `x0`.") from None
    if (high < low).any():
        raise ValueError("An upper bound is less than the corresponding lower bound.")
    return low, high


class Scalar:
    """A function whose value must be one number. Workers get it pickled."""

    def __init__(self, fun: Callable[..., Any]) -> None:
        self.fun = fun

    def __call__(self, x: np.ndarray, *args: Any) -> Any:
        """Return the value at x."""
        return one_number(self.fun(x, *args))


def one_number(value: Any) -> Any:
    """Return a value that is one number, of whatever type or shape; the error has SciPy's words."""
    if type(value) is float or np.isscalar(value):
        return value
    try:
        return np.asarray(value).item()
    except (TypeError, ValueError) as error:
        raise ValueError("The user-provided objective function must return a scalar value.") from error


def read_objective(fun: Any, jac: Any, fixed: np.ndarray | None) -> tuple[Callable[..., Any], Any]:
    """Return `fun` and `jac` as `Objective` takes them; what is not known along fixed variables becomes 0."""

    def known(g: Any) -> Any:
        if fixed is None:
            return g
        gradient = np.array(g, dtype=float).reshape(fixed.shape)
        gradient[fixed & ~np.isfinite(gradient)] = 0.0  # not needed either
        return gradient

    pair = _pair_of(fun, jac)
    if pair is not None:

        def value_and_gradient(x: np.ndarray, *args: Any) -> tuple[Any, Any]:
            found = pair(x, *args)
            return one_number(found[0]), known(found[1])

        return value_and_gradient, True
    if callable(jac):
        return Scalar(fun), jac if fixed is None else lambda x, *args: known(jac(x, *args))
    return Scalar(fun), jac if isinstance(jac, str) and jac in SCHEMES else None


def _pair_of(fun: Any, jac: Any) -> Callable[..., Any] | None:
    """Return the function that returns value and gradient, if there is one.

    With ``jac=True``, SciPy hands on an object that remembers the pair at its last point, and its method: asked
    directly, the function spares a copy and a comparison of each point.
    """
    pair: Any = None
    if isinstance(jac, bool | np.bool_):
        pair = fun if jac else None
    elif type(fun).__name__ == "MemoizeJac" and getattr(jac, "__self__", None) is fun:
        pair = getattr(fun, "fun", None)
    return pair if callable(pair) else None
