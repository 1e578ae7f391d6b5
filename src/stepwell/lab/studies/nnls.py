"""Tables 7.1 to 7.3 of Luo & Duraiswami (2011): many non-negative least-squares systems, beside SciPy and L-BFGS-B."""

from __future__ import annotations

import time
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import nnls as scipy_nnls

import stepwell
from stepwell.arrays import namespace_of
from stepwell.arrays.places import Place
from stepwell.lab.studies import cases
from stepwell.lab.studies.frame import Column, Context, Curve, Study, Table
from stepwell.lab.studies.measure import blas_threads

#: Tables 7.1 to 7.3, seconds on two quad-core Xeon X5560 and a Tesla C2050. Systems -> updates, downdates, GPU NNLS,
#: CPU NNLS, CPU lsqnonneg, Matlab lsqnonneg, Matlab FNNLS, Matlab interior points, Matlab PQN-NNLS.
PAPER: dict[str, dict[int, tuple[float, ...]]] = {
    "7.1 lidar deconvolution 432": {
        1: (108, 14, 0.2172, 0.0186, 0.0770, 0.1342, 0.0493, 8.3642, 1.4161),
        24: (1477, 220, 0.2238, 0.1636, 0.7163, 1.1236, 0.5936, 135.7896, 138.2953),
        48: (2806, 406, 0.2356, 0.2990, 1.2908, 2.0152, 1.1135, 261.3665, 217.6929),
        96: (5695, 834, 0.4508, 0.5989, 2.6225, 4.1268, 2.2639, 528.4468, 479.9867),
        192: (12067, 1839, 0.7203, 1.2489, 5.5460, 8.7176, 4.6148, 1082.8714, 862.9674),
    },
    "7.2 mean-shifted Gaussians 512": {
        1: (165, 92, 0.4257, 0.0654, 0.4791, 0.9437, 0.4937, 1.6317, 3.1106),
        24: (3907, 2109, 0.5094, 1.2238, 8.7611, 19.5904, 11.7176, 40.7017, 128.6616),
        48: (7792, 4196, 0.9546, 2.4141, 17.2483, 38.6469, 23.9502, 83.9788, 253.3796),
        96: (15541, 8362, 1.7862, 4.8067, 34.5396, 77.1072, 47.4635, 164.4839, 504.3153),
        192: (30966, 16599, 3.2672, 9.6250, 69.4889, 155.7700, 91.4500, 328.9569, 989.2051),
    },
    "7.3 random 512": {
        1: (52, 0, 0.1194, 0.0068, 0.0223, 0.0330, 0.0248, 0.4480, 1.5935),
        24: (1169, 13, 0.1397, 0.1157, 0.4665, 0.8096, 0.5902, 10.7729, 55.8196),
        48: (2361, 28, 0.2526, 0.2245, 0.8959, 1.5583, 1.1602, 21.1767, 110.0892),
        96: (4766, 58, 0.4875, 0.4352, 1.7269, 3.0097, 2.2920, 41.9441, 221.7277),
        192: (9525, 124, 0.8667, 0.8794, 3.5243, 6.1627, 4.6022, 83.6695, 441.7190),
    },
}
SETS: dict[str, Callable[..., cases.Systems]] = dict(zip(PAPER, (cases.lidar, cases.gaussians, cases.uniform)))
#: Most iterations of L-BFGS-B on these systems, of which some have condition 1e8 and more.
LBFGSB_ITERATIONS = 500
SHOTS = "real GEDI shots 512"

COLUMNS = (
    Column("set", "systems"),
    Column("systems", "number", ","),
    Column("method", "method"),
    Column("seconds", "seconds", ".4g"),
    Column("solved", "scaled from", ","),
    Column("updates", "updates", ","),
    Column("downdates", "downdates", ","),
    Column("violation", "worst KKT violation", ".1e"),
    Column("failed", "not converged", ","),
    Column("updates_paper", "updates", ",", paper=True),
    Column("downdates_paper", "downdates", ",", paper=True),
    Column("seconds_paper", "seconds", ".4f", paper=True),
)
#: The Matlab baselines of the paper, at the places they have in `PAPER`.
_BASELINES = {
    "CPU lsqnonneg": 4,
    "Matlab lsqnonneg": 5,
    "Matlab FNNLS": 6,
    "Matlab interior points": 7,
    "Matlab PQN": 8,
}
BASELINES = (
    Column("set", "systems"),
    Column("systems", "number", ","),
    *(Column(name.lower().replace(" ", "_"), f"{name}, s", ".4f", paper=True) for name in _BASELINES),
)


