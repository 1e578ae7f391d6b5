"""The generalized Cauchy point by its definition, in NumPy: an oracle that shares nothing with the engine.

The model along the projected path x(t) = P(x − t g) is piecewise quadratic. With B = θI − W M Wᵀ (Byrd, Lu, Nocedal,
Zhu 1995, eq. 3.2), A = Σ g_i² and q = Σ g_i w_i over the variables that still move, and r = Σ t_i g_i w_i over those
that have met their bounds, its derivative between two breakpoints is

    m'(t) = −A + t (θA − qᵀMq) − qᵀM r.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

#: Breakpoints crossed at a time, at first; then eight times as many.
_FIRST_CHUNK = 256


@dataclass(frozen=True)
class CauchyTimes:
    """Where the path's first minimiser is, and what the first interval makes of it.

    Attributes
    ----------
    exact : float
        t*, the first local minimiser of the model along the whole projected path.
    first : float
        t^c = min(t¹, t¹*): the minimiser on the first interval, or its end (Fei et al. 2014, section 4.1).
    crossed : int
        Breakpoints up to t*.
    """

    exact: float
    first: float
    crossed: int

    @property
    def difference(self) -> float:
        """|t^c − t*| / t*."""
        return abs(self.first - self.exact) / self.exact if self.exact > 0 else 0.0


def compact_form(s: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    """Return θ and M of B = θI − W M Wᵀ, W = [Yᵀ, θSᵀ], from pairs in order of age (rows of s and y).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> s = rng.normal(size=(2, 5)); y = s * np.arange(1.0, 6.0)
    >>> theta, m = compact_form(s, y)
    >>> w = np.concatenate([y, theta * s]).T
    >>> b = theta * np.eye(5) - w @ m @ w.T
    >>> bool(np.allclose(b @ s[-1], y[-1]))  # the secant equation
    True
    """
    theta = float(y[-1] @ y[-1] / (s[-1] @ y[-1]))
    sy = s @ y.T
    d, l = np.diag(np.diag(sy)), np.tril(sy, -1)
    return theta, np.linalg.inv(np.block([[-d, l.T], [l, theta * (s @ s.T)]]))


def cauchy_times(
    x: np.ndarray, g: np.ndarray, lower: np.ndarray, upper: np.ndarray, s: np.ndarray, y: np.ndarray
) -> CauchyTimes:
    """Return t* and t^c at a point with gradient g, bounds and history.

    Examples
    --------
    >>> x, g = np.zeros(2), np.array([-2.0, -1.0])
    >>> pair = np.array([[1.0, 1.0]])  # one pair with s = y: B is the identity
    >>> cauchy_times(x, g, np.full(2, -1.0), np.array([1.0, 9.0]), pair, pair)
    CauchyTimes(exact=1.0, first=0.5, crossed=1)
    """
    theta, m = compact_form(s, y)
    held = (lower == upper) | ((x <= lower) & (g >= 0)) | ((x >= upper) & (g <= 0))
    g = np.where(held, 0.0, g)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(g == 0, np.inf, (x - np.where(g < 0, upper, lower)) / g)
    whole = float(g @ g)
    total, q, r = whole, np.concatenate([y @ g, theta * (s @ g)]), np.zeros(2 * len(s))
    curvature = theta * total - q @ m @ q
    inner = total / curvature if curvature > 0 else np.inf
    end = float(t.min(initial=np.inf))
    first = min(inner, end)
    if inner <= end:
        return CauchyTimes(inner, first, 0)
    order = np.argsort(t, kind="stable")
    order = order[np.isfinite(t[order])]
    chunk, at = _FIRST_CHUNK, 0
    while at < len(order):
        here = order[at : at + chunk]
        times, rows = t[here], (g[here] * np.concatenate([y[:, here], theta * s[:, here]])).T
        # State after crossing breakpoint k of the chunk, and the slope at the next one.
        totals = total - np.cumsum(g[here] ** 2)
        qs = q - np.cumsum(rows, axis=0)
        rs = r + np.cumsum(times[:, None] * rows, axis=0)
        after = np.append(times[1:], t[order[at + chunk]] if at + chunk < len(order) else np.inf)
        slope = -totals - np.einsum("ki,ij,kj->k", qs, m, rs)
        bend = theta * totals - np.einsum("ki,ij,kj->k", qs, m, qs)
        with np.errstate(invalid="ignore"):
            rising = np.where(np.isinf(after), True, slope + after * bend >= 0)
        # Rounding leaves dust where everything has met its bound; and of ties only the last leaves a segment.
        rising = (rising | (totals <= 1e-14 * whole)) & ((after > times) | np.isinf(after))
        if rising.any():
            k = int(np.argmax(rising))
            dust = totals[k] <= 1e-14 * whole or bend[k] <= 0
            exact = times[k] if dust else max(times[k], -slope[k] / bend[k])
            return CauchyTimes(float(exact), first, at + k + 1)
        total, q, r = float(totals[-1]), qs[-1], rs[-1]
        at, chunk = at + len(here), 8 * chunk
    return CauchyTimes(float(t[order[-1]]), first, len(order))
