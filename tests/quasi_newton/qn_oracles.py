"""Dense formulas, brute force and small problems that the quasi-Newton tests compare with.

Nothing here knows how the engine works: matrices are n by n and formed by the recursive update, the Cauchy point is
walked segment by segment with full products, the subspace step is a dense solve.
"""

from __future__ import annotations

import numpy as np

EPS = float(np.finfo(float).eps)

#: The data of Misra1a to Misra1d of NIST's Statistical Reference Datasets: dental research, monomolecular adsorption.
PRESSURE = np.array([77.6, 114.9, 141.1, 190.8, 239.9, 289.0, 332.8, 378.4, 434.8, 477.3, 536.8, 593.1, 689.1, 760.0])
VOLUME = np.array([10.07, 14.73, 17.94, 23.93, 29.61, 35.18, 40.02, 44.82, 50.76, 55.05, 61.01, 66.40, 75.47, 81.78])


def dense_bfgs(s, y, h0):
    """The BFGS matrix B by its recursive update formula (Nocedal & Wright, eq. 6.19), from B = diag(1/h0)."""
    b = np.diag(1.0 / np.asarray(h0, float))
    for step, change in zip(s, y):
        bs = b @ step
        b = b - np.outer(bs, bs) / (step @ bs) + np.outer(change, change) / (change @ step)
    return b


def held(x, g, lower, upper):
    """Variables that may not move: fixed, or pressed against a bound by the gradient."""
    return (lower == upper) | ((x <= lower) & (g >= 0)) | ((x >= upper) & (g <= 0))


def breakpoints(x, descent, lower, upper):
    """Where x - t descent meets a bound."""
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(descent < 0, (x - upper) / descent, np.where(descent > 0, (x - lower) / descent, np.inf))
    return t


def model(b, g, steps):
    """The quadratic model at several steps, one a row."""
    return steps @ g + 0.5 * np.einsum("ki,ij,kj->k", steps, b, steps)


def cauchy_time(b, x, g, h, lower, upper):
    """The first local minimiser of the model along P(x - t h g): every segment with full products (no updates)."""
    stuck = held(x, g, lower, upper)
    descent = np.where(stuck, 0.0, h * g)
    t = np.where(stuck, np.inf, breakpoints(x, descent, lower, upper))
    start = 0.0
    for stop in [*np.unique(t[np.isfinite(t)]), np.inf]:
        moving = (t > start) & ~stuck
        p = np.where(moving, -descent, 0.0)
        here = np.where(t <= start, np.where(descent > 0, lower, upper), x - start * descent) - x
        here[stuck] = 0.0
        slope, curvature = g @ p + here @ b @ p, p @ b @ p
        if not slope < 0:
            return start
        if start - slope / curvature <= stop:
            return start - slope / curvature
        start = stop
    raise AssertionError("the model is convex: there is a minimiser")


def subspace_trial(b, x, g, h, lower, upper, carried, t_cauchy, last_step):
    """The trial point at step 1, and whether the projected minimiser had to be given up.

    `carried` variables go to their bound; the model is minimised over the free ones by a dense solve; the minimiser
    is projected (Morales & Nocedal 2011) or, where that descends by less than a tenth of what the way to the Cauchy
    point promises, or after a step that took less than a thousandth of its direction, the way on from there is cut.
    """
    stuck = held(x, g, lower, upper)
    descent = h * g
    bound = np.where(descent > 0, lower, upper)
    free = ~stuck & ~carried
    d = np.zeros_like(x)
    d[carried] = bound[carried] - x[carried]
    right = -(g[free] + b[np.ix_(free, carried)] @ d[carried])
    d[free] = np.linalg.solve(b[np.ix_(free, free)], right)
    goal = x + d
    projected = np.clip(goal, lower, upper)
    descends = g @ (projected - x) < -0.1 * t_cauchy * float((g * descent)[~stuck].sum())
    if descends and last_step >= 1e-3:
        return projected, False
    cauchy = np.clip(x - t_cauchy * descent, lower, upper)
    way = goal - cauchy
    with np.errstate(divide="ignore", invalid="ignore"):
        room = np.where(way > 0, (upper - cauchy) / way, np.where(way < 0, (lower - cauchy) / way, np.inf))
    fraction = min(1.0, room[free].min(initial=np.inf))
    point = cauchy + fraction * way
    point[carried], point[stuck] = bound[carried], x[stuck]
    return np.clip(point, lower, upper), True


def gradient_of_rounding(fun, x):
    """The gradient g at which the best step, of length |g|/L, would lower f by its own rounding: g²/2L = eps |f|.

    Below it no line search can tell a better point. L is the largest curvature at x, by the power method.
    """
    v = np.random.default_rng(0).normal(size=x.size)
    h = 1e-4 * (1 + np.abs(x).max())
    for _ in range(30):
        v /= np.linalg.norm(v)
        v = (fun(x + h * v)[1] - fun(x - h * v)[1]) / (2 * h)
    return np.sqrt(2 * np.linalg.norm(v) * np.finfo(float).eps * abs(fun(x)[0]))


def projected_gradient(x, g, lower, upper):
    """Maximum norm of P(x - g) - x."""
    return float(np.abs(np.clip(x - g, lower, upper) - x).max(initial=0.0))


class Quadratic:
    """0.5 xᵀAx - bᵀx with a quartic term: convex, gradient exact up to rounding."""

    def __init__(self, n, rng, condition=100.0, quartic=0.0, shift=2.0):
        q, _ = np.linalg.qr(rng.normal(size=(n, n)))
        self.a = q @ np.diag(np.geomspace(1.0, condition, n)) @ q.T
        self.a = (self.a + self.a.T) / 2
        self.b = shift * rng.normal(size=n)
        self.quartic = quartic

    def __call__(self, x):
        x = np.asarray(x, float)
        f = 0.5 * x @ self.a @ x - self.b @ x + 0.25 * self.quartic * np.sum(x**4)
        return float(f), self.a @ x - self.b + self.quartic * x**3


def random_box(n, rng, kinds="both lower upper none fixed"):
    """Bounds of all kinds around zero, and a start inside."""
    lower, upper = np.full(n, -np.inf), np.full(n, np.inf)
    choice = rng.choice(kinds.split(), size=n)
    centre = 0.5 * rng.normal(size=n)
    width = rng.choice([0.1, 0.5, 2.0], size=n)
    lower[np.isin(choice, ["both", "lower"])] = (centre - width)[np.isin(choice, ["both", "lower"])]
    upper[np.isin(choice, ["both", "upper"])] = (centre + width)[np.isin(choice, ["both", "upper"])]
    lower[choice == "fixed"] = upper[choice == "fixed"] = centre[choice == "fixed"]
    return lower, upper, np.clip(rng.normal(size=n), lower, upper)


def run(opt, fun, turns=10**9):
    """Tell until done, or so many times."""
    while not opt.done and turns > 0:
        opt.tell(*fun(opt.x))
        turns -= 1
    return opt
