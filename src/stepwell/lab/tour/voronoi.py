"""Chapter: a centroidal Voronoi tessellation, beside Lloyd's iteration, and a picture drawn with dots."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from stepwell.apps.voronoi import HEXAGONAL_BOUND, Tessellation, assign, centroidal, draw_sites
from stepwell.apps.voronoi.drawing import cells_svg, dot_radii, stipples_svg
from stepwell.apps.voronoi.mesh import Mesh, delaunay_mesh, voronoi_cells
from stepwell.apps.voronoi.quality import mesh_quality, uniform_energy
from stepwell.apps.voronoi.shell import nautilus
from stepwell.lab.html import Block, Figure, Gallery, Series, Text, chart, svg_image
from stepwell.lab.tour.chapter import Account, Chapter, Clock, Comparison, Stage, duration

#: Sites, pixels along a side and iterations of the tessellation: for the tour, and for a quick one.
CELLS = ((800, 512, 100), (60, 64, 20))
#: Dots, pixels along the longer side and iterations of the drawing.
DOTS = ((9000, 800, 30), (200, 80, 8))
#: Cells by their number of neighbours: six is regular; five and seven come in pairs where rows of cells end.
COLOURS = {4: (0.55, 0.18, 0.10), 5: (0.88, 0.48, 0.22), 6: (0.96, 0.94, 0.89), 7: (0.29, 0.50, 0.71)}
_MORE, _BORDER = (0.12, 0.22, 0.39), (0.86, 0.85, 0.82)


def run(stage: Stage) -> Account:
    """Tessellate a square with L-BFGS-B and with Lloyd's iteration; stipple a picture."""
    first, blocks = _tessellate(stage)
    second, drawing = _stipple(stage)
    return Account([*first, *second], [*blocks, *drawing])


def _tessellate(stage: Stage) -> tuple[list[Comparison], list[Block]]:
    count, side, iterations = CELLS[stage.quick]
    density = np.ones((side, side))
    start = np.asarray(draw_sites(count, density, seed=1))
    stage.tell(f"{count:,} cells", 0.0)
    fast, seconds = _centroidal(stage, start, density, "lbfgsb", iterations, 0.0)
    stage.tell("the same by Lloyd's iteration", 0.2)
    slow, slow_seconds = _centroidal(stage, start, density, "lloyd", fast.evaluations, 0.2)
    sites = stage.place.fetch(fast.sites)
    exact, exact_slow = uniform_energy(sites), uniform_energy(stage.place.fetch(slow.sites))
    over, over_slow = exact / HEXAGONAL_BOUND - 1, exact_slow / HEXAGONAL_BOUND - 1
    reached = np.flatnonzero(np.minimum.accumulate(fast.history) <= np.min(slow.history))
    sooner = (
        f"L-BFGS-B has Lloyd's last energy after {reached[0] + 1} of its {fast.evaluations} evaluations"
        if len(reached)
        else f"Lloyd's last energy was not reached in {fast.evaluations} evaluations"
    )
    if len(reached):  # as many iterations as take it there, and no more
        seconds = _centroidal(stage, start, density, "lbfgsb", int(reached[0]) + 1, 0.4)[1]
    comparison = Comparison(
        f"tessellation, {count:,} sites, to Lloyd's energy of {slow.evaluations} evaluations",
        seconds,
        f"{sooner}; then {over:.1%} over that of hexagons, Lloyd {over_slow:.1%}",
        # No tessellation is below the bound; the border alone costs one of a few hundred cells some percent.
        0 <= over <= (0.25 if stage.quick else 0.08),
        "Lloyd's iteration",
        slow_seconds,
    )
    mesh = delaunay_mesh(sites)
    quality = mesh_quality(mesh)
    area = float(density.size) / max(density.shape) ** 2
    scale = count / area**2 / HEXAGONAL_BOUND
    curves = chart(
        [
            Series("L-BFGS-B", np.arange(1, len(fast.history) + 1), fast.history * scale - 1),
            Series("Lloyd", np.arange(1, len(slow.history) + 1), slow.history * scale - 1, 1, "dashed"),
        ],
        f"Energy above that of regular hexagons against evaluations: L-BFGS-B ends {over:.1%} above, Lloyd's iteration "
        f"{over_slow:.1%} above.",
        x_label="evaluations",
        y_label="energy / hexagons − 1",
        x_log=True,
        y_log=True,
    )
    picture = svg_image(
        cells_svg(voronoi_cells(sites), fills=_fills(mesh), line=0.25, ink="#6f6a60"),
        f"{count} cells that fill a square, {quality.regular:.0%} of those inside with six neighbours.",
    )
    blocks: list[Block] = [
        Text(
            f"Sites that are the centroids of their own cells: the minimum of the energy Σ ρ d² over all pixels, with "
            f"the density ρ and the distance d from a pixel to its site. Both methods start from the same {count:,} "
            f"sites and evaluate on {side} × {side} pixels. {sooner}. No tessellation can have less energy than "
            f"regular hexagons."
        ),
        Gallery(
            [
                Figure(
                    picture,
                    f"Cells by neighbours: pale six, orange five, blue seven, grey at the border. "
                    f"{quality.regular:.0%} of the inner cells have six. Smallest angle of the dual mesh "
                    f"{quality.angle_min:.0f}°, mean of the smallest {quality.angle_mean:.1f}°.",
                    paper=True,
                ),
                Figure(curves, "How far the energy is above that of as many regular hexagons."),
            ]
        ),
    ]
    return [comparison], blocks


