"""Table 4 and Figure 9 of Fei et al. (2014): elastic-plastic torsion from 400 to 4,000,000 variables."""

from __future__ import annotations

from typing import Any

from stepwell.arrays.places import Place
from stepwell.lab import problems
from stepwell.lab.studies.frame import RUN_SECONDS, Column, Context, Curve, Study, Table
from stepwell.lab.studies.measure import slope
from stepwell.lab.studies.stepping import Watched, watch

#: Table 4, milliseconds on a Xeon W5590 and a GTX 580. Side of the grid -> evaluation; CPU: mean t*, iterations,
#: L-BFGS-B an iteration; GPU: mean t^c, iterations, L-BFGS-B an iteration; speed-up; energy difference.
PAPER = {
    20: (0.02, 0.26, 52, 0.20, 0.25, 49, 1.17, 0.17, -9.99e-15),
    40: (0.06, 0.26, 133, 0.93, 0.26, 105, 1.41, 0.66, -9.99e-16),
    60: (0.14, 0.26, 144, 1.34, 0.27, 155, 1.50, 0.89, 1.20e-14),
    80: (0.25, 0.26, 193, 2.29, 0.26, 199, 1.60, 1.43, -6.90e-14),
    100: (0.39, 0.26, 241, 3.59, 0.26, 237, 1.92, 1.87, 3.00e-14),
    200: (1.53, 0.24, 549, 15.09, 0.24, 464, 3.27, 4.61, -1.91e-13),
    400: (5.91, 0.17, 921, 117.74, 0.18, 1035, 8.17, 14.41, -1.85e-12),
    600: (13.11, 0.08, 1272, 220.40, 0.09, 1315, 15.27, 14.43, 2.44e-12),
    800: (23.12, 0.07, 1685, 427.75, 0.08, 1793, 24.23, 17.65, 3.98e-12),
    1000: (36.07, 0.08, 2310, 782.62, 0.08, 1907, 36.61, 21.38, 7.86e-12),
    1200: (51.29, 0.07, 2915, 1473.86, 0.09, 2636, 51.50, 28.62, 8.78e-12),
    1500: (79.62, 0.09, 2917, 2200.41, 0.10, 3213, 78.58, 28.00, -4.52e-12),
    2000: (141.09, 0.09, 4197, 3351.68, 0.10, 3971, 137.16, 24.44, 5.88e-11),
}

#: Figure 9: milliseconds an iteration for every variable, and the policy that each device has in the paper.
PAPER_SLOPES = {"CPU": 8.75e-4, "GPU": 3.03e-5}
_SHOWN = {"CPU": "exact", "GPU": "first-interval"}

COLUMNS = (
    Column("size", "size", ","),
    Column("device", "device"),
    Column("policy", "Cauchy point"),
    Column("evaluation_ms", "evaluation, ms", ".3g"),
    Column("t", "mean t", ".2f"),
    Column("iterations", "iterations", ","),
    Column("solver_ms", "L-BFGS-B, ms", ".3g"),
    Column("speedup", "over the CPU, exact", ".2f"),
    Column("energy", "final energy", ".12f"),
    Column("policy_difference", "energy − exact, same device", ".2e"),
    Column("energy_difference", "energy − exact on the CPU", ".2e"),
    Column("status", "ended by"),
    Column("evaluation_ms_paper", "evaluation, ms", ".2f", paper=True),
    Column("t_paper", "mean t", ".2f", paper=True),
    Column("iterations_paper", "iterations", ",", paper=True),
    Column("solver_ms_paper", "L-BFGS-B, ms", ".2f", paper=True),
    Column("speedup_paper", "over the CPU, exact", ".2f", paper=True),
    Column("energy_difference_paper", "energy difference", ".2e", paper=True),
)

M, GTOL, FTOL = 8, 0.0, 2.2e-16
SETTINGS = (RUN_SECONDS,)


