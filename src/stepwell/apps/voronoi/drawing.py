"""Tessellations as SVG: stipples, cells, the dual mesh, and the route of a pen.

Everything is drawn in millimetres with two decimals, finer than any pen. A drawing of tens of thousands of dots stays
small because dots of one size and colour share one path.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from stepwell.apps.voronoi.mesh import Mesh, read_points
from stepwell.apps.voronoi.pens import paints
from stepwell.apps.voronoi.polygons import Cells
from stepwell.apps.voronoi.route import hilbert_order
from stepwell.common.checks import read_choice

MARKS = ("dots", "circles")
#: Millimetres to which positions are rounded, and so many sizes of dots at most.
PRECISION = 0.01
SIZES = 32


def dot_radii(darkness: np.ndarray, owners: np.ndarray, count: int, *, even: bool = False) -> np.ndarray:
    """Return the radii at which dots carry the ink that their cells ask for.

    A dot covers as much paper as the picture is dark in its cell, so that seen from afar the drawing has the tones of
    the picture whatever density the sites were spread with.

    Parameters
    ----------
    darkness : array, (rows, columns)
        Share of each pixel to be covered, 0 to 1.
    owners : array of int, (rows, columns)
        The site that each pixel belongs to.
    count : int
        Number of sites.
    even : bool, default False
        One radius for all, with as much ink in total. The tones are right if the number of sites per area goes with
        the darkness, which a tessellation of density darkness² has.

    Returns
    -------
    array, (count,)
        Radii in units of the longer side of the picture.

    Examples
    --------
    >>> darkness = np.array([[1.0, 1.0, 0.25, 0.25]])
    >>> radii = dot_radii(darkness, np.array([[0, 0, 1, 1]]), 2)
    >>> (np.pi * radii**2 * 16).round(6).tolist()
    [2.0, 0.5]
    """
    pixel = 1.0 / max(darkness.shape)
    if even:
        return np.full(count, np.sqrt(darkness.sum() * pixel * pixel / (np.pi * max(1, count))))
    ink = np.bincount(owners.ravel(), darkness.ravel(), minlength=count) * (pixel * pixel)
    radii: np.ndarray = np.sqrt(ink / np.pi)
    return radii


def cell_inks(
    colours: np.ndarray, coverage: np.ndarray, owners: np.ndarray, count: int, *, paper: float = 1.0
) -> np.ndarray:
    """Return the colours of ink that on a part of each cell gives, with the paper, the mean colour of the picture.

    Parameters
    ----------
    colours : array, (rows, columns, 3)
        Red, green and blue of the picture, 0 to 1.
    coverage : array, (rows, columns)
        Share of each pixel that is covered, as in `dot_radii`. With 1 the inks are the mean colours themselves.
    owners : array of int, (rows, columns)
        The site that each pixel belongs to.
    count : int
        Number of sites.
    paper : float, default 1
        1 for white paper, 0 for black.

    Returns
    -------
    array, (count, 3)
        Between 0 and 1; the colour of the paper where nothing is covered.

    Examples
    --------
    >>> pink = np.array([[[1.0, 0.5, 0.5]]])
    >>> cell_inks(pink, np.array([[0.5]]), np.array([[0]]), 1).tolist()
    [[1.0, 0.0, 0.0]]
    """
    owner = owners.ravel()
    covered = np.bincount(owner, coverage.ravel(), minlength=count)
    away = [np.bincount(owner, colours[..., k].ravel() - paper, minlength=count) for k in range(3)]
    return np.clip(paper + np.column_stack(away) / np.where(covered > 0, covered, 1.0)[:, None], 0.0, 1.0)


def stipples_svg(
    sites: Any,
    radii: Any,
    extent: tuple[float, float] = (1.0, 1.0),
    *,
    size: float = 200.0,
    marks: str = "dots",
    colours: np.ndarray | None = None,
    ink: str = "black",
    background: str | None = "white",
    keep_order: bool = False,
) -> str:
    """Return a drawing of dots.

    Parameters
    ----------
    sites : array, (n, 2)
        Positions x, y in the extent.
    radii : float or array, (n,)
        Radius of each dot, in the same units. Dots that round to no size are left out.
    extent : (width, height), default (1, 1)
    size : float, default 200
        Millimetres of the longer side.
    marks : {"dots", "circles"}
        ``dots`` are strokes of no length with round ends, which a plotter makes by one touch of the pen; ``circles``
        are circle elements, three times as many bytes.
    colours : array, (n, 3), optional
        Red, green and blue of each dot, 0 to 1, gathered to 64 colours at most; otherwise all are `ink`.
    ink, background : str
        Colours as SVG names them; no background if None.
    keep_order : bool, default False
        Dots of one colour follow each other as they are given, whatever their sizes; otherwise those of one colour
        and size do, along a Hilbert curve, which takes a third of the bytes.

    Returns
    -------
    str

    Examples
    --------
    >>> text = stipples_svg([[0.5, 0.25]], 0.01, (1.0, 0.5), size=100)
    >>> '<path stroke-width="2" d="M50 25h0"/>' in text
    True
    """
    sites = read_points("sites", sites)
    read_choice("marks", marks, MARKS)
    scale = size / max(extent)
    level, widths = _levels(2 * scale * np.broadcast_to(np.asarray(radii, np.float64), len(sites)))
    paint, names = paints("colours", colours, ink, len(sites))
    order = np.arange(len(sites)) if keep_order else hilbert_order(sites)
    order = order[widths[level[order]] > 0]
    # Stable sorts: the order within a group stays.
    order = order[np.lexsort((paint[order],) if keep_order else (level[order], paint[order]))]
    groups = np.flatnonzero(np.diff(paint[order] * len(widths) + level[order])) + 1
    body, current = [], None
    for group in np.split(order, groups) if len(order) else []:
        name, width = names[paint[group[0]]], widths[level[group[0]]]
        if name != current:
            body.append("</g>" if current else "")
            body.append(f'<g fill="{name}">' if marks == "circles" else f'<g stroke="{name}">')
            current = name
        body.append(_marks(_rounded(sites[group] * scale), width, marks))
    body.append("</g>" if current else "")
    style = "" if marks == "circles" else ' fill="none" stroke-linecap="round"'
    return _document(extent, scale, "stipples", style, background, [line for line in body if line])


def cells_svg(
    cells: Cells,
    extent: tuple[float, float] = (1.0, 1.0),
    *,
    size: float = 200.0,
    line: float = 0.15,
    ink: str = "black",
    fills: np.ndarray | None = None,
    background: str | None = "white",
) -> str:
    """Return a drawing of cells, every edge once.

    Parameters
    ----------
    cells : Cells
    extent : (width, height), default (1, 1)
    size : float, default 200
        Millimetres of the longer side.
    line : float, default 0.15
        Width of the lines in millimetres; 0 leaves them out.
    ink, background : str
        Colours as SVG names them; no background if None.
    fills : array, (n, 3), optional
        Red, green and blue of each cell, 0 to 1, gathered to 64 colours at most.

    Returns
    -------
    str

    Examples
    --------
    >>> from stepwell.apps.voronoi.mesh import voronoi_cells
    >>> text = cells_svg(voronoi_cells([[0.25, 0.5], [0.75, 0.5]]), size=10)
    >>> text.count("L")  # the edge between them is drawn once
    7
    """
    scale = size / max(extent)
    corners = np.rint(cells.vertices * (scale / PRECISION)).astype(np.int64)
    body = []
    if fills is not None:
        paint, names = paints("fills", fills, ink, len(cells))
        corners_text = _points(corners * PRECISION)
        shape = [
            f"M{'L'.join(corners_text[first:last])}Z" if last > first else ""
            for first, last in zip(cells.starts[:-1].tolist(), cells.starts[1:].tolist())
        ]
        for colour, name in enumerate(names):
            # The edge in the same colour closes the seams that antialiasing leaves between neighbours.
            strokes = "".join(shape[cell] for cell in np.flatnonzero(paint == colour).tolist())
            body.append(f'<path fill="{name}" stroke="{name}" stroke-width="0.05" d="{strokes}"/>')
    if line > 0:
        strokes = "".join(f"M{'L'.join(run)}" for run in _strokes(corners, cells))
        body.append(f'<path fill="none" stroke="{ink}" stroke-width="{line:g}" d="{strokes}"/>')
    return _document(extent, scale, "cells", ' stroke-linejoin="round" stroke-linecap="round"', background, body)


def mesh_svg(
    mesh: Mesh,
    extent: tuple[float, float] = (1.0, 1.0),
    *,
    size: float = 200.0,
    line: float = 0.15,
    ink: str = "black",
    background: str | None = "white",
) -> str:
    """Return a drawing of a mesh, every edge once.

    Parameters
    ----------
    mesh : Mesh
    extent : (width, height), default (1, 1)
    size, line : float
        Millimetres of the longer side and of the lines' width.
    ink, background : str
        Colours as SVG names them; no background if None.

    Returns
    -------
    str

    Examples
    --------
    >>> mesh = Mesh(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), np.array([[0, 1, 2]]))
    >>> 'd="M0 0L10 0M0 0L0 10M10 0L0 10"' in mesh_svg(mesh, size=10)
    True
    """
    scale = size / max(extent)
    text = _points(_rounded(mesh.sites * scale))
    strokes = "".join(f"M{text[a]}L{text[b]}" for a, b in mesh.edges.tolist())
    body = [f'<path stroke="{ink}" stroke-width="{line:g}" d="{strokes}"/>']
    return _document(extent, scale, "mesh", ' fill="none" stroke-linecap="round"', background, body)


def route_svg(
    points: Any,
    extent: tuple[float, float] = (1.0, 1.0),
    *,
    size: float = 200.0,
    line: float = 0.2,
    ink: str = "black",
    background: str | None = "white",
) -> str:
    """Return a drawing of one line through points in their order.

    Parameters
    ----------
    points : array, (n, 2)
        In the order of the pen, as ``sites[route.order]``.
    extent : (width, height), default (1, 1)
    size, line : float
        Millimetres of the longer side and of the line's width.
    ink, background : str
        Colours as SVG names them; no background if None.

    Returns
    -------
    str

    Examples
    --------
    >>> '<polyline points="0 0 5 10"' in route_svg([[0.0, 0.0], [0.5, 1.0]], size=10)
    True
    """
    scale = size / max(extent)
    text = " ".join(_points(_rounded(read_points("points", points) * scale)))
    style = ' fill="none" stroke-linejoin="round" stroke-linecap="round"'
    body = [f'<polyline points="{text}" stroke="{ink}" stroke-width="{line:g}"/>']
    return _document(extent, scale, "route", style, background, body)


def _document(
    extent: tuple[float, float], scale: float, title: str, style: str, background: str | None, body: list[str]
) -> str:
    width, height = (f"{side * scale:.6g}" for side in extent)
    paper = [f'<rect width="{width}" height="{height}" fill="{background}"/>'] if background else []
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}mm" height="{height}mm" viewBox="0 0 {width} {height}">'
    )
    return "\n".join([head, f"<title>{title}</title>", *paper, f'<g id="{title}"{style}>', *body, "</g>", "</svg>", ""])


def _levels(diameters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Round diameters to at most SIZES even steps up to the largest; return the step of each, and all steps."""
    step = max(PRECISION, float(diameters.max(initial=0.0)) / SIZES)
    level = np.rint(diameters / step).astype(np.int64)
    return level, np.arange(int(level.max(initial=0)) + 1) * step


