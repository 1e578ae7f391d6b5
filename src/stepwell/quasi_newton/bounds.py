"""Bounds in every form that users write, split into lower and upper."""

from __future__ import annotations

import itertools
import numbers
import sys
from typing import Any

import numpy as np

from stepwell.arrays import host_view, is_cuda

#: How bounds may be written; the text of error messages.
FORMS = (
    "None; a scipy.optimize.Bounds; a tuple of two arrays or numbers (lower, upper); "
    "or pairs: a list or tuple of n pairs (low, high), or an (n, 2) array"
)


def _is_array_or_number(value: Any) -> bool:
    return (
        value is None
        or isinstance(value, numbers.Real)
        or any(hasattr(value, name) for name in ("__array__", "__dlpack__", "__cuda_array_interface__"))
    )


def _is_scipys(bounds: Any) -> bool:
    """Whether these are a `scipy.optimize.Bounds`; nobody can have one before SciPy's optimizers are imported."""
    return isinstance(bounds, getattr(sys.modules.get("scipy.optimize"), "Bounds", ()))


def split_bounds(bounds: Any) -> tuple[Any, Any] | None:
    """Split bounds into lower and upper, not yet checked nor broadcast.

    The rule: a *tuple* of exactly two members that are arrays or numbers (or None) is (lower, upper). Everything else
    is SciPy's sequence of pairs, one per variable. At n = 2, ``((0, 1), (2, 3))`` and ``[(0, 1), (2, 3)]`` are
    therefore pairs, while ``(np.array([0, 2]), np.array([1, 3]))`` is (lower, upper).
    """
    if bounds is None:
        return None
    if _is_scipys(bounds):
        return bounds.lb, bounds.ub
    if isinstance(bounds, tuple) and len(bounds) == 2 and all(map(_is_array_or_number, bounds)):
        lower, upper = bounds
        return (-np.inf if lower is None else lower), (np.inf if upper is None else upper)
    if hasattr(bounds, "shape"):
        pairs = bounds if is_cuda(bounds) else host_view(bounds)
        if str(pairs.dtype) == "object" and pairs.ndim == 2:  # pairs with None among them
            pairs = _pairs_from_sequence(pairs.tolist())
    else:
        pairs = _pairs_from_sequence(bounds)
    if pairs.ndim < 2 or pairs.shape[-1] != 2:
        raise ValueError(f"bounds has shape {tuple(pairs.shape)}; allowed: {FORMS}")
    return pairs[..., 0].reshape(-1), pairs[..., 1].reshape(-1)


def _first_not_a_pair(bounds: Any) -> tuple[int, int] | None:
    """Return where a sequence of sequences has a member that is no pair, and its length; None if it has none."""
    try:
        if len(bounds) == 0 or not set(map(len, bounds)) - {2}:
            return None
        return next((i, len(pair)) for i, pair in enumerate(bounds) if len(pair) != 2)
    except TypeError:
        return None


def _pairs_from_sequence(bounds: Any) -> np.ndarray:
    wrong = _first_not_a_pair(bounds)
    if wrong is not None:
        raise ValueError(f"bounds[{wrong[0]}] has {wrong[1]} members; allowed: pairs (low, high), or {FORMS}")
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
        raise ValueError(f"bounds cannot be read; got {type(bounds).__name__}; allowed: {FORMS}") from None
    return np.array(pairs, dtype=float).reshape(-1, 2)
