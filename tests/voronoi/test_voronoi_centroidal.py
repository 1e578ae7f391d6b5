"""Centroidal tessellations: the bound, centroids, comparison with Lloyd, degenerate starts, callbacks, errors."""

from __future__ import annotations

import re

import numpy as np
import pytest

from stepwell.apps.voronoi import (
    HEXAGONAL_BOUND,
    Tessellation,
    VoronoiEnergy,
    assign,
    centroidal,
    cvt_energy,
    draw_sites,
)
from stepwell.apps.voronoi.coarse import SmallerImage
from stepwell.apps.voronoi.domain import read_density
from stepwell.apps.voronoi.starts import hilbert_order


def hills(shape):
    y, x = np.indices(shape) / max(shape)
    return np.where((x - 0.4) ** 2 + (y - 0.3) ** 2 < 0.3, 1 + np.sin(9 * x) * np.cos(7 * y), 0.0)


def check_consistent(t, density):
    """What the result says of itself, recomputed."""
    assert isinstance(t, Tessellation)
    f, g = cvt_energy(t.sites, density)
    assert t.energy == pytest.approx(f, rel=1e-13)
    found = assign(t.sites, density.shape)
    np.testing.assert_array_equal(t.owners, found.owners)
    np.testing.assert_array_equal(t.empty, found.empty)
    np.testing.assert_array_equal(t.shared, found.shared)
    area = 1 / max(density.shape) ** 2
    mass = np.bincount(found.owners.ravel(), density.ravel() * area, len(t.sites))
    np.testing.assert_allclose(t.mass, mass, rtol=0, atol=1e-6 * mass.max())
    full = t.mass > 0
    away = np.linalg.norm(g[full] / (2 * t.mass[full, None]), axis=1)
    assert t.displacement == pytest.approx(away.max(), rel=1e-9, abs=1e-15)
    assert len(t.history) == t.evaluations
    assert t.history.min() == pytest.approx(t.energy, rel=1e-12)
    assert set(t.seconds) == {"total", "evaluation", "solver"}
    height, width = density.shape
    most = np.array([width, height]) / max(density.shape)
    held = ((t.sites == 0) & (g > 0)) | ((t.sites == most) & (g < 0))
    assert t.projected_gradient == pytest.approx(np.abs(g[~held]).max(), rel=1e-9, abs=1e-18)
    assert (t.sites >= 0).all()
    assert (t.sites <= np.array([width, height]) / max(density.shape)).all()


@pytest.mark.parametrize(("count", "shape"), [(1, (9, 9)), (30, (40, 90)), (400, (200, 150)), (2000, (256, 256))])
def test_uniform_density_stays_above_the_bound(count, shape):
    t = centroidal(count, resolution=shape)
    assert t.success
    assert t.normalized_energy >= HEXAGONAL_BOUND
    # Border cells cost a share that falls with 1/sqrt(n); whole pixels add up to n / (6 pixels).
    pixels = count / (6 * shape[0] * shape[1])
    assert t.normalized_energy <= HEXAGONAL_BOUND * (1.03 + 0.3 / count**0.5) + pixels
    check_consistent(t, np.ones(shape))


def test_two_sites_halve_a_rectangle():
    t = centroidal(2, resolution=(64, 128), ftol=0.0, gtol=1e-9)
    assert t.success
    np.testing.assert_allclose(np.sort(t.sites[:, 0]), [0.25, 0.75], atol=1e-9)
    np.testing.assert_allclose(t.sites[:, 1], 0.25, atol=1e-9)


@pytest.mark.parametrize("method", ["lbfgsb", "lloyd"])
def test_density_with_zeros(method):
    density = hills((120, 160))
    t = centroidal(300, density, method=method)
    assert t.success
    check_consistent(t, density)
    assert t.empty.size == 0
    assert (t.mass > 0).all()
    assert t.history[-1] < 0.8 * t.history[0]


def test_sites_become_as_dense_as_the_root_of_the_density():
    """Gersho (1979): n sites lie as densely as ρ^(1/2) in the plane."""
    x = (np.indices((600, 600))[1] + 0.5) / 600
    t = centroidal(2000, (1 + 8 * x) ** 2)
    share = np.mean(t.sites[:, 0] < 0.5)
    assert share == pytest.approx((0.5 + 4 * 0.25) / 5, abs=0.01)
    assert 1 < t.normalized_energy / HEXAGONAL_BOUND < 1.05


