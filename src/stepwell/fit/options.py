"""Options of ``curve_fit`` and ``least_squares``, read and checked: what is no array of the problems."""

from __future__ import annotations

from typing import Any

import numpy as np

from stepwell.common.checks import (
    read_choice,
    read_real,
    read_whole,
    require,
    require_function,
    require_kind,
    require_shape,
    warn_caller,
)
from stepwell.common.threads import read_threads
from stepwell.fit.arguments import on_host
from stepwell.fit.problem import LOSSES

#: SciPy's names, any of which stands for the one method that there is.
METHODS = ("lm", "trf", "dogbox")


def read_options(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options that both calls have, checked."""
    method = given.pop("method")
    if method is not None:
        read_choice("method", method, METHODS)
    scale = given.pop("x_scale")
    if not (scale is None or (isinstance(scale, str) and scale == "jac")):
        given_scale = on_host("x_scale", scale)
        require(bool((given_scale > 0).all()), "x_scale", scale, "'jac', or positive numbers, which are not used")
        if given_scale.ndim > 0 or given_scale != 1:
            warn_caller("x_scale is not used: parameters are scaled by the derivatives, as with x_scale='jac'")
    uncertainty = given.pop("uncertainty")
    if uncertainty is not None:
        read_choice("uncertainty", uncertainty, ("covariance", "stderr"))
    nfev = given.pop("max_nfev")
    for name in ("progress", "callback"):
        require_function(name, given[name])
    found: dict[str, Any] = {name: given[name] for name in ("progress", "callback")}
    for name in ("ftol", "gtol"):
        value = given[name]
        found[name] = None if value is None else read_real(name, value, at_least=0)
    return found | dict(
        loss=read_choice("loss", given["loss"], LOSSES) if isinstance(given["loss"], str) else _no_loss(given["loss"]),
        scale=read_real("f_scale", given["f_scale"], above=0),
        xtol=0.0 if given["xtol"] is None else read_real("xtol", given["xtol"], at_least=0),
        maxiter=None if given["maxiter"] is None else read_whole("maxiter", given["maxiter"], 0, as_float=True),
        max_nfev=None if nfev is None else read_whole("max_nfev", nfev, 1, 2**31 - 1, as_float=True),
        threads=read_threads(given["threads"]),
        uncertainty=uncertainty,
    )


def read_limit(maxfev: Any, max_nfev: Any) -> int | None:
    """Return the limit on evaluations, which SciPy has two names for."""
    limits = {"maxfev": maxfev, "max_nfev": max_nfev}
    read = {
        name: read_whole(name, value, 1, 2**31 - 1, as_float=True)
        for name, value in limits.items()
        if value is not None
    }
    return min(read.values()) if read else None


def read_further(args: Any, kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return further arguments of a function: a tuple, and a dict."""
    require_kind(isinstance(args, tuple), "args", args, "a tuple")
    named = isinstance(kwargs, dict) and all(isinstance(name, str) for name in kwargs)
    require_kind(kwargs is None or named, "kwargs", kwargs, "a dict of arguments by name")
    return args, kwargs or {}


def read_steps(diff_step: Any, n: int) -> np.ndarray | None:
    """Return relative steps of differences: None, a number, or one for each parameter."""
    if diff_step is None:
        return None
    found = on_host("diff_step", diff_step)
    require_shape(found.shape in ((), (1,), (n,)), "diff_step", found, f"() or ({n},)")
    require(bool(((found > 0) & np.isfinite(found)).all()), "diff_step", diff_step, "positive numbers")
    return found


def _no_loss(loss: Any) -> str:
    require_kind(False, "loss", loss, ", ".join(map(repr, LOSSES)) + "; a callable loss is not taken")
    return ""
