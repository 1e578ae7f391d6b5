"""Arguments of ``curve_fit`` and ``least_squares``, read and checked into a `FitProblem`."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from stepwell.arrays import (
    Array,
    holds_double,
    host_copy,
    is_array,
    namespace_of,
    of_numpy,
    on_device_of,
)
from stepwell.arrays.bounds import split_bounds
from stepwell.arrays.checks import read_array, require_real
from stepwell.arrays.forward_mode import compiled_template
from stepwell.arrays.kinds import as_contiguous
from stepwell.common.checks import (
    read_choice,
    read_switch,
    require,
    require_kind,
    require_shape,
    warn_caller,
)
from stepwell.fit.functions import Curve, parameter_names
from stepwell.fit.problem import MAX_PARAMETERS, FitProblem


def template_of(f: Any, *arrays: Any) -> Array:
    """Return an array of the library that evaluates a model: that of the first of the arrays that is not NumPy's."""
    for array in arrays:
        if is_array(array) and not of_numpy(array):
            return array
    compiled = compiled_template(f)
    return _PLAIN if compiled is None else compiled


_PLAIN = np.zeros(())


def in_precision(template: Array, single: bool) -> Array:
    """Return a number of a template's library and device, in the type that parameters have."""
    if template is _PLAIN:
        return template
    xp = namespace_of(template)
    return xp.zeros((), dtype=xp.float32 if single else xp.float64, **on_device_of(template))


def on_host(argument: str, value: Any) -> np.ndarray:
    """Return real numbers of any library as a host array of float32 or float64."""
    if type(value) is np.ndarray and value.dtype == np.float64:
        return value
    if isinstance(value, list | tuple | float | int):  # (the long way takes longer than a short fit)
        try:
            plain = np.array(value)
        except ValueError:  # ragged: the long way says so
            plain = np.empty(0, object)
        if plain.dtype.kind in "fiu":
            return plain.astype(np.float64, copy=False)
    array = read_array(argument, value)
    require_real(argument, array)
    found = host_copy(array)
    return found if found.dtype in (np.float32, np.float64) else found.astype(np.float64)


def axes_of(argument: str, value: Any) -> int:
    """Return how many axes an array has, of whatever library, or a list."""
    return int(value.ndim if hasattr(value, "ndim") else read_array(argument, value).ndim)


def read_rows(argument: str, value: Any, lead: tuple[int, ...], width: int, dtype: Any = np.float64) -> np.ndarray:
    """Return a number, (width,) or (..., width) as (1 or problems, width)."""
    found = on_host(argument, value)
    shapes = " or ".join(dict.fromkeys((f"({width},)", f"{(*lead, width)}")))
    if found.ndim <= 1:
        if found.ndim == 0 or found.shape == (1,):
            return np.full((1, width), found.reshape(()), dtype)
        if found.shape != (width,):
            require_shape(False, argument, found, f"() or {shapes}")
        return np.ascontiguousarray(found.reshape(1, width), dtype)
    try:
        wide = np.broadcast_to(found, (*lead, width))
    except ValueError:
        require_shape(False, argument, found, shapes)
    return np.ascontiguousarray(wide.reshape(-1, width), dtype)


