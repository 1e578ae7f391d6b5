"""Holds what a call returned against the problem it was given, in wide precision; a list of what is wrong."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

import numpy as np

from fuzzing.common import exact
from fuzzing.lsq import levels
from fuzzing.lsq.cases import Case, Pulse
from fuzzing.lsq.feasibility import feasible
from fuzzing.lsq.optimality import DOUBLE, FLOAT, Breach, breach, remaining, tolerance
from fuzzing.lsq.problem import Problem, read, rows_of
from stepwell.nnls import NNLSStatus

#: Ends that ought to be rare where data are benign.
UNFINISHED = (NNLSStatus.LIMIT, NNLSStatus.STALLED, NNLSStatus.DEPENDENT)
#: Whether these are findings, too: `--strict` of tests/fuzz.py.
settings = {"strict": False}


@dataclasses.dataclass
class Finding:
    """Something wrong with one system (or all, -1), in a word and in a sentence."""

    kind: str
    system: int
    text: str

    def __str__(self) -> str:
        return f"[{self.kind}] system {self.system}: {self.text}"


@dataclasses.dataclass
class Verdict:
    findings: list[Finding]
    counts: collections.Counter[str]


def judge(case: Case) -> Verdict:
    """Make the call and look at everything that came back."""
    counts: collections.Counter[str] = collections.Counter()
    problem = read(case)
    try:
        result = case.call()
    except (ValueError, TypeError) as error:
        counts["refused"] += 1
        reason = refusal(case, problem)
        if reason is None:
            return Verdict([Finding("refused", -1, f"{type(error).__name__}: {error}")], counts)
        return Verdict([], counts)
    answer = Answer(case, problem, result)
    answer.look()
    counts["systems"] += problem.shape[0]
    if settings["strict"] and "benign" in case.kinds and "maxiter" not in case.options:
        answer.find_each(
            "unfinished",
            np.isin(answer.status, UNFINISHED),
            lambda i: f"{answer.name(i)}, violation {answer.violation[i]:.1e}",
        )
    for status in answer.status:
        name = NNLSStatus.of(int(status)).name
        counts[f"status {name}"] += 1
        if "benign" in case.kinds and status in UNFINISHED:
            counts[f"benign {name}"] += 1
    return Verdict(answer.findings, counts)


def refusal(case: Case, problem: Problem) -> str | None:
    """Why a call may be refused, if it may."""
    lone = case.turned().ndim == 1
    matrix = case.matrix()
    shared = matrix.ndim == 2 or case.options.get("which") is not None
    if lone and not problem.finite.all():
        return "one system that is not finite"
    if shared and not np.isfinite(matrix).all():
        return "a shared matrix that is not finite"
    if (problem.lower > problem.upper).any() or (problem.low > problem.high).any():
        return "crossed bounds"
    if case.options.get("noise") is None and "equality" in case.options and case.options.get("uncertainty"):
        return "uncertainty of equalities without noise"
    return None


class Answer:
    """A result, as arrays with systems first."""

    def __init__(self, case: Case, problem: Problem, result: Any) -> None:
        self.case, self.problem, self.result = case, problem, result
        self.systems, self.n = problem.shape
        self.findings: list[Finding] = []
        across = case.function == "nnls" and case.options.get("axis", 0) == 1 and case.b.ndim == 2
        x = np.asarray(result.x)
        want = case.turned().shape[:-1]
        if not across and x.shape != (*want, self.n):
            self.find("shape", -1, f"x has shape {x.shape} for systems of shape {want} and {self.n} unknowns")
        self.x = (x.T if across else x).reshape(self.systems, self.n).astype(np.float64)
        if problem.single:  # a bound that is no float is met by the nearest
            for bound in (problem.lower, problem.upper):
                with np.errstate(over="ignore"):
                    self.x = np.where(self.x == bound.astype(np.float32), bound.astype(float), self.x)
        dual = np.asarray(result.dual)
        self.dual = (dual.T if across else dual).reshape(self.systems, self.n)
        self.status = self.per_system("status").astype(int)
        self.residual = self.per_system("residual")
        self.violation = self.per_system("violation")
        given = case.options.get("lam", 0.0)
        self.rule = given if isinstance(given, str) else None
        self.lam = exact(self.per_system("lam"))
        if self.rule is None:
            rounded = problem.single and case.function != "lsq_gram"
            exactly = exact(rows_of(given, self.systems, None, rounded))
            told = (self.status <= NNLSStatus.DEPENDENT) & ~np.isnan(self.lam)
            if not np.allclose(self.lam[told].astype(float), exactly[told].astype(float), rtol=1e-6, atol=0):
                self.find("lam", -1, f"lam is {self.lam[:3].astype(float)}, given {exactly[:3].astype(float)}")
            self.lam = exactly
        self.equations = case.matrix().shape[-2]
        self.room = tolerance(problem, self.equations + (0 if problem.L is None else len(problem.L)))
        tol = case.options.get("tol")
        self.room_of_tol = self.room + (0.0 if tol is None else 10.0 * tol)  # each scales a sum's part in its own way

    def per_system(self, name: str) -> np.ndarray:
        value = np.asarray(getattr(self.result, name))
        return np.broadcast_to(value.reshape(-1), (self.systems,)) if value.size == 1 else value.reshape(self.systems)

    def find(self, kind: str, system: int, text: str) -> None:
        self.findings.append(Finding(kind, system, text))

    def find_each(self, kind: str, bad: np.ndarray, text: Any) -> None:
        """A finding of each system that is bad."""
        for i in np.nonzero(bad)[0]:
            self.find(kind, int(i), text(int(i)))

    def look(self) -> None:
        """Everything that is asked of an answer."""
        problem, status = self.problem, self.status
        solved = ~np.isin(status, (NNLSStatus.NON_FINITE, NNLSStatus.INFEASIBLE))
        self.statuses(solved)
        good = solved & problem.finite & np.isfinite(self.x).all(axis=1)
        self.find_each(
            "not finite", solved & ~np.isfinite(self.x).all(axis=1), lambda i: f"x is {self.x[i]}, {self.name(i)}"
        )
        good &= ~(problem.lower > problem.upper).any(axis=1)
        if not good.any():
            return
        where = np.nonzero(good)[0]
        part, x, lam = problem.part(good), self.x[good], self.lam[good]
        multipliers = getattr(self.result, "multipliers", None)
        if multipliers is not None:
            multipliers = np.asarray(multipliers).reshape(self.systems, -1)[good]
            multipliers = multipliers if multipliers.shape[1] == len(problem.C) else None
        outside = ((x < part.lower) | (x > part.upper)).any(axis=1)
        self.find_each("outside", _spread(outside, where, self.systems), lambda i: "x is outside its bounds")
        found = breach(part, x, lam, multipliers)
        self.optimal(where, part, x, found)
        self.constraints(where, part, exact(x))
        self.lowest(where, part, x, lam, found)
        self.certificate(where, part, exact(x), found)
        if self.rule is not None and self.case.options.get("tol") is None:
            levels.look(self, where, part, x, lam, found)

    def name(self, i: int) -> str:
        return NNLSStatus.of(int(self.status[i])).name

    def statuses(self, solved: np.ndarray) -> None:
        """Statuses that say there is no answer have to be true."""
        problem, status = self.problem, self.status
        for i in range(self.systems):
            if status[i] == NNLSStatus.INFEASIBLE:
                if feasible(problem, i) > 0 and problem.finite[i]:
                    self.find("infeasible", i, "INFEASIBLE, and there is a feasible x")
            elif not problem.finite[i]:
                if status[i] != NNLSStatus.NON_FINITE and feasible(problem, i) >= 0:
                    self.find("finite", i, f"holds NaN or infinity, and is {self.name(i)}")
            elif status[i] == NNLSStatus.NON_FINITE and not (problem.single and self.is_too_large(i)):
                self.find("finite", i, f"NON_FINITE, and all of it is finite; x is {self.x[i][:4]}")
            elif (problem.lower[i] > problem.upper[i]).any() or (len(problem.C) and feasible(problem, i) < 0):
                self.find("feasible", i, f"no x is feasible, and it is {self.name(i)}")

    def is_too_large(self, i: int) -> bool:
        """Whether x of a float32 problem does not fit, as the same problem in double precision says."""
        A = self.case.A
        wide = dataclasses.replace(
            self.case,
            A=dataclasses.replace(A, pulse=A.pulse.astype(float)) if isinstance(A, Pulse) else A.astype(float),
            b=self.case.b.astype(float),
        )
        again = Answer(wide, read(wide), wide.call())
        return bool(np.abs(again.x[i]).max(initial=0) > 1e38)

    def optimal(self, where: np.ndarray, part: Problem, x: np.ndarray, found: Breach) -> None:
        """CONVERGED means optimal, and the violation reported is what there is."""
        finished = self.status[where] == NNLSStatus.CONVERGED
        b_norm = part.b_norm()
        bad = finished & (found.worst > self.room_of_tol) & ~_is_nothing(part, x, found, b_norm)
        self.find_each(
            "kkt",
            _spread(bad, where, self.systems),
            lambda i: (
                f"CONVERGED, and the conditions are broken by {found.worst[_at(where, i)]:.2e} (room {self.room_of_tol:.0e}); "
                f"violation {self.violation[i]:.1e}"
            ),
        )
        # Of nnls the violation is over |a_j||b|, else over |a_j|(|b| + sum |a_k||x_k|).
        told = self.violation[where]
        if self.case.function == "nnls":
            told = told * np.where(found.size > 0, b_norm / np.where(found.size > 0, found.size, 1), 0).astype(float)
        lies = finished & (told > 10 * self.room_of_tol)
        self.no_worse(where, part, exact(x), finished & ~_is_nothing(part, x, found, b_norm))
        self.find_each(
            "status",
            _spread(lies, where, self.systems),
            lambda i: f"CONVERGED, and violation is {self.violation[i]:.2e}",
        )
        # What did not converge may be wrong, but has to say so.
        blind = ~finished & (found.worst > 1e-6) & (told < 1e-3 * found.worst) & ~_is_nothing(part, x, found, b_norm)
        self.find_each(
            "certificate",
            _spread(blind, where, self.systems),
            lambda i: (
                f"{self.name(i)}: the conditions are broken by {found.worst[_at(where, i)]:.2e}, violation says {self.violation[i]:.1e}"
            ),
        )

    def no_worse(self, where: np.ndarray, part: Problem, x: np.ndarray, finished: np.ndarray) -> None:
        """No answer is worse than a point that anyone can name: that of the bounds nearest to zero."""
        if len(part.C):
            return
        point, lam = part.nearest_to_zero(), self.lam[where]
        best, own = part.objective(point, lam), part.objective(x, lam)
        size = part.b_norm() + (part.norms(lam) * np.abs(point)).sum(axis=1)
        worse = finished & (own > best + self.room_of_tol * size**2)
        # Where b = 0 bounds are the only scale; of normal equations squares are rounded.
        terms = (part.norms(lam) * np.abs(x)).sum(axis=1)
        worse &= ~((part.b_norm() == 0) & (own <= (self.room_of_tol * terms) ** 2))
        worse &= terms > 1e-278 * part.norms(lam).sum(axis=1)  # x is zero but for its smallest numbers
        if part.single:
            worse &= own > best + (8 * FLOAT * terms) ** 2
        if part.G is not None:
            worse &= own > best + self.room_of_tol * terms**2
        self.find_each(
            "worse",
            _spread(worse, where, self.systems),
            lambda i: (
                f"CONVERGED with the objective {float(own[_at(where, i)]):.3e}; the point of the bounds nearest to "
                f"zero has {float(best[_at(where, i)]):.3e}"
            ),
        )

    def lowest(self, where: np.ndarray, part: Problem, x: np.ndarray, lam: np.ndarray, found: Breach) -> None:
        """The columns between bounds lower the objective no further, in units of b and of what x explains."""
        if len(part.C) or part.G is not None or part.single or self.n > 40:
            return
        gap, unit = remaining(part, exact(x), lam, found)
        high = (self.status[where] == NNLSStatus.CONVERGED) & (gap > (1e-6 + self.room_of_tol) * unit)
        self.find_each(
            "objective",
            _spread(high, where, self.systems),
            lambda i: (
                f"CONVERGED, and the objective can be lowered by the square of {gap[_at(where, i)]:.2e}; |b| and "
                f"|Kx| are {unit[_at(where, i)]:.2e}"
            ),
        )

    def constraints(self, where: np.ndarray, part: Problem, x: np.ndarray) -> None:
        """Sums and equalities are met, and what is reported of them is true."""
        if len(part.C) == 0:
            return
        eps = FLOAT if part.single else DOUBLE
        values, sizes = x @ part.C.T, np.abs(x) @ np.abs(part.C).T
        missed = np.maximum(np.maximum(part.low - values, values - part.high), 0)
        ends = np.minimum(
            np.where(np.isfinite(part.low), np.abs(part.low), np.inf),
            np.where(np.isfinite(part.high), np.abs(part.high), np.inf),
        )
        sizes = sizes + np.where(np.isfinite(ends), ends, 0)
        room = (128 + 16 * self.n) * eps if part.exact_row else 1e-10 if not part.single else 1e-5
        counted = np.where((missed <= 1e-14 * _least_unit(part)[:, None]) & (ends == 0), 0, missed)
        over = (counted / np.where(sizes > 0, sizes, 1)).max(axis=1)
        finished = self.status[where] == NNLSStatus.CONVERGED
        self.find_each(
            "sum" if part.exact_row else "equality",
            _spread(finished & (over > room), where, self.systems),
            lambda i: (
                f"CONVERGED, and the sum or equality is missed by {float(missed[_at(where, i)].max()):.2e}, {float(over[_at(where, i)]):.1e} of its terms"
            ),
        )
        told = exact(self.per_system("equality_error")[where])
        worst = missed.max(axis=1)
        off = np.abs(told - worst) > 0.01 * np.maximum(told, worst) + 1e-10 * sizes.max(axis=1) * (
            1e6 if part.single else 1
        )
        self.find_each(
            "equality_error",
            _spread(off, where, self.systems),
            lambda i: f"equality_error is {float(told[_at(where, i)]):.3e}, truly {float(worst[_at(where, i)]):.3e}",
        )

    def certificate(self, where: np.ndarray, part: Problem, x: np.ndarray, found: Breach) -> None:
        """The residual and the states are those of x."""
        finished = self.status[where] == NNLSStatus.CONVERGED
        state = getattr(self.result, "state", None)
        if state is not None:
            state = np.asarray(state).reshape(self.systems, self.n)[where]
            wrong = ((state == -1) & (x != part.lower) | (state == 1) & (x != part.upper)).any(axis=1)
            self.find_each(
                "state", _spread(wrong, where, self.systems), lambda i: "state says at a bound, and x is not there"
            )
        if part.G is not None:
            return
        true = np.sqrt((part.fit(x) ** 2).sum(axis=1))
        told = exact(self.residual[where])
        sure = 1e-10 if not part.single else 1e-5
        off = (
            finished
            & ~(np.abs(told - true) <= sure * found.size + 1e-300)
            & ~_is_nothing(part, x, found, part.b_norm())
        )
        if len(part.C) and not part.exact_row:
            off = finished & ~(np.abs(told - true) <= 1e-6 * found.size)
        self.find_each(
            "residual",
            _spread(off, where, self.systems),
            lambda i: f"residual is {float(told[_at(where, i)]):.6e}, truly {float(true[_at(where, i)]):.6e}",
        )


def _is_nothing(part: Problem, x: np.ndarray, found: Breach, b_norm: np.ndarray) -> np.ndarray:
    """b = 0 and x = 0 but for a rounding of the nearest bound or end: conditions of nothing have no scale."""
    sizes = [np.where(np.isfinite(end) & (end != 0), np.abs(end), np.inf) for end in (part.lower, part.upper)]
    nearest = np.minimum(*sizes)
    nearest = np.where(np.isfinite(nearest), nearest, 0)
    size = (found.norms * nearest).sum(axis=1)
    if len(part.C):
        ends = np.minimum(
            *(np.where(np.isfinite(end) & (end != 0), np.abs(end), np.inf) for end in (part.low, part.high))
        )
        over = np.abs(part.C)[None] / np.where(found.norms > 0, found.norms, 1)[:, None, :]
        size = size + (np.where(np.isfinite(ends), ends, 0) / np.maximum(over.max(axis=2), 1e-300)).sum(axis=1)
    none = b_norm == 0 if part.G is None else (part.b == 0).all(axis=1)
    return none & (found.size <= 1e-13 * size)


def _least_unit(part: Problem) -> np.ndarray:
    """A size that Cx has in this problem: what a row that has to be exactly 0 is rounded to."""
    norms = np.broadcast_to(part.norms(np.zeros(part.shape[0], np.longdouble)), part.shape)
    largest = np.abs(part.C).max(axis=0)
    used = (norms > 0) & (largest > 0)
    over = np.where(used, norms, 0) / np.where(largest > 0, largest, 1)
    over = over.max(axis=1)
    unit = np.where(over > 0, part.b_norm() / np.where(over > 0, over, 1), 0)
    bounds = [np.where(np.isfinite(end), np.abs(end), 0).max(axis=1) for end in (part.lower, part.upper)]
    ends = [np.where(np.isfinite(end), np.abs(end), 0).max(axis=1) for end in (part.low, part.high)]
    return unit + np.minimum(*bounds) * np.abs(part.C).max() + np.minimum(*ends)


def _spread(values: np.ndarray, where: np.ndarray, systems: int) -> np.ndarray:
    full = np.zeros(systems, bool)
    full[where] = values
    return full


def _at(where: np.ndarray, i: int) -> int:
    return int(np.searchsorted(where, i))
