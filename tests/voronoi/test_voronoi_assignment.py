"""Owners of pixels against SciPy's k-d tree and distance transform; errors name what is wrong."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import distance_transform_edt
from scipy.spatial import cKDTree

from stepwell.apps.voronoi import assign
from stepwell.apps.voronoi.assignment import misassigned_fraction


def scattered(count, shape, seed=0):
    return np.random.default_rng(seed).random((count, 2)) * [shape[1], shape[0]] / max(shape)


def centres(shape):
    rows, columns = np.indices(shape)
    return np.stack([columns + 0.5, rows + 0.5], axis=-1) / max(shape)


def check_nearest(sites, found):
    """Every owner is at the least distance, to the rounding of coordinates up to 1; ties go to the lowest site."""
    points = centres(found.shape).reshape(-1, 2)
    own = np.linalg.norm(points - sites[found.ravel()], axis=1)
    least, nearest = cKDTree(sites).query(points)
    np.testing.assert_allclose(own, least, rtol=0, atol=1e-14)
    clear = cKDTree(sites).query(points, k=min(2, len(sites)))[0].reshape(len(points), -1)
    if len(sites) > 1:
        certain = clear[:, 1] - clear[:, 0] > 1e-13
        np.testing.assert_array_equal(found.ravel()[certain], nearest[certain])


@pytest.mark.parametrize(
    ("count", "shape"),
    [(1, (1, 1)), (1, (40, 33)), (2, (7, 90)), (77, (100, 37)), (500, (64, 64)), (3000, (128, 200)), (4096, (64, 64))],
)
def test_exact_assignment_is_the_k_d_trees(count, shape):
    sites = scattered(count, shape)
    found = assign(sites, shape, check=True)
    assert found.owners.dtype == np.int32
    assert found.misassigned == 0.0
    check_nearest(sites, found.owners)
    np.testing.assert_array_equal(found.empty, np.setdiff1d(np.arange(count), found.owners))


def test_sites_at_pixel_centres_agree_with_the_distance_transform():
    shape = (90, 61)
    rng = np.random.default_rng(4)
    pixels = rng.permutation(90 * 61)[:120]
    sites = centres(shape).reshape(-1, 2)[pixels]
    image = np.ones(shape)
    image.ravel()[pixels] = 0
    distance = distance_transform_edt(image)
    for method in ("exact", "jump-flooding"):
        owners = assign(sites, shape, method=method).owners
        mine = np.linalg.norm(centres(shape) - sites[owners], axis=-1) * max(shape)
        np.testing.assert_allclose(mine, distance, rtol=0, atol=1e-11)


@pytest.mark.parametrize("scale", [0.0, 1e-9, 0.002, 0.03])
def test_clusters_in_a_corner(scale):
    sites = scattered(400, (120, 150)) * scale + [0.9, 0.7]
    check_nearest(sites, assign(sites, (120, 150)).owners)


def test_ties_go_to_the_lowest_site_and_coincident_ones_are_reported():
    sites = np.array([[0.75, 0.5], [0.25, 0.5], [0.25, 0.5]])
    found = assign(sites, (4, 4))
    np.testing.assert_array_equal(found.owners, [[1, 1, 0, 0]] * 4)
    np.testing.assert_array_equal(found.empty, [2])
    np.testing.assert_array_equal(found.shared, [1, 2])
    between = np.array([[0.75, 0.5], [0.25, 0.5]])  # the middle column is at equal distances
    np.testing.assert_array_equal(assign(between, (5, 5)).owners[:, 2], 0)


def test_sites_that_share_a_pixel_keep_their_own_cells():
    sites = np.array([[0.501, 0.5], [0.505, 0.5]])
    found = assign(sites, (64, 64))
    np.testing.assert_array_equal(found.shared, [0, 1])
    assert found.empty.size == 0
    flooded = assign(sites, (64, 64), method="jump-flooding", check=True)
    np.testing.assert_array_equal(flooded.empty, [1])
    np.testing.assert_array_equal(flooded.shared, [0, 1])
    assert flooded.misassigned == pytest.approx(np.mean(found.owners == 1))


def test_borders_belong_to_the_domain():
    sites = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 0.6], [1.0, 0.6], [0.5, 0.6]])
    check_nearest(sites, assign(sites, (60, 100)).owners)
    check_nearest(sites, assign(sites, (60, 100), method="jump-flooding").owners)


@pytest.mark.parametrize("shape", [(256, 256), (100, 300)])
def test_jump_flooding_is_nearly_exact(shape):
    sites = scattered(300, shape, seed=2)
    flooded = assign(sites, shape, method="jump-flooding", check=True)
    exact = assign(sites, shape)
    wrong = np.mean(flooded.owners != exact.owners)
    assert flooded.misassigned == pytest.approx(wrong, abs=1e-6)
    # Rong & Tan (2007): a few pixels in a hundred thousand; sites that share a pixel are lost beside that.
    lost = np.isin(exact.owners, np.setdiff1d(flooded.empty, exact.empty)).mean()
    assert wrong <= lost + 1e-3


def test_misassigned_counts_wrong_owners():
    sites = scattered(20, (32, 32))
    owners = assign(sites, (32, 32)).owners.copy()
    owners[3, 4] = (owners[3, 4] + 1) % 20
    owners[10, 4] = (owners[10, 4] + 1) % 20
    assert misassigned_fraction(sites, owners) == 2 / 1024
    assert misassigned_fraction(sites, owners, assign(sites, (32, 32)).owners) == 2 / 1024


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 60), st.integers(0, 10**6), st.booleans())
def test_any_shape_and_number(height, width, count, seed, lattice):
    count = min(count, height * width)
    sites = scattered(count, (height, width), seed)
    if lattice:  # many ties, many coincident sites
        sites = np.round(sites * 4) / 4
        sites = np.minimum(sites, [width / max(height, width), height / max(height, width)])
    owners = assign(sites, (height, width)).owners
    points = centres((height, width)).reshape(-1, 2)
    distance = np.linalg.norm(points[:, None] - sites[None], axis=2)
    own = distance[np.arange(len(points)), owners.ravel()]
    np.testing.assert_allclose(own, distance.min(axis=1), rtol=0, atol=1e-14)
    if lattice:  # a coincident site never wins over a lower one
        first = np.unique(sites, axis=0, return_index=True)[1]
        assert np.isin(owners, first).all()


def test_owners_do_not_depend_on_threads():
    sites = scattered(2000, (200, 300))
    for method in ("exact", "jump-flooding"):
        one = assign(sites, (200, 300), method=method, threads=1)
        for threads in (2, 5):
            np.testing.assert_array_equal(assign(sites, (200, 300), method=method, threads=threads).owners, one.owners)


def test_other_libraries():
    torch = pytest.importorskip("torch")
    sites = scattered(30, (20, 30))
    found = assign(torch.tensor(sites), (20, 30), method="jump-flooding", check=True)
    assert all(isinstance(a, torch.Tensor) for a in (found.owners, found.empty, found.shared))
    np.testing.assert_array_equal(found.owners.numpy(), assign(sites, (20, 30), method="jump-flooding").owners)


@pytest.mark.parametrize(
    ("sites", "shape", "options", "message"),
    [
        (np.zeros((5, 3)), (8, 8), {}, r"sites has shape \(5, 3\); allowed: \(n, 2\)"),
        (np.zeros((0, 2)), (8, 8), {}, "number of sites is 0; allowed: 1 to 64, the number of pixels in 8 x 8"),
        (np.zeros((65, 2)), (8, 8), {}, "number of sites is 65; allowed: 1 to 64, the number of pixels in 8 x 8"),
        ([[0.5, np.nan]], (8, 8), {}, "y of sites is nan at index 0; allowed: 0 to 1.0"),
        ([[0.5, 0.51]], (4, 8), {}, "y of sites is 0.51 at index 0; allowed: 0 to 0.5"),
        ([[0.5, 0.2], [-0.1, 0.2]], (4, 8), {}, "x of sites is -0.1 at index 1; allowed: 0 to 1.0"),
        ([[0.5, 0.5]], (8, 0), {}, r"shape\[1\] is 0; allowed: an integer from 1 to 32768"),
        ([[0.5, 0.5]], (8, 8, 8), {}, r"shape is \(8, 8, 8\); allowed: an integer or a pair \(height, width\)"),
        (
            [[0.5, 0.5]],
            100_000,
            {},
            r"shape is 100000; allowed: an integer from 1 to 32768, or a pair \(height, width\)",
        ),
        ([[0.5, 0.5]], (8, 8), {"method": "fortune"}, "method is 'fortune'; allowed: 'exact', 'jump-flooding'"),
        ([[0.5, 0.5]], (8, 8), {"threads": 0}, "threads is 0; allowed"),
    ],
)
def test_errors_name_argument_and_value(sites, shape, options, message):
    with pytest.raises(ValueError, match=message):
        assign(sites, shape, **options)


def test_types_are_checked():
    for bad in (8.5, True, "8"):
        with pytest.raises(TypeError, match=rf"shape\[0\] is {bad!r}; allowed: an integer from 1 to 32768"):
            assign([[0.5, 0.5]], (bad, 8))
    for kind, allowed in ((complex, "real numbers"), (bool, "integers, float16, float32 or float64")):
        with pytest.raises(TypeError, match=f"sites has dtype {np.dtype(kind)}; allowed: {allowed}"):
            assign(np.zeros((2, 2), kind), (8, 8))
