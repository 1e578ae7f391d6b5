"""Measures of meshes against triangles whose values are known, and the energy against its bound."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stepwell.apps.voronoi import HEXAGONAL_BOUND
from stepwell.apps.voronoi.mesh import Mesh, delaunay_mesh, voronoi_cells
from stepwell.apps.voronoi.quality import energy_limit, mesh_quality, triangle_shapes, uniform_energy

RIGHT = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])


def one(corners):
    return Mesh(np.asarray(corners, float), np.array([[0, 1, 2]], np.int32))


def hexagonal(rows, columns):
    """Sites of a hexagonal lattice, and the rectangle that a whole number of its cells tiles when it is periodic."""
    x, y = np.meshgrid(np.arange(columns, dtype=float), np.arange(rows, dtype=float))
    x[1::2] += 0.5
    return np.column_stack([x.ravel() + 0.25, (y.ravel() + 0.5) * math.sqrt(3) / 2]), (columns, rows * math.sqrt(3) / 2)


@pytest.mark.parametrize("turn", [0.0, 0.3, 2.0])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_an_equilateral_triangle_is_perfect(turn, scale):
    angles = turn + np.arange(3) * 2 * np.pi / 3
    shapes = triangle_shapes(one(scale * np.column_stack([np.cos(angles), np.sin(angles)])))
    assert shapes.angles == pytest.approx(60.0, abs=1e-12)
    assert shapes.q == pytest.approx(1.0, abs=1e-14)
    assert shapes.radius_ratio == pytest.approx(1.0, abs=1e-14)


def test_a_right_isosceles_triangle():
    quality = mesh_quality(one(RIGHT))
    half, longest = (2 + math.sqrt(2)) / 2, math.sqrt(2)
    assert quality.q_min == pytest.approx(2 * math.sqrt(3) * 0.5 / (half * longest), rel=1e-14)
    # r_in = S / p and r_circ = half the hypotenuse.
    assert quality.radius_ratio_min == pytest.approx(2 * (0.5 / half) / (longest / 2), rel=1e-14)
    assert quality.angle_min == pytest.approx(45.0, abs=1e-12)
    assert quality.angles_below_30 == quality.triangles_below_30 == 0.0


def test_shares_of_small_angles():
    flat = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 0.1]])  # two angles below 30 degrees
    mesh = Mesh(np.concatenate([RIGHT, flat + 5]), np.array([[0, 1, 2], [3, 4, 5]], np.int32))
    quality = mesh_quality(mesh)
    assert quality.angles_below_30 == pytest.approx(2 / 6)
    assert quality.triangles_below_30 == pytest.approx(1 / 2)
    small = math.degrees(math.atan(0.2))
    assert quality.angle_min == pytest.approx(small, abs=1e-12)
    assert quality.angle_mean == pytest.approx((small + 45) / 2, abs=1e-12)


def test_needles_keep_their_digits():
    quality = mesh_quality(one([[0.0, 0.0], [1.0, 0.0], [0.5, 1e-9]]))
    assert quality.angle_min == pytest.approx(math.degrees(2e-9), rel=1e-9)


def test_angles_of_any_triangle_sum_to_180():
    mesh = delaunay_mesh(np.random.default_rng(0).random((500, 2)), None)
    shapes = triangle_shapes(mesh)
    assert shapes.angles.sum(axis=1) == pytest.approx(180.0, abs=1e-9)
    # Both measures agree that none is better than equilateral.
    assert shapes.q.max() <= 1 + 1e-12
    assert shapes.radius_ratio.max() <= 1 + 1e-12
    # Law of sines: with angles alone, r_in / r_circ = 4 sin(A/2) sin(B/2) sin(C/2).
    halves = np.sin(np.radians(shapes.angles) / 2)
    assert shapes.radius_ratio == pytest.approx(8 * halves.prod(axis=1), rel=1e-6, abs=1e-12)


def test_a_hexagonal_lattice_is_regular():
    sites, extent = hexagonal(12, 14)
    quality = mesh_quality(delaunay_mesh(sites, extent))
    assert quality.q_min > 1 - 1e-12
    assert quality.valence == {6: quality.interior}
    assert quality.regular == 1.0
    assert quality.interior == 10 * 12


def test_valences_sum_to_six_on_average():
    mesh = delaunay_mesh(np.random.default_rng(1).random((3000, 2)), None)
    border = np.sum(~mesh.interior)
    # 2 E = Σ valence, 3 T = 2 E - border, V - E + T = 1.
    assert mesh.valence.sum() == 6 * len(mesh.sites) - 6 - 2 * border
    quality = mesh_quality(mesh)
    assert sum(quality.valence.values()) == quality.interior == len(mesh.sites) - border


def test_no_triangles():
    quality = mesh_quality(delaunay_mesh([[0.1, 0.1], [0.5, 0.5]]))
    assert quality.triangles == 0
    assert math.isnan(quality.angle_min)
    assert math.isnan(quality.regular)
    assert quality.valence == {}


def test_energy_of_squares_and_hexagons():
    cells = (np.arange(10) + 0.5) / 10
    squares = np.column_stack([part.ravel() for part in np.meshgrid(cells, cells)])
    assert uniform_energy(squares) == pytest.approx(1 / 6, rel=1e-13)
    # Only cells that the border does not cut are regular hexagons: their own energy is the bound.
    sites, extent = hexagonal(9, 9)
    polygons = voronoi_cells(sites, extent)
    middle = 4 * 9 + 4
    area = polygons.areas[middle]
    assert area == pytest.approx(math.sqrt(3) / 2, rel=1e-13)
    assert polygons.second_moments(sites)[middle] / area**2 == pytest.approx(HEXAGONAL_BOUND, rel=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3, 10, 100, 1000])
def test_no_sites_undercut_the_bound(n):
    sites = np.random.default_rng(n).random((n, 2)) * (1.0, 0.5)
    assert uniform_energy(sites, (1.0, 0.5)) > HEXAGONAL_BOUND


def test_the_bound():
    assert abs(HEXAGONAL_BOUND - 0.160375) < 5e-7


def test_limit_of_the_energy():
    assert energy_limit(np.ones((4, 8)), 10) == pytest.approx(HEXAGONAL_BOUND * 0.5**2 / 10, rel=1e-14)
    # ρ = x on the unit square: ∫ √x = 2/3.
    x = (np.arange(2000) + 0.5) / 2000
    density = np.broadcast_to(x, (2000, 2000))
    assert energy_limit(density, 1) == pytest.approx(HEXAGONAL_BOUND * 4 / 9, rel=1e-4)