def test_lbfgsb_reaches_lloyds_energy_in_a_tenth_of_the_evaluations():
    lloyd = centroidal(1500, resolution=512, method="lloyd", maxiter=500, ftol=0.0, gtol=0.0)
    quick = centroidal(1500, resolution=512, maxiter=50, ftol=0.0, gtol=0.0)
    reach = np.flatnonzero(quick.history <= lloyd.energy)
    assert reach.size
    assert reach[0] < 50
    assert np.all(np.diff(lloyd.history[:20]) < 0)


@pytest.mark.parametrize("shape", [(512, 512), (401, 603)])
def test_drawn_sites_move_on_fewer_pixels_first(shape):
    """From sites that were given all iterations see the image itself, and it takes more of them."""
    count = shape[0] * shape[1] // 300
    density = 1 + 8 * (np.indices(shape)[1] / shape[1]) ** 2
    lloyd = centroidal(count, density, method="lloyd", maxiter=9, ftol=0.0, gtol=0.0, seed=2)
    drawn = centroidal(count, density, seed=2, maxiter=20)
    given = centroidal(draw_sites(count, density, seed=2), density, maxiter=20)
    first, later = (np.flatnonzero(t.history <= lloyd.energy)[0] for t in (drawn, given))
    assert first + 2 < later < 9
    assert drawn.energy < 1.01 * given.energy
    assert drawn.seconds["evaluation"] <= drawn.seconds["total"]
    check_consistent(drawn, density)
    same = [centroidal(count, density, seed=2, maxiter=2, threads=threads).sites for threads in (1, 2)]
    np.testing.assert_array_equal(*same)
    unmoved = centroidal(count, density, seed=2, maxiter=0)
    np.testing.assert_allclose(unmoved.sites, draw_sites(count, density, seed=2), rtol=1e-15)


def test_a_time_limit_covers_the_smaller_image():
    t = centroidal(800, resolution=512, time_limit=1e-6)
    assert "time limit" in t.message
    assert t.iterations <= 1


