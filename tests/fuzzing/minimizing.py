"""minimize, minimize_batch and LBFGSB: points inside the bounds to the bit, honest values, bits that repeat."""

from __future__ import annotations

import os
import tempfile

import numpy as np

import stepwell
from fuzzing.common import clothed, exact, hold, pick

FAMILIES = ("quadratic", "quartic", "rosenbrock", "logistic", "kinks", "walls", "flat", "noisy")


class Function:
    """A random function of n variables; counts its calls and checks its points."""

    def __init__(self, rng, n, dtype, family=None):
        self.family = family or pick(rng, *FAMILIES)
        self.n, self.dtype = n, dtype
        self.A = rng.standard_normal((n, n)) * 10.0 ** rng.uniform(-2, 2, n)
        self.centre = rng.standard_normal(n) * 10.0 ** rng.uniform(-1, 1)
        self.scale = 10.0 ** rng.uniform(-3, 3)
        self.calls, self.box, self.outside = 0, None, 0

    def __call__(self, x):
        self.calls += 1
        x = np.array(x)
        if self.box is not None and not ((self.box[0] <= x) & (x <= self.box[1])).all():
            self.outside += 1
        f, g = self.value(x.astype(float).ravel())
        return f, g.reshape(x.shape).astype(x.dtype)

    def value(self, x):
        with np.errstate(all="ignore"):
            r = self.A @ (x - self.centre)
            if self.family == "quadratic":
                return self.scale * 0.5 * float(r @ r), self.scale * (self.A.T @ r)
            if self.family == "quartic":
                return self.scale * float(np.sum(r**4)), self.scale * 4 * (self.A.T @ r**3)
            if self.family == "rosenbrock" and self.n > 1:
                a, b = x[1:] - x[:-1] ** 2, 1 - x[:-1]
                g = np.zeros(self.n)
                g[:-1] += -400 * a * x[:-1] - 2 * b
                g[1:] += 200 * a
                return float(100 * a @ a + b @ b), g
            if self.family == "logistic":
                z = np.logaddexp(0, -r)
                return float(z.sum() + 0.01 * x @ x), self.A.T @ (-1 / (1 + np.exp(r))) + 0.02 * x
            if self.family == "kinks":
                root = np.sqrt(r * r + 1e-3)
                return float(root.sum()), self.A.T @ (r / root)
            if self.family == "walls":  # not a number beyond a ball
                far = float(x @ x) > 4 * self.n + float(self.centre @ self.centre)
                f = np.nan if far else 0.5 * float(r @ r)
                return f, self.A.T @ r
            if self.family == "flat":
                return 1.0, np.zeros(self.n)
            f = 0.5 * float(r @ r)  # noisy: as many digits as float32 has
            return float(np.float32(f)), self.A.T @ r


def box(rng, n, dtype):
    """Bounds of every sort, or none."""
    if rng.random() < 0.25:
        return None
    lower = rng.standard_normal(n) * 10.0 ** rng.uniform(-2, 2)
    upper = lower + np.abs(rng.standard_normal(n)) * 10.0 ** rng.uniform(-3, 2)
    kind = rng.integers(5, size=n)
    lower[kind == 0], upper[kind == 1] = -np.inf, np.inf
    lower[kind == 2], upper[kind == 2] = -np.inf, np.inf
    upper[kind == 3] = lower[kind == 3]
    return lower.astype(dtype), upper.astype(dtype)


def settings(rng):
    chosen = {
        "maxcor": int(pick(rng, 1, 2, 3, 5, 10, 17)),
        "cauchy": pick(rng, "exact", "first-interval", "none"),
        "line_search": pick(rng, "lbfgsb", "lbfgsb", "va15"),
        "gtol": float(pick(rng, 0.0, 1e-9, 1e-5, 1e-2)),
        "ftol": float(pick(rng, 0.0, 1e-12, 2.2e-9)),
        "maxiter": int(pick(rng, 0, 1, 7, 60, 200)),
        "maxfun": int(pick(rng, 1, 9, 400)),
        "threads": int(pick(rng, 1, 2, 3)),
    }
    return chosen


def problem(rng, most=40):
    n = int(pick(rng, 1, 2, 3, int(rng.integers(1, most))))
    dtype = pick(rng, np.float64, np.float64, np.float32)
    fun = Function(rng, n, dtype)
    bounds = box(rng, n, dtype)
    x0 = (rng.standard_normal(n) * 10.0 ** rng.uniform(-1, 1)).astype(dtype)
    if bounds is not None:
        x0 = np.clip(x0, *bounds)
        fun.box = bounds
    return fun, x0, bounds


