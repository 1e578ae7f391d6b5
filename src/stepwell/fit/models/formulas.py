"""The models in NumPy: what a call of a model returns, and what tests hold the compiled ones to."""

from __future__ import annotations

from typing import Any

import numpy as np


def _erf(u: Any) -> Any:
    from scipy.special import erf

    return erf(u)


#: NumPy's functions by the names of operations (`stepwell.fit.models.graph`).
FUNCTIONS = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "power": np.power,
    "negative": np.negative, "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos,
    "tan": np.tan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "arctan": np.arctan, "erf": _erf,
    "absolute": np.abs, "sign": np.sign, "step": lambda u: np.heaviside(u, 0.0),
}  # fmt: skip


def _constant(p: tuple[Any, ...], used: int) -> Any:
    return p[used] if len(p) > used else 0.0


def exponentials(count: int, x: Any, *p: Any) -> Any:
    """Σ a exp(-k x) + c."""
    terms: Any = sum(p[k] * np.exp(-p[count + k] * x) for k in range(count))
    return terms + _constant(p, 2 * count)


def gaussians(count: int, x: Any, *p: Any) -> Any:
    """Σ a exp(-(x - mu)² / 2 s²) + c."""
    terms: Any = sum(p[k] * np.exp(-0.5 * ((x - p[count + k]) / p[2 * count + k]) ** 2) for k in range(count))
    return terms + _constant(p, 3 * count)


def lorentzians(count: int, x: Any, *p: Any) -> Any:
    """Σ a / (1 + ((x - mu) / w)²) + c."""
    terms: Any = sum(p[k] / (1 + ((x - p[count + k]) / p[2 * count + k]) ** 2) for k in range(count))
    return terms + _constant(p, 3 * count)


def pseudo_voigts(count: int, x: Any, *p: Any) -> Any:
    """Σ a (eta L + (1 - eta) G) + c."""
    total: Any = _constant(p, 4 * count)
    for k in range(count):
        square = ((x - p[count + k]) / p[2 * count + k]) ** 2
        share = p[3 * count + k]
        total = total + p[k] * (share / (1 + 4 * square) + (1 - share) * np.exp(-4 * np.log(2) * square))
    return total


def polynomial_peak(x: Any, *p: Any) -> Any:
    """A exp(-(x - mu)² / 2 s²) + c0 + c1 x + ..."""
    total: Any = p[0] * np.exp(-0.5 * ((x - p[1]) / p[2]) ** 2)
    for k, coefficient in enumerate(p[3:]):
        total = total + coefficient * x**k
    return total


def gaussian2d(x: Any, y: Any, *p: Any) -> Any:
    """A exp(-(x - x0)² / 2 sx² - (y - y0)² / 2 sy²) + c."""
    sx, sy = p[3], p[-2]
    return p[0] * np.exp(-0.5 * ((x - p[1]) / sx) ** 2 - 0.5 * ((y - p[2]) / sy) ** 2) + p[-1]


def ivim(b: Any, *p: Any) -> Any:
    """S0 (f exp(-b Dstar) + (1 - f) exp(-b D))."""
    return p[0] * (p[1] * np.exp(-b * p[2]) + (1 - p[1]) * np.exp(-b * p[3]))


def tofts(t: Any, cp: Any, *p: Any) -> Any:
    """Ktrans ∫ cp(τ) exp(-kep (t - τ)) dτ + vp cp(t), cp linear between its samples."""
    t, cp = np.asarray(t), np.asarray(cp)
    rate = np.asarray(p[1])
    step = np.diff(t, axis=-1)
    z = rate * step
    small = np.abs(z) < 1e-2
    safe = np.where(small, 1.0, z)
    decay = np.exp(-z)
    series = 0.5 - z * (1 / 6 - z * (1 / 24 - z * (1 / 120 - z * (1 / 720 - z / 5040))))
    p2 = np.where(small, series, (safe - 1 + np.exp(-safe)) / safe**2)
    gained = step * (cp[..., :-1] * (1 - z * p2 - p2) + cp[..., 1:] * p2)
    columns = [np.zeros_like(gained[..., 0])]
    for k in range(gained.shape[-1]):
        columns.append(decay[..., k] * columns[-1] + gained[..., k])
    integral = np.stack(columns, axis=-1)
    return p[0] * integral + (p[2] * cp if len(p) > 2 else 0.0)