@pytest.mark.parametrize("merged", [2, 4])
def test_a_smaller_image_has_the_mass_where_it_was(merged):
    """Sums of its pixels, zero beyond the border; a place in the one is that place in the other."""
    density = hills((61, 90))
    small = SmallerImage.of(read_density(density), merged)
    rows, columns = (-(-side // merged) for side in density.shape)
    padded = np.zeros((rows * merged, columns * merged))
    padded[:61, :90] = density
    sums = padded.reshape(rows, merged, columns, merged).sum(axis=(1, 3))
    ratio = sums.sum() / (small.density.weights.sum() * small.density.unit)
    np.testing.assert_allclose(small.density.weights * (small.density.unit * ratio), sums, atol=1e-6 * sums.max())
    corner = np.array([[1.0, 61 / 90], [merged / 90, 0.0]])  # where the image ends, and where its second pixel begins
    np.testing.assert_allclose(small.there(corner) * columns, corner * 90 / merged)
    np.testing.assert_allclose(small.back(small.there(corner)), corner, rtol=1e-15)
    assert (small.back(np.ones((1, 2))) == [1.0, 61 / 90]).all()


def test_jump_flooding_gives_as_good_a_tessellation():
    t = centroidal(300, resolution=(100, 150), assignment="jump-flooding")
    assert t.success
    assert t.misassigned < 1e-3
    assert t.normalized_energy < 1.08 * HEXAGONAL_BOUND


def test_coincident_sites_are_moved_apart():
    t = centroidal(np.full((40, 2), 0.5), resolution=64)
    assert t.success
    assert t.empty.size == 0
    assert t.normalized_energy < 1.15 * HEXAGONAL_BOUND


def test_coincident_sites_in_corners_part_too():
    """All of them, inside the domain, by half a pixel at most."""
    for corner in ([0.0, 0.0], [1.0, 0.0], [0.0, 0.6], [1.0, 0.6]):
        start = np.tile(corner, (30, 1))
        t = centroidal(start, resolution=(60, 100), maxiter=0)
        assert len(np.unique(t.sites, axis=0)) == 30
        assert ((t.sites >= 0) & (t.sites <= [1.0, 0.6])).all()
        assert np.abs(t.sites - start).max() <= 0.5 / 100 + 1e-15


def test_starts_on_the_border_and_where_the_density_is_zero():
    edge = np.linspace(0, 1, 21)
    sites = np.concatenate([np.stack([edge, 0 * edge], 1), np.stack([0 * edge[1:] + 1, edge[1:]], 1)])
    t = centroidal(sites, resolution=100)
    assert t.success
    check_consistent(t, np.ones((100, 100)))
    density = np.zeros((50, 50))
    density[10:20, 10:20] = 3
    lost = np.array([[0.9, 0.9], [0.95, 0.1], [0.3, 0.3], [0.25, 0.35]])
    t = centroidal(lost, density)
    assert t.success
    np.testing.assert_array_equal(t.sites[:2], lost[:2])  # nothing pulls at them


def test_as_many_sites_as_pixels():
    t = centroidal(15, resolution=(3, 5))
    assert t.success
    centroidal(draw_sites(15, resolution=(3, 5)), resolution=(3, 5), method="lloyd")


def test_more_sites_than_pixels_of_positive_density():
    density = np.zeros((20, 30))
    density[3:6, 4:9] = 2.0
    message = "number of sites is 16; allowed: 1 to 15, the number of pixels of positive density in 20 x 30"
    start = np.random.default_rng(0).random((16, 2)) * [1, 2 / 3]
    for sites in (16, start):
        for method in ("lbfgsb", "lloyd"):
            with pytest.raises(ValueError, match=message):
                centroidal(sites, density, method=method)
    with pytest.raises(ValueError, match=message):
        draw_sites(16, density)
    t = centroidal(15, density)
    check_consistent(t, density)
    # Single evaluations are defined for any number of sites: without mass there is no slope.
    assert np.isfinite(cvt_energy(start, density)[0])


@pytest.mark.parametrize("side", [1, 2, 5])
def test_a_density_in_one_place(side):
    """However steep the energy, converged means that the site is at the centroid."""
    density = np.zeros((30, 30))
    density[4 : 4 + side, 7 : 7 + side] = 5
    for start in (1, np.array([[0.9, 0.1]])):
        t = centroidal(start, density)
        assert t.success
        np.testing.assert_allclose(t.sites * 30, [[7 + side / 2, 4 + side / 2]], atol=30 * 1e-4)


def test_the_projected_gradient_of_four_corners():
    sites = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    t = centroidal(sites, resolution=64, maxiter=0)
    assert t.projected_gradient == pytest.approx(2 * 0.25 * 0.25, rel=1e-12)  # 2 m (x − c), each cell a quarter


def test_runs_repeat_and_do_not_depend_on_threads():
    density = hills((100, 90))
    one = centroidal(150, density, seed=5, threads=1)
    for threads in (1, 2, 4):
        again = centroidal(150, density, seed=5, threads=threads)
        np.testing.assert_array_equal(again.sites, one.sites)
        np.testing.assert_array_equal(again.history, one.history)
    assert not np.array_equal(centroidal(150, density, seed=6).sites, one.sites)


def test_limits_and_callbacks():
    for three in (3, 3.0, np.int64(3)):
        t = centroidal(200, resolution=128, maxiter=three, ftol=0.0, gtol=0.0)
        assert (t.status, t.success, t.iterations) == (1, False, 3)
    for method in ("lbfgsb", "lloyd"):
        seen, steps = [], []

        def watch(intermediate, seen=seen):
            seen.append(intermediate)
            if intermediate.iteration == 4:
                raise StopIteration

        t = centroidal(
            200,
            resolution=128,
            method=method,
            callback=watch,
            progress=lambda k, most, steps=steps: steps.append((k, most)),
        )
        assert t.status == 99
        assert not t.success
        assert [s.iteration for s in seen] == [1, 2, 3, 4]
        assert steps == [(k, 500) for k in (1, 2, 3, 4)]
        assert seen[-1].energy == pytest.approx(t.energy, rel=1e-12)
        assert seen[-1].sites.shape == (200, 2)
    t = centroidal(2000, resolution=512, method="lloyd", time_limit=1e-6)
    assert "time limit" in t.message


@pytest.mark.parametrize("method", ["lbfgsb", "lloyd"])
def test_what_a_caller_holds_is_his(method):
    """Writing into what a callback was shown changes nothing, nor does writing into the result change the start."""
    start = draw_sites(50, resolution=64)
    kept = start.copy()

    def scribble(intermediate):
        intermediate.sites[:] = 0.0

    plain = centroidal(start, resolution=64, method=method)
    np.testing.assert_array_equal(centroidal(start, resolution=64, method=method, callback=scribble).sites, plain.sites)
    centroidal(start, resolution=64, method=method, maxiter=0).sites[:] = 0.0
    np.testing.assert_array_equal(start, kept)


def test_other_libraries_on_the_host():
    """Results come back in the library of the sites, else of the density, else of `like`."""
    torch = pytest.importorskip("torch")
    start = draw_sites(50, resolution=64)
    ones, seen = torch.ones(64, 64), []
    for kind in (
        centroidal(torch.tensor(start), ones, callback=seen.append),
        centroidal(50, ones),
        centroidal(50, resolution=64, like=torch.empty(0)),
        centroidal(50, resolution=64, like=torch.empty(0), method="lloyd"),
    ):
        assert all(isinstance(a, torch.Tensor) for a in (kind.sites, kind.owners, kind.mass, kind.empty, kind.shared))
    assert all(isinstance(step.sites, torch.Tensor) for step in seen)
    # Which pixels change hands magnifies a rounding, by more with every iteration: by a thousand in ten of them.
    few = (centroidal(50, ones, maxiter=10).sites.numpy(), centroidal(50, resolution=64, maxiter=10).sites)
    np.testing.assert_allclose(*few, atol=1e-11)
    assert isinstance(centroidal(start, ones).sites, np.ndarray)
    for drawn in (draw_sites(50, ones), draw_sites(50, resolution=64, like=torch.empty(0))):
        np.testing.assert_array_equal(drawn.numpy(), start)


def test_other_libraries_with_jax():
    jax = pytest.importorskip("jax")
    t = centroidal(50, jax.numpy.ones((64, 64)))
    assert all(isinstance(a, jax.Array) for a in (t.sites, t.owners, t.mass, t.empty, t.shared))
    assert isinstance(draw_sites(50, jax.numpy.ones((64, 64))), jax.Array)


def test_images_of_any_layout():
    """Transposed, flipped and sliced images are what they look like."""
    density = hills((60, 90))
    expected = centroidal(80, density).sites
    wide = np.zeros((60, 180))
    wide[:, ::2] = density
    for same in (np.asfortranarray(density), density.T.copy().T, density[::-1].copy()[::-1], wide[:, ::2]):
        np.testing.assert_array_equal(centroidal(80, same).sites, expected)
    torch = pytest.importorskip("torch")
    np.testing.assert_array_equal(centroidal(80, torch.tensor(density.T.copy()).T).sites.numpy(), expected)


@pytest.mark.parametrize("factor", [1e-280, 1e280])
def test_the_unit_of_the_density_does_not_matter(factor):
    density = hills((60, 90))
    density /= density.max()
    plain, other = centroidal(80, density, maxiter=30), centroidal(80, density * factor, maxiter=30)
    # F is proportional to the density. A run magnifies rounding: ends are as good, not the same.
    assert other.normalized_energy == pytest.approx(plain.normalized_energy, rel=1e-2)
    assert other.history[0] == pytest.approx(plain.history[0] * factor, rel=1e-9)


def test_a_start_has_one_site_in_each_piece_of_equal_mass():
    x = draw_sites(4096, resolution=64, seed=1)  # pieces are pixels
    pixels = np.floor(x * 64).astype(int)
    assert len(np.unique(pixels[:, 1] * 64 + pixels[:, 0])) == 4096
    np.testing.assert_array_equal(x, draw_sites(4096, resolution=64, seed=1))
    image = np.zeros((30, 40), np.uint8)
    image[5:9, 3:30] = 200
    x = draw_sites(60, image, seed=2)
    assert (image[np.floor(x[:, 1] * 40).astype(int), np.floor(x[:, 0] * 40).astype(int)] > 0).all()
    big = draw_sites(500, resolution=(1500, 2100))  # blocks of pixels, some hanging over the border
    assert ((big >= 0) & (big <= [1, 1500 / 2100])).all()
    assert np.histogram2d(big[:, 0], big[:, 1], bins=(5, 4))[0].min() > 15


@pytest.mark.parametrize("side", [1, 2, 4, 32])
def test_a_hilbert_curve_goes_from_neighbour_to_neighbour(side):
    order = hilbert_order(side, side)
    np.testing.assert_array_equal(np.sort(order), np.arange(side**2))
    rows, columns = np.divmod(order, side)
    assert (np.abs(np.diff(rows)) + np.abs(np.diff(columns)) == 1).all()


@pytest.mark.parametrize(
    ("sites", "options", "message"),
    [
        (10, {"method": "newton"}, "method is 'newton'; allowed: 'lbfgsb', 'lloyd'"),
        (10, {"assignment": "brute"}, "assignment is 'brute'; allowed: 'exact', 'jump-flooding'"),
        (10, {"seed": -1}, "seed is -1; allowed: an integer of at least 0"),
        (0, {}, r"sites is 0; allowed: an integer of at least 1, or an array \(n, 2\)"),
        (257, {}, "number of sites is 257; allowed: 1 to 256, the number of pixels"),
        (10, {"maxiter": -1}, "maxiter is -1; allowed"),
        (10, {"ftol": -1.0}, "ftol is -1.0; allowed"),
        (10, {"gtol": float("inf")}, "gtol is inf; allowed"),
        (10, {"maxcor": 0}, "m \\(maxcor\\) is 0; allowed"),
        ([[0.5, 1.5]], {}, "y of sites is 1.5 at index 0; allowed: 0 to 1.0"),
    ],
)
def test_errors_name_argument_and_value(sites, options, message):
    with pytest.raises(ValueError, match=message):
        centroidal(sites, resolution=16, **options)


@pytest.mark.parametrize(
    ("sites", "options", "message"),
    [
        (10, {"callback": 3}, "callback is 3; allowed: None or a callable"),
        (10, {"progress": "bar"}, "progress is 'bar'; allowed: None or a callable"),
        (10, {"density": "ones"}, "density is 'ones'; allowed: an array of real numbers"),
        ([[0.1, 0.2], [0.3]], {}, r"sites is \[\[0.1, 0.2\], \[0.3\]\]; allowed: an array of real numbers"),
        ("all", {}, r"sites is 'all'; allowed: an integer of at least 1, or an array \(n, 2\)"),
        (True, {}, "sites is True; allowed: an integer"),
        (10, {"density": True}, "density is True; allowed: a finite number above 0"),
        (10, {"resolution": True}, "resolution is True; allowed: an integer"),
        (10, {"seed": True}, "seed is True; allowed: an integer"),
    ],
)
def test_wrong_types_are_named_before_any_work(sites, options, message):
    with pytest.raises(TypeError, match=message):
        centroidal(sites, **({"resolution": 16} | options))


def test_a_number_of_sites_is_whole():
    assert centroidal(np.int64(10), resolution=16).sites.shape == (10, 2)
    assert centroidal([[0.1, 0.2], [0.3, 0.4]], resolution=16).success
    with pytest.raises(TypeError, match=r"sites is 10.5; allowed: an integer of at least 1"):
        centroidal(10.5, resolution=16)
    with pytest.raises(TypeError, match=r"count is 10.5; allowed: an integer of at least 1"):
        draw_sites(10.5, resolution=16)
    with pytest.raises(TypeError, match=r"count is 10.5; allowed: an integer of at least 1"):
        VoronoiEnergy(1.0, 10.5, resolution=16)


@pytest.mark.parametrize("seed", [-1, 1.5, None, "a", [1, 2]])
@pytest.mark.parametrize("call", [draw_sites, centroidal])
def test_a_seed_is_a_whole_number(call, seed):
    """Anything else, None above all, would give a start that does not come again."""
    with pytest.raises(ValueError, match=re.escape(f"seed is {seed!r}; allowed: an integer of at least 0")):
        call(10, resolution=16, seed=seed)