def projected_gradient(x, g, bounds):
    if bounds is None:
        return float(np.max(np.abs(g), initial=0))
    step = np.clip(exact(x) - exact(g), exact(bounds[0]), exact(bounds[1])) - exact(x)
    return float(np.max(np.abs(step), initial=0))


def check_result(fun, x0, bounds, r, options):
    hold(r.x.dtype == x0.dtype and r.x.shape == x0.shape, f"x is {r.x.dtype} {r.x.shape}")
    if bounds is not None:
        hold(bool(((bounds[0] <= r.x) & (r.x <= bounds[1])).all()), "x lies outside the bounds")
    hold(fun.outside == 0, f"{fun.outside} evaluations outside the bounds")
    hold(r.nfev == fun.calls, f"nfev {r.nfev}, calls {fun.calls}")
    f, g = fun(r.x)
    hold(np.array_equal(f, r.fun, equal_nan=True), f"fun {r.fun!r}, recomputed {f!r}")
    hold(np.array_equal(g, r.jac, equal_nan=True), "jac is not the gradient at x")
    f0 = fun(x0)[0]
    if np.isfinite(f0):
        hold(f <= f0, f"f rose from {f0!r} to {f!r}")
    if r.reason is stepwell.Status.GRADIENT:
        size = float(np.max(np.abs(exact(r.x)), initial=0)) + float(np.max(np.abs(exact(g)), initial=0))
        room = 4 * np.finfo(x0.dtype).eps * size  # of the difference x - g, which is taken in the bounds' precision
        found = projected_gradient(r.x, g, bounds)
        hold(found <= options["gtol"] + room, f"projected gradient {found} > gtol {options['gtol']}")
    hold(r.nit <= options["maxiter"] and r.nfev <= max(options["maxfun"], 1) + 20, "limits")


