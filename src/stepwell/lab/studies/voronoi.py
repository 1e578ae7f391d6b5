"""Table 2 and Figures 5 to 8 of Fei et al. (2014): centroidal Voronoi tessellation by L-BFGS-B."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stepwell.apps.voronoi import HEXAGONAL_BOUND, VoronoiEnergy, draw_sites
from stepwell.apps.voronoi.mesh import Mesh, delaunay_mesh
from stepwell.apps.voronoi.quality import mesh_quality
from stepwell.arrays.places import Place
from stepwell.lab.studies.frame import RUN_SECONDS, Column, Context, Curve, Study, Table
from stepwell.lab.studies.measure import slope
from stepwell.lab.studies.stepping import Case, Watched, solver_state, watch

#: Table 2, milliseconds an iteration on a Xeon W5590 and a GTX 580. (Sites, resolution) -> evaluation on the GPU;
#: CPU: iterations, L-BFGS-B, of it transfers; GPU: iterations, L-BFGS-B; speed-up; energy difference GPU − CPU.
PAPER = {
    (200, 512): (2.39, 53, 0.65, 0.38, 59, 1.09, 0.60, -4.79e-05),
    (500, 512): (2.38, 56, 1.02, 0.38, 56, 1.13, 0.90, 0.0),
    (1000, 1024): (8.70, 74, 1.81, 0.51, 74, 1.16, 1.56, 0.0),
    (2000, 1024): (8.76, 61, 3.37, 0.74, 61, 1.24, 2.72, 0.0),
    (4000, 1024): (8.85, 48, 6.21, 1.12, 48, 1.33, 4.67, 0.0),
    (4000, 2048): (41.38, 106, 6.51, 1.18, 106, 1.40, 4.65, 0.0),
    (6000, 2048): (41.84, 89, 11.2, 1.53, 71, 1.53, 7.32, 3.79e-07),
    (8000, 2048): (41.87, 76, 12.61, 1.92, 72, 1.60, 7.88, -3.38e-08),
    (10000, 2048): (41.92, 69, 15.48, 2.27, 69, 1.71, 9.05, 0.0),
    (20000, 2048): (42.43, 45, 30.09, 4.05, 55, 2.19, 13.74, -2.31e-08),
    (40000, 2048): (43.96, 34, 74.18, 9.19, 34, 3.18, 23.33, 0.0),
    (60000, 2048): (44.97, 28, 112.07, 12.81, 28, 4.06, 27.60, 0.0),
}
#: Sites and resolutions of the paper, from small to large.
SIZES = list(PAPER)
#: Figure 6: milliseconds that L-BFGS-B takes more for every site, as the text states them.
PAPER_SLOPES = {"CPU": 1.61e-3, "GPU": 8.03e-5}

COLUMNS = (
    Column("sites", "sites", ","),
    Column("resolution", "resolution", ","),
    Column("device", "device"),
    Column("iterations", "iterations", ","),
    Column("evaluations", "evaluations", ","),
    Column("evaluation_ms", "evaluation, ms", ".3g"),
    Column("solver_ms", "L-BFGS-B, ms", ".3g"),
    Column("speedup", "L-BFGS-B over the CPU's", ".2f"),
    Column("energy", "F n/|Ω|²", ".8f"),
    Column("over_bound", "over the bound 0.160375", ".4f"),
    Column("difference", "GPU − CPU, relative", ".1e"),
    Column("status", "ended by"),
    Column("iterations_paper", "iterations", ",", paper=True),
    Column("evaluation_paper", "evaluation, ms", ".2f", paper=True),
    Column("solver_paper", "L-BFGS-B, ms", ".2f", paper=True),
    Column("speedup_paper", "L-BFGS-B over the CPU's", ".2f", paper=True),
    Column("difference_paper", "GPU − CPU", ".2e", paper=True),
)
QUALITY = (
    Column("sites", "sites", ","),
    Column("device", "device"),
    Column("stage", "sites are"),
    Column("angle_min", "smallest angle, minimum", ".2f"),
    Column("angle_mean", "smallest angle, mean", ".2f"),
    Column("q_min", "Q, minimum", ".3f"),
    Column("q_mean", "Q, mean", ".3f"),
    Column("regular", "six neighbours, %", ".1f"),
)

M, MAXITER, FTOL = 8, 200, 2.2e-16
SETTINGS = (RUN_SECONDS,)


def voronoi_case(sites: int, resolution: int, place: Place) -> Case:
    """Build the tessellation of the unit square by sites as drawn: F n, of the order of one, in the box of the domain.

    Examples
    --------
    >>> case = voronoi_case(20, 64, Place())
    >>> f, g = case.fun(case.x0)
    >>> case.n, bool(f > HEXAGONAL_BOUND), g.shape
    (40, True, (40,))
    """
    like = None if place.library == "numpy" else place.like
    energy = VoronoiEnergy(1.0, sites, resolution=resolution, scale=float(sites), like=like)
    start = draw_sites(sites, np.ones((resolution, resolution)), seed=0).ravel()
    low, high = np.zeros(2 * sites), np.ones(2 * sites)
    return Case(
        f"Voronoi {sites:,}, {resolution}²", 2 * sites, energy.fun, place.put(start), (place.put(low), place.put(high))
    )


def whole_energy(summed: float, sites: int, resolution: int) -> float:
    """Return F n/|Ω|² from its sum over pixel centres, which misses a sixth of a pixel's area in the mean distance².

    Examples
    --------
    >>> case = voronoi_case(1, 2, Place())  # one site in the middle of a square: 1/12 + 1/12
    >>> round(whole_energy(case.fun(np.array([0.5, 0.5]))[0], 1, 2), 12)
    0.166666666667
    """
    return summed + sites / (6 * resolution**2)


def run(context: Context, study: Study) -> None:
    """Tessellate at every size on every device; look at the largest one's mesh."""
    sizes = context.pick(toy=[(60, 64)], default=SIZES[:5], full=SIZES)
    limit = context.run_seconds(toy=5.0, default=20.0, full=600.0)
    study.settings |= {"m": M, "gtol": 0.0, "ftol": FTOL, "maxiter": MAXITER, "run_seconds": limit}
    table = study.table("tessellations", "Table 2: one iteration of a centroidal Voronoi tessellation", COLUMNS)
    histories: dict[str, list[float]] = {}
    last: dict[str, Watched] = {}
    shown = (20000, 2048) if (20000, 2048) in sizes else sizes[-1]  # Figures 5 and 7 are of 20,000 sites
    for sites, resolution in sizes:
        reference: Watched | None = None
        for place in context.places:
            context.tell(f"{sites:,} sites, {resolution}², {place.label}")
            case = voronoi_case(sites, resolution, place)
            values: list[float] = []
            seen = _tessellate(case, place, limit, values)
            values[:] = [whole_energy(value, sites, resolution) for value in values]
            reference = reference or seen
            _add(table, sites, resolution, place, seen, reference)
            if (sites, resolution) == shown:
                histories[place.label], last[place.short] = values, seen
    _meshes(context, study, last, shown[1])
    _draw(context, study, table, histories)
    study.remarks += [*_slopes(context, table), *_minima(table)]
    if shown in PAPER:
        for place in context.places:
            published = int(PAPER[shown][4 if place.gpu else 1])
            study.remarks += _beyond_paper(shown[0], place, histories[place.label], published)
    study.differs += [
        "The paper states neither its domain nor density nor start; here it is the unit square with density 1, one "
        "site drawn from each of n compact pieces of it (seed 0), and F is shown as F n/|Ω|², which no tessellation "
        "brings below 0.160375. Energies can be compared between our devices, not with the paper's.",
        f"The paper stops when F falls by less than 1e-64; here at a fall of {FTOL:g} max(F n, 1) or after {MAXITER} "
        "iterations.",
        "The paper assigns pixels to sites by jump flooding, which can err; here they are assigned exactly.",
        "The paper's CPU is a Xeon W5590, its GPU a GTX 580. Its CPU runs evaluate on the GPU, and their times of "
        "L-BFGS-B include the transfers; here each device does everything itself.",
        "Figure 5's numbers are in its picture, not in the text: minimum and mean of the smallest angle and Q of our "
        "meshes stand without the paper's.",
    ]


