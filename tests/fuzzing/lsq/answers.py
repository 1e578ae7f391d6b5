"""What a call returned, as arrays with systems first, and the systems of it that were solved."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from fuzzing.common import exact
from fuzzing.lsq.cases import Case
from fuzzing.lsq.optimality import Breach, breach, tolerance
from fuzzing.lsq.problem import Problem, rows_of
from stepwell.lsq import NNLSStatus


@dataclasses.dataclass
class Finding:
    """Something wrong with one system (or all, -1), in a word and in a sentence."""

    kind: str
    system: int
    text: str

    def __str__(self) -> str:
        return f"[{self.kind}] system {self.system}: {self.text}"


class Answer:
    """The result of a call, and what was found wrong with it."""

    def __init__(self, case: Case, problem: Problem, result: Any) -> None:
        self.case, self.problem, self.result = case, problem, result
        self.systems, self.n = problem.shape
        self.findings: list[Finding] = []
        self.x = self.per_unknown("x").astype(np.float64)
        if problem.single:  # a bound that is no float is met by the nearest
            for bound in (problem.lower, problem.upper):
                with np.errstate(over="ignore"):
                    self.x = np.where(self.x == bound.astype(np.float32), bound.astype(float), self.x)
        self.status = self.per_system("status").astype(int)
        given = case.options.get("lam", 0.0)
        self.rule = given if isinstance(given, str) else None
        self.lam = exact(self.per_system("lam"))
        if self.rule is None:
            self.lam = self.given_lam(given)
        rows = case.matrix().shape[-2] + (0 if problem.L is None else len(problem.L))
        tol = case.options.get("tol")
        self.sure = tolerance(problem, rows)  # without `tol`
        self.room = self.sure + (0.0 if tol is None else 10.0 * tol)  # each scales a sum's part in its own way

    def given_lam(self, given: Any) -> np.ndarray:
        """The lambda of each system as it was given, which the result has to repeat."""
        rounded = self.problem.single and self.case.function != "lsq_gram"
        lam = exact(rows_of(given, self.systems, None, rounded))
        told = (self.status <= NNLSStatus.DEPENDENT) & ~np.isnan(self.lam)
        if not np.allclose(self.lam[told].astype(float), lam[told].astype(float), rtol=1e-6, atol=0):
            self.find("lam", -1, f"lam is {self.lam[:3].astype(float)}, given {lam[:3].astype(float)}")
        return lam

    def per_system(self, name: str) -> np.ndarray:
        """A field with a number per system."""
        value = np.asarray(getattr(self.result, name))
        return np.broadcast_to(value.reshape(-1), (self.systems,)) if value.size == 1 else value.reshape(self.systems)

    def per_unknown(self, name: str) -> np.ndarray:
        """A field with a number per system and unknown."""
        value, lead = np.asarray(getattr(self.result, name)), self.case.turned().shape[:-1]
        value = value.T if self.case.across() else value
        column = (1,) * self.case.is_column()
        if value.shape != (*lead, self.n, *column):
            self.find("shape", -1, f"{name} has shape {value.shape}; there are systems {lead} of {self.n} unknowns")
        return value.reshape(self.systems, self.n)

    def name(self, i: int) -> str:
        """How a system ended."""
        return NNLSStatus.of(int(self.status[i])).name

    def find(self, kind: str, system: int, text: str) -> None:
        self.findings.append(Finding(kind, system, text))

    def find_each(self, kind: str, bad: np.ndarray, text: Callable[[int], str]) -> None:
        """A finding of each system that is bad."""
        for i in np.nonzero(bad)[0]:
            self.find(kind, int(i), text(int(i)))


class Solved:
    """The systems of an answer that have an x; arrays have these alone."""

    def __init__(self, answer: Answer, which: np.ndarray) -> None:
        self.answer, self.which = answer, which
        self.places = np.nonzero(which)[0]
        self.problem, self.lam = answer.problem.part(which), answer.lam[which]
        self.x = exact(answer.x[which])
        self.finished = answer.status[which] == NNLSStatus.CONVERGED
        multipliers = getattr(answer.result, "multipliers", None)
        if multipliers is not None:
            multipliers = np.asarray(multipliers).reshape(answer.systems, -1)[which]
            multipliers = multipliers if multipliers.shape[1] == len(self.problem.C) else None
        self.found: Breach = breach(self.problem, self.x, self.lam, multipliers)
        self.b_norm = self.problem.b_norm()

    def told(self, name: str) -> np.ndarray:
        """A field with a number per system."""
        return self.answer.per_system(name)[self.which]

    def find_each(self, kind: str, bad: np.ndarray, text: Callable[[int], str]) -> None:
        """A finding of each of these systems that is bad; `text` has its place among them."""
        for k in np.nonzero(bad)[0]:
            self.answer.find(kind, int(self.places[k]), f"{self.answer.name(self.places[k])}: {text(int(k))}")

    def is_nothing(self) -> np.ndarray:
        """b = 0 and x = 0 but for a rounding of the nearest bound or end: conditions of nothing have no scale."""
        problem, norms = self.problem, self.found.norms
        nearest = smallest(problem.lower, problem.upper)
        size = (norms * np.where(np.isfinite(nearest), nearest, 0)).sum(axis=1)
        if len(problem.C):
            ends = smallest(problem.low, problem.high)
            over = np.abs(problem.C)[None] / np.where(norms > 0, norms, 1)[:, None, :]
            size = size + (np.where(np.isfinite(ends), ends, 0) / np.maximum(over.max(axis=2), 1e-300)).sum(axis=1)
        none = self.b_norm == 0 if problem.G is None else (problem.b == 0).all(axis=1)
        return none & (self.found.size <= 1e-13 * size)


def smallest(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The smaller of two ends, of those that are neither 0 nor infinite; infinite where there is none."""
    sizes = [np.where(np.isfinite(end) & (end != 0), np.abs(end), np.inf) for end in (low, high)]
    return np.minimum(*sizes)
