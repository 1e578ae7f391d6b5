"""Draws a call with arguments of all kinds, one or one per system, and names what it drew."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzzing.common import clothed, pick
from fuzzing.lsq import constraints, matrices
from fuzzing.lsq.cases import Case, Pulse

RULES = ("chi2", "discrepancy", "gcv", "lcurve")


class Draw:
    """The choices of one case, which depend on each other."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.kinds: list[str] = []
        self.options: dict[str, Any] = {}
        self.wild = bool(rng.random() < 0.25)
        self.function = pick(rng, "lsq_linear", "lsq_linear", "lsq_linear", "nnls", "lsq_gram")
        self.m, self.n = matrices.shape(rng)
        most = 60 if self.n <= 10 else 24 if self.n <= 33 else 6 if self.n <= 65 else 3
        self.systems = 1 if rng.random() < 0.15 else int(rng.integers(1, most + 1))
        self.lone = self.systems == 1 and bool(rng.random() < 0.7)
        self.single = bool(rng.random() < 0.15)
        self.note("wild" if self.wild else "moderate")
        self.note(self.function)
        self.note("float32" if self.single else "float64")

    def note(self, kind: str) -> None:
        self.kinds.append(kind)

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def each_or_one(self, make: Any, probability: float = 0.4) -> Any:
        """What make() returns for all systems, or that of each system."""
        if self.lone or not self.chance(probability):
            return make()
        return np.stack([make() for _ in range(self.systems)])


def draw(rng: np.random.Generator) -> Case:
    """A case; everything in it follows from the generator."""
    d = Draw(rng)
    A, convolution = draw_matrix(d)
    sign = rng.random() < 0.6
    x = rng.standard_normal((d.systems, d.n))
    x = np.where(rng.random(x.shape) < 0.4, 0, np.abs(x) if sign else x)
    norms = np.sqrt((A**2).mean(axis=1))
    x = x / np.where(norms > 0, norms, 1)
    b, kind, noise = matrices.right_sides(rng, np.broadcast_to(A, (d.systems, d.m, d.n)), x)
    d.note(f"b {kind}")
    alpha, beta = scales(d)
    with np.errstate(over="ignore", under="ignore"):
        A, b, x, noise = A * alpha, b * beta, x * (beta / alpha), noise * beta
    unit = float(np.median(np.abs(x[x != 0]))) if (x != 0).any() else beta / alpha
    if (d.function == "lsq_linear" and d.chance(0.85)) or (d.function == "lsq_gram" and d.chance(0.85)):
        constraints.bounds(d, x, unit)
    d.general = False
    if d.function != "nnls" and d.chance(0.3):
        constraints.rows(d, x, unit, convolution is not None)
    draw_mask(d)
    if d.function != "lsq_gram":
        draw_weights(d)
    draw_lambda(d, A, noise)
    draw_rest(d, x)
    hard = (
        *matrices.FLAWS,
        "wild",
        "far",
        "decays",
        "hilbert",
        "low rank",
        "correlated",
        "tiny",
        "huge",
        "maxiter",
        "L ",
    )
    if not any(word in kind for kind in d.kinds for word in hard):
        d.note("benign")
    return assemble(d, A, b, convolution)


def draw_matrix(d: Draw) -> tuple[np.ndarray, Pulse | None]:
    """(1, S or matrices, m, n): A of the systems, or the pulse of a convolution."""
    rng = d.rng
    if d.function != "lsq_gram" and d.chance(0.05):
        pulse = rng.standard_normal(int(rng.integers(1, 9)))
        pulse = np.abs(pulse) if d.chance(0.5) else pulse
        d.m = max(1, min(d.m, d.n + 8))
        made = Pulse(pulse, d.n, d.m, int(rng.integers(len(pulse))))
        d.note("Convolution")
        return made.operator().dense()[None].astype(float), made
    form = "one A" if d.chance(0.5) else "own A" if d.chance(0.7) or d.function == "lsq_gram" or d.lone else "which"
    d.note(form)
    count = 1 if form == "one A" else d.systems if form == "own A" else int(rng.integers(1, 5))
    first, kind = matrices.matrix(rng, d.m, d.n)
    A = np.stack([first, *(first + rng.standard_normal(first.shape) * (kind == "normal") for _ in range(count - 1))])
    d.note(f"A {kind}")
    while d.chance(0.3):
        flaw = pick(rng, *matrices.FLAWS)
        matrices.spoil(rng, A, flaw)
        d.note(flaw)
    d.form = form
    if form == "which":
        d.options["which"] = rng.integers(count, size=d.systems)
        d.dictionary = A
        return A[d.options["which"]], None
    return A, None


