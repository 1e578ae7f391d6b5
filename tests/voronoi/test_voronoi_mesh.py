"""Cells and dual mesh of sites: exact areas, the empty-circle property, Euler's formula, degenerate sites."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial import ConvexHull, cKDTree

from stepwell.apps.voronoi.domain import extent_of
from stepwell.apps.voronoi.mesh import Mesh, circumcentres, delaunay_mesh, voronoi_cells
from stepwell.apps.voronoi.polygons import Cells, clip_to_rectangle

EPS = np.finfo(float).eps


def random_sites(n, extent=(1.0, 1.0), seed=0):
    return np.random.default_rng(seed).random((n, 2)) * extent


def grid(rows, columns):
    x, y = np.meshgrid((np.arange(columns) + 0.5) / columns, (np.arange(rows) + 0.5) / rows)
    return np.column_stack([x.ravel(), y.ravel()])


DEGENERATE = {
    "one": np.array([[0.3, 0.6]]),
    "two": np.array([[0.3, 0.6], [0.9, 0.1]]),
    "on a line": np.column_stack([np.linspace(0, 1, 17), np.full(17, 0.5)]),
    "on a diagonal": np.column_stack([np.linspace(0.1, 0.9, 17)] * 2),
    "grid": grid(12, 9),
    "corners": np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]),
    "on the border": np.array([[0.0, 0.3], [1.0, 0.3], [0.4, 0.0], [0.4, 1.0], [0.5, 0.5], [0.0, 0.0]]),
    "all in one place": np.full((9, 2), 0.25),
    "doubled": np.repeat(random_sites(40), 2, axis=0),
    "lattice with repeats": np.random.default_rng(1).integers(0, 7, (300, 2)) / 6,
    "nearly doubled": np.concatenate([random_sites(60), 0.5 + 1e-13 * random_sites(20, seed=2)]),
    "circle": 0.5 + 0.4 * np.column_stack([f(np.arange(24) * np.pi / 12) for f in (np.cos, np.sin)]),
}


@pytest.mark.parametrize("extent", [(1.0, 1.0), (1.0, 0.37), (0.2, 1.0)])
@pytest.mark.parametrize("n", [1, 2, 3, 5, 50, 3000])
def test_areas_sum_to_the_domain(n, extent):
    cells = voronoi_cells(random_sites(n, extent), extent)
    assert len(cells) == n
    assert cells.areas.min() > 0
    # A few roundings for every corner, of numbers not above 1.
    assert cells.areas.sum() == pytest.approx(extent[0] * extent[1], abs=8 * EPS * len(cells.vertices))


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_sites_share_the_domain(name):
    sites = DEGENERATE[name]
    cells = voronoi_cells(sites)
    assert cells.areas.min() >= 0
    assert cells.areas.sum() == pytest.approx(1.0, abs=1e-12)
    mesh = delaunay_mesh(sites)
    assert mesh.triangles.shape[1] == 3
    assert np.all(np.isfinite(circumcentres(sites, mesh.triangles)))
    delaunay_mesh(sites, None)


def test_of_coinciding_sites_one_has_the_cell():
    sites = DEGENERATE["doubled"]
    areas = voronoi_cells(sites).areas.reshape(-1, 2)
    assert np.all((areas > 0).sum(axis=1) == 1)
    assert areas.sum(axis=1) == pytest.approx(voronoi_cells(sites[::2]).areas, abs=1e-14)
    mesh = delaunay_mesh(sites)
    assert np.all((mesh.valence.reshape(-1, 2) > 0).sum(axis=1) == 1)


def test_cells_are_the_points_nearest_to_their_sites():
    sites = random_sites(200, (1.0, 0.6))
    cells = voronoi_cells(sites, (1.0, 0.6))
    tree = cKDTree(sites)
    # Just inside of every corner, the owner is the cell's site.
    centre = cells.centroids[cells.owner]
    inside = centre + (1 - 1e-7) * (cells.vertices - centre)
    assert np.array_equal(tree.query(inside)[1], cells.owner)


def test_polygons_are_convex_with_their_site_inside():
    sites = random_sites(500)
    cells = voronoi_cells(sites)
    for index in range(0, 500, 7):
        polygon = cells.polygon(index)
        hull = ConvexHull(polygon)
        assert hull.volume == pytest.approx(cells.areas[index], rel=1e-9)
        assert np.all(hull.equations @ np.append(sites[index], 1.0) <= 1e-12)


def test_centroids_and_moments_of_a_grid():
    sites = grid(4, 8)
    cells = voronoi_cells(sites)
    a, b = 1 / 8, 1 / 4
    assert cells.areas == pytest.approx(a * b, abs=1e-15)
    assert cells.centroids == pytest.approx(sites, abs=1e-15)
    assert cells.second_moments(sites) == pytest.approx(a * b * (a * a + b * b) / 12, rel=1e-13)
    # Steiner: about another point, the area times its squared distance is added.
    away = np.array([0.3, -0.2])
    moved = cells.second_moments(sites + away)
    assert moved == pytest.approx(a * b * ((a * a + b * b) / 12 + away @ away), rel=1e-13)


def test_moments_against_pixels():
    sites = random_sites(30)
    cells = voronoi_cells(sites)
    pixels = grid(700, 700)
    distance, owner = cKDTree(sites).query(pixels)
    pixel = 1 / 700
    # A cell's border of length L moves at most a pixel's diagonal of area either way.
    assert np.abs(np.bincount(owner, minlength=30) * pixel**2 - cells.areas).max() < 4 * np.sqrt(2) * pixel
    energy = np.sum(distance**2) * pixel**2
    assert cells.second_moments(sites).sum() == pytest.approx(energy, rel=1e-3)


def test_mesh_has_the_empty_circle_property_and_is_dual_to_the_cells():
    extent = (1.0, 0.7)
    sites = random_sites(800, extent)
    mesh = delaunay_mesh(sites, extent)
    centres = circumcentres(sites, mesh.triangles)
    radius = np.linalg.norm(centres - sites[mesh.triangles[:, 0]], axis=1)
    assert cKDTree(sites).query(centres)[0] == pytest.approx(radius, rel=1e-9)
    assert np.all((centres >= 0) & (centres <= extent))
    # The dual vertices are the corners of cells that do not lie on the border of the domain.
    corners = voronoi_cells(sites, extent).vertices
    inner = np.all((corners > 0) & (corners < extent), axis=1)
    assert 3 * len(centres) == inner.sum()
    assert cKDTree(corners[inner]).query(centres)[0].max() < 1e-12


def test_orientation_edges_and_euler():
    sites = random_sites(300)
    hull = delaunay_mesh(sites, None)
    a, b, c = (hull.sites[hull.triangles[:, k]] for k in range(3))
    p, q = b - a, c - a
    assert np.all(p[:, 0] * q[:, 1] - p[:, 1] * q[:, 0] > 0)
    # Euler: V - E + T = 1 for a triangulated disc; the hull is its border.
    assert len(sites) - len(hull.edges) + len(hull.triangles) == 1
    on_hull = np.zeros(len(sites), bool)
    on_hull[ConvexHull(sites).vertices] = True
    assert np.array_equal(hull.interior, ~on_hull)
    assert hull.valence.sum() == 2 * len(hull.edges)


def test_mesh_of_the_domain_leaves_out_flat_triangles_of_the_hull():
    rng = np.random.default_rng(3)
    sites = grid(20, 20) + rng.uniform(-1e-4, 1e-4, (400, 2))
    hull, dual = delaunay_mesh(sites, None), delaunay_mesh(sites)
    assert len(dual.triangles) < len(hull.triangles)
    centres = circumcentres(sites, hull.triangles)
    assert np.sum(np.all((centres >= 0) & (centres <= 1), axis=1)) == len(dual.triangles)


def test_mesh_only_where_there_is_density():
    sites = random_sites(2000)
    density = np.ones((50, 50))
    density[:, :25] = 0
    mesh = delaunay_mesh(sites, density=density)
    centres = circumcentres(sites, mesh.triangles)
    assert centres[:, 0].min() >= 0.5
    assert len(mesh.triangles) == np.sum(circumcentres(sites, delaunay_mesh(sites).triangles)[:, 0] >= 0.5)
    assert not mesh.interior[sites[:, 0] < 0.4].any()


@given(st.lists(st.tuples(*[st.sampled_from([0.0, 0.125, 0.25, 1 / 3, 0.5, 0.7, 1.0])] * 2), min_size=1, max_size=25))
@settings(max_examples=60, deadline=None)
def test_any_sites_share_the_domain(points):
    sites = np.array(points)
    cells = voronoi_cells(sites)
    assert cells.areas.sum() == pytest.approx(1.0, abs=1e-12)
    assert np.sum(cells.areas > 1e-9) == len(np.unique(sites, axis=0))


def test_clipping_away_everything_and_nothing():
    triangle = np.array([[0.2, 0.2], [0.8, 0.2], [0.5, 0.6]])
    cells = Cells(np.concatenate([triangle, triangle + 5]), np.array([0, 3, 6]))
    clipped = clip_to_rectangle(cells, 1.0, 1.0)
    assert np.array_equal(clipped.polygon(0), triangle)
    assert len(clipped.polygon(1)) == 0
    assert clipped.areas.tolist() == pytest.approx([0.12, 0.0])
    assert np.isnan(clipped.centroids[1]).all()


def test_no_sites():
    cells = voronoi_cells(np.zeros((0, 2)))
    assert len(cells) == 0
    assert cells.areas.sum() == 0
    mesh = delaunay_mesh(np.zeros((0, 2)))
    assert len(mesh.edges) == len(mesh.interior) == 0


@pytest.mark.parametrize(
    ("sites", "message"),
    [
        (np.zeros((3, 3)), r"sites has shape \(3, 3\); allowed: \(n, 2\)"),
        ([[0.1, np.nan]], r"sites is nan at index \(0, 1\); allowed: finite numbers"),
        ([[0.5, 1.5]], r"sites is 1.5 at index \(0, 1\); allowed: x and y in \[0, 1\] x \[0, 1\]"),
    ],
)
def test_bad_sites(sites, message):
    with pytest.raises(ValueError, match=message):
        voronoi_cells(sites)


def test_sides_may_be_rounded_either_way():
    """3/5 and 3 (1/5) are one side: a site on the border of one has its cell in the other."""
    assert 3 / 5 < 3 * (1 / 5)
    cells = voronoi_cells([[0.5, 0.15], [0.5, 3 * (1 / 5)]], (1.0, 3 / 5))
    assert cells.areas == pytest.approx([0.375, 0.225], rel=1e-12)
    for shape in ((24, 40), (41, 69), (69, 41)):
        width, height = extent_of(shape)
        far = [[width, height], [0.0, height], [width, 0.0]]
        assert voronoi_cells(far, (shape[1] / max(shape), shape[0] / max(shape))).areas.min() > 0


def test_bad_extents():
    for height in (0.0, np.inf, True):
        with pytest.raises(ValueError, match=rf"extent\[1\] is {height!r}; allowed: a finite number above 0"):
            voronoi_cells([[0.1, 0.1]], (1.0, height))
    for bad, shape in (((1.0,), r"\(1,\)"), (1.0, r"\(\)"), ((1.0, 1.0, 1.0), r"\(3,\)")):
        with pytest.raises(ValueError, match=rf"extent has shape {shape}; allowed: \(width, height\)"):
            delaunay_mesh([[0.1, 0.1]], bad)
    with pytest.raises(ValueError, match=r"density has shape \(4,\); allowed: \(rows, columns\)"):
        delaunay_mesh([[0.1, 0.1]], density=np.ones(4))
    with pytest.raises(ValueError, match=r"extent is None; allowed: \(width, height\), where a density lies"):
        delaunay_mesh([[0.1, 0.1]], None, density=np.ones((2, 2)))


def test_a_mesh_without_triangles():
    mesh = Mesh(np.zeros((4, 2)), np.zeros((0, 3), np.int32))
    assert mesh.edges.shape == (0, 2)
    assert mesh.valence.tolist() == [0] * 4
    assert not mesh.interior.any()


def euler(mesh):
    """Vertices less edges plus triangles: 1 of a disc, 0 of a ring, less by one for every hole."""
    return len(np.unique(mesh.triangles)) - len(mesh.edges) + len(mesh.triangles)


def test_white_pixels_leave_no_hole_and_a_ring_keeps_its_own():
    rng = np.random.default_rng(6)
    sites = rng.uniform(0.02, 0.98, (400, 2))
    picture = np.where(rng.random((100, 100)) < 0.1, 0.0, 1.0)  # white here and there
    centres = circumcentres(sites, delaunay_mesh(sites).triangles)
    pixels = np.clip((100 * centres).astype(int), 0, 99)
    assert np.any(picture[pixels[:, 1], pixels[:, 0]] == 0)  # some fall on such pixels
    whole, drawn = (delaunay_mesh(sites, density=density) for density in (np.ones((100, 100)), picture))
    assert euler(whole) == euler(drawn) == 1
    turn, radius = rng.uniform(0, 2 * np.pi, 800), rng.uniform(0.3, 0.45, 800)
    ring = 0.5 + np.column_stack([radius * np.cos(turn), radius * np.sin(turn)])
    rows, columns = (np.mgrid[:200, :200] + 0.5) / 200 - 0.5
    away = np.hypot(rows, columns)
    density = ((away > 0.29) & (away < 0.46)).astype(float)
    assert euler(delaunay_mesh(ring, density=density)) == 0