def _stipple(stage: Stage) -> tuple[list[Comparison], list[Block]]:
    count, longest, iterations = DOTS[stage.quick]
    stage.tell("drawing a shell", 0.4)
    picture = nautilus(longest)
    darkness = picture.darkness()
    # Sites end up as densely as the square root of their density.
    weights = darkness**2
    start = np.asarray(draw_sites(count, weights, seed=1))
    done, seconds = _centroidal(stage, start, weights, "lbfgsb", iterations, 0.4)
    sites, owners = stage.place.fetch(done.sites), stage.place.fetch(done.owners)
    stage.tell("nearest sites", 0.9)
    shape = picture.shape
    there = stage.place.put(sites)
    with Clock() as clock:
        found = assign(there, shape)
        stage.place.wait()
    nearest = stage.place.fetch(found.owners).ravel()
    rows, columns = np.mgrid[0 : shape[0], 0 : shape[1]]
    centres = np.stack([columns.ravel() + 0.5, rows.ravel() + 0.5], axis=1) / max(shape)
    with Clock() as peer_clock:
        distance, _ = cKDTree(sites).query(centres, workers=-1)
    ours = np.hypot(*(centres - sites[nearest]).T)
    # Two sites at the same distance are both right.
    wrong = float(np.mean(ours > distance * (1 + 1e-9) + 1e-12))
    comparison = Comparison(
        f"nearest of {count:,} sites for {shape[0] * shape[1]:,} pixels",
        clock.seconds,
        f"{wrong:.1%} of the pixels differ",
        wrong <= 1e-4,
        "SciPy cKDTree",
        peer_clock.seconds,
    )
    extent = (shape[1] / max(shape), shape[0] / max(shape))
    drawing = svg_image(
        stipples_svg(sites, dot_radii(darkness, owners, count), extent, background=None, ink="#26211c"),
        f"A nautilus shell cut in two, drawn with {count:,} dots: chambers along a spiral, and a soft shadow.",
    )
    blocks: list[Block] = [
        Text(
            f"With a picture as density the same minimisation places dots: {count:,} of them in {duration(seconds)}, "
            f"{iterations} iterations. A dot covers as much paper as the picture is dark in its cell. "
            f"The command stepwell stipple does this with any picture, up to a pen plotter's order of dots."
        ),
        Figure(drawing, f"A nautilus from {count:,} dots; the picture is drawn from its equations.", paper=True),
    ]
    return [comparison], blocks


def _centroidal(
    stage: Stage, start: np.ndarray, density: np.ndarray, method: str, iterations: int, share: float
) -> tuple[Tessellation, float]:
    def progress(done: int, total: int) -> None:
        stage.tell(f"{len(start):,} sites, {method}: {done} of {total}", share + 0.2 * done / max(1, total))

    place = stage.place
    sites, weights = place.put(start), place.put(density)
    # Lloyd's iteration is to take as many steps as it is given; and on a device a listener would slow every iteration.
    more: dict[str, Any] = {"ftol": 0.0, "gtol": 0.0} if method == "lloyd" else {}
    told = progress if place.name == "cpu" else None
    with Clock() as clock:
        found = centroidal(sites, weights, method=method, maxiter=iterations, progress=told, **more)
        place.wait()
    return found, clock.seconds


def _fills(mesh: Mesh) -> np.ndarray:
    """Colours of the cells by their numbers of neighbours."""
    fills = np.array([COLOURS.get(int(valence), _MORE) for valence in mesh.valence])
    fills[~mesh.interior] = _BORDER
    return fills


CODE = """from stepwell.apps import voronoi

tessellation = voronoi.centroidal(800, resolution=512)
mesh = voronoi.delaunay_mesh(tessellation.sites)"""
CHAPTER = Chapter("voronoi", "Cells and dots", run, CODE, "voronoi")