def scales(d: Draw) -> tuple[float, float]:
    """What A and b are multiplied with; x has 1e±250 at the most."""
    if not d.wild:
        return (1.0, 1.0) if d.chance(0.7) else (10.0 ** d.rng.uniform(-3, 3), 10.0 ** d.rng.uniform(-3, 3))
    top = 12 if d.single else 70 if d.function == "lsq_gram" else 160
    while True:
        a, b = (0.0 if d.chance(0.3) else d.rng.uniform(-top, top) for _ in range(2))
        if abs(b - a) < (25 if d.single else 250):
            return 10.0**a, 10.0**b


def draw_mask(d: Draw) -> None:
    if d.chance(0.15):
        d.note("mask")
        share = pick(d.rng, 0.0, 0.5, 0.8, 0.95)
        d.options["mask"] = d.each_or_one(lambda: d.rng.random(d.n) < share)


def draw_weights(d: Draw) -> None:
    if not d.chance(0.15):
        return
    d.note("weights")
    spread = 4.0 if d.wild else 1.0

    def make():
        weights = 10.0 ** d.rng.uniform(-spread, spread, d.m)
        return np.where(d.rng.random(d.m) < pick(d.rng, 0.0, 0.2), 0.0, weights)

    d.options["weights"] = make() if d.options.get("lam") == "gcv" else d.each_or_one(make)


def draw_lambda(d: Draw, A: np.ndarray, noise: float) -> None:
    rng = d.rng
    size = float(np.sqrt((A**2).sum(axis=(-1, -2)).mean() / d.n)) or 1.0
    if not np.isfinite(size) or size < 1e-200:
        size = float(np.abs(A).max()) or 1.0
    kind = pick(rng, "none", "none", "none", "lam", "lam", "lam tiny", "lam huge", "lam each", *RULES)
    general = d.options.get("equality") is not None
    if kind in RULES and (d.function == "lsq_gram" or general):
        kind = "lam"
    if kind == "gcv" and np.ndim(d.options.get("weights", 0)) == 2:
        kind = "chi2"
    if kind == "lam each" and d.lone:
        kind = "lam"
    d.note(kind if kind not in RULES else f"rule {kind}")
    if kind == "none":
        if d.chance(0.1):
            d.options["L"] = penalty(d)  # which nothing is done with
        return
    if kind in RULES:
        d.options["lam"] = kind
        if kind == "chi2" and d.chance(0.3):
            d.options["chi2"] = float(pick(rng, 1.001, 1.1, 2.0))
        if kind == "discrepancy":
            level = noise if noise > 0 else float(np.abs(A).max()) * 0.1 or 1.0
            level = level * float(pick(rng, 0.1, 0.9, 1.0, 1.1, 3.0))
            d.options["noise"] = level if d.lone or d.chance(0.6) else level * rng.uniform(0.5, 2, d.systems)
    elif kind == "lam each":
        lam = size * 10.0 ** rng.uniform(-6, 3, d.systems)
        d.options["lam"] = np.where(rng.random(d.systems) < 0.2, 0.0, lam)
    else:
        reach = {"lam": (-3, 1), "lam tiny": (-14, -6), "lam huge": (3, 12)}[kind]
        d.options["lam"] = float(size * 10.0 ** rng.uniform(*reach))
    if d.chance(0.4):
        d.options["L"] = penalty(d)


def penalty(d: Draw) -> np.ndarray:
    rng, n = d.rng, d.n
    kind = pick(rng, "differences", "second", "random", "unit", "some zero rows", "zero", "weights", "far")
    d.note(f"L {kind}")
    if kind == "differences" and n > 1:
        L = np.diff(np.eye(n), axis=0)
    elif kind == "second" and n > 2:
        L = np.diff(np.eye(n), 2, axis=0)
    elif kind in ("random", "some zero rows"):
        L = rng.standard_normal((int(rng.integers(1, n + 3)), n))
        if kind == "some zero rows":
            L[rng.random(len(L)) < 0.4] = 0
            L[:, rng.random(n) < 0.3] = 0
    elif kind == "zero":
        L = np.zeros((int(rng.integers(1, 4)), n))
    elif kind == "weights":
        L = np.diag(10.0 ** rng.uniform(-2, 2, n))
    elif kind == "far" and not d.single:
        L = rng.standard_normal((n, n)) * 10.0 ** (
            rng.uniform(-100, 100) if d.wild and d.function != "lsq_gram" else rng.uniform(-4, 4)
        )
    else:
        L = np.eye(n)
    return L