def _rounded(points: np.ndarray) -> np.ndarray:
    return np.rint(points / PRECISION) * PRECISION


def _points(points: np.ndarray) -> list[str]:
    return [f"{x:.7g} {y:.7g}" for x, y in points.tolist()]


def _marks(points: np.ndarray, width: float, marks: str) -> str:
    if marks == "circles":
        radius = f"{width / 2:.4g}"
        return "\n".join(f'<circle cx="{x:.7g}" cy="{y:.7g}" r="{radius}"/>' for x, y in points.tolist())
    return f'<path stroke-width="{width:.4g}" d="M{"h0M".join(_points(points))}h0"/>'


def _strokes(corners: np.ndarray, cells: Cells) -> Iterator[list[str]]:
    """Yield runs of corners, as text, that pass every edge once: each edge goes to the first cell that has it."""
    codes, point = np.unique(corners[:, 0] * 2**32 + corners[:, 1], return_inverse=True)
    start, end = point, point[cells.following]
    edge = np.minimum(start, end) * len(codes) + np.maximum(start, end)
    used = np.zeros(len(edge), bool)
    used[np.unique(edge, return_index=True)[1]] = True
    used &= start != end
    start, end = start[used], end[used]
    text = _points(np.column_stack(np.divmod(codes, 2**32)) * PRECISION)
    # A run goes on while an edge starts where the one before it ended.
    breaks = np.flatnonzero(start[1:] != end[:-1]) + 1
    starts, ends = start.tolist(), end.tolist()
    for first, last in zip([0, *breaks.tolist()], [*breaks.tolist(), len(starts)]):
        if last > first:
            yield [*(text[corner] for corner in starts[first:last]), text[ends[last - 1]]]