def run(context: Context, study: Study) -> None:
    """Run every size: the exact Cauchy point and the first-interval one, on every device."""
    sides = context.pick(toy=[20, 40], default=[20, 40, 60, 80, 100, 200, 400], full=list(PAPER))
    limit = context.run_seconds(toy=10.0, default=15.0, full=600.0)
    study.settings |= {"m": M, "gtol": GTOL, "ftol": FTOL, "c": 5.0, "run_seconds": limit}
    table = study.table("torsion", "Table 4: elastic-plastic torsion", COLUMNS)
    for side in sides:
        reference: Watched | None = None
        for place in context.places:
            exact: Watched | None = None
            for policy in ("exact", "first-interval"):
                context.tell(f"{side * side:,} variables, {place.label}, {policy}")
                seen = _solve(side, place, policy, limit)
                exact = exact or seen
                reference = reference or seen
                paper = PAPER[side][4:7] if policy == "first-interval" else PAPER[side][1:4]
                theirs = policy == "first-interval"
                table.add(
                    size=side * side,
                    device=place.short,
                    policy=policy,
                    evaluation_ms=seen.evaluation_ms,
                    t=seen.cauchy_time,
                    iterations=seen.nit,
                    solver_ms=seen.solver_ms,
                    speedup=reference.solver_ms / seen.solver_ms if seen is not reference else None,
                    energy=seen.fun,
                    policy_difference=_difference(seen, exact),
                    energy_difference=_difference(seen, reference),
                    status=seen.status,
                    evaluation_ms_paper=PAPER[side][0],
                    t_paper=paper[0],
                    iterations_paper=paper[1],
                    solver_ms_paper=paper[2],
                    speedup_paper=PAPER[side][7] if theirs else None,
                    energy_difference_paper=PAPER[side][8] if theirs else None,
                )
    _draw(context, study)
    study.remarks += _slopes(context, table)
    study.differs += [
        "The paper stops when the energy falls by less than 1e-64, which in double precision means not at all; here a "
        f"run stops when it falls by less than {FTOL:g} times max(|f|, 1).",
        "The paper's evaluation ran on the CPU for both solvers and its GPU times include the transfers; here points "
        "and gradients stay where the solver runs, and evaluation and solver are timed apart.",
        "The paper's CPU column is the Fortran code with the exact Cauchy point, its GPU column the first-interval "
        "one; here both policies run on every device.",
        "Milliseconds are medians over the iterations of a run.",
    ]
    cut = [row for row in table.rows if row["status"] == "TIME_LIMIT"]
    if cut:
        study.remarks.append(
            f"{len(cut)} runs were stopped by the time limit, the smallest at {cut[0]['size']:,} variables: their "
            "times an iteration stand, their energies are not final."
        )


def _slopes(context: Context, table: Table) -> list[str]:
    """Figure 9 in numbers: the paper takes its curves for lines."""
    lines = []
    for place in context.places:
        rows = table.find(device=place.short, policy=_SHOWN[place.short])
        ours = slope([row["size"] for row in rows], [row["solver_ms"] for row in rows])
        lines.append(
            f"Figure 9: on the {place.short} L-BFGS-B ({_SHOWN[place.short]}) takes {ours:.2e} ms an iteration more "
            f"for every variable (paper: {PAPER_SLOPES[place.short]:.2e}, without transfers)."
        )
    return lines


def _difference(seen: Watched, reference: Watched) -> float | None:
    """How far two final energies are apart; None for a run itself, and where one did not end."""
    ended = "TIME_LIMIT" not in (seen.status, reference.status)
    return seen.fun - reference.fun if ended and seen is not reference else None


def _solve(side: int, place: Place, policy: str, limit: float) -> Watched:
    problem = problems.get("torsion", nx=side, ny=side, c=5.0, **place.arrays)
    settings: dict[str, Any] = dict(m=M, gtol=GTOL, ftol=FTOL, cauchy=policy, maxiter=20_000, maxfun=40_000)
    if place.gpu:  # compile and warm up
        watch(problem.fun, problem.x0, problem.bounds, place, **(settings | {"maxiter": 3}))
    return watch(problem.fun, problem.x0, problem.bounds, place, limit=limit, **settings)


def _draw(context: Context, study: Study) -> None:
    table = study.find_table("torsion")
    plot = study.plot(
        "iteration", "Time of one L-BFGS-B iteration (Figure 9)", "variables", "milliseconds", log_x=True, log_y=True
    )
    for place in context.places:
        rows = table.find(device=place.short, policy=_SHOWN[place.short])
        plot.curves.append(Curve(place.label, [row["size"] for row in rows], [row["solver_ms"] for row in rows]))
    sides = [side for side in PAPER if side * side <= max(row["size"] for row in table.rows)]
    for label, at in (("Xeon W5590 (paper)", 3), ("GTX 580 (paper)", 6)):
        plot.curves.append(Curve(label, [s * s for s in sides], [PAPER[s][at] for s in sides], paper=True))
