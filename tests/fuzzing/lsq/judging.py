"""Holds what a call returned against the problem it was given, in wide precision; a list of what is wrong."""

from __future__ import annotations

import collections
import dataclasses

import numpy as np

from fuzzing.common import exact
from fuzzing.lsq import levels
from fuzzing.lsq.answers import Answer, Finding, Solved
from fuzzing.lsq.cases import Case, Pulse
from fuzzing.lsq.feasibility import feasible
from fuzzing.lsq.optimality import DOUBLE, FLOAT, remaining
from fuzzing.lsq.problem import Problem, read
from fuzzing.lsq.variances import variances
from stepwell.lsq import NNLSStatus

#: Ends that ought to be rare where data are benign.
UNFINISHED = (NNLSStatus.LIMIT, NNLSStatus.STALLED, NNLSStatus.DEPENDENT)


@dataclasses.dataclass
class Verdict:
    findings: list[Finding]
    counts: collections.Counter[str]


def judge(case: Case, strict: bool = False) -> Verdict:
    """Make the call and look at everything that came back; strictly, benign systems have to converge."""
    counts: collections.Counter[str] = collections.Counter()
    problem = read(case)
    try:
        result = case.call()
    except (ValueError, TypeError) as error:
        counts["refused"] += 1
        unasked = [Finding("refused", -1, f"{type(error).__name__}: {error}")]
        return Verdict([] if may_be_refused(case, problem) else unasked, counts)
    answer = Answer(case, problem, result)
    look(answer)
    counts["systems"] += problem.shape[0]
    benign = "benign" in case.kinds and "maxiter" not in case.options
    if strict and benign:
        told = answer.per_system("violation")
        unfinished = np.isin(answer.status, UNFINISHED)
        answer.find_each("unfinished", unfinished, lambda i: f"{answer.name(i)}, violation {told[i]:.1e}")
    for i, status in enumerate(answer.status):
        counts[f"status {answer.name(i)}"] += 1
        if benign and status in UNFINISHED:
            counts[f"benign {answer.name(i)}"] += 1
    return Verdict(answer.findings, counts)


def may_be_refused(case: Case, problem: Problem) -> bool:
    """Whether the documents say that such a call raises an error."""
    lone = case.turned().ndim == 1
    matrix = case.matrix()
    shared = matrix.ndim == 2 or case.options.get("which") is not None
    if (lone and not problem.finite.all()) or (shared and not np.isfinite(matrix).all()):
        return True
    return bool((problem.lower > problem.upper).any() or (problem.low > problem.high).any())


def look(answer: Answer) -> None:
    """Everything that is asked of an answer."""
    problem = answer.problem
    ends_without_x(answer)
    solved = ~np.isin(answer.status, (NNLSStatus.NON_FINITE, NNLSStatus.INFEASIBLE))
    finite = np.isfinite(answer.x).all(axis=1)
    answer.find_each("not finite", solved & ~finite, lambda i: f"x is {answer.x[i][:4]}, {answer.name(i)}")
    solved &= finite & problem.finite & ~(problem.lower > problem.upper).any(axis=1)
    if not solved.any():
        return
    part = Solved(answer, solved)
    outside = (part.x < part.problem.lower) | (part.x > part.problem.upper)
    part.find_each("outside", outside.any(axis=1), lambda k: "x is outside its bounds")
    optimal(part)
    no_worse(part)
    no_worse_than_another(part)
    lowest(part)
    constraints(part)
    certificate(part)
    variances(part)
    if answer.rule is not None and answer.case.options.get("tol") is None:
        levels.look(part)


def ends_without_x(answer: Answer) -> None:
    """Statuses that say there is no answer have to be true, and to be there where they are."""
    problem, status = answer.problem, answer.status
    may_stop = "maxiter" in answer.case.options and not problem.exact_row  # before a proof is found
    for i in range(answer.systems):
        if status[i] == NNLSStatus.INFEASIBLE:
            if problem.finite[i] and feasible(problem, i) > 0:
                answer.find("infeasible", i, "INFEASIBLE, and there is a feasible x")
        elif not problem.finite[i]:
            if status[i] != NNLSStatus.NON_FINITE and feasible(problem, i) >= 0:
                answer.find("finite", i, f"holds NaN or infinity, and is {answer.name(i)}")
        elif status[i] == NNLSStatus.NON_FINITE:
            if not is_too_large(answer, i):
                answer.find("finite", i, f"NON_FINITE, and all of it is finite; x is {answer.x[i][:4]}")
        elif feasible(problem, i) < 0 and not (may_stop and status[i] == NNLSStatus.LIMIT):
            answer.find("feasible", i, f"no x is feasible, and it is {answer.name(i)}")


