"""More-Garbow-Hillstrom least-squares problems, complex-safe, and random boxes that cut their solutions off."""

from __future__ import annotations

import numpy as np

exp, sqrt = np.exp, np.sqrt


def upto(m):
    return np.arange(1, m + 1)


BARD = np.array([0.14, 0.18, 0.22, 0.25, 0.29, 0.32, 0.35, 0.39, 0.37, 0.58, 0.73, 0.96, 1.34, 2.10, 4.39])
GAUSS = np.array(
    [
        0.0009,
        0.0044,
        0.0175,
        0.0540,
        0.1295,
        0.2420,
        0.3521,
        0.3989,
        0.3521,
        0.2420,
        0.1295,
        0.0540,
        0.0175,
        0.0044,
        0.0009,
    ]
)
MEYER = np.array(
    [34780, 28610, 23650, 19630, 16370, 13720, 11540, 9744, 8261, 7030, 6005, 5147, 4427, 3820, 3307, 2872.0]
)
KO_Y = np.array([0.1957, 0.1947, 0.1735, 0.1600, 0.0844, 0.0627, 0.0456, 0.0342, 0.0323, 0.0235, 0.0246])
KO_U = np.array([4, 2, 1, 0.5, 0.25, 0.167, 0.125, 0.1, 0.0833, 0.0714, 0.0625])
OSB1 = np.array(
    [
        0.844,
        0.908,
        0.932,
        0.936,
        0.925,
        0.908,
        0.881,
        0.850,
        0.818,
        0.784,
        0.751,
        0.718,
        0.685,
        0.658,
        0.628,
        0.603,
        0.580,
        0.558,
        0.538,
        0.522,
        0.506,
        0.490,
        0.478,
        0.467,
        0.457,
        0.448,
        0.438,
        0.431,
        0.424,
        0.420,
        0.414,
        0.411,
        0.406,
    ]
)
OSB2 = np.array(
    [
        1.366,
        1.191,
        1.112,
        1.013,
        0.991,
        0.885,
        0.831,
        0.847,
        0.786,
        0.725,
        0.746,
        0.679,
        0.608,
        0.655,
        0.616,
        0.606,
        0.602,
        0.626,
        0.651,
        0.724,
        0.649,
        0.649,
        0.694,
        0.644,
        0.624,
        0.661,
        0.612,
        0.558,
        0.533,
        0.495,
        0.500,
        0.423,
        0.395,
        0.375,
        0.372,
        0.391,
        0.396,
        0.405,
        0.428,
        0.429,
        0.523,
        0.562,
        0.607,
        0.653,
        0.672,
        0.708,
        0.633,
        0.668,
        0.645,
        0.632,
        0.591,
        0.559,
        0.597,
        0.625,
        0.739,
        0.710,
        0.729,
        0.720,
        0.636,
        0.581,
        0.428,
        0.292,
        0.162,
        0.098,
        0.054,
    ]
)


def helical(x):
    t = np.arctan(x[1] / x[0]) / (2 * np.pi) + np.where(np.real(x[0]) < 0, 0.5, 0.0)
    return [10 * (x[2] - 10 * t), 10 * (sqrt(x[0] ** 2 + x[1] ** 2) - 1), x[2]]


def watson(x, n=6):
    t = upto(29) / 29
    s1 = sum((j) * x[j] * t ** (j - 1) for j in range(1, n))
    s2 = sum(x[j] * t**j for j in range(n))
    return [*list(s1 - s2**2 - 1), x[0], x[1] - x[0] ** 2 - 1]


def trig(x, n=10):
    c = sum(np.cos(v) for v in x)
    return [n - c + (i + 1) * (1 - np.cos(x[i])) - np.sin(x[i]) for i in range(n)]


def chebyquad(x, n=8):
    z = [2 * v - 1 for v in x]
    a, b = [np.ones_like(v) for v in z], z
    out = []
    for i in range(1, n + 1):
        out.append(sum(b) / n - (0 if i % 2 else -1 / (i * i - 1)))
        a, b = b, [2 * z[j] * b[j] - a[j] for j in range(n)]
    return out


def gulf(x, m=20):
    t = upto(m) / 100
    y = 25 + (-50 * np.log(t)) ** (2 / 3)
    d = y - x[1]
    return list(exp(-(sqrt(d * d) ** x[2]) / x[0]) - t)