def run(context: Context, study: Study) -> None:
    """Run every set and number of systems by every method."""
    counts = context.pick(toy=[2], default=[1, 24], full=[1, 24, 48, 96, 192])
    size = context.pick(toy=64, default=None, full=None)
    study.settings |= {
        "SciPy": "loop, the better of one BLAS thread and its default",
        "L-BFGS-B": f"gtol 1e-10 ‖A‖‖b‖, {LBFGSB_ITERATIONS} iterations",
    }
    table = study.table("systems", "Tables 7.1 to 7.3: seconds for all systems", COLUMNS)
    for title, make in SETS.items():
        for count in counts:
            A, b = make(count) if size is None else make(count, size)
            # Titles end in the paper's size.
            label = title if size is None else f"{title.rpartition(' ')[0]} {size}"
            _compare(context, table, label, A, b, PAPER[title].get(count) if size is None else None)
    baselines = study.table("baselines", "The paper's other baselines, for reference", BASELINES)
    for title, rows in PAPER.items():
        for count, row in rows.items():
            if count in counts:
                named = {name.lower().replace(" ", "_"): row[at] for name, at in _BASELINES.items()}
                baselines.add(set=title, systems=count, **named)
    _real(context, study, table)
    _draw(study, table, counts)
    early = [row for row in table.rows if row["method"].startswith("L-BFGS-B") and not row["failed"]]
    worst = max((row["violation"] for row in early if row["violation"] is not None), default=0.0)
    if worst > 1e-4:
        study.remarks.append(
            f"L-BFGS-B counts as converged what no longer falls: its worst violation in such a set is {worst:.1e}."
        )
    study.differs += [
        "Table 7.1's LVIS waveforms are not at hand; synthetic shots with pulses 25 samples wide and twelve returns "
        "take their place, and real GEDI shots stand beside where their file is found.",
        "Updates and downdates are those of Lawson and Hanson's rule, one column at a time (method qr, insertion "
        "single), as in the paper; the default inserts several columns per step.",
        "The paper's tables say nothing of optimality; the worst scaled violation is recomputed here from A, b and x.",
        "The Matlab baselines cannot be had; SciPy's nnls and L-BFGS-B on min ½‖Ax − b‖², x >= 0, stand in for them.",
        "The paper's seconds are of two quad-core Xeon X5560 (CPU NNLS) and a Tesla C2050 (GPU NNLS).",
        "The paper's kernels are written for single precision (its algorithm 4); ours work in double precision.",
    ]


def _sampled(context: Context, most: int) -> int:
    """How many systems the slow baselines solve, to be scaled."""
    return context.pick(toy=2, default=min(most, 6), full=most)


def _compare(
    context: Context,
    table: Table,
    title: str,
    A: np.ndarray,
    b: np.ndarray,
    paper: tuple[float, ...] | None,
    operator: Any = None,
) -> None:
    """One set of systems by every method; `operator` is a structured form of A."""
    count = len(b)

    def add(method: str, seconds: float, x: Any, result: Any = None, failed: int = 0, **more: Any) -> None:
        counts = (
            {} if result is None else {"updates": int(result.insertions.sum()), "downdates": int(result.removals.sum())}
        )
        table.add(set=title, systems=count, method=method, seconds=seconds, failed=failed,
                  violation=None if x is None else cases.worst_violation(A, b, x), **counts, **more)  # fmt: skip

    for place in context.places:
        matrix, right = place.put(A), place.put(b)
        ways: dict[str, tuple[Any, dict[str, Any]]] = {
            "paper's (qr, single)": (matrix, {"method": "qr", "insertion": "single"}), "default": (matrix, {}),
        }  # fmt: skip
        if operator is not None:
            ways["default, Convolution"] = (_placed(operator, place), {})
        for name, (target, how) in ways.items():
            context.tell(f"{title}, {count} systems, {place.short}, {name}")
            result, seconds = _solve(target, right, place, how)
            ours = {}
            if paper is not None and name.startswith("paper's"):
                ours = dict(
                    updates_paper=paper[0], downdates_paper=paper[1], seconds_paper=paper[2 if place.gpu else 3]
                )
            add(f"Stepwell {place.short}, {name}", seconds, place.fetch(result.x), result,
                int((place.fetch(result.status) != 0).sum()), **ours)  # fmt: skip
    context.tell(f"{title}, {count} systems, SciPy")
    some = min(count, _sampled(context, 24))
    add("SciPy nnls, loop", *_scipy(A, b, some), solved=some if some < count else None)
    for place in context.places:
        context.tell(f"{title}, {count} systems, L-BFGS-B, {place.short}")
        some = count if place.gpu else min(count, _sampled(context, 8))
        x, seconds, failed = _by_lbfgsb(place.put(A if A.ndim == 2 else A[:some]), place.put(b[:some]), place)
        whole = x if some == count else None
        add(
            f"L-BFGS-B {place.short}",
            seconds * count / some,
            whole,
            failed=failed,
            solved=some if some < count else None,
        )