def minimize(rng):
    fun, x0, bounds = problem(rng)
    options = settings(rng)
    if rng.random() < 0.2 and fun.n > 1:
        options["h0"] = np.exp(rng.standard_normal(fun.n))
    given = clothed(rng, x0)
    seen = []
    callback = pick(rng, None, lambda x: seen.append(np.array(x)))
    r = stepwell.minimize(fun, given, jac=True, bounds=bounds, options=options, callback=callback)
    hold(np.array_equal(given, x0), "x0 was written to")
    check_result(fun, x0, bounds, r, options)
    if callback is not None:
        hold(len(seen) == r.nit, f"{len(seen)} callbacks, {r.nit} iterations")
    again = stepwell.minimize(fun, x0, jac=True, bounds=bounds, options=options | {"threads": 1})
    hold(np.array_equal(again.x, r.x) and again.nit == r.nit, "another run, other bits")
    path = os.path.join(tempfile.gettempdir(), f"stepwell-fuzz-{os.getpid()}.ckpt")
    try:
        every = int(pick(rng, 1, 2, 5))
        for most in (max(1, r.nit // 2), options["maxiter"]):
            part = stepwell.minimize(
                fun,
                x0,
                jac=True,
                bounds=bounds,
                options=options | {"maxiter": min(most, options["maxiter"])},
                checkpoint=path,
                checkpoint_every=every,
            )
        hold(np.array_equal(part.x, r.x) and part.nfev == r.nfev, "a run in two parts has other bits")
    finally:
        if os.path.exists(path):
            os.unlink(path)


def batch(rng):
    count, n = int(rng.integers(1, 9)), int(rng.integers(1, 20))
    dtype = pick(rng, np.float64, np.float32)
    functions = [Function(rng, n, dtype) for _ in range(count)]
    shared = rng.random() < 0.5
    boxes = [box(rng, n, dtype) for _ in range(count)]
    bounds = None
    if shared:
        bounds = boxes[0]
        each = [bounds] * count
    elif all(one is not None for one in boxes):
        each = boxes
        bounds = (np.stack([one[0] for one in boxes]), np.stack([one[1] for one in boxes]))
    else:
        each = [None] * count
    x0 = rng.standard_normal((count, n)).astype(dtype)
    if bounds is not None:
        x0 = np.clip(x0, *bounds)
    options = settings(rng)

    def fun(X):
        pairs = [one(row) for one, row in zip(functions, X)]
        return np.array([f for f, _ in pairs]), np.stack([g for _, g in pairs])

    r = stepwell.minimize_batch(fun, clothed(rng, x0), jac=True, bounds=bounds, options=options)
    for k in range(count):
        alone = stepwell.minimize(functions[k], x0[k], jac=True, bounds=each[k], options=options)
        hold(np.array_equal(alone.x, r.x[k]), f"problem {k} of {count} alone has other bits")
        hold(alone.nit == r.nit[k] and alone.reason is r.reason[k], f"problem {k}: other counts")


def resume(rng):
    """At random moments saved as a dict, a file or by pickle; changed states are refused."""
    import copy
    import pickle

    fun, x0, bounds = problem(rng)
    chosen = settings(rng)
    make = {name: chosen[name] for name in ("gtol", "ftol", "maxiter", "maxfun", "cauchy", "line_search", "threads")}
    h0 = pick(rng, None, None, np.exp(rng.standard_normal(fun.n)), lambda x: 1 / (1 + np.asarray(x) ** 2))
    straight = stepwell.LBFGSB(x0, bounds, m=chosen["maxcor"], h0=h0, **make)
    broken = stepwell.LBFGSB(x0, bounds, m=chosen["maxcor"], h0=h0, **make)
    diagonal = h0 if callable(h0) else None
    path = os.path.join(tempfile.gettempdir(), f"stepwell-fuzz-{os.getpid()}.run")
    turns = 0
    while not straight.done and turns < 150:
        turns += 1
        hold(np.array_equal(straight.x, broken.x), f"other bits after {turns} turns")
        for one in (straight, broken):
            one.tell(*fun(one.x))
        if rng.random() < 0.2:
            how = rng.integers(4)
            if how == 0:
                broken = stepwell.LBFGSB.from_state_dict(broken.state_dict(), h0=diagonal)
            elif how == 1:
                broken.save(path)
                broken = stepwell.LBFGSB.load(path, h0=diagonal)
            elif how == 2 and diagonal is None:
                broken = pickle.loads(pickle.dumps(broken))
            else:
                broken = copy.deepcopy(broken) if diagonal is None else broken
    hold(np.array_equal(straight.x, broken.x) and straight.status is broken.status, "another end")
    if os.path.exists(path):
        os.unlink(path)
    state = straight.state_dict()
    names = [name for name, part in state.items() if isinstance(part, np.ndarray) and part.size]
    name = names[rng.integers(len(names))]
    raw = bytearray(state[name].tobytes())
    raw[rng.integers(len(raw))] ^= 1 << rng.integers(8)
    changed = np.frombuffer(bytes(raw), state[name].dtype).reshape(state[name].shape)
    try:
        stepwell.LBFGSB.from_state_dict(state | {name: changed}, h0=diagonal)
    except ValueError:
        return
    raise AssertionError(f"a state with another {name} was taken")


class Trouble(Exception):
    """Of the objective."""


def trouble(rng):
    """Exceptions pass through, non-finite values end honestly, kept points stay, and the next run is right."""
    fun, x0, bounds = problem(rng)
    options = settings(rng) | {"gtol": 1e-9, "maxiter": 60, "maxfun": 200}
    want = stepwell.minimize(fun, x0, jac=True, bounds=bounds, options=options)
    fun.calls = 0
    at, kind = int(rng.integers(1, max(2, want.nfev + 1))), rng.integers(6)
    kept = []

    def wild(x):
        kept.append((x, np.array(x)))
        if len(kept) == at:
            if kind == 0:
                raise Trouble
            if kind == 1:
                return np.nan, np.full(x.shape, np.nan)
            if kind == 2:
                return np.inf, np.zeros(x.shape)
            if kind == 3:
                return -np.inf, np.ones(x.shape)
            if kind == 4:
                x[...] = 1e30  # the copy is the objective's own
                kept[-1] = (x, np.array(x))
                return fun(want.x)
            if kind == 5:
                f, g = fun(x)
                g[rng.integers(g.size)] = np.nan
                return f, g
        return fun(x)

    try:
        r = stepwell.minimize(wild, x0, jac=True, bounds=bounds, options=options)
        hold(kind != 0 or len(kept) < at, "an exception of the objective was lost")
        hold(bool(np.isfinite(r.x).all()), "x is not finite")
        if bounds is not None:
            hold(bool(((bounds[0] <= r.x) & (r.x <= bounds[1])).all()), "x lies outside the bounds")
        hold(bool(np.isfinite(r.fun)) or at == 1 or fun.family == "walls" or kind == 3, f"f is {r.fun}")
    except Trouble:
        hold(kind == 0, "an exception from nowhere")
    hold(all(np.array_equal(x, copy) for x, copy in kept), "a point that was kept has changed")
    again = stepwell.minimize(fun, x0, jac=True, bounds=bounds, options=options)
    hold(np.array_equal(again.x, want.x), "after trouble the next run has other bits")
