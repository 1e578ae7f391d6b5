"""Plotting routes: every point once, never longer than what they started from, short by known constants."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.apps.voronoi.route import (
    LATTICE_TOUR,
    METHODS,
    hilbert_order,
    path_length,
    plotting_route,
)


def shortest_path(points):
    n = len(points)
    return min(path_length(points, np.array(order)) for order in itertools.permutations(range(n)))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 9, 300])
def test_every_point_is_visited_once(method, n):
    points = np.random.default_rng(n).random((n, 2))
    route = plotting_route(points, method=method)
    assert np.array_equal(np.sort(route.order), np.arange(n))
    assert route.length == path_length(points, route.order)


@given(st.lists(st.tuples(*[st.integers(0, 5)] * 2), min_size=1, max_size=60))
@settings(max_examples=80, deadline=None)
def test_repeated_and_aligned_points(points):
    points = np.array(points, float)
    route = plotting_route(points)
    assert np.array_equal(np.sort(route.order), np.arange(len(points)))
    assert route.bound <= route.length * (1 + 1e-12)


def test_points_in_one_place():
    route = plotting_route(np.full((50, 2), 0.5))
    assert route.length == route.bound == 0
    assert np.array_equal(np.sort(route.order), np.arange(50))


@pytest.mark.parametrize("seed", range(6))
def test_near_the_shortest_of_all(seed):
    points = np.random.default_rng(seed).random((8, 2))
    best = shortest_path(points)
    route = plotting_route(points)
    assert route.bound <= best * (1 + 1e-12)
    assert best * (1 - 1e-12) <= route.length <= 1.15 * best


def test_a_line_is_found():
    points = np.random.default_rng(0).permutation(np.column_stack([np.arange(500.0), np.zeros(500)]))
    assert plotting_route(points).length == pytest.approx(499, abs=1e-9)


def test_a_circle_is_found():
    angles = np.random.default_rng(0).permutation(np.arange(400) * 2 * np.pi / 400)
    points = np.column_stack([np.cos(angles), np.sin(angles)])
    assert plotting_route(points).length == pytest.approx(399 * 2 * math.sin(math.pi / 400), rel=1e-9)


def test_better_in_this_order():
    points = np.random.default_rng(5).random((4000, 2))
    found = {method: plotting_route(points, (1.0, 1.0), method=method) for method in METHODS}
    assert found["improved"].length < found["greedy"].length < found["hilbert"].length < found["given"].length
    assert found["auto"].length == found["improved"].length
    assert found["auto"].method == "improved"
    route = found["improved"]
    assert route.given_length == found["given"].length
    # The mean distance of two random points of the unit square is 0.5214.
    assert route.unordered_length == pytest.approx(0.5214 * 3999, rel=0.03)
    assert route.hilbert_length == found["hilbert"].length
    # 2-opt with Or-opt comes within about 5 % of the shortest tour of random points (Bentley 1992), which at this n is
    # still a percent or two above its limit.
    assert route.random_tour == pytest.approx(0.7124 * math.sqrt(4000), rel=1e-12)
    assert 0.95 * route.random_tour < route.length < 1.10 * route.random_tour
    assert route.bound < route.length


def test_no_link_can_be_uncrossed():
    """At the end no two links that cross are left, since undoing a crossing always shortens."""
    points = np.random.default_rng(8).random((400, 2))
    path = points[plotting_route(points).order]
    a, b = path[:-1], path[1:]

    def side(p, q, r):
        return (q[..., 0] - p[..., 0]) * (r[..., 1] - p[..., 1]) - (q[..., 1] - p[..., 1]) * (r[..., 0] - p[..., 0])

    i, j = np.triu_indices(len(a), 2)
    apart = side(a[i], b[i], a[j]) * side(a[i], b[i], b[j]) < 0
    crossing = apart & (side(a[j], b[j], a[i]) * side(a[j], b[j], b[i]) < 0)
    assert not crossing.any()


def test_a_lattice_comes_near_its_constant():
    x, y = np.meshgrid(np.arange(40.0), np.arange(40.0))
    x[1::2] += 0.5
    points = np.random.default_rng(0).permutation(np.column_stack([x.ravel(), y.ravel() * math.sqrt(3) / 2]))
    route = plotting_route(points, (40.0, 40 * math.sqrt(3) / 2))
    assert route.lattice_tour == pytest.approx(LATTICE_TOUR * math.sqrt(1600 * 1600 * math.sqrt(3) / 2), rel=1e-12)
    assert route.lattice_tour == pytest.approx(1600, rel=1e-12)
    assert 1599 * (1 - 1e-12) <= route.length < 1.03 * 1600


@pytest.mark.parametrize("side", [2, 8, 64])
def test_hilbert_curve_goes_from_square_to_square(side):
    x, y = np.meshgrid(np.arange(side), np.arange(side))
    points = np.column_stack([x.ravel(), y.ravel()]).astype(float) + 0.5
    # The grid is that of the points' own extent: squares of it, not of the plane, are what the curve passes.
    order = hilbert_order(np.concatenate([points, [[0.0, 0.0], [side, side]]]))
    order = order[order < side * side]
    assert np.abs(np.diff(points[order], axis=0)).sum(axis=1).tolist() == [1.0] * (side * side - 1)


def test_the_same_every_time():
    points = np.random.default_rng(3).random((500, 2))
    assert np.array_equal(plotting_route(points).order, plotting_route(points.copy()).order)


def test_many_points_take_the_shorter_of_two_paths(monkeypatch):
    """A square grid is a Hilbert curve's own ground; of random points the greedy path is shorter."""
    monkeypatch.setattr("stepwell.apps.voronoi.route.MAX_IMPROVED", 100)
    grid = np.stack(np.meshgrid(np.arange(32.0), np.arange(32.0)), axis=-1).reshape(-1, 2)
    for points, expected in ((grid, "hilbert"), (np.random.default_rng(0).random((1000, 2)), "greedy")):
        lengths = {method: plotting_route(points, method=method).length for method in ("greedy", "hilbert")}
        chosen = plotting_route(points)
        assert chosen.length == min(lengths.values())
        assert chosen.method == expected
    assert lengths["greedy"] < lengths["hilbert"]


def test_bad_method():
    with pytest.raises(ValueError, match="method is 'best'; allowed: 'auto', 'improved', 'greedy', 'hilbert', 'given'"):
        plotting_route([[0.0, 0.0]], method="best")
    with pytest.raises(ValueError, match=r"extent has shape \(1,\); allowed: \(width, height\)"):
        plotting_route([[0.0, 0.0]], (1.0,))
