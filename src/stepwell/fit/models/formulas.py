"""The models in the caller's library: what a call returns, and what tests hold the compiled ones to.

`xp` is NumPy, or the namespace of another library.
"""

from __future__ import annotations

import math
import operator
from typing import Any


def _erf(xp: Any) -> Any:
    found = getattr(xp, "erf", None)
    if found is None:
        from scipy.special import erf

        return erf
    return found


def functions_of(xp: Any) -> dict[str, Any]:
    """Return functions by the names of operations (`stepwell.fit.models.graph`)."""
    return {
        "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv,
        "power": operator.pow, "negative": operator.neg, "exp": xp.exp, "log": xp.log, "sqrt": xp.sqrt, "sin": xp.sin,
        "cos": xp.cos, "tan": xp.tan, "sinh": xp.sinh, "cosh": xp.cosh, "tanh": xp.tanh,
        "arctan": xp.atan if hasattr(xp, "atan") else xp.arctan, "erf": _erf(xp), "absolute": xp.abs, "sign": xp.sign,
        "step": lambda u: 0.5 * (xp.sign(u) + xp.sign(u) ** 2),
    }  # fmt: skip


def _constant(p: tuple[Any, ...], used: int) -> Any:
    return p[used] if len(p) > used else 0.0


def exponentials(count: int, xp: Any, x: Any, *p: Any) -> Any:
    """Σ a exp(-k x) + c."""
    terms: Any = sum(p[k] * xp.exp(-p[count + k] * x) for k in range(count))
    return terms + _constant(p, 2 * count)


def gaussians(count: int, xp: Any, x: Any, *p: Any) -> Any:
    """Σ a exp(-(x - mu)² / 2 s²) + c."""
    terms: Any = sum(p[k] * xp.exp(-0.5 * ((x - p[count + k]) / p[2 * count + k]) ** 2) for k in range(count))
    return terms + _constant(p, 3 * count)


def lorentzians(count: int, xp: Any, x: Any, *p: Any) -> Any:
    """Σ a / (1 + ((x - mu) / w)²) + c."""
    terms: Any = sum(p[k] / (1 + ((x - p[count + k]) / p[2 * count + k]) ** 2) for k in range(count))
    return terms + _constant(p, 3 * count)


def pseudo_voigts(count: int, xp: Any, x: Any, *p: Any) -> Any:
    """Σ a (eta L + (1 - eta) G) + c."""
    total: Any = _constant(p, 4 * count)
    for k in range(count):
        square = ((x - p[count + k]) / p[2 * count + k]) ** 2
        share = p[3 * count + k]
        total = total + p[k] * (share / (1 + 4 * square) + (1 - share) * xp.exp(-4 * math.log(2) * square))
    return total


def polynomial_peak(xp: Any, x: Any, *p: Any) -> Any:
    """A exp(-(x - mu)² / 2 s²) + c0 + c1 x + ..."""
    total: Any = p[0] * xp.exp(-0.5 * ((x - p[1]) / p[2]) ** 2)
    for k, coefficient in enumerate(p[3:]):
        total = total + coefficient * x**k
    return total


def gaussian2d(xp: Any, x: Any, y: Any, *p: Any) -> Any:
    """A exp(-(x - x0)² / 2 sx² - (y - y0)² / 2 sy²) + c."""
    sx, sy = p[3], p[-2]
    return p[0] * xp.exp(-0.5 * ((x - p[1]) / sx) ** 2 - 0.5 * ((y - p[2]) / sy) ** 2) + p[-1]


def ivim(xp: Any, b: Any, *p: Any) -> Any:
    """S0 (f exp(-b Dstar) + (1 - f) exp(-b D))."""
    return p[0] * (p[1] * xp.exp(-b * p[2]) + (1 - p[1]) * xp.exp(-b * p[3]))


def tofts(xp: Any, t: Any, cp: Any, *p: Any) -> Any:
    """Ktrans ∫ cp(τ) exp(-kep (t - τ)) dτ + vp cp(t), cp linear between its samples."""
    step = t[..., 1:] - t[..., :-1]
    z = p[1] * step
    small = xp.abs(z) < 1e-2
    safe = xp.where(small, xp.ones_like(z), z)
    series = 0.5 - z * (1 / 6 - z * (1 / 24 - z * (1 / 120 - z * (1 / 720 - z / 5040))))
    p2 = xp.where(small, series, (safe - 1 + xp.exp(-safe)) / safe**2)
    gained = step * (cp[..., :-1] * (1 - z * p2 - p2) + cp[..., 1:] * p2)
    decay = xp.exp(-z)
    columns = [xp.zeros_like(gained[..., 0])]
    for k in range(gained.shape[-1]):
        columns.append(decay[..., k] * columns[-1] + gained[..., k])
    return p[0] * xp.stack(columns, axis=-1) + (p[2] * cp if len(p) > 2 else 0.0)
