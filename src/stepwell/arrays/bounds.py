"""Bounds in every form that users write, split into lower and upper: one reader for all solvers.

Forms are a ``scipy.optimize.Bounds``, a pair (lower, upper), an array (2, n), n pairs (low, high), and an array (n, 2).
At n = 2 some of them look the same. Each solver then reads what its namesake of SciPy reads: ``minimize`` pairs,
``lsq_linear`` lower and upper.
"""

from __future__ import annotations

import itertools
import math
import numbers
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from stepwell.arrays import host_view, is_array, is_container, is_cuda, kind_of, namespace_of
from stepwell.arrays.autograd import graph_library
from stepwell.common.checks import WrongKind, shown, warn_caller

#: What two members of two numbers each are: pairs (``minimize``), or lower and upper (``lsq_linear``). ``"scipy"`` is
#: ``scipy.optimize.minimize`` to the letter, for which everything but a `Bounds` is pairs.
Rule: TypeAlias = Literal["pairs", "ends", "scipy"]

#: How bounds may be written; the text of error messages.
FORMS = {
    "pairs": "None; a scipy.optimize.Bounds; a tuple of two arrays or numbers (lower, upper), or a (2, n) array; "
    "or pairs: a list or tuple of n pairs (low, high), or an (n, 2) array",
    "ends": "a pair (lower, upper) of numbers or arrays; a scipy.optimize.Bounds; a (2, n) array; or, unless n is 2, a "
    "list or tuple of n pairs (low, high), or an (n, 2) array",
}
#: The same of a sum, of which there is one.
FORMS_OF_ONE = "a pair (lower, upper) of numbers or arrays"


def split_bounds(
    bounds: Any, rule: Rule = "pairs", *, name: str = "bounds", shape: tuple[int, ...] | None = None, one: bool = False
) -> tuple[Any, Any] | None:
    """Split bounds into lower and upper, not yet checked nor broadcast; None if there are none.

    A *tuple* of two arrays or numbers (or None) is (lower, upper) by either rule. Two members of two numbers each are
    pairs by the rule ``"pairs"``, lower and upper by the rule ``"ends"``. What has one meaning is read as that.

    Parameters
    ----------
    bounds : any
        What the caller gave.
    rule : {"pairs", "ends", "scipy"}, default "pairs"
        What is read where both are possible.
    name : str, default "bounds"
        The argument, for messages.
    shape : tuple of int, optional
        The shape of the variables, where that is known: for arrays of more than two axes.
    one : bool, default False
        Whether they bound one quantity, such as a sum, so that pairs make no sense.

    Examples
    --------
    >>> split_bounds([(0, None), (1, 2), (3, 4)])
    (array([0., 1., 3.]), array([inf,  2.,  4.]))
    >>> split_bounds(((0, 1), (2, 3)), "ends")
    ((0, 1), (2, 3))
    """
    if bounds is None:
        return None
    if _is_scipys(bounds):
        # A number is an array of one there, and holds for all variables.
        lower, upper = (side[0] if getattr(side, "shape", None) == (1,) else side for side in (bounds.lb, bounds.ub))
        return lower, upper
    if rule == "scipy":
        return _as_scipy_reads(bounds)
    if hasattr(bounds, "shape"):
        return _split_array(bounds, rule, name, shape, one)
    members = bounds if isinstance(bounds, tuple | list) else _members(bounds, rule, name, one)
    if len(members) == 2 and (rule == "ends" or _are_ends(members)):
        return _open_end(members[0], -np.inf), _open_end(members[1], np.inf)
    if one:
        _refuse(bounds, rule, name, one)
    live = _live_ends(members)
    if live is not None:
        return live
    pairs = _pairs_from_sequence(members, rule, name)
    if rule == "pairs":
        _warn_of_lists(bounds, pairs, name)
    return pairs[:, 0], pairs[:, 1]


