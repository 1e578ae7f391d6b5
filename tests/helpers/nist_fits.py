"""The 27 nonlinear regressions of NIST StRD (tests/fit/nist_strd): data, starts and certified answers."""

from __future__ import annotations

import pathlib
import re

import numpy as np
from numpy import exp

FOLDER = pathlib.Path(__file__).parents[1] / "fit" / "nist_strd"


def gauss(b, x):
    return (
        b[0] * exp(-b[1] * x) + b[2] * exp(-((x - b[3]) ** 2) / b[4] ** 2) + b[5] * exp(-((x - b[6]) ** 2) / b[7] ** 2)
    )


def rational(top, bottom):
    def f(b, x):
        above = sum(b[i] * x**i for i in range(top + 1))
        return above / (1 + sum(b[top + 1 + i] * x ** (i + 1) for i in range(bottom)))

    return f


def enso(b, x):
    w = 2 * np.pi * x
    year = b[0] + b[1] * np.cos(w / 12) + b[2] * np.sin(w / 12)
    first = b[4] * np.cos(w / b[3]) + b[5] * np.sin(w / b[3])
    return year + first + b[7] * np.cos(w / b[6]) + b[8] * np.sin(w / b[6])


def lanczos(b, x):
    return b[0] * exp(-b[1] * x) + b[2] * exp(-b[3] * x) + b[4] * exp(-b[5] * x)


MODELS = {
    "Misra1a": lambda b, x: b[0] * (1 - exp(-b[1] * x)),
    "BoxBOD": lambda b, x: b[0] * (1 - exp(-b[1] * x)),
    "Misra1b": lambda b, x: b[0] * (1 - (1 + b[1] * x / 2) ** -2.0),
    "Misra1c": lambda b, x: b[0] * (1 - (1 + 2 * b[1] * x) ** -0.5),
    "Misra1d": lambda b, x: b[0] * b[1] * x / (1 + b[1] * x),
    "Chwirut1": lambda b, x: exp(-b[0] * x) / (b[1] + b[2] * x),
    "Chwirut2": lambda b, x: exp(-b[0] * x) / (b[1] + b[2] * x),
    "DanWood": lambda b, x: b[0] * x ** b[1],
    "ENSO": enso,
    "Gauss1": gauss,
    "Gauss2": gauss,
    "Gauss3": gauss,
    "Eckerle4": lambda b, x: b[0] / b[1] * exp(-0.5 * ((x - b[2]) / b[1]) ** 2),
    "Bennett5": lambda b, x: b[0] * (b[1] + x) ** (-1 / b[2]),
    "Hahn1": rational(3, 3),
    "Thurber": rational(3, 3),
    "Kirby2": rational(2, 2),
    "Lanczos1": lanczos,
    "Lanczos2": lanczos,
    "Lanczos3": lanczos,
    "MGH09": lambda b, x: b[0] * (x**2 + x * b[1]) / (x**2 + x * b[2] + b[3]),
    "MGH10": lambda b, x: b[0] * exp(b[1] / (x + b[2])),
    "MGH17": lambda b, x: b[0] + b[1] * exp(-x * b[3]) + b[2] * exp(-x * b[4]),
    "Nelson": lambda b, x: b[0] - b[1] * x[0] * exp(-b[2] * x[1]),
    "Rat42": lambda b, x: b[0] / (1 + exp(b[1] - b[2] * x)),
    "Rat43": lambda b, x: b[0] / (1 + exp(b[1] - b[2] * x)) ** (1 / b[3]),
    "Roszman1": lambda b, x: b[0] - b[1] * x - np.arctan(b[2] / (x - b[3])) / np.pi,
}


class Regression:
    """One data set: x, y, two starts, certified parameters, their deviations, and the residual sum of squares."""

    def __init__(self, name):
        lines = (FOLDER / f"{name}.dat").read_text().replace("\r", "").split("\n")
        numbers = r"[-+]?[\d.]+(?:[eE][-+]?\d+)?"
        rows = [re.findall(numbers, line.split("=", 1)[1]) for line in lines[:62] if re.match(r"\s*b\d+\s*=", line)]
        table = np.array([[float(v) for v in row] for row in rows])
        self.name, self.starts, self.certified, self.deviation = name, table[:, :2].T, table[:, 2], table[:, 3]
        self.rss = float(next(line for line in lines if line.startswith("Residual Sum of Squares")).split(":")[1])
        begin = max(i for i, line in enumerate(lines) if line.startswith("Data:"))
        data = np.array([[float(v) for v in line.split()] for line in lines[begin + 1 :] if line.strip()])
        self.y, x = data[:, 0], data[:, 1:]
        self.x = x[:, 0] if x.shape[1] == 1 else x.T
        if name == "Nelson":
            self.y = np.log(self.y)
        self.n, self.m = len(self.certified), len(self.y)
        self.model = MODELS[name]

    def residual(self, b):
        return self.model(b, self.x) - self.y

    def jacobian(self, b):
        """By complex steps: exact to rounding."""
        J = np.empty((self.m, self.n))
        for j in range(self.n):
            c = b.astype(complex)
            c[j] += 1e-30j
            J[:, j] = self.model(c, self.x).imag / 1e-30
        return J

    def digits(self, b):
        """Fewest digits to which a parameter is as certified, at most 11."""
        if self.name.startswith("Lanczos"):  # three terms, in any order
            b = np.concatenate(sorted(np.reshape(b, (3, 2)), key=lambda term: term[1]))
        with np.errstate(all="ignore"):
            error = np.abs(b - self.certified) / np.abs(self.certified)
        return float(np.clip(-np.log10(np.maximum(error, 1e-11)), 0, 11).min()) if np.isfinite(error).all() else 0.0


def all_regressions():
    return [Regression(name) for name in MODELS]
