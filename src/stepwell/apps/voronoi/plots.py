"""Pictures of tessellations as PNG: stipples, cells, the dual mesh, the route of a pen, and plots of the quality."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from stepwell.apps.voronoi.mesh import Mesh
from stepwell.apps.voronoi.polygons import Cells
from stepwell.apps.voronoi.quality import mesh_quality, triangle_shapes
from stepwell.common.pyplot import finish_figure, load_pyplot

Path = str | os.PathLike[str]
#: Cells by their number of neighbours: six is regular; five and seven come in pairs where rows of cells end.
VALENCE_COLOURS = {4: "#8c2d19", 5: "#e07b39", 6: "#f4efe4", 7: "#4a7fb5", 8: "#1f3864"}
_BORDER = "#dcd8d0"
_LINE = "#6f6a60"


@dataclass(frozen=True)
class Window:
    """A rectangle of the domain, y downwards.

    Examples
    --------
    >>> Window(0.0, 0.0, 1.0, 0.5).height
    0.5
    """

    left: float
    top: float
    right: float
    bottom: float

    @property
    def width(self) -> float:
        """From left to right."""
        return self.right - self.left

    @property
    def height(self) -> float:
        """From top to bottom."""
        return self.bottom - self.top

    def holds(self, points: np.ndarray) -> np.ndarray:
        """Return which points lie in it, with its border."""
        low, high = (self.left, self.top), (self.right, self.bottom)
        inside: np.ndarray = np.all((points >= low) & (points <= high), axis=1)
        return inside

    @classmethod
    def around_most(cls, sites: np.ndarray, extent: tuple[float, float], most: int) -> Window:
        """Return the whole domain, or round the median site a part of its shape that holds so many sites.

        Examples
        --------
        >>> sites = np.random.default_rng(0).random((1000, 2))
        >>> part = Window.around_most(sites, (1.0, 1.0), 100)
        >>> int(part.holds(sites).sum())
        100
        """
        if len(sites) <= most:
            return cls(0.0, 0.0, *extent)
        size = np.asarray(extent)
        centre = np.median(sites, axis=0)
        away = np.sort(np.max(np.abs(sites - centre) / size, axis=1))
        half = float(away[most - 1]) * size
        return cls(*(centre - half).tolist(), *(centre + half).tolist())


def stipples_png(
    sites: np.ndarray,
    radii: Any,
    path: Path,
    extent: tuple[float, float] = (1.0, 1.0),
    *,
    pixels: int = 2000,
    colours: np.ndarray | None = None,
    ink: str = "black",
    background: str = "white",
) -> None:
    """Write a picture of dots.

    Parameters
    ----------
    sites : array, (n, 2)
    radii : float or array, (n,)
        In the units of the sites.
    path : path
    extent : (width, height), default (1, 1)
    pixels : int, default 2000
        Length of the longer side.
    colours : array, (n, 3), optional
        Red, green and blue of each dot, 0 to 1; otherwise all are `ink`.
    ink, background : str
    """
    pyplot = load_pyplot()
    from matplotlib.collections import EllipseCollection

    figure, axis = _sheet(pyplot, Window(0.0, 0.0, *extent), pixels, background)
    across = 2 * np.broadcast_to(np.asarray(radii, np.float64), len(sites))
    dots = EllipseCollection(
        across,
        across,
        np.zeros(len(sites)),
        units="xy",
        offsets=sites,
        offset_transform=axis.transData,
        facecolors=ink if colours is None else np.clip(colours, 0, 1),
        edgecolors="none",
    )
    axis.add_collection(dots)
    _save(figure, path)


def cells_png(
    cells: Cells,
    path: Path,
    extent: tuple[float, float] = (1.0, 1.0),
    *,
    mesh: Mesh | None = None,
    fills: np.ndarray | None = None,
    pixels: int = 2000,
    line: float | None = None,
    window: Window | None = None,
) -> None:
    """Write a picture of cells.

    Parameters
    ----------
    cells : Cells
    path : path
    extent : (width, height), default (1, 1)
    mesh : Mesh, optional
        The dual mesh: cells are coloured by their numbers of neighbours, those at the border grey.
    fills : array, (n, 3), optional
        Red, green and blue of each cell, 0 to 1, instead.
    pixels : int, default 2000
        Length of the longer side.
    line : float, optional
        Width of the lines in pixels; by default a fifteenth of a cell, at most 2.5.
    window : Window, optional
        The part of the domain to show.
    """
    pyplot = load_pyplot()
    from matplotlib.collections import PolyCollection

    window = window or Window(0.0, 0.0, *extent)
    figure, axis = _sheet(pyplot, window, pixels, "white")
    filled = np.unique(cells.owner[window.holds(cells.vertices)])
    polygons = [cells.polygon(cell) for cell in filled.tolist()]
    colours: Any = "white"
    if fills is not None:
        colours = np.clip(fills, 0, 1)[filled]
    elif mesh is not None:
        colours = _valence_colours(mesh)[filled]
    if line is None:
        line = _line_width(window, len(filled), pixels)
    width = line * 72 / figure.dpi
    axis.add_collection(PolyCollection(polygons, facecolors=colours, edgecolors=_LINE, linewidths=width))
    _save(figure, path)


def mesh_png(
    mesh: Mesh,
    path: Path,
    extent: tuple[float, float] = (1.0, 1.0),
    *,
    pixels: int = 2000,
    window: Window | None = None,
) -> None:
    """Write a picture of a mesh, triangles shaded by Q: white where they are equilateral.

    Parameters
    ----------
    mesh : Mesh
    path : path
    extent : (width, height), default (1, 1)
    pixels : int, default 2000
        Length of the longer side.
    window : Window, optional
        The part of the domain to show.
    """
    pyplot = load_pyplot()
    from matplotlib.collections import PolyCollection

    window = window or Window(0.0, 0.0, *extent)
    figure, axis = _sheet(pyplot, window, pixels, "white")
    inside = window.holds(mesh.sites)
    shown = Mesh(mesh.sites, mesh.triangles[inside[mesh.triangles].any(axis=1)])
    flaw = 1.0 - triangle_shapes(shown).q
    colours = pyplot.get_cmap("YlOrRd")(np.clip(2 * flaw, 0, 1))
    # The map starts at a yellow: it fades to white for the best triangles.
    colours[:, :3] = 1 - (1 - colours[:, :3]) * np.clip(10 * flaw, 0, 1)[:, None]
    width = _line_width(window, int(inside.sum()), pixels) * 72 / figure.dpi
    corners = shown.sites[shown.triangles]
    axis.add_collection(PolyCollection(corners, facecolors=colours, edgecolors=_LINE, linewidths=width))
    _save(figure, path)


def route_png(
    points: np.ndarray,
    path: Path,
    extent: tuple[float, float] = (1.0, 1.0),
    *,
    pixels: int = 2000,
    line: float | None = None,
    ink: str = "black",
    background: str = "white",
) -> None:
    """Write a picture of one line through points in their order.

    Parameters
    ----------
    points : array, (n, 2)
    path : path
    extent : (width, height), default (1, 1)
    pixels : int, default 2000
        Length of the longer side.
    line : float, optional
        Width of the line in pixels; by default a fifth of the points' mean distance.
    ink, background : str
    """
    pyplot = load_pyplot()
    figure, axis = _sheet(pyplot, Window(0.0, 0.0, *extent), pixels, background)
    if line is None:
        line = 3 * _line_width(Window(0.0, 0.0, *extent), len(points), pixels)
    axis.plot(points[:, 0], points[:, 1], color=ink, lw=line * 72 / figure.dpi, solid_joinstyle="round")
    _save(figure, path)


def quality_png(mesh: Mesh, path: Path, *, history: np.ndarray | None = None) -> None:
    """Write four plots: the energy by evaluation, neighbours of interior sites, smallest angles, and Q.

    Parameters
    ----------
    mesh : Mesh
    path : path
    history : array, optional
        Energy at each evaluation, over that which the best tessellation approaches; without it the first plot is empty.
    """
    pyplot = load_pyplot()
    quality, shapes = mesh_quality(mesh), triangle_shapes(mesh)
    figure, axes = pyplot.subplots(2, 2, figsize=(9.0, 6.4), layout="constrained")
    energy, valence, angle, q = axes.flat
    if history is not None and len(history):
        energy.plot(np.arange(1, len(history) + 1), history, color="#1f3864", lw=1.6)
        energy.axhline(1.0, color="#c0392b", lw=1.0, ls="--")
        energy.set_ylim(0.99, max(1.02, min(1.6, float(np.max(history)) * 1.02)))
    energy.set_ylabel("energy over its limit")
    energy.set_xlabel("evaluation")
    numbers = sorted(quality.valence)
    counts = [quality.valence[number] for number in numbers]
    shown = [VALENCE_COLOURS[min(8, max(4, number))] for number in numbers]
    valence.bar([str(number) for number in numbers], counts, color=shown, edgecolor=_LINE, lw=0.8)
    for place, count in enumerate(counts):
        valence.annotate(f"{count:,}", (place, count), ha="center", va="bottom", fontsize=8)
    valence.margins(y=0.12)
    valence.set_xlabel("neighbours")
    valence.set_ylabel("interior sites")
    smallest = shapes.angles.min(axis=1, initial=60.0)
    angle.hist(smallest, np.arange(0.0, 61.0), color="#4a7fb5")
    angle.set_xlabel("smallest angle, degrees")
    angle.set_ylabel("triangles")
    some = quality.triangles > 0
    angles = f"minimum {quality.angle_min:.1f}°, mean {quality.angle_mean:.1f}°"
    angle.set_title(angles if some else "no triangles", fontsize=9)
    q.hist(shapes.q, np.linspace(0, 1, 61), color="#e07b39")
    q.set_xlabel("Q = 2√3 S / (p h)")
    q.set_ylabel("triangles")
    q.set_title(f"minimum {quality.q_min:.3f}, mean {quality.q_mean:.4f}" if some else "no triangles", fontsize=9)
    for axis in axes.flat:
        axis.grid(alpha=0.25, lw=0.6)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    finish_figure(figure, path, dpi=130)


def _valence_colours(mesh: Mesh) -> np.ndarray:
    from matplotlib.colors import to_rgb

    table = np.array([to_rgb(VALENCE_COLOURS[number]) for number in range(4, 9)])
    colours: np.ndarray = table[np.clip(mesh.valence, 4, 8) - 4]
    colours[~mesh.interior] = to_rgb(_BORDER)
    return colours


def _line_width(window: Window, count: int, pixels: int) -> float:
    """A fifteenth of a cell's diameter in pixels."""
    cell = np.sqrt(window.width * window.height / max(1, count)) / max(window.width, window.height) * pixels
    return float(np.clip(cell / 15, 0.15, 2.5))


def _sheet(pyplot: Any, window: Window, pixels: int, background: str) -> tuple[Any, Any]:
    """A figure that a part of the domain fills to the edges, y downwards."""
    dpi = 100
    scale = pixels / dpi / max(window.width, window.height)
    # A figure has at least one pixel.
    size = (max(window.width * scale, 1 / dpi), max(window.height * scale, 1 / dpi))
    figure = pyplot.figure(figsize=size, dpi=dpi, facecolor=background)
    axis = figure.add_axes((0, 0, 1, 1))
    axis.set(xlim=(window.left, window.right), ylim=(window.bottom, window.top))
    axis.axis("off")
    return figure, axis


def _save(figure: Any, path: Path) -> None:
    finish_figure(figure, path, dpi=figure.dpi, facecolor=figure.get_facecolor())
