"""Figures 1 to 4 and the stopping example of D'Amore et al. (2013): VA15 in sequence, on all cores and on a GPU."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import stepwell
from stepwell.arrays.places import Place
from stepwell.common.threads import default_threads
from stepwell.lab import problems
from stepwell.lab.studies.frame import Column, Context, Curve, Study
from stepwell.lab.studies.stepping import solver_state, watch

#: The driver's output for n = 1,000,000, m = 7 (section "Program results"): iteration -> NFN, FUNC, GNORM, STEPLENGTH.
DRIVER = {
    1: (4, 8.968026e06, 1.338990e05, 1.275337e-04),
    2: (5, 2.223223e06, 1.835022e04, 1.0),
    3: (6, 2.071674e06, 2.874521e03, 1.0),
    4: (7, 2.066929e06, 1.253213e03, 1.0),
    5: (8, 2.064897e06, 1.409016e03, 1.0),
    6: (9, 2.050814e06, 3.691128e03, 1.0),
    32: (46, 3.391364e02, 1.188979e02, 1.0),
    33: (47, 4.085484e01, 2.639775e02, 1.0),
    34: (48, 2.229921e00, 1.018714e01, 1.0),
    35: (49, 1.162750e-02, 1.781043e00, 1.0),
    36: (50, 4.912961e-06, 7.652340e-02, 1.0),
    37: (51, 6.752264e-10, 1.013915e-03, 1.0),
}
#: The same output, milliseconds on a Tesla C1060: evaluations, CUBLAS inside l-bfgs, mcsrch, all of l-bfgs, total.
DRIVER_MS = {"evaluation": 66.0, "cublas": 324.0, "mcsrch": 56.0, "l-bfgs": 398.0, "total": 464.0}
#: "Speedup of over 8x in double precision and 14x in single precision" (section "Testing"); Figure 2's points are
#: not in the text.
SPEEDUP = {"float64": 8.0, "float32": 14.0}

M, EPS, MAXITER = 7, 1e-5, 2000
SETTINGS_VA15: dict[str, Any] = dict(m=M, gtol=0.0, ftol=0.0, relative_gtol=EPS, maxiter=MAXITER, line_search="va15")

DIFFERENCES = (
    Column("iteration", "iteration", ","),
    Column("nfn", "NFN", ","),
    Column("f", "f", ".6e"),
    Column("gnorm", "‖g‖", ".6e"),
    Column("step", "step", ".6e"),
    Column("threads_difference", "x: all cores against one", ".1e"),
    Column("gpu_difference", "x: GPU against one core", ".1e"),
    Column("nfn_paper", "NFN", ",", paper=True),
    Column("f_paper", "f", ".6e", paper=True),
    Column("gnorm_paper", "‖g‖", ".6e", paper=True),
    Column("step_paper", "step", ".6e", paper=True),
)
SPEED = (
    Column("n", "n", ","),
    Column("dtype", "precision"),
    Column("device", "device"),
    Column("iterations", "iterations", ","),
    Column("evaluations", "evaluations", ","),
    Column("seconds", "seconds", ".3g"),
    Column("speedup", "over one core", ".2f"),
    Column("speedup_paper", "over one core, C1060, more than", ".0f", paper=True),
    Column("f", "final f", ".3e"),
    Column("status", "ended by"),
)
SHARES = (
    Column("part", "part"),
    Column("device", "device"),
    Column("milliseconds", "ms in all", ".3g"),
    Column("share", "share, %", ".1f"),
    Column("share_paper", "share, %, C1060", ".1f", paper=True),
)
FUNCTIONS = (
    Column("function", "function"),
    Column("n", "n", ","),
    Column("device", "device"),
    Column("m", "m"),
    Column("eps", "eps", "g"),
    Column("iterations", "iterations", ","),
    Column("evaluations", "evaluations", ","),
    Column("f", "final f", ".3e"),
    Column("gnorm", "‖g‖", ".2e"),
    Column("limit", "eps·max(1, ‖x‖)", ".2e"),
    Column("seconds", "seconds", ".3g"),
    Column("status", "ended by"),
    Column("paper", "ended by, or what is advised", paper=True),
)


def run(context: Context, study: Study) -> None:
    """Compare runs on one core, all cores and the GPU."""
    study.settings |= {"line search": "MCSRCH (VA15)", "m": M, "eps": EPS, "maxiter": MAXITER, "maxls": 20}
    n = context.pick(toy=2_000, default=1_000_000, full=1_000_000)
    _paths(context, study, n)
    sizes = context.pick(
        toy=[2_000], default=[500_000, 2_000_000], full=[500_000, 1_000_000, 5_000_000, 10_000_000, 50_000_000]
    )
    _speed(context, study, sizes)
    _shares(context, study, n)
    _functions(context, study, context.pick(toy=2_000, default=1_000_000, full=1_000_000))
    study.differs += [
        "The sequential run is Stepwell on one core, not the Fortran VA15; its line search is MCSRCH's with VA15's "
        "constants, and the table shows the driver's own output beside ours.",
        "Figure 2 gives speed-ups as points of a curve that the text does not state; its summary, over 8 in double "
        "and 14 in single precision, stands beside ours. Times are of whole runs, evaluations included.",
        "Figure 3 shares time among kernels of CUBLAS calls. Stepwell has no such calls: an iteration is two fused "
        "sweeps, timed as turns that accept a step (slope, absorb, aim) and turns that do not (slope, step). The "
        f"paper's shares are those of the times that its driver prints: evaluations {DRIVER_MS['evaluation']:g} ms, "
        f"MCSRCH {DRIVER_MS['mcsrch']:g} ms (beside the turns that go on searching, though every turn calls it) and "
        f"the rest of l-bfgs {DRIVER_MS['l-bfgs'] - DRIVER_MS['mcsrch']:g} ms, of {DRIVER_MS['total']:g} ms.",
        "Figure 4 repeats Figure 2 on a second card, a GTX 560 Ti, for a gain that the text gives as 20 to 30 % in "
        "single and 30 to 50 % in double precision; runs on other machines are other files of this study.",
    ]


def _path(
    problem: problems.Problem, place: Place, threads: int | None, against: list[np.ndarray] | None
) -> tuple[list[dict[str, Any]], list[Any]]:
    """Run, noting every iteration; also its points or, given those of another run, how far they are from them."""
    rows: list[dict[str, Any]] = []
    seen: list[Any] = []

    def keep(optimizer: stepwell.LBFGSB) -> None:
        state = solver_state(optimizer)
        rows.append({"iteration": int(state["iterations"]), "nfn": int(state["evaluations"]), "f": float(state["f"]),
                     "gnorm": float(state["gradient_norm"]), "step": float(state["step"])})  # fmt: skip
        point = place.fetch(optimizer.accepted_point())
        if against is None:
            seen.append(point)
        elif len(seen) < len(against):
            other = against[len(seen)]
            seen.append(float(np.linalg.norm(point - other) / np.linalg.norm(other)))

    watch(problem.fun, problem.x0, None, place, after=keep, threads=threads, **SETTINGS_VA15)
    return rows, seen


def _paths(context: Context, study: Study, n: int) -> None:
    """Figure 1: the relative difference of the iterates."""
    context.tell("Rosenbrock, one core")
    rows, single = _path(problems.get("rosenbrock", n=n), Place(), 1, None)
    differences: dict[str, list[float]] = {}
    for place in context.places:
        context.tell(f"Rosenbrock, {place.label}")
        _, far = _path(problems.get("rosenbrock", n=n, **place.arrays), place, None, single)
        differences["gpu_difference" if place.gpu else "threads_difference"] = far
    del single
    title = f"Figure 1 and the driver's output: Rosenbrock, n = {n:,}, m = {M}"
    printed = study.table("driver", title, DIFFERENCES)
    every = study.table("iterates", f"{title}, all iterations", DIFFERENCES, detail=True)
    for k, row in enumerate(rows):
        cells = {**row, **{key: values[k] if k < len(values) else None for key, values in differences.items()}}
        if n == 1_000_000 and row["iteration"] in DRIVER:
            cells |= dict(zip(("nfn_paper", "f_paper", "gnorm_paper", "step_paper"), DRIVER[row["iteration"]]))
        every.add(**cells)
        if row["iteration"] in DRIVER:
            printed.add(**cells)
    plot = study.plot(
        "difference", "Relative difference of the iterates from a run on one core (Figure 1)", "iteration",
        "‖x − x₁‖ / ‖x₁‖", log_y=True,
    )  # fmt: skip
    for key, values in differences.items():
        label = "GPU" if key == "gpu_difference" else f"{default_threads()} threads"
        plot.curves.append(Curve(label, list(range(1, len(values) + 1)), values))
    if n == 1_000_000:
        alike = all(_alike(row, DRIVER[row["iteration"]]) for row in rows if row["iteration"] in DRIVER)
        study.remarks.append(
            f"The driver's output, {len(DRIVER)} iterations of it in print, is {'' if alike else 'not '}repeated to "
            "every digit: evaluations, f, ‖g‖ and step."
        )
    if by_gpu := differences.get("gpu_difference"):
        worst = int(np.argmax(by_gpu))
        study.remarks.append(
            f"The GPU's iterates are at most {by_gpu[worst]:.1e} from those of one core, in iteration {worst + 1} "
            "(the paper sees a slight loss of accuracy between iterations 30 and 35)."
        )
    if not any(differences["threads_difference"]):
        study.remarks.append(
            "Runs on one core and on all cores agree to the last bit: sums are taken in a fixed order."
        )


def _alike(row: dict[str, Any], printed: tuple[float, ...]) -> bool:
    """Whether an iteration shows the digits that the driver printed."""
    ours = (row["f"], row["gnorm"], row["step"])
    return row["nfn"] == printed[0] and all(f"{a:.6e}" == f"{b:.6e}" for a, b in zip(ours, printed[1:]))


def _solve(problem: problems.Problem, threads: int | None, place: Place, **changed: Any) -> tuple[Any, float]:
    """Run and take the seconds, after two iterations that compile, load libraries and touch memory."""
    options: Any = {**SETTINGS_VA15, "maxcor": M, "threads": threads, **changed}
    del options["m"]
    stepwell.minimize(problem.fun, problem.x0, jac=True, options=options | {"maxiter": 2})
    place.wait()
    start = time.perf_counter()
    result = stepwell.minimize(problem.fun, problem.x0, jac=True, options=options)
    place.wait()
    return result, time.perf_counter() - start


def _speed(context: Context, study: Study, sizes: list[int]) -> None:
    """Figures 2 and 4: whole runs."""
    table = study.table("speed", "Figure 2: whole runs of the Rosenbrock function", SPEED)
    for dtype in ("float64", "float32"):
        for n in sizes:
            base = None
            for place, threads in [(Place(), 1), *((place, None) for place in context.places)]:
                label = "one core" if threads == 1 else place.short
                context.tell(f"Rosenbrock, n = {n:,}, {dtype}, {label}")
                result, seconds = _solve(problems.get("rosenbrock", n=n, dtype=dtype, **place.arrays), threads, place)
                base = seconds if threads == 1 else base
                table.add(
                    n=n, dtype=dtype, device=label, iterations=result.nit, evaluations=result.nfev, seconds=seconds,
                    speedup=base / seconds if base and threads != 1 else None,
                    speedup_paper=SPEEDUP[dtype] if place is context.places[-1] else None, f=result.fun,
                    status=result.reason.name,
                )  # fmt: skip
                del result
    plot = study.plot(
        "speedup", "Speed-up over one core (Figure 2)", "variables", "times as fast", log_x=True, log_y=False
    )
    for place in context.places:
        for dtype in ("float64", "float32"):
            rows = table.find(device=place.short, dtype=dtype)
            plot.curves.append(Curve(f"{place.label}, {dtype}", [r["n"] for r in rows], [r["speedup"] for r in rows]))
    if context.places[-1].gpu:
        for dtype, least in SPEEDUP.items():
            label = f"Tesla C1060, {dtype}, more than (paper)"
            plot.curves.append(Curve(label, [min(sizes), max(sizes)], [least, least], paper=True))


def _shares(context: Context, study: Study, n: int) -> None:
    """Figure 3: where the time goes."""
    table = study.table("shares", f"Figure 3: shares of a run, Rosenbrock, n = {n:,}, m = {M}", SHARES)
    total = DRIVER_MS["total"]
    paper = {
        "evaluation": DRIVER_MS["evaluation"] / total,
        "turns that go on searching": DRIVER_MS["mcsrch"] / total,
        "turns that accept": (DRIVER_MS["l-bfgs"] - DRIVER_MS["mcsrch"]) / total,
    }
    for place in context.places:
        context.tell(f"shares, {place.label}")
        problem = problems.get("rosenbrock", n=n, **place.arrays)
        watch(problem.fun, problem.x0, None, place, **(SETTINGS_VA15 | {"maxiter": 3}))
        seen = watch(problem.fun, problem.x0, None, place, **SETTINGS_VA15)
        parts = {
            "evaluation": sum(seen.evaluation),
            "turns that go on searching": sum(seen.rejected_turns),
            "turns that accept": sum(seen.accepted_turns),
        }
        whole = sum(parts.values())
        for name, seconds in parts.items():
            table.add(part=name, device=place.short, milliseconds=1e3 * seconds, share=100 * seconds / whole,
                      share_paper=100 * paper[name] if place is context.places[-1] else None)  # fmt: skip
    plot = study.plot("shares", "Shares of a run (Figure 3)", "", "per cent", bars=list(paper))
    for place in context.places:
        rows = table.find(device=place.short)
        plot.curves.append(Curve(place.label, [0, 1, 2], [row["share"] for row in rows]))
    plot.curves.append(Curve("Tesla C1060 (paper)", [0, 1, 2], [100 * share for share in paper.values()], paper=True))


def _functions(context: Context, study: Study, n: int) -> None:
    """Run the other four functions, and the stopping example: extended Powell."""
    table = study.table("functions", "The other functions, and the stopping criteria", FUNCTIONS)
    powell = "the third criterion, maxfev"
    runs: list[tuple[str, int, float, str | None]] = [
        ("beale", M, EPS, None),
        ("wood", M, EPS, None),
        ("trigonometric", M, EPS, None),
        ("powell", M, EPS, powell),
        ("powell", M, 1e-4, "eps raised, as advised"),
        ("powell", 20, EPS, "m raised, as advised"),
    ]
    for name, m, eps, paper in runs:
        for place in context.places:
            context.tell(f"{name}, {place.label}")
            problem = problems.get(name, n=n, **place.arrays)
            result, seconds = _solve(problem, None, place, relative_gtol=eps, maxcor=m)
            size = float(np.linalg.norm(place.fetch(result.x)))
            table.add(
                function=name, n=n, device=place.short, m=m, eps=eps, iterations=result.nit, evaluations=result.nfev,
                f=result.fun, gnorm=float(np.linalg.norm(place.fetch(result.jac))), limit=eps * max(1.0, size),
                seconds=seconds, status=result.reason.name, paper=paper,
            )  # fmt: skip
    first = table.find(function="powell", m=M, eps=EPS)[0]
    study.remarks.append(
        f"Extended Powell with the paper's settings, n = {n:,}: the paper's run (n = 1,000,000) ends by its third "
        f"criterion, more than 20 evaluations in one search; ours ends with {first['status']} after "
        f"{first['iterations']} iterations and {first['evaluations']} evaluations."
    )