def _refuse(bounds: Any, rule: Rule, name: str, one: bool) -> None:
    if rule == "pairs":
        raise ValueError(f"{name} cannot be read; got {type(bounds).__name__}; allowed: {FORMS[rule]}")
    raise WrongKind(f"{name} is {shown(bounds)}; allowed: {FORMS_OF_ONE if one else FORMS[rule]}")


def _is_scipys(bounds: Any) -> bool:
    """Whether these are a `scipy.optimize.Bounds`, or like one. (SciPy's optimizers take long to import.)"""
    return hasattr(bounds, "lb") and hasattr(bounds, "ub")


def _is_array_or_number(value: Any) -> bool:
    return (
        value is None
        or isinstance(value, numbers.Real)
        or any(hasattr(value, name) for name in ("__array__", "__dlpack__", "__cuda_array_interface__"))
    )


def _members(bounds: Any, rule: Rule, name: str, one: bool) -> Sequence[Any]:
    """Return the members of whatever can be gone through, once or again."""
    if not isinstance(bounds, str | bytes):
        try:
            return list(bounds)
        except TypeError:
            pass
    _refuse(bounds, rule, name, one)
    raise AssertionError("unreachable")


def _length(value: Any) -> int:
    """Return how many numbers a member has; -1 for a number, which has no length."""
    if value is None or isinstance(value, numbers.Real) or getattr(value, "shape", None) == ():
        return -1
    try:
        return -2 if isinstance(value, str | bytes) else len(value)
    except TypeError:
        return -2


def _are_ends(members: Any) -> bool:
    """Whether two members can be lower and upper alone, by the rule ``"pairs"``."""
    if isinstance(members, tuple) and all(map(_is_array_or_number, members)):
        return True
    lower, upper = map(_length, members)
    return -2 not in (lower, upper) and (-1 in (lower, upper) or lower == upper != 2)


def _open_end(end: Any, infinity: float) -> Any:
    """Return an end with numbers where it has None for no bound."""
    if end is None:
        return infinity
    if isinstance(end, tuple | list):
        if type(None) in map(type, end):
            end = type(end)(infinity if value is None else value for value in end)
        live = _live(end)
        return end if live is None else live
    return end


#: Types of numbers that carry no derivatives.
_PLAIN: set[type] = {int, float, np.float64, np.float32, np.int64, type(None)}


def _live(values: Sequence[Any]) -> Any:
    """Return numbers as one array where some carry derivatives, or stand for others; None where none does."""
    if set(map(type, values)) <= _PLAIN:
        return None
    arrays = [value for value in values if is_array(value)]
    library = graph_library(*arrays)
    if library is None or any(math.prod(array.shape) != 1 for array in arrays):
        return None
    like = next(array for array in arrays if kind_of(array) == library)
    xp = namespace_of(like)
    nothing = xp.zeros_like(like.reshape(()))
    return xp.stack([value.reshape(()) if kind_of(value) == library else nothing + float(value) for value in values])


def _live_ends(pairs: Sequence[Any]) -> tuple[Any, Any] | None:
    """Return the low and the high ends of pairs as arrays where some of these numbers carry derivatives."""
    if not (set(map(type, pairs)) <= {tuple, list}) or any(len(pair) != 2 for pair in pairs):
        return None
    if set(map(type, itertools.chain.from_iterable(pairs))) <= _PLAIN:
        return None
    low = [-np.inf if pair[0] is None else pair[0] for pair in pairs]
    high = [np.inf if pair[1] is None else pair[1] for pair in pairs]
    lows, highs = _live(low), _live(high)
    if lows is None and highs is None:
        return None
    return np.array(low, float) if lows is None else lows, np.array(high, float) if highs is None else highs