def draw_rest(d: Draw, x: np.ndarray) -> None:
    """Warm starts, methods, limits and the like."""
    rng, options = d.rng, d.options
    kind = pick(rng, *["cold"] * 6, "chain", "warm x", "warm random", "warm set", "warm states", "warm far")
    plain = d.function == "nnls" and not any(name in options for name in ("L", "mask", "weights", "which"))
    plain = plain and np.ndim(options.get("lam", 0.0)) == 0 and not isinstance(options.get("lam"), str)
    if kind == "warm states" and plain:
        kind = "warm set"
    if kind != "cold":
        d.note(kind)
    if kind == "chain":
        options["warm_start"] = "chain"
    elif kind in ("warm x", "warm random", "warm far"):
        one = {
            "warm x": x,
            "warm random": rng.standard_normal(x.shape),
            "warm far": 1e300 * rng.standard_normal(x.shape),
        }[kind]
        options["warm_start"] = one[0] if d.lone or d.chance(0.3) else one
    elif kind == "warm set":
        options["warm_start"] = d.each_or_one(lambda: rng.random(d.n) < 0.5)
    elif kind == "warm states":
        options["warm_start"] = d.each_or_one(lambda: rng.integers(-1, 3, d.n).astype(np.int8))
    if d.function != "lsq_gram":
        if d.chance(0.5):
            options["method"] = pick(rng, "qr", "gram")
        if d.chance(0.2):
            options["insertion"] = "single"
    if d.chance(0.05):
        options["maxiter"] = int(rng.integers(1, 6))
        d.note("maxiter")
    if d.chance(0.07):
        options["tol"] = float(pick(rng, 1e-10, 1e-6, 1e-3))
        d.note("tol")
    if d.chance(0.07) and (options.get("equality") is None or "noise" in options):
        options["uncertainty"] = "variance"
        d.note("uncertainty")
    options["threads"] = int(pick(rng, 1, 1, 1, 2))


def as_image(d: Draw, given: Any, b: np.ndarray) -> tuple[Any, np.ndarray]:
    """The systems of b in two dimensions, with bands last; or one system as a column."""
    if d.lone:
        d.note("column")
        return given, b[:, None]
    d.note("image")
    lead = (1, d.systems) if d.chance(0.5) else (d.systems, 1)
    own = isinstance(given, np.ndarray) and d.form == "own A"
    start = d.options.get("warm_start")
    if getattr(start, "ndim", 0) == 2:
        d.options["warm_start"] = start.reshape(*lead, d.n)
    if "which" in d.options:
        d.options["which"] = d.options["which"].reshape(lead)
    return given.reshape(*lead, *given.shape[1:]) if own else given, b.reshape(*lead, -1)


def assemble(d: Draw, A: np.ndarray, b: np.ndarray, convolution: Pulse | None) -> Case:
    """The call: dtypes, shapes, clothes; NaN in some systems."""
    rng, options = d.rng, d.options
    given: Any = A
    if d.function == "lsq_gram":
        with np.errstate(all="ignore"):
            c = np.matmul(np.swapaxes(A, 1, 2), np.broadcast_to(b, (d.systems, d.m))[..., None])[..., 0]
            if d.chance(0.5):
                options["bb"] = float((b[0] ** 2).sum()) if d.lone else (b**2).sum(axis=1)
            given, b = np.matmul(np.swapaxes(A, 1, 2), A), c
        given = 0.5 * (given + np.swapaxes(given, 1, 2))
    if convolution is not None:
        scale = (
            float(A.ravel()[np.abs(A).argmax()])
            / (float(convolution.operator().dense().ravel()[np.abs(A).argmax()]) or 1.0)
            if A.any()
            else 1.0
        )
        given = Pulse(convolution.pulse * scale, convolution.n, convolution.m, convolution.origin)
    elif d.form == "which":
        count = int(options["which"].max()) + 1
        table = np.zeros((count, d.m, d.n))
        table[options["which"]] = A
        given = table
    elif d.form == "one A":
        given = given[0]
    if not d.lone and d.chance(0.06):
        d.note("NaN")
        bad = rng.random(d.systems) < 0.3
        b = b.copy()
        b[bad, rng.integers(b.shape[1])] = pick(rng, np.nan, np.inf, -np.inf)
        if convolution is None and d.form == "own A" and d.chance(0.3):
            given[rng.integers(d.systems), 0, 0] = np.nan
    if d.single:
        with np.errstate(over="ignore", under="ignore"):
            b = b.astype(np.float32)
            if convolution is None:
                given = given.astype(np.float32)
            else:
                given.pulse = given.pulse.astype(np.float32)
        if d.options.get("warm_start") is not None and getattr(d.options["warm_start"], "dtype", None) == np.float64:
            with np.errstate(over="ignore"):
                d.options["warm_start"] = d.options["warm_start"].astype(np.float32)
    if d.lone:
        b, given = b[0], given[0] if isinstance(given, np.ndarray) and given.ndim == 3 and d.form == "own A" else given
    if d.function == "nnls" and not d.lone and d.chance(0.2) and "which" not in options:
        options["axis"] = 1
        b = np.ascontiguousarray(b.T)
        if getattr(options.get("warm_start"), "ndim", 0) == 2:
            options["warm_start"] = np.ascontiguousarray(options["warm_start"].T)
    if d.function == "lsq_linear" and d.chance(0.1):
        given, b = as_image(d, given, b)
    if isinstance(given, np.ndarray):
        given = clothed(rng, given)
    return Case(d.function, given, clothed(rng, b), options, d.kinds)