def _tessellate(case: Case, place: Place, limit: float, values: list[float]) -> Watched:
    settings: dict[str, Any] = dict(m=M, gtol=0.0, ftol=FTOL, maxiter=MAXITER, maxfun=4 * MAXITER)
    if place.gpu:  # compile and warm up
        watch(case.fun, case.x0, case.bounds, place, **(settings | {"maxiter": 3}))
    return watch(
        case.fun, case.x0, case.bounds, place, limit=limit,
        after=lambda optimizer: values.append(float(solver_state(optimizer)["f"])), **settings,
    )  # fmt: skip


def _add(table: Table, sites: int, resolution: int, place: Place, seen: Watched, reference: Watched) -> None:
    paper = PAPER.get((sites, resolution))
    published: dict[str, Any] = {}
    if paper is not None:
        published = {
            "iterations_paper": paper[4 if place.gpu else 1], "evaluation_paper": paper[0],
            "solver_paper": paper[5 if place.gpu else 2], "speedup_paper": paper[6] if place.gpu else None,
            "difference_paper": paper[7] if place.gpu else None,
        }  # fmt: skip
    energy = whole_energy(seen.fun, sites, resolution)
    complete = place.gpu and "TIME_LIMIT" not in (seen.status, reference.status)
    table.add(
        sites=sites, resolution=resolution, device=place.short, iterations=seen.nit, evaluations=seen.nfev,
        evaluation_ms=seen.evaluation_ms, solver_ms=seen.solver_ms,
        speedup=reference.solver_ms / seen.solver_ms if place.gpu else None, energy=energy,
        over_bound=energy / HEXAGONAL_BOUND, status=seen.status,
        difference=(seen.fun - reference.fun) / reference.fun if complete else None, **published,
    )  # fmt: skip