P = {
    "rosenbrock": (lambda x: [10 * (x[1] - x[0] ** 2), 1 - x[0]], [-1.2, 1]),
    "freudenstein": (
        lambda x: [-13 + x[0] + ((5 - x[1]) * x[1] - 2) * x[1], -29 + x[0] + ((x[1] + 1) * x[1] - 14) * x[1]],
        [0.5, -2],
    ),
    "powell bad": (lambda x: [1e4 * x[0] * x[1] - 1, exp(-x[0]) + exp(-x[1]) - 1.0001], [0, 1.0]),
    "brown bad": (lambda x: [x[0] - 1e6, x[1] - 2e-6, x[0] * x[1] - 2], [1, 1.0]),
    "beale": (
        lambda x: [1.5 - x[0] * (1 - x[1]), 2.25 - x[0] * (1 - x[1] ** 2), 2.625 - x[0] * (1 - x[1] ** 3)],
        [1, 1.0],
    ),
    "jennrich": (lambda x: list(2 + 2 * upto(10) - exp(upto(10) * x[0]) - exp(upto(10) * x[1])), [0.3, 0.4]),
    "helical": (helical, [-1, 1e-3, 0]),
    "bard": (
        lambda x: list(BARD - x[0] - upto(15) / ((16 - upto(15)) * x[1] + np.minimum(upto(15), 16 - upto(15)) * x[2])),
        [1, 1, 1.0],
    ),
    "gaussian": (lambda x: list(x[0] * exp(-x[1] * ((8 - upto(15)) / 2 - x[2]) ** 2 / 2) - GAUSS), [0.4, 1, 0]),
    "meyer": (lambda x: list(x[0] * exp(x[1] / (45 + 5 * upto(16) + x[2])) - MEYER), [0.02, 4000, 250]),
    "gulf": (gulf, [5, 2.5, 0.15]),
    "box3": (
        lambda x: list(
            exp(-0.1 * upto(10) * x[0]) - exp(-0.1 * upto(10) * x[1]) - x[2] * (exp(-0.1 * upto(10)) - exp(-upto(10)))
        ),
        [0, 10, 20.0],
    ),
    "powell singular": (
        lambda x: [x[0] + 10 * x[1], sqrt(5) * (x[2] - x[3]), (x[1] - 2 * x[2]) ** 2, sqrt(10) * (x[0] - x[3]) ** 2],
        [3, -1, 0, 1.0],
    ),
    "wood": (
        lambda x: [
            10 * (x[1] - x[0] ** 2),
            1 - x[0],
            sqrt(90) * (x[3] - x[2] ** 2),
            1 - x[2],
            sqrt(10) * (x[1] + x[3] - 2),
            (x[1] - x[3]) / sqrt(10),
        ],
        [-3, -1, -3, -1.0],
    ),
    "kowalik": (
        lambda x: list(KO_Y - x[0] * (KO_U**2 + KO_U * x[1]) / (KO_U**2 + KO_U * x[2] + x[3])),
        [0.25, 0.39, 0.415, 0.39],
    ),
    "brown dennis": (
        lambda x: list(
            (x[0] + upto(20) / 5 * x[1] - exp(upto(20) / 5)) ** 2
            + (x[2] + x[3] * np.sin(upto(20) / 5) - np.cos(upto(20) / 5)) ** 2
        ),
        [25, 5, -5, -1.0],
    ),
    "osborne1": (
        lambda x: list(
            OSB1 - (x[0] + x[1] * exp(-10 * (upto(33) - 1) * x[3]) + x[2] * exp(-10 * (upto(33) - 1) * x[4]))
        ),
        [0.5, 1.5, -1, 0.01, 0.02],
    ),
    "biggs6": (
        lambda x: list(
            x[2] * exp(-0.1 * upto(13) * x[0])
            - x[3] * exp(-0.1 * upto(13) * x[1])
            + x[5] * exp(-0.1 * upto(13) * x[4])
            - exp(-0.1 * upto(13))
            + 5 * exp(-upto(13))
            - 3 * exp(-0.4 * upto(13))
        ),
        [1, 2, 1, 1, 1, 1.0],
    ),
    "osborne2": (
        lambda x: list(
            OSB2
            - (
                x[0] * exp(-0.1 * (upto(65) - 1) * x[4])
                + x[1] * exp(-x[5] * (0.1 * (upto(65) - 1) - x[8]) ** 2)
                + x[2] * exp(-x[6] * (0.1 * (upto(65) - 1) - x[9]) ** 2)
                + x[3] * exp(-x[7] * (0.1 * (upto(65) - 1) - x[10]) ** 2)
            )
        ),
        [1.3, 0.65, 0.65, 0.7, 0.6, 3, 5, 7, 2, 4.5, 5.5],
    ),
    "watson": (watson, [0.0] * 6),
    "trig": (trig, [0.1] * 10),
    "chebyquad": (chebyquad, list(upto(8) / 9)),
}


class Problem:
    def __init__(self, name):
        self.name, (self.f, x0) = name, P[name]
        self.x0 = np.array(x0, float)
        self.n = len(x0)
        self.m = len(self.f(self.x0))

    def one(self, x):
        return np.array(self.f(x))

    def fun(self, X, rows=None):
        return np.array([self.one(x) for x in X])

    def jac(self, X, rows=None):
        J = np.empty((len(X), self.m, self.n))
        for i, x in enumerate(X):
            for j in range(self.n):
                c = x.astype(complex)
                c[j] += 1e-30j
                J[i, :, j] = np.array(self.f(c)).imag / 1e-30
        return J


def boxes(x0, best, count, rng):
    """Bounds that cut the solution off in about 0.4 of the variables; others loose or absent; starts inside."""
    n = len(x0)
    span = np.maximum(np.abs(best - x0), np.maximum(0.1 * np.abs(best), 0.1))
    kind = rng.choice(4, size=(count, n), p=[0.2, 0.2, 0.3, 0.3])
    u = rng.random((count, n))
    lo, hi = np.full((count, n), -np.inf), np.full((count, n), np.inf)
    lo = np.where(kind == 0, best + 0.5 * u * span, lo)
    hi = np.where(kind == 0, best + (2 + u) * span, hi)
    hi = np.where(kind == 1, best - 0.5 * u * span, hi)
    lo = np.where(kind == 1, best - (2 + u) * span, lo)
    lo = np.where(kind == 2, best - (0.5 + u) * span, lo)
    hi = np.where(kind == 2, best + (0.5 + u) * span, hi)
    return lo, hi, np.clip(x0, lo, hi)