def _placed(operator: stepwell.Convolution, place: Place) -> stepwell.Convolution:
    return stepwell.Convolution(place.put(np.asarray(operator.pulse)), operator.n, origin=operator.origin)


def _solve(A: Any, b: Any, place: Place, how: dict[str, Any]) -> tuple[Any, float]:
    """Solve once to compile and warm up, then take the better of two calls."""
    result, best = stepwell.nnls(A, b, **how), np.inf
    for _ in range(2):
        place.wait()
        start = time.perf_counter()
        result = stepwell.nnls(A, b, **how)
        place.wait()
        best = min(best, time.perf_counter() - start)
    return result, best


def _scipy(A: np.ndarray, b: np.ndarray, some: int) -> tuple[float, np.ndarray | None]:
    """Seconds of a loop over SciPy, scaled to all systems; and x where all were solved."""
    best, x = np.inf, []
    for threads in (1, None):
        with blas_threads(threads):
            start = time.perf_counter()
            x = [scipy_nnls(A[s] if A.ndim == 3 else A, b[s], maxiter=100 * A.shape[-1])[0] for s in range(some)]
            best = min(best, time.perf_counter() - start)
    return best * len(b) / some, np.array(x) if some == len(b) else None


def _by_lbfgsb(A: Any, b: Any, place: Place) -> tuple[np.ndarray, float, int]:
    """Solve min ½‖Ax − b‖², x >= 0, as a batch of bounded problems."""
    xp = namespace_of(b)
    largest = np.linalg.norm(place.fetch(A), axis=(-2, -1)).max() * np.linalg.norm(place.fetch(b), axis=1).max()

    def fun(x: Any) -> tuple[Any, Any]:
        if A.ndim == 2:
            residual = x @ A.T - b
            return xp.sum(residual * residual, axis=1) / 2, residual @ A
        residual = xp.matmul(A, x[:, :, None])[:, :, 0] - b
        return xp.sum(residual * residual, axis=1) / 2, xp.matmul(residual[:, None, :], A)[:, 0, :]

    options: Any = {"maxiter": LBFGSB_ITERATIONS, "maxfun": 2 * LBFGSB_ITERATIONS, "ftol": 1e-15}
    options["gtol"] = 1e-10 * float(largest)

    def solve(**changed: Any) -> Any:
        start = place.put(np.zeros((len(b), A.shape[-1])))
        return stepwell.minimize_batch(fun, start, jac=True, bounds=(0.0, np.inf), options=options | changed)

    solve(maxiter=2)  # compiles, loads libraries and touches memory
    place.wait()
    start = time.perf_counter()
    result = solve()
    place.wait()
    return place.fetch(result.x), time.perf_counter() - start, int((~np.asarray(result.success)).sum())


def _real(context: Context, study: Study, table: Table) -> None:
    """Real lidar shots, where their file is found."""
    path = cases.find_gedi()
    if path is None:
        study.remarks.append(
            "Real GEDI shots were skipped: gedi_l1b_150shots.npz is neither in $STEPWELL_DATA nor in a folder "
            "shared/data beside the checkout."
        )
        return
    try:
        matrix, b = cases.gedi(path, context.pick(toy=2, default=24, full=150))
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        study.remarks.append(f"Real GEDI shots were skipped: {path} cannot be read: {error}")
        return
    _compare(context, table, SHOTS, matrix.dense(), b, None, operator=matrix)


def _draw(study: Study, table: Table, counts: list[int]) -> None:
    count = counts[-1]
    methods = list(dict.fromkeys(row["method"] for row in table.rows if not row["method"].startswith("L-BFGS-B")))
    sets = list(dict.fromkeys(row["set"] for row in table.rows))
    shots = {row["systems"] for row in table.find(set=SHOTS)}
    labels = [f"{next(iter(shots))} {name}" if name == SHOTS else name for name in sets]
    title = f"Seconds for {count} systems (Tables 7.1 to 7.3)"
    plot = study.plot("seconds", title, "", "seconds", log_y=True, bars=labels)
    for method in methods:
        rows = {
            row["set"]: row["seconds"]
            for row in table.find(method=method)
            if row["systems"] == count or row["set"] == SHOTS
        }
        plot.curves.append(Curve(method, list(range(len(sets))), [rows.get(name) for name in sets]))
    for label, at in (("Tesla C2050 (paper)", 2), ("8 Xeon cores (paper)", 3)):
        values = [PAPER[name][count][at] if name in PAPER and count in PAPER[name] else None for name in sets]
        if any(values):
            plot.curves.append(Curve(label, list(range(len(sets))), values, paper=True))