def read_bounds(bounds: Any, lead: tuple[int, ...], n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return bounds as two arrays (1 or problems, n)."""
    split = split_bounds(bounds, "ends")
    low, high = (-math.inf, math.inf) if split is None else split
    lows, highs = (read_rows("bounds", side, lead, n) for side in (low, high))
    if (lows <= highs).all() and len(lows) == len(highs):
        return lows, highs
    require(not (np.isnan(lows).any() or np.isnan(highs).any()), "bounds", bounds, "numbers other than NaN")
    if len(lows) != len(highs):
        shape = (math.prod(lead), n)
        lows, highs = (np.ascontiguousarray(np.broadcast_to(side, shape)) for side in (lows, highs))
    if len(lows) == 1 and (lows > highs).any():
        j = int(np.argmax(lows[0] > highs[0]))
        raise ValueError(f"bounds of parameter {j} are {lows[0, j]} and {highs[0, j]}; allowed: lower <= upper")
    return lows, highs


def feasible_start(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return SciPy's start where none is given: 1, or inside the bounds."""
    below, above = np.isfinite(low), np.isfinite(high)
    with np.errstate(invalid="ignore"):
        start = np.where(below & above, 0.5 * (low + high), np.where(below, low + 1, np.where(above, high - 1, 1.0)))
    return np.asarray(start)


def by_name(p0: Any, bounds: Any, names: tuple[str, ...] | None) -> tuple[Any, Any]:
    """Return a start and bounds as arrays where they are dicts of numbers, or of arrays, by parameter names."""
    for argument, given in (("p0", p0), ("bounds", bounds)):
        if isinstance(given, dict):
            known = names or ()
            stray = [name for name in given if name not in known]
            allowed = ", ".join(known) or "none: the function does not name its parameters"
            require(not stray, argument, stray[0] if stray else None, f"names among {allowed}")
    if isinstance(p0, dict):
        missing = [name for name in names or () if name not in p0]
        require(not missing, "p0", sorted(p0), f"all of {', '.join(names or ())}")
        p0 = _beside([p0[name] for name in names or ()], "p0")
    if isinstance(bounds, dict):
        pairs = [bounds.get(name, (-math.inf, math.inf)) for name in names or ()]
        for pair in pairs:
            require(isinstance(pair, tuple | list) and len(pair) == 2, "bounds", pair, "a pair (lower, upper) per name")
        ends = [[(-math.inf, math.inf)[k] if pair[k] is None else pair[k] for pair in pairs] for k in (0, 1)]
        bounds = (_beside(ends[0], "bounds"), _beside(ends[1], "bounds"))
    return p0, bounds


def _beside(values: list[Any], argument: str) -> np.ndarray:
    read = [on_host(argument, value) for value in values]
    try:
        return np.stack(np.broadcast_arrays(*read), axis=-1)
    except ValueError:
        shapes = ", ".join(str(one.shape) for one in read)
        raise ValueError(f"{argument} has the shapes {shapes}; allowed: shapes that broadcast") from None


def read_start(p0: Any, low: np.ndarray, high: np.ndarray, lead: tuple[int, ...], n: int, name: str) -> np.ndarray:
    """Return starts (problems, n) inside the bounds; those outside are moved there, with a warning."""
    problems = math.prod(lead)
    start = feasible_start(low, high) if p0 is None else read_rows(name, p0, lead, n)
    inside = start
    if not ((start >= low) & (start <= high)).all():  # (memory of a million starts is dear: no copy where all are)
        inside = np.minimum(np.maximum(start, low), high)
        if p0 is not None and (inside != start).any():
            require(not np.isnan(start).any(), name, p0, "numbers other than NaN")
            if not (low > high).any():
                warn_caller(f"{name} is outside the bounds; the fit starts at the nearest point inside")
    if inside.shape == (problems, n):
        shared = isinstance(p0, np.ndarray) and np.may_share_memory(inside, p0)
        return inside.copy() if shared else np.ascontiguousarray(inside)
    return np.array(np.broadcast_to(inside, (problems, n)), order="C")


def hold_fixed(
    fixed: Any, x0: np.ndarray, low: np.ndarray, high: np.ndarray, lead: tuple[int, ...], names: tuple[str, ...] | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return bounds that are equal where parameters are fixed: a boolean array, or names or places of parameters."""
    if fixed is None:
        return low, high
    n = x0.shape[1]
    if not (is_array(fixed) and str(fixed.dtype).endswith("bool")) and not _are_switches(fixed, n):
        chosen = np.zeros(n, bool)
        chosen[read_places("fixed", fixed, n, names)] = True
        fixed = chosen
    held = read_rows("fixed", _read_flags("fixed", fixed), lead, n) != 0
    shape = np.broadcast_shapes(held.shape, low.shape)
    if (x0 != x0[:1]).any():
        shape = x0.shape
    own = np.broadcast_to(x0 if shape[0] > 1 or len(x0) == 1 else x0[:1], shape)
    return tuple(np.ascontiguousarray(np.where(held, own, side)) for side in (low, high))  # type: ignore[return-value]


def _read_flags(argument: str, value: Any) -> np.ndarray:
    """Return true and false, or numbers that are 0 or not, as float64."""
    found = host_copy(read_array(argument, value))
    require_kind(found.dtype.kind in "biuf", argument, value, "true and false")
    return np.asarray(found, dtype=np.float64)


def _are_switches(fixed: Any, n: int) -> bool:
    return (
        isinstance(fixed, list | tuple) and len(fixed) == n and all(isinstance(one, bool | np.bool_) for one in fixed)
    )


def read_places(argument: str, value: Any, n: int, names: tuple[str, ...] | None) -> list[int]:
    """Return places of parameters that are given by name or place."""
    members: Any = [value] if isinstance(value, str | int) else value
    listed = isinstance(members, list | tuple | set | range) or (is_array(members) and members.ndim == 1)
    allowed = "names or places of parameters"
    require_kind(listed, argument, value, allowed)
    members = [one.item() if getattr(one, "shape", None) == () else one for one in members]
    require_kind(all(isinstance(one, str | int) for one in members), argument, value, allowed)
    places = []
    for member in members:
        if isinstance(member, str):
            known = ", ".join(names or ()) or "none: the function does not name its parameters"
            require(names is not None and member in names, argument, member, f"names among {known}")
            places.append((names or ()).index(member))
        else:
            require(-n <= member < n and not isinstance(member, bool), argument, member, f"0 to {n - 1}")
            places.append(member % n)
    return sorted(set(places))


def read_along(argument: str, value: Any, lead: tuple[int, ...], points: int) -> np.ndarray:
    """Return what lies beside the data, `sigma` or `mask`, as (1 or problems, m)."""
    return read_rows(argument, _read_flags(argument, value) if argument == "mask" else value, lead, points)


def read_weights(sigma: Any, mask: Any, y: Array, omit: bool, along: Callable[[str, Any], Array]) -> Array | None:
    """Return weights 1/sigma (1 or problems, m), 0 where a point does not count; None where all are 1.

    Parameters
    ----------
    y : array
        (1 or problems, m), of whatever library.
    along : callable
        Reads an argument by its name, as ``read_along`` does, where y lies.
    """
    xp, weights = namespace_of(y), None
    if sigma is not None:
        read = along("sigma", sigma)
        require(bool(xp.all(read > 0)), "sigma", sigma, "positive numbers")
        weights = 1 / read
    counting = [] if mask is None else [along("mask", mask) != 0]
    if omit and bool(xp.any(xp.isnan(y))):
        counting.append(~xp.isnan(y))
    for counts in counting:
        ones = xp.ones_like(y[:1]) if weights is None else weights
        weights = xp.where(counts, ones, xp.zeros_like(ones))
    return None if weights is None else as_contiguous(weights)


def require_counts(y: Array, weights: Array | None, sigma: Any) -> None:
    """Raise where data (1 or problems, m), of whatever library, are no counts."""
    require(sigma is None, "sigma", sigma, "None with loss='poisson', whose data have their own variance")
    below = y < 0 if weights is None else (y < 0) & (weights != 0)
    require(not bool(below.any()), "ydata", "negative", "counts, 0 or more, with loss='poisson'")


def owns_x(xdata: Any, lead: tuple[int, ...], points: int, own_x: bool | None) -> bool:
    """Whether x belongs to the problems: where its shape is that of ydata, or where it is said."""
    own_x = None if own_x is None else read_switch("own_x", own_x)
    if not lead or not hasattr(xdata, "shape"):
        return bool(own_x) and bool(lead)
    same = tuple(xdata.shape) == (*lead, points)
    if own_x is None:
        ambiguous = same and len(lead) == 1 and lead[0] <= 3
        if ambiguous:
            raise ValueError(
                f"xdata has shape {tuple(xdata.shape)}, as ydata has: {lead[0]} variables of all problems, or an x of "
                "each problem? Say own_x=False or own_x=True"
            )
        return same
    if own_x:
        fits = tuple(xdata.shape)[-len(lead) - 1 :] == (*lead, points)
        require_shape(fits, "xdata", xdata, f"(..., {', '.join(map(str, (*lead, points)))}) with own_x=True")
    return bool(own_x)


def read_curve(
    f: Any, xdata: Any, ydata: Any, p0: Any, sigma: Any, absolute_sigma: bool, check_finite: bool | None, bounds: Any,
    nan_policy: str | None, mask: Any, fixed: Any, own_x: bool | None, options: dict[str, Any],
) -> tuple[FitProblem, Curve]:  # fmt: skip
    """Turn the arguments of ``curve_fit`` into a problem and its model."""
    template = template_of(f, ydata, xdata, p0)
    y = on_host("ydata", ydata)
    require_shape(y.ndim >= 1 and y.shape[-1] >= 1, "ydata", y, "(m,) or (..., m), at least one point")
    lead, points = y.shape[:-1], y.shape[-1]
    lone = not lead
    if nan_policy is not None:
        read_choice("nan_policy", nan_policy, ("raise", "omit"))
    plain = type(xdata) is np.ndarray and xdata.dtype == np.float64
    if not plain and (isinstance(xdata, list | tuple) or (is_array(xdata) and isinstance(xdata, np.ndarray))):
        xdata = np.asarray(read_array("xdata", xdata))
    refuses = nan_policy == "raise" or (lone and nan_policy is None and check_finite is not False)
    if refuses:
        require(bool(np.isfinite(y).all()), "ydata", "not finite", "finite numbers; nan_policy='omit' leaves NaN out")
        if isinstance(xdata, np.ndarray) and xdata.dtype.kind == "f":
            require(bool(np.isfinite(xdata).all()), "xdata", "not finite", "finite numbers")
    own = owns_x(xdata, lead, points, own_x)
    single = _is_single(template, y, xdata)
    names = parameter_names(f)
    n = count_parameters(f, p0, names)
    low, high = read_bounds(bounds, lead, n)
    x0 = read_start(p0, low, high, lead, n, "p0")
    low, high = hold_fixed(fixed, x0, low, high, lead, names)
    weights = read_weights(
        sigma, mask, y.reshape(-1, points), nan_policy == "omit", lambda name, one: read_along(name, one, lead, points)
    )
    if weights is not None:
        weights = np.ascontiguousarray(weights, dtype=np.float64)
    if options["loss"] == "poisson":
        require_counts(y.reshape(-1, points), weights, sigma)
    if single:
        x0, low, high = in_single(x0, low, high)
    if own:
        xdata = xdata.reshape((*tuple(xdata.shape)[: xdata.ndim - len(lead) - 1], -1, points))
    problem = FitProblem(
        x0=x0, low=low, high=high, lead=lead, lone=lone, single=single,
        template=in_precision(template, single), x=xdata, own_x=own,
        y=y.reshape(-1, points), weights=weights, points=points, absolute=read_switch("absolute_sigma", absolute_sigma),
        names=names if names is not None and len(names) == n else None, raises=check_finite is not False, **options,
    )  # fmt: skip
    return problem, Curve(f, xdata, own)


def _is_single(template: Array, y: np.ndarray, xdata: Any) -> bool:
    """Whether parameters are float32: data and x are, or JAX has no doubles."""
    if not holds_double(template):
        return True
    if y.dtype != np.float32:
        return False
    return getattr(xdata, "dtype", None) is None or "float64" not in str(xdata.dtype)


def in_single(x0: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a start and bounds that are float32 numbers: bounds are rounded inwards."""
    lows, highs = low.astype(np.float32), high.astype(np.float32)
    equal = low == high
    inner = np.where((lows < low) & ~equal, np.nextafter(lows, np.float32(np.inf)), lows)
    outer = np.where((highs > high) & ~equal, np.nextafter(highs, np.float32(-np.inf)), highs)
    low, high = (np.ascontiguousarray(side.astype(np.float64)) for side in (inner, outer))
    start = x0.astype(np.float32)
    if (start == x0).all() and (x0 >= low).all() and (x0 <= high).all():
        return x0, low, high
    return np.ascontiguousarray(np.minimum(np.maximum(start.astype(np.float64), low), high)), low, high


def count_parameters(f: Any, p0: Any, names: tuple[str, ...] | None) -> int:
    """Return how many parameters a model has: those of the start, or those that its signature names."""
    if p0 is not None:
        shape = tuple(p0.shape) if hasattr(p0, "shape") else on_host("p0", p0).shape
        n = int(shape[-1]) if shape else 1
        if names is not None and n != len(names):
            _require_count(f, n, names)
    else:
        require(
            names is not None, "p0", None, "a start, since the signature of f does not tell how many parameters it has"
        )
        n = len(names or ())
    require(1 <= n <= MAX_PARAMETERS, "p0", n, f"1 to {MAX_PARAMETERS} parameters; for more, stepwell.minimize")
    return n


def _require_count(f: Any, n: int, names: tuple[str, ...]) -> None:
    """Raise where a model takes another number of parameters than a start has; those with a default may be left out."""
    least = len(names)
    if not isinstance(getattr(f, "parameters", None), tuple):
        given = list(inspect.signature(f).parameters.values())[1:]
        least = sum(one.default is one.empty and one.kind is not one.KEYWORD_ONLY for one in given)
    if not least <= n <= len(names):
        raise ValueError(f"p0 has {n} parameters; allowed: {len(names)}, which are {', '.join(names)}")


def read_residual(fun: Any, x0: Any, bounds: Any, fixed: Any, options: dict[str, Any]) -> FitProblem:
    """Turn the arguments of ``least_squares`` into a problem."""
    template = template_of(fun, x0)
    start = on_host("x0", x0)
    start = start[None] if start.ndim == 0 else start
    lead, n = start.shape[:-1], int(start.shape[-1])
    require(1 <= n <= MAX_PARAMETERS, "x0", n, f"1 to {MAX_PARAMETERS} parameters; for more, stepwell.minimize")
    single = start.dtype == np.float32 or not holds_double(template)
    low, high = read_bounds(bounds, lead, n)
    found = read_start(start, low, high, lead, n, "x0")
    require(bool(np.isfinite(found).all()), "x0", "not finite", "finite numbers")
    low, high = hold_fixed(fixed, found, low, high, lead, None)
    if single:
        found, low, high = in_single(found, low, high)
    return FitProblem(
        x0=found, low=low, high=high, lead=lead, lone=not lead, single=single,
        template=in_precision(template, single), **options,
    )  # fmt: skip
