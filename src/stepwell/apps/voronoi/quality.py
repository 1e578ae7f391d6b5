"""How good a tessellation and its dual mesh are: angles, triangle shapes, valences, and the energy against its bound.

The measures are those by which Fei, Rong, Wang and Wang (2014, Figure 5) compare meshes.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from stepwell.apps.voronoi.energy import HEXAGONAL_BOUND
from stepwell.apps.voronoi.mesh import Mesh, voronoi_cells
from stepwell.apps.voronoi.polygons import Cells
from stepwell.common.checks import require_instance


@dataclass(frozen=True)
class MeshQuality:
    """Measures of a triangle mesh. Angles are in degrees; a mesh without triangles has nan for all of them.

    Attributes
    ----------
    sites, triangles : int
        Their numbers.
    angle_min, angle_mean : float
        The smallest of all angles, and the mean over the triangles of each one's smallest.
    angles_below_30 : float
        Share of all angles that are below 30 degrees.
    triangles_below_30 : float
        Share of triangles with such an angle.
    q_min, q_mean : float
        Q = 2 √3 S / (p h) with the area S, half the perimeter p and the longest edge h; 1 for an equilateral triangle.
    radius_ratio_min, radius_ratio_mean : float
        Twice the radius of the inscribed circle over that of the circumscribed one; also 1 for an equilateral triangle.
    valence : dict of int to int
        How many interior sites have so many neighbours.
    regular : float
        Share of interior sites with six neighbours.
    interior : int
        Sites that triangles surround on all sides.
    """

    sites: int
    triangles: int
    angle_min: float
    angle_mean: float
    angles_below_30: float
    triangles_below_30: float
    q_min: float
    q_mean: float
    radius_ratio_min: float
    radius_ratio_mean: float
    valence: dict[int, int]
    regular: float
    interior: int

    def as_dict(self) -> dict[str, Any]:
        """Return the measures by name."""
        return asdict(self)


@dataclass(frozen=True)
class TriangleShapes:
    """The shape of every triangle of a mesh, one element a triangle.

    Attributes
    ----------
    angles : array, (t, 3)
        Degrees, at each corner.
    q : array, (t,)
        2 √3 S / (p h).
    radius_ratio : array, (t,)
        2 r_in / r_circ.
    """

    angles: np.ndarray
    q: np.ndarray
    radius_ratio: np.ndarray


def triangle_shapes(mesh: Mesh) -> TriangleShapes:
    """Return angles, Q and the ratio of radii of every triangle.

    Examples
    --------
    >>> right = Mesh(np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 3.0]]), np.array([[0, 1, 2]]))
    >>> shapes = triangle_shapes(right)
    >>> shapes.angles.round(2).tolist(), shapes.radius_ratio.round(3).tolist()
    ([[90.0, 36.87, 53.13]], [0.8])
    """
    a, b, c = (mesh.sites[mesh.triangles[:, k]] for k in range(3))
    sides = (c - b, a - c, b - a)  # opposite to a, b and c
    lengths = np.stack([np.hypot(side[:, 0], side[:, 1]) for side in sides], axis=1)
    twice = np.abs(sides[0][:, 0] * sides[1][:, 1] - sides[0][:, 1] * sides[1][:, 0])
    angles = np.empty_like(lengths)
    for corner in range(3):
        p, q = sides[corner - 2], sides[corner - 1]
        # atan2 keeps the digits of small angles and of flat ones, which arccos loses.
        angles[:, corner] = np.degrees(np.arctan2(twice, -np.sum(p * q, axis=1)))
    half = lengths.sum(axis=1) / 2
    # r_in = S / p and r_circ = abc / (4 S).
    return TriangleShapes(
        angles=angles,
        q=math.sqrt(3) * twice / (half * lengths.max(axis=1)),
        radius_ratio=2 * twice * twice / (half * lengths.prod(axis=1)),
    )


def mesh_quality(mesh: Mesh) -> MeshQuality:
    """Return the measures of a mesh.

    Parameters
    ----------
    mesh : Mesh
        As from `delaunay_mesh`, which by default leaves out the flat triangles along the border that are dual to
        nothing in the domain.

    Returns
    -------
    MeshQuality

    Examples
    --------
    >>> quality = mesh_quality(Mesh(np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 0.75**0.5]]), np.array([[0, 1, 2]])))
    >>> round(quality.angle_min, 6), round(quality.q_min, 6), round(quality.radius_ratio_min, 6)
    (60.0, 1.0, 1.0)
    """
    require_instance("mesh", mesh, Mesh)
    shapes = triangle_shapes(mesh)
    smallest = shapes.angles.min(axis=1, initial=180.0)
    interior = mesh.interior
    counts = np.bincount(mesh.valence[interior])
    inside = int(interior.sum())
    return MeshQuality(
        sites=len(mesh.sites),
        triangles=len(mesh.triangles),
        angle_min=_minimum(smallest),
        angle_mean=_mean(smallest),
        angles_below_30=_mean(shapes.angles < 30),
        triangles_below_30=_mean(smallest < 30),
        q_min=_minimum(shapes.q),
        q_mean=_mean(shapes.q),
        radius_ratio_min=_minimum(shapes.radius_ratio),
        radius_ratio_mean=_mean(shapes.radius_ratio),
        valence={int(valence): int(counts[valence]) for valence in np.flatnonzero(counts)},
        regular=float(counts[6]) / inside if len(counts) > 6 else 0.0 if inside else math.nan,
        interior=inside,
    )


def uniform_energy(sites: Any, extent: tuple[float, float] = (1.0, 1.0), *, cells: Cells | None = None) -> float:
    """Return F n / |Ω|² of sites under uniform density, integrated exactly over their cells.

    Never below 5 / (18 √3), that of regular hexagons (Fejes Tóth 1972), which it approaches as good tessellations grow.

    Parameters
    ----------
    sites : array, (n, 2)
        Positions in the rectangle.
    extent : (width, height), default (1, 1)
    cells : Cells, optional
        The cells of these sites, if they are known.

    Examples
    --------
    >>> round(uniform_energy([[0.5, 0.5]]), 6)  # one square: the mean of x² + y² is 1 / 12 + 1 / 12
    0.166667
    """
    cells = voronoi_cells(sites, extent) if cells is None else cells
    sites = np.asarray(sites, dtype=np.float64)
    filled = cells.areas > 0
    energy = float(cells.second_moments(sites)[filled].sum())
    return energy * len(sites) / (extent[0] * extent[1]) ** 2


def energy_limit(density: np.ndarray, count: int) -> float:
    """Return the energy that the best tessellation by so many sites approaches as their number grows.

    Zador's (1982) theorem in the plane: F n tends to 5 / (18 √3) (∫ √ρ)². For uniform density it is the bound itself.

    Parameters
    ----------
    density : array, (rows, columns)
        Density per area; the longer side of the image has length 1.
    count : int
        Number of sites.

    Examples
    --------
    >>> round(energy_limit(np.ones((8, 8)), 100) * 100, 6)
    0.160375
    """
    density = np.asarray(density, dtype=np.float64)
    pixel = 1.0 / max(density.shape)
    return HEXAGONAL_BOUND * float(np.sqrt(density).sum() * pixel * pixel) ** 2 / count


def _minimum(values: np.ndarray) -> float:
    return float(values.min()) if values.size else math.nan


def _mean(values: np.ndarray) -> float:
    return float(np.mean(values)) if values.size else math.nan