def is_too_large(answer: Answer, i: int) -> bool:
    """Whether x does not fit, as the same problem says in double precision or with b, and all else that x is in
    proportion to, in other units."""
    case, A, largest = answer.case, answer.case.A, 1e38
    b, options = case.b.astype(float), dict(case.options)
    if not answer.problem.single:
        unit, largest = 2.0**-500, 1.7e308 * 2.0**-500
        b, ends = unit * b, ("bounds", "sum_bounds")
        options |= {name: tuple(unit * np.asarray(end) for end in options[name]) for name in ends if name in options}
        if options.get("equality") is not None:
            options["equality"] = (options["equality"][0], unit * np.asarray(options["equality"][1]))
        options |= {"noise": unit * np.asarray(options["noise"])} if options.get("noise") is not None else {}
        options.pop("warm_start", None)
    wide = dataclasses.replace(
        case,
        A=dataclasses.replace(A, pulse=A.pulse.astype(float)) if isinstance(A, Pulse) else A.astype(float),
        b=b,
        options=options,
    )
    again = Answer(wide, read(wide), wide.call())
    size = np.abs(again.x[i]).max(initial=0)
    return bool(largest < size < np.inf)


def optimal(part: Solved) -> None:
    """CONVERGED means optimal, and the violation reported is what there is."""
    worst, size, room = part.found.worst, part.found.size, part.answer.room
    violation, something = part.told("violation"), ~part.is_nothing()
    part.find_each(
        "kkt",
        part.finished & (worst > room) & something,
        lambda k: f"the conditions are broken by {worst[k]:.2e} (room {room:.0e}); violation {violation[k]:.1e}",
    )
    # Of nnls the violation is over |a_j||b|, else over |a_j|(|b| + sum |a_k||x_k|).
    told = violation
    if part.answer.case.function == "nnls":
        told = told * np.where(size > 0, part.b_norm / np.where(size > 0, size, 1), 0).astype(float)
    part.find_each("status", part.finished & (told > 10 * room), lambda k: f"violation is {violation[k]:.2e}")
    # What did not converge may be wrong, but has to say so.
    part.find_each(
        "certificate",
        ~part.finished & (worst > 1e-6) & (told < 1e-3 * worst) & something,
        lambda k: f"the conditions are broken by {worst[k]:.2e}, violation says {violation[k]:.1e}",
    )


def no_worse(part: Solved) -> None:
    """No answer is worse than a point that anyone can name: that of the bounds nearest to zero."""
    problem, lam, room = part.problem, part.lam, part.answer.room
    if len(problem.C):
        return
    point, norms = problem.nearest_to_zero(), problem.norms(lam)
    best, own = problem.objective(point, lam), problem.objective(part.x, lam)
    size, terms = part.b_norm + (norms * np.abs(point)).sum(axis=1), (norms * np.abs(part.x)).sum(axis=1)
    sure, tol = part.answer.sure, room - part.answer.sure
    worse = part.finished & ~part.is_nothing() & (own > best + sure * size**2)
    # A convex objective is no further above that of a point y than 2 w'(y - x), and with a tolerance |w_j| may be tol
    # |k_j|(|b| + sum |k_i||x_i|). But whatever it is, an answer is no worse than |b| + |Ky|.
    worse &= (own > best + 2 * tol * part.found.size * (part.found.size + size)) | (own > (1.001 * size) ** 2)
    # Where b = 0 bounds are the only scale; of normal equations squares are rounded; the smallest numbers are zero.
    worse &= ~((part.b_norm == 0) & (own <= (room * terms) ** 2)) & (terms > 1e-278 * norms.sum(axis=1))
    if problem.single:
        worse &= own > best + (8 * FLOAT * terms) ** 2
    if problem.G is not None:
        worse &= own > best + room * terms**2
    part.find_each(
        "worse",
        worse,
        lambda k: f"the objective is {float(own[k]):.3e}, that of the point nearest to zero {float(best[k]):.3e}",
    )


def no_worse_than_another(part: Solved) -> None:
    """With a sum, nor is one worse than that of the other method, which has the sum as well."""
    problem, case, room = part.problem, part.answer.case, part.answer.room
    asked_less = part.answer.rule is not None or case.options.get("tol") is not None
    if not problem.exact_row or problem.G is not None or problem.single or asked_less:
        return
    method = "gram" if case.options.get("method") == "qr" else "qr"
    other = Answer(
        case, read(case), case.call(method=method, maxiter=None, tol=None, uncertainty=None, warm_start=None)
    )
    x = exact(np.where(np.isfinite(other.x), other.x, 0))[part.which]
    known = part.finished & ~part.is_nothing() & (other.status[part.which] == NNLSStatus.CONVERGED)
    own, best = (np.sqrt(problem.objective(at, part.lam)) for at in (part.x, x))
    # The other is what it is to the rounding of its terms. And x is rounded, so that Kx is by as much of its own; as
    # much again comes of mending the sum of what was rounded.
    norms = problem.norms(part.lam)
    size = part.b_norm + (norms * np.abs(x)).sum(axis=1)
    # Each meets the sum to the rounding of its terms: by so much a column may be elsewhere, where bounds let it.
    c, gap = np.abs(problem.C[0]), own - best
    rounding = part.answer.n * DOUBLE * (np.abs(part.x) @ c)[:, None] / np.where(c > 0, c, 1)
    moves = np.where(c > 0, np.minimum(rounding, problem.upper - problem.lower), 0)
    allowed = 10 * room * size + 2 * DOUBLE * part.found.size + 4 * (norms * moves).max(axis=1)
    part.find_each(
        "worse",
        known & (gap > (1e-6 + room) * (part.b_norm + own)) & (gap > allowed),
        lambda k: f"the root of the objective is {float(own[k]):.3e}, that of method {method!r} {float(best[k]):.3e}",
    )


