"""Small least-squares problems given as arrays of dask and xarray: what belongs to one system, and what to all."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from stepwell.arrays import is_container
from stepwell.arrays.over_systems import NAMES, over_systems
from stepwell.common.checks import require
from stepwell.lsq.constraints import is_one
from stepwell.lsq.convolution import Convolution
from stepwell.lsq.result import VECTORS, LSQResult

#: The axes behind the systems' of each field: n unknowns, k equalities.
FIELDS = dict.fromkeys(VECTORS, "n") | {"multipliers": "k"}
#: Arguments of one number, n or m numbers per system.
OWN = {"lam": "", "noise": "", "which": "", "mask": "n", "weights": "m", "warm_start": "n"}


def are_containers(A: Any, b: Any, *others: Any) -> bool:
    """Whether a problem is given in arrays of dask or xarray; members of pairs count."""
    members = [member for other in others for member in (other if isinstance(other, tuple | list) else (other,))]
    return is_container(A.pulse if isinstance(A, Convolution) else A, b, *members)


def over_blocks(
    solver: Callable[..., LSQResult],
    A: Any,
    b: Any,
    arguments: Mapping[str, Any],
    *,
    axis: int = 0,
    dim: str | None = None,
) -> Any:
    """Solve systems given as arrays of dask or xarray.

    Parameters
    ----------
    solver : callable
        ``nnls`` or ``lsq_linear``.
    A, b
        As it takes them.
    arguments : mapping
        The others by name. Those that a system may have its own of are cut with the systems; L and settings are not.
    axis, dim
        As in :func:`stepwell.nnls`.
    """
    progress = arguments.get("progress")
    require(progress is None, "progress", progress, "None with arrays of dask and xarray, which dask watches")
    settings, own = {}, {}
    for name, value in arguments.items():
        if name in OWN and not (value is None or is_one(value)):
            own[name] = (value, OWN[name])
        elif name in ("bounds", "sum_bounds") and isinstance(value, tuple | list) and len(value) == 2:
            for end, side in zip(("lower", "upper"), value):
                part = f"{name}_{end}"
                if side is None or is_one(side):
                    settings[part] = side
                else:
                    own[part] = (side, "n" if name == "bounds" else "")
        elif name == "equality" and isinstance(value, tuple | list) and len(value) == 2 and not is_one(value[1]):
            settings["equality"], own["equality_right"] = value[0], (value[1], "k")
        else:
            settings[name] = value
    matrix: dict[str, tuple[Any, str]] = {"A": (A, "mn")}
    if isinstance(A, Convolution):
        matrix = {"pulse": (A.pulse, "p")}
        settings |= dict(n=A.n, m=A.m, origin=A.origin)
    elif arguments.get("which") is not None:
        require(not is_container(A), "A", type(A).__name__, "an array in memory with `which`: a dictionary of matrices")
        matrix, settings["A"] = {}, A
    solve = functools.partial(solve_block, solver, **settings)
    return over_systems(
        solve, {"b": (b, "m"), **matrix, **own}, FIELDS, dim=dim, axis=axis, names={**NAMES, "k": "equality"}
    )


def solve_block(solver: Callable[..., LSQResult], b: Any, A: Any = None, pulse: Any = None, **given: Any) -> LSQResult:
    """Solve the systems of one block; pairs come as their members."""
    if pulse is not None:
        A = Convolution(pulse, given.pop("n"), m=given.pop("m"), origin=given.pop("origin"))
    for name in ("bounds", "sum_bounds"):
        if f"{name}_lower" in given or f"{name}_upper" in given:
            ends = given.pop(f"{name}_lower", None), given.pop(f"{name}_upper", None)
            given[name] = tuple(missing if end is None else end for missing, end in zip((-np.inf, np.inf), ends))
    if "equality_right" in given:
        given["equality"] = given["equality"], given.pop("equality_right")
    result = solver(A, b, **given)
    # What the covariance is computed from stays in the block.
    return dataclasses.replace(result, _problem=None)
