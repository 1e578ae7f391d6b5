"""Fits of data given as arrays of dask and xarray: what belongs to one problem, and what to all."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from stepwell.arrays import is_container, is_labelled
from stepwell.arrays.bounds import split_bounds
from stepwell.arrays.over_systems import over_systems
from stepwell.common.checks import require
from stepwell.fit.arguments import owns_x
from stepwell.fit.functions import parameter_names
from stepwell.fit.result import FitResult

#: The axes behind the problems' of each field: n parameters; of a covariance, as xarray's curvefit has them.
FIELDS = {"x": "n", "stderr": "n", "active_mask": "n", "pcov": "ij"}
NAMES = {"n": "param", "i": "cov_i", "j": "cov_j"}
#: Types that are none of dask's or xarray's, which need no look.
PLAIN = frozenset((np.ndarray, list, tuple, float, int, bool, type(None)))
#: Arguments of n or m numbers per problem.
OWN = {"p0": "n", "sigma": "m", "mask": "m", "fixed": "n"}


def are_containers(xdata: Any, ydata: Any, *others: Any) -> bool:
    """Whether data are given in arrays of dask or xarray; ends of bounds count."""
    if PLAIN.issuperset(map(type, (xdata, ydata, *others))) and not any(
        isinstance(other, tuple | list) and not PLAIN.issuperset(map(type, other)) for other in others
    ):
        return False
    members = [member for other in others for member in (other if isinstance(other, tuple | list) else (other,))]
    return is_container(xdata, ydata, *members)


def over_blocks(
    solver: Callable[..., FitResult], f: Any, xdata: Any, ydata: Any, arguments: Mapping[str, Any], dim: str | None
) -> FitResult:
    """Fit data given as arrays of dask or xarray, block by block; parameter names become the coordinate ``param``."""
    for name in ("progress", "callback"):
        value = arguments.get(name)
        require(value is None, name, value, "None with arrays of dask and xarray, which dask watches")
    settings: dict[str, Any] = {}
    own: dict[str, tuple[Any, str]] = {}
    for name, value in arguments.items():
        if name in OWN and _has_axes(value):
            own[name] = (value, OWN[name])
        elif name == "bounds":
            low, high = split_bounds(value, "ends") or (-np.inf, np.inf)
            for end, side in (("lower", low), ("upper", high)):
                if _has_axes(side):
                    own[end] = (side, "n")
                else:
                    settings[end] = side
        else:
            settings[name] = value
    if is_labelled(xdata):
        fits = dim is None or dim in xdata.dims
        require(fits, "xdata.dims", tuple(xdata.dims), f"with {dim!r}")
    shared = not (is_container(xdata) or _is_own(xdata, ydata, arguments.get("own_x")))
    if is_labelled(xdata) and len(xdata.dims) == 1:
        xdata, shared = np.asarray(xdata), True
    if shared:
        settings["xdata"], settings["own_x"] = xdata, False
    else:
        own["xdata"], settings["own_x"] = (xdata, "m"), True
    solve = functools.partial(solve_block, solver, f, **settings)
    result: FitResult = over_systems(solve, {"ydata": (ydata, "m"), **own}, FIELDS, dim=dim, names=NAMES)
    names = parameter_names(f)
    return result if names is None or not is_labelled(result.x) else _named(result, names)


def _has_axes(value: Any) -> bool:
    return getattr(value, "ndim", 0) > 0


def _is_own(xdata: Any, ydata: Any, own_x: bool | None) -> bool:
    return owns_x(xdata, tuple(ydata.shape[:-1]), int(ydata.shape[-1]), own_x)


def _named(result: FitResult, names: tuple[str, ...]) -> FitResult:
    """Return a result of DataArrays whose parameters have names."""
    fields: dict[str, Any] = {}
    for name, letters in FIELDS.items():
        value = getattr(result, name)
        if value is not None and value.shape[-1] == len(names):
            fields[name] = value.assign_coords({NAMES[letter]: list(names) for letter in letters})
    return dataclasses.replace(result, **fields)


def solve_block(
    solver: Callable[..., FitResult], f: Any, ydata: Any, xdata: Any, lower: Any, upper: Any, **given: Any
) -> FitResult:
    """Fit the problems of one block."""
    result = solver(f, xdata, ydata, bounds=(lower, upper), **given)
    # What evaluates the model again stays in the block.
    return dataclasses.replace(result, _again=None, _picture=None)
