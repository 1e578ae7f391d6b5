"""Pictures of tessellations as PNG: stipples, cells, the dual mesh, the route of a pen, and plots of the quality."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from stepwell.apps.voronoi.mesh import Mesh
from stepwell.apps.voronoi.polygons import Cells
from stepwell.apps.voronoi.quality import mesh_quality, triangle_shapes

Path = str | os.PathLike[str]
#: Cells by their number of neighbours: six is regular; five and seven come in pairs where rows of cells end.
VALENCE_COLOURS = {4: "#8c2d19", 5: "#e07b39", 6: "#f4efe4", 7: "#4a7fb5", 8: "#1f3864"}
_BORDER = "#dcd8d0"
_LINE = "#6f6a60"


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
    from matplotlib.collections import EllipseCollection

    pyplot = _pyplot()
    figure, axis = _sheet(pyplot, extent, pixels, background)
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
    _save(pyplot, figure, path)


def cells_png(
    cells: Cells,
    path: Path,
    extent: tuple[float, float] = (1.0, 1.0),
    *,
    mesh: Mesh | None = None,
    fills: np.ndarray | None = None,
    pixels: int = 2000,
    line: float | None = None,
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
    """
    from matplotlib.collections import PolyCollection

    pyplot = _pyplot()
    figure, axis = _sheet(pyplot, extent, pixels, "white")
    filled = np.flatnonzero(np.diff(cells.starts) > 0)
    polygons = [cells.polygon(cell) for cell in filled.tolist()]
    colours: Any = "white"
    if fills is not None:
        colours = np.clip(fills, 0, 1)[filled]
    elif mesh is not None:
        colours = _valence_colours(mesh)[filled]
    if line is None:
        line = _line_width(extent, len(cells), pixels)
    width = line * 72 / figure.dpi
    axis.add_collection(PolyCollection(polygons, facecolors=colours, edgecolors=_LINE, linewidths=width))
    _save(pyplot, figure, path)


def mesh_png(mesh: Mesh, path: Path, extent: tuple[float, float] = (1.0, 1.0), *, pixels: int = 2000) -> None:
    """Write a picture of a mesh, triangles shaded by Q: white where they are equilateral.

    Parameters
    ----------
    mesh : Mesh
    path : path
    extent : (width, height), default (1, 1)
    pixels : int, default 2000
        Length of the longer side.
    """
    from matplotlib.collections import PolyCollection

    pyplot = _pyplot()
    figure, axis = _sheet(pyplot, extent, pixels, "white")
    colours = pyplot.get_cmap("YlOrRd")(np.clip((1.0 - triangle_shapes(mesh).q) * 2, 0, 1))
    colours[:, :3] = 1 - (1 - colours[:, :3]) * np.clip((1.0 - triangle_shapes(mesh).q) * 10, 0, 1)[:, None]
    width = _line_width(extent, len(mesh.sites), pixels) * 72 / figure.dpi
    corners = mesh.sites[mesh.triangles]
    axis.add_collection(PolyCollection(corners, facecolors=colours, edgecolors=_LINE, linewidths=width))
    _save(pyplot, figure, path)


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
    pyplot = _pyplot()
    figure, axis = _sheet(pyplot, extent, pixels, background)
    if line is None:
        line = 3 * _line_width(extent, len(points), pixels)
    axis.plot(points[:, 0], points[:, 1], color=ink, lw=line * 72 / figure.dpi, solid_joinstyle="round")
    _save(pyplot, figure, path)


def quality_png(mesh: Mesh, path: Path, *, history: np.ndarray | None = None, bound: float | None = None) -> None:
    """Write four plots: the energy by evaluation, neighbours of interior sites, smallest angles, and Q.

    Parameters
    ----------
    mesh : Mesh
    path : path
    history : array, optional
        Energy at each evaluation; the first plot is left empty without it.
    bound : float, optional
        The energy that no tessellation undercuts, or that the best approach, in the same units.
    """
    pyplot = _pyplot()
    quality, shapes = mesh_quality(mesh), triangle_shapes(mesh)
    figure, axes = pyplot.subplots(2, 2, figsize=(9.0, 6.4), layout="constrained")
    energy, valence, angle, q = axes.flat
    if history is not None and len(history):
        if bound:
            energy.plot(np.arange(1, len(history) + 1), np.asarray(history) / bound, color="#1f3864", lw=1.6)
            energy.axhline(1.0, color="#c0392b", lw=1.0, ls="--")
            energy.set_ylabel("energy over its limit")
            energy.set_ylim(0.99, max(1.02, min(1.6, float(np.max(history)) / bound * 1.02)))
        else:
            energy.plot(np.arange(1, len(history) + 1), history, color="#1f3864", lw=1.6)
            energy.set_ylabel("energy")
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
    angle.set_title(f"minimum {quality.angle_min:.1f}°, mean {quality.angle_mean:.1f}°", fontsize=9)
    q.hist(shapes.q, np.linspace(0, 1, 61), color="#e07b39")
    q.set_xlabel("Q = 2√3 S / (p h)")
    q.set_ylabel("triangles")
    q.set_title(f"minimum {quality.q_min:.3f}, mean {quality.q_mean:.4f}", fontsize=9)
    for axis in axes.flat:
        axis.grid(alpha=0.25, lw=0.6)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def _valence_colours(mesh: Mesh) -> np.ndarray:
    from matplotlib.colors import to_rgb

    table = np.array([to_rgb(VALENCE_COLOURS[number]) for number in range(4, 9)])
    colours: np.ndarray = table[np.clip(mesh.valence, 4, 8) - 4]
    colours[~mesh.interior] = to_rgb(_BORDER)
    return colours


def _line_width(extent: tuple[float, float], count: int, pixels: int) -> float:
    """A fifteenth of a cell's diameter in pixels."""
    cell = np.sqrt(extent[0] * extent[1] / max(1, count)) / max(extent) * pixels
    return float(np.clip(cell / 15, 0.15, 2.5))


def _sheet(pyplot: Any, extent: tuple[float, float], pixels: int, background: str) -> tuple[Any, Any]:
    """A figure that the domain fills to the edges, y downwards."""
    width, height = extent
    dpi = 100
    size = (pixels / dpi * width / max(extent), pixels / dpi * height / max(extent))
    figure = pyplot.figure(figsize=size, dpi=dpi, facecolor=background)
    axis = figure.add_axes((0, 0, 1, 1))
    axis.set(xlim=(0, width), ylim=(height, 0))
    axis.axis("off")
    return figure, axis


def _save(pyplot: Any, figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=figure.dpi, facecolor=figure.get_facecolor())
    pyplot.close(figure)


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install 'stepwell[plot]'") from error
    matplotlib.use("Agg", force=False)
    from matplotlib import pyplot

    return pyplot