def lowest(part: Solved) -> None:
    """The columns between bounds lower the objective no further, in units of b and of what x explains."""
    problem, room = part.problem, part.answer.room
    if len(problem.C) or problem.G is not None or problem.single or part.answer.n > 40:
        return
    gap, unit, hidden = remaining(problem, part.x, part.lam, part.found)
    # Of x itself an orthogonal factor of K leaves a rounding of |b| + sum |k_j||x_j|, whatever the condition.
    part.find_each(
        "objective",
        part.finished & (gap > (1e-6 + room) * unit) & (gap > 10 * room * part.found.size) & (gap > hidden),
        lambda k: f"the objective can be lowered by the square of {gap[k]:.2e}; |b| and |Kx| are {unit[k]:.2e}",
    )


def constraints(part: Solved) -> None:
    """Sums and equalities are met, and what is reported of them is true."""
    problem, x = part.problem, part.x
    if len(problem.C) == 0:
        return
    eps = FLOAT if problem.single else DOUBLE
    values, sizes = x @ problem.C.T, np.abs(x) @ np.abs(problem.C).T
    missed = np.maximum(np.maximum(problem.low - values, values - problem.high), 0)
    sides = [np.where(np.isfinite(end), np.abs(end), np.inf) for end in (problem.low, problem.high)]
    ends = np.minimum(*sides)
    sizes = sizes + np.where(np.isfinite(ends), ends, 0)
    room = (128 + 16 * part.answer.n) * eps if problem.exact_row else 1e-5 if problem.single else 1e-10
    # What has to be exactly 0 is met to the rounding of what it might be; several rows to that of the largest x.
    least = problem.size_of_rows()[:, None]
    counted = np.where((missed <= 1e-14 * least) & (ends == 0), 0, missed)
    if not problem.exact_row:
        largest = np.abs(problem.C).max(axis=1) * np.abs(x).max(axis=1, initial=0)[:, None]
        counted = np.where(missed <= 8 * eps * largest, 0, counted)
    over = (counted / np.where(sizes > 0, sizes, 1)).max(axis=1)
    worst, told = missed.max(axis=1), exact(part.told("equality_error"))
    part.find_each(
        "sum" if problem.exact_row else "equality",
        part.finished & (over > room),
        lambda k: f"missed by {float(worst[k]):.2e}, {float(over[k]):.1e} of its terms",
    )
    least = 1e-10 * sizes.max(axis=1) * (1e6 if problem.single else 1)
    part.find_each(
        "equality_error",
        np.abs(told - worst) > 0.01 * np.maximum(told, worst) + least,
        lambda k: f"equality_error is {float(told[k]):.3e}, truly {float(worst[k]):.3e}",
    )


def certificate(part: Solved) -> None:
    """The states, the residual and the dual are those of x."""
    answer, problem, x, found = part.answer, part.problem, part.x, part.found
    if getattr(answer.result, "state", None) is not None:
        state = answer.per_unknown("state")[part.which]
        away = (state == -1) & (x != problem.lower) | (state == 1) & (x != problem.upper)
        part.find_each("state", away.any(axis=1), lambda k: "state says at a bound, and x is not there")
    by_multipliers = len(problem.C) > 0 and not problem.exact_row
    room = 1e-5 if problem.single else 1e-6 if by_multipliers else 1e-10
    sound = part.finished & ~part.is_nothing()
    most, least = (np.finfo(np.float32 if problem.single else np.float64).max, 1e-37 if problem.single else 1e-300)
    if len(problem.C) == 0:
        dual = exact(answer.per_unknown("dual")[part.which])
        allowed = room * (found.norms * found.size[:, None] + np.abs(found.w)) + least
        # What is beyond the largest number is infinite; what is below the smallest may be zero. Its sign is that of
        # w where w is more than what rounding may leave, and any where that alone is beyond the largest number.
        same = (np.abs(found.w) > 0.99 * exact(most)) & (np.sign(dual) == np.sign(found.w))
        beyond = np.isinf(dual) & (same | (allowed > exact(most)))
        with np.errstate(invalid="ignore"):
            off = np.abs(dual - found.w) > allowed
        off &= ~beyond
        part.find_each("dual", sound & off.any(axis=1), lambda k: "the dual is not that of x")
    if problem.G is None:
        true, told = np.sqrt((problem.fit(x) ** 2).sum(axis=1)), exact(part.told("residual"))
        part.find_each(
            "residual",
            sound & ~(np.abs(told - true) <= room * found.size + 1e-300) & ~(np.isinf(told) & (true > 0.99 * most)),
            lambda k: f"residual is {float(told[k]):.6e}, truly {float(true[k]):.6e}",
        )