def _split_array(
    bounds: Any, rule: Rule, name: str, shape: tuple[int, ...] | None, one: bool
) -> tuple[Any, Any] | None:
    """Split an array: along its first axis of two, or along its last."""
    array = bounds if is_array(bounds) or is_cuda(bounds) or is_container(bounds) else host_view(bounds)
    if str(array.dtype) == "object" and array.ndim > 0:  # with None among the numbers
        return split_bounds(array.tolist(), rule, name=name, one=one)
    found = tuple(map(int, array.shape))
    halves = len(found) > 0 and found[0] == 2
    pairs = len(found) > 1 and found[-1] == 2 and not one
    if rule == "ends":
        pairs = pairs and not halves and len(found) == 2
    elif pairs and halves and shape is not None and len(found) > 2:
        pairs = found[:-1] == shape
    if pairs:
        low, high = array[..., 0], array[..., 1]
        return (low, high) if found[:-1] == shape else (low.reshape(-1), high.reshape(-1))
    if not halves:
        raise ValueError(f"{name} has shape {found}; allowed: {FORMS_OF_ONE if one else FORMS[rule]}")
    return array[0], array[1]


def _first_not_a_pair(bounds: Any) -> tuple[int, int] | None:
    """Return where a sequence of sequences has a member that is no pair, and its length; None if it has none."""
    try:
        if len(bounds) == 0 or not set(map(len, bounds)) - {2}:
            return None
        return next((i, len(pair)) for i, pair in enumerate(bounds) if len(pair) != 2)
    except TypeError:
        return None


def _pairs_from_sequence(bounds: Any, rule: Rule, name: str) -> np.ndarray:
    wrong = _first_not_a_pair(bounds)
    if wrong is not None:
        raise ValueError(f"{name}[{wrong[0]}] has {wrong[1]} members; allowed: pairs (low, high), or {FORMS[rule]}")
    try:
        count = len(bounds)
        flat = np.fromiter(itertools.chain.from_iterable(bounds), dtype=float, count=2 * count)
        missing = np.isnan(flat)  # None reads as NaN
        if not missing.any() or list(itertools.chain.from_iterable(bounds)).count(None) == missing.sum():
            flat[0::2][missing[0::2]], flat[1::2][missing[1::2]] = -np.inf, np.inf
            return flat.reshape(count, 2)
    except (TypeError, ValueError):
        pass
    try:
        # None stands for no bound: low and high differ in what replaces it.
        pairs = [
            (-np.inf if low is None else float(low), np.inf if high is None else float(high)) for low, high in bounds
        ]
    except (TypeError, ValueError):
        _refuse(bounds, rule, name, False)
    return np.array(pairs, dtype=float).reshape(-1, 2)


def _warn_of_lists(bounds: Any, pairs: np.ndarray, name: str) -> None:
    """Warn of a tuple of two lists that was read as two pairs, where it may have been meant for lower and upper.

    A list of pairs, and a tuple of tuples, as SciPy's documentation writes them, are pairs without a word.
    """
    if not (isinstance(bounds, tuple) and len(pairs) == 2 and any(isinstance(member, list) for member in bounds)):
        return
    lower, upper = (
        [infinity if value is None else value for value in half] for half, infinity in zip(bounds, (-np.inf, np.inf))
    )
    if np.array_equal((lower, upper), pairs.T) or not np.all(np.less_equal(lower, upper)):
        return  # both readings are the same, or one is none
    low, high = (side.tolist() for side in pairs.T)
    readings = " and ".join(f"{a:g} <= x[{i}] <= {b:g}" for i, (a, b) in enumerate(pairs))
    warn_caller(
        f"{name}={bounds!r} is read as two pairs, {readings}, as scipy.optimize.minimize reads it; lsq_linear reads "
        f"(lower, upper). Write scipy.optimize.Bounds({low}, {high}) for these pairs, or "
        f"scipy.optimize.Bounds({lower}, {upper}) for lower = {lower} and upper = {upper}"
    )


def _as_scipy_reads(pairs: Any) -> tuple[np.ndarray, np.ndarray]:
    """Split pairs, in whatever sequence, as SciPy's minimize does; None and NaN are no bound, errors are its own."""
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