def _meshes(context: Context, study: Study, last: dict[str, Watched], resolution: int) -> None:
    """Figure 5: the quality of the dual mesh, before and after."""
    table = study.table("quality", "Figure 5: the dual mesh", QUALITY)
    for place in context.places:
        seen = last[place.short]
        sites = place.fetch(seen.x).reshape(-1, 2)
        start = draw_sites(len(sites), np.ones((resolution, resolution)), seed=0)
        for stage, points in (("as drawn", start), ("tessellated", sites)):
            mesh = delaunay_mesh(points)
            quality = mesh_quality(mesh)
            table.add(
                sites=len(points), device=place.short, stage=stage, angle_min=quality.angle_min,
                angle_mean=quality.angle_mean, q_min=quality.q_min, q_mean=quality.q_mean,
                regular=100 * quality.regular,
            )  # fmt: skip
        part = "the middle of " if len(sites) > 400 else ""
        title = f"The dual mesh, {part}{len(sites):,} sites, {place.label} (Figure 5)"
        study.plot(f"mesh-{place.short.lower()}", title, "", "", drawing=True).curves.append(_middle(mesh))


def _slopes(context: Context, table: Table) -> list[str]:
    """Figure 6 in numbers, where there are sites enough for a line."""
    lines = []
    for place in context.places:
        rows = table.find(device=place.short)
        if len(rows) > 1:
            ours = slope([row["sites"] for row in rows], [row["solver_ms"] for row in rows])
            lines.append(
                f"Figure 6: on the {place.short} L-BFGS-B takes {ours:.2e} ms an iteration more for every site (paper: "
                f"{PAPER_SLOPES[place.short]:.2e}, without transfers)."
            )
    return lines


def _minima(table: Table) -> list[str]:
    """Say how often the devices end in different minima."""
    ours = [row["difference"] for row in table.rows if row["difference"] is not None]
    if not ours:
        return []
    theirs = [paper[7] for paper in PAPER.values()]
    return [
        f"{np.count_nonzero(ours)} of {len(ours)} runs end at another energy on the GPU than on the CPU (paper: "
        f"{np.count_nonzero(theirs)} of {len(theirs)}): sums round differently, and in time the runs part."
    ]


def _beyond_paper(sites: int, place: Place, values: Sequence[float], published: int) -> list[str]:
    """Say what the iterations are worth that a run takes beyond the paper's."""
    if len(values) <= published:
        return []
    return [
        f"{place.short}, {sites:,} sites: after as many iterations as the paper's run takes, {published}, the energy "
        f"is {values[published - 1] / values[-1] - 1:.2%} above where it ends after {len(values)}."
    ]


def _middle(mesh: Mesh, most: int = 400) -> Curve:
    """Return the edges in the middle of the unit square, among about so many sites."""
    half = 0.5 * min(1.0, (most / len(mesh.sites)) ** 0.5)
    inside = np.all(np.abs(mesh.sites - 0.5) <= half, axis=1)
    x: list[float | None] = []
    y: list[float | None] = []
    for ends in mesh.sites[mesh.edges[inside[mesh.edges].all(axis=1)]].round(5).tolist():
        x += [ends[0][0], ends[1][0], None]
        y += [ends[0][1], ends[1][1], None]
    return Curve("edges", x, y)


def _draw(context: Context, study: Study, table: Table, histories: dict[str, list[float]]) -> None:
    names = {"solver": "Time of one L-BFGS-B iteration (Figure 6)", "total": "Total time of one iteration (Figure 8)"}
    for name, title in names.items():
        plot = study.plot(name, title, "sites", "milliseconds", log_x=True, log_y=True)
        for place in context.places:
            rows = table.find(device=place.short)
            extra = [row["evaluation_ms"] * row["evaluations"] / max(1, row["iterations"]) for row in rows]
            y = [row["solver_ms"] + (more if name == "total" else 0.0) for row, more in zip(rows, extra)]
            plot.curves.append(Curve(place.label, [row["sites"] for row in rows], y))
        shown = [size for size in SIZES if table.find(sites=size[0], resolution=size[1])]
        for label, at in (("Xeon W5590 (paper)", 2), ("GTX 580 (paper)", 5)):
            y = [PAPER[size][at] + (PAPER[size][0] if name == "total" else 0.0) for size in shown]
            plot.curves.append(Curve(label, [size[0] for size in shown], y, paper=True))
    plot = study.plot(
        "energy", "How the energy falls (Figure 7)", "iteration", "F n/|Ω|² over its bound, less 1", log_y=True
    )
    for label, values in histories.items():
        above = [value / HEXAGONAL_BOUND - 1 for value in values]
        plot.curves.append(Curve(label, list(range(1, len(values) + 1)), above))
