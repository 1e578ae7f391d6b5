"""Draws bounds, sums and equalities: open, equal, far, crossed, one-sided, per column and per system."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fuzzing.common import pick

if TYPE_CHECKING:
    from fuzzing.lsq.drawing import Draw

INF = np.inf
BOUNDS = (
    "nonnegative",
    "nonpositive",
    "box",
    "box",
    "about zero",
    "above zero",
    "mixed",
    "mixed",
    "mixed far",
    "equal",
    "far",
    "far",
    "far one side",
    "near",
    "crossed",
    "none",
)


def bounds(d: Draw, x: np.ndarray, unit: float) -> None:
    """Bounds about an x whose entries are about `unit`."""
    rng = d.rng
    kind = pick(rng, *BOUNDS)
    far = 10.0 ** (rng.uniform(6, 20) if d.chance(0.5) else rng.uniform(6, 300))
    far = float(min(far * max(unit, 1e-300), 1e300)) if d.chance(0.7) else float(10.0 ** rng.uniform(6, 300))

    def make() -> tuple[Any, Any]:
        size = unit * float(pick(rng, 0.1, 1.0, 10.0))
        lower, upper = -size * rng.exponential(size=d.n), size * rng.exponential(size=d.n)
        if kind == "nonnegative":
            return 0.0, INF
        if kind == "nonpositive":
            return -INF, 0.0
        if kind == "none":
            return -INF, INF
        if kind == "box":
            return 0.0, size
        if kind == "about zero":
            return -0.1 * size, 0.2 * size
        if kind == "above zero":
            return np.full(d.n, 0.3 * size), 0.3 * size + upper
        if kind == "equal":
            middle = x[rng.integers(d.systems)] if d.chance(0.5) else np.full(d.n, size)
            return middle, middle
        if kind == "far":
            return -far, far
        if kind == "far one side":
            return (-INF, far) if d.chance(0.5) else (-far, pick(rng, INF, size)) if d.chance(0.5) else (0.0, far)
        if kind == "near":  # bounds that the solution is nearly at
            middle = x[rng.integers(d.systems)]
            return middle - 1e-9 * size * rng.random(d.n), middle + 1e-9 * size * rng.random(d.n)
        form = rng.integers(0, 8, d.n)
        lower = np.where((form == 0) | (form == 1), -INF, lower)
        upper = np.where((form == 0) | (form == 2), INF, upper)
        upper = np.where(form == 3, lower, upper)
        lower = np.where(form == 4, 0.0, lower)
        if kind == "mixed far":
            lower = np.where((form == 5) & (rng.random(d.n) < 0.5), -far, lower)
            upper = np.where((form == 6) & (rng.random(d.n) < 0.5), far, upper)
        if kind == "crossed":
            lower, upper = np.maximum(lower, -1e3 * size), np.minimum(upper, 1e3 * size)
            j = rng.integers(d.n)
            lower[j], upper[j] = upper[j] + size, lower[j]
        return lower, upper

    d.note(f"bounds {kind}")
    if not d.lone and d.chance(0.3):
        d.note("bounds each")
        pairs = [make() for _ in range(d.systems)]
        d.options["bounds"] = tuple(np.stack([np.broadcast_to(pair[k], d.n) for pair in pairs]) for k in (0, 1))
    else:
        d.options["bounds"] = make()


def inside(d: Draw, x: np.ndarray, unit: float) -> np.ndarray:
    """x of each system brought within the bounds, sometimes onto them."""
    lower, upper = (np.broadcast_to(end, x.shape).astype(float) for end in d.options.get("bounds", (-INF, INF)))
    if "mask" in d.options:
        x = np.where(d.options["mask"], x, 0)
    x = np.minimum(np.maximum(x, lower), upper)
    if d.chance(0.4):  # on the boundary
        onto = d.rng.random(x.shape)
        x = np.where((onto < 0.4) & (np.abs(lower) < 1e3 * unit), lower, x)
        x = np.where((onto > 0.6) & (np.abs(upper) < 1e3 * unit), upper, x)
    return x


def rows(d: Draw, x: np.ndarray, unit: float, convolution: bool) -> None:
    """A bound sum, equalities, or both."""
    rng = d.rng
    x = inside(d, x, unit)
    kinds = ["sum", "sum to", "sum at most", "sum at least", "sum range", "sum tight"]
    if d.function == "lsq_linear":
        kinds += ["equality positive", "equality", "equality"] if not convolution else ["equality positive"]
    kind = pick(rng, *kinds)
    d.note(kind)
    if kind.startswith("sum"):
        return sums(d, kind, x, unit)
    count = 1 if kind == "equality positive" else int(rng.integers(1, 5))
    C = rng.standard_normal((count, d.n)) if kind == "equality" else rng.uniform(0.2, 3, (1, d.n))
    if kind == "equality":
        if d.chance(0.3):
            C = np.round(C)
        if d.chance(0.2):
            C[:, rng.random(d.n) < 0.4] = 0
        if d.chance(0.1):
            C[-1] = C[0]
    with np.errstate(over="ignore", invalid="ignore"):
        right = x @ C.T
    if d.chance(0.15):
        d.note("equality off")
        right = right + unit * rng.standard_normal(right.shape)
    right = np.where(np.isfinite(right), right, unit)
    one = d.lone or d.chance(0.4)
    d.options["equality"] = (C[0] if count == 1 and d.chance(0.5) else C, right[0] if one else right)
    if d.chance(0.15) and not convolution:
        sums(d, "sum range", x, unit)


def sums(d: Draw, kind: str, x: np.ndarray, unit: float) -> None:
    rng = d.rng
    with np.errstate(over="ignore", invalid="ignore"):
        total = x.sum(axis=1)
    total = np.where(np.isfinite(total) & (np.abs(total) < 1e6 * unit * d.n), total, unit)
    if kind == "sum tight":  # one x alone, or nearly so
        ends = d.options.get("bounds", (-INF, INF))
        low = np.broadcast_to(ends[int(rng.integers(2))], x.shape).sum(axis=1)
        total = np.where(np.isfinite(low), low, total)
    if d.single:
        total = np.clip(total, -1e30, 1e30)
    if kind == "sum to":
        total = np.full(d.systems, unit * float(pick(rng, 1.0, 1.0, 0.0, 1e-3, 1e3, 1e-10)))
    given = float(total[0]) if d.lone or d.chance(0.5) else total
    width = unit * float(pick(rng, 0.1, 1.0, 10.0))
    forms = {
        "sum at most": (-INF, given),
        "sum at least": (given, INF),
        "sum range": (given - width, given + 0.1 * width),
    }
    d.options["sum_bounds"] = forms.get(kind, (given, given))
