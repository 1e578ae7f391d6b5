"""Energy and gradient against sums over pixels, differences of the exact energy, and closed forms."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from scipy.spatial import cKDTree

import stepwell
from stepwell import _core
from stepwell.apps.voronoi import HEXAGONAL_BOUND, VoronoiEnergy, assign, cvt_energy
from stepwell.apps.voronoi.domain import read_density, weight_bits


def scattered(count, shape, seed=0):
    return np.random.default_rng(seed).random((count, 2)) * [shape[1], shape[0]] / max(shape)


def centres(shape):
    rows, columns = np.indices(shape)
    return np.stack([columns + 0.5, rows + 0.5], axis=-1).reshape(-1, 2) / max(shape)


def summed(sites, density):
    """F by SciPy's k-d tree: the least distances of all pixels."""
    area = 1 / max(density.shape) ** 2
    return float(density.ravel() @ cKDTree(sites).query(centres(density.shape))[0] ** 2) * area


def hills(shape):
    y, x = np.indices(shape) / max(shape)
    return np.where((x - 0.4) ** 2 + (y - 0.3) ** 2 < 0.3, 1 + np.sin(9 * x) * np.cos(7 * y), 0.0)


@pytest.mark.parametrize("method", ["exact", "jump-flooding"])
@pytest.mark.parametrize(("count", "shape"), [(1, (30, 20)), (60, (50, 70)), (900, (64, 100))])
def test_energy_and_gradient_are_sums_over_pixels(method, count, shape):
    sites = scattered(count, shape)
    image = np.random.default_rng(1).integers(0, 256, shape).astype(np.uint8)
    f, g = cvt_energy(sites, image, method=method)
    owners = assign(sites, shape, method=method).owners.ravel()
    area = 1 / max(shape) ** 2
    mass = np.bincount(owners, image.ravel() * area, count)
    away = sites[owners] - centres(shape)
    moment = np.stack([np.bincount(owners, image.ravel() * area * away[:, k], count) for k in (0, 1)], axis=1)
    assert f == pytest.approx((image.ravel() * area) @ (away**2).sum(axis=1), rel=1e-13)
    # 2 m (x - c) = 2 sum rho (x - p)
    np.testing.assert_allclose(g, 2 * moment, rtol=0, atol=1e-14 * mass.max())
    if method == "exact":
        assert f == pytest.approx(summed(sites, image.astype(float)), rel=1e-12)


def test_gradient_is_the_derivative_of_the_exact_energy():
    """F is quadratic while no pixel changes hands: central differences are exact but for rounding.

    Steps of 1e-7 change hands of about 1e-7 * perimeter / pixel of the pixels: here of none (the check says so).
    """
    shape = (60, 80)
    density = hills(shape) + 0.1
    rounded = read_density(density)
    density = rounded.weights.astype(float) * rounded.unit
    sites = scattered(25, shape, seed=3)
    _, g = cvt_energy(sites, density)
    owners = assign(sites, shape).owners
    step = 1e-7
    for i in range(0, 25, 3):
        for axis in (0, 1):
            up, down = sites.copy(), sites.copy()
            up[i, axis] += step
            down[i, axis] -= step
            assert (assign(up, shape).owners == owners).all()
            assert (assign(down, shape).owners == owners).all()
            slope = (summed(up, density) - summed(down, density)) / (2 * step)
            # The differences carry the rounding of F, eps F / step.
            assert g[i, axis] == pytest.approx(slope, abs=20 * 2.2e-16 * summed(sites, density) / step)


def test_the_energy_is_continuous_where_pixels_change_hands():
    """Along a line through many changes the energy equals the integral of its slope (trapezoid, O(step^2))."""
    shape = (40, 40)
    energy = VoronoiEnergy(1.0, 30, resolution=shape)
    start, way = 0.1 + 0.8 * scattered(30, shape, 5), scattered(30, shape, 6) - 0.5
    t = np.linspace(0, 0.05, 2001)
    values = [energy.evaluate(start + s * way) for s in t]
    slopes = np.array([np.sum(g * way) for _, g in values])
    assert (assign(start, shape).owners != assign(start + t[-1] * way, shape).owners).sum() > 50
    f = np.array([value for value, _ in values])
    expected = f[0] + np.concatenate([[0], np.cumsum((slopes[1:] + slopes[:-1]) / 2 * np.diff(t))])
    # A slope that jumps within a step leaves at most the jump times half the step.
    jumps = np.abs(np.diff(slopes)).sum() * (t[1] - t[0]) / 2
    np.testing.assert_allclose(f, expected, rtol=0, atol=jumps)
    assert jumps < 0.01 * np.ptp(f)


def test_results_do_not_depend_on_threads_bit_for_bit():
    shape = (300, 200)
    sites, density = scattered(5000, shape), hills(shape)
    for method in ("exact", "jump-flooding"):
        f, g = cvt_energy(sites, density, method=method, threads=1)
        for threads in (2, 3, 8):
            f2, g2 = cvt_energy(sites, density, method=method, threads=threads)
            assert f == f2
            np.testing.assert_array_equal(g, g2)


def test_rounding_of_the_density_is_within_its_bound():
    shape = (64, 64)
    density = hills(shape) * np.exp(np.random.default_rng(0).normal(size=shape))
    found = read_density(density)
    whole = found.weights.astype(float)
    np.testing.assert_allclose(whole * found.unit, density, rtol=0, atol=2.0**-25 * density.max() * 1.001)
    sites = scattered(50, shape)
    f, _ = cvt_energy(sites, density)
    bound = 2.0**-25 * density.max() * summed(sites, np.ones(shape))
    assert abs(f - summed(sites, density)) <= bound * 1.01
    image = np.arange(256, dtype=np.uint8).reshape(16, 16)
    np.testing.assert_array_equal(read_density(image).weights, image)  # whole numbers stay as they are


@pytest.mark.parametrize("shape", [(8, 8), (2048, 2048), (4096, 4096), (16384, 16384), (32768, 32768)])
def test_moments_of_one_cell_as_large_as_the_image_fit(shape):
    most = 2 ** weight_bits(shape) - 1
    assert most >= 2**14
    assert most * shape[0] * shape[1] * max(shape) < 2**63


def test_one_site_far_away_and_large_weights():
    """The largest moments that this image can have, against exact integers."""
    shape = (700, 900)
    f, g = cvt_energy(np.array([[0.0, 0.0]]), np.full(shape, 7.5))
    x, y = np.arange(900) + 0.5, np.arange(700) + 0.5
    assert f == pytest.approx(7.5 * ((x**2).sum() * 700 + (y**2).sum() * 900) / 900.0**4, rel=1e-13)
    np.testing.assert_allclose(g, [[-2 * 7.5 * x.sum() * 700 / 900**3, -2 * 7.5 * y.sum() * 900 / 900**3]], rtol=1e-13)


def test_cells_without_mass_have_gradient_zero():
    density = np.zeros((40, 40))
    density[:, :10] = 1
    sites = np.array([[0.1, 0.5], [0.9, 0.5], [0.1, 0.5], [0.9, 0.2]])
    f, g = cvt_energy(sites, density)
    np.testing.assert_array_equal(g[1:], 0)
    assert f == pytest.approx(summed(sites, density), rel=1e-13)
    energy = VoronoiEnergy(density, 4)
    energy.evaluate(sites)
    np.testing.assert_allclose(energy.masses(), [0.25, 0, 0, 0])


def hexagonal_excess(columns):
    """Energy over the bound, less 1, of a hexagonal lattice that fills a rectangle."""
    side, rows = 1 / columns, columns
    height = rows * side * 0.75**0.5
    shape = (round(height * 1024), 1024)
    row, column = np.indices((rows, columns))
    x, y = (column + 0.25 + 0.5 * (row % 2)) * side, (row + 0.5) * shape[0] / 1024 / rows
    energy = VoronoiEnergy(1.0, x.size, resolution=shape)
    f, _ = energy.evaluate(np.stack([x.ravel(), y.ravel()], axis=1))
    return energy.normalized(f) / HEXAGONAL_BOUND - 1


def test_hexagons_come_near_the_bound_from_above():
    """Only cells at the border are no hexagons: their share, and the excess, fall as 1/sqrt(n)."""
    excess = [hexagonal_excess(columns) for columns in (12, 24, 48)]
    assert all(e > 0 for e in excess)
    assert excess[2] < 0.03
    # Half as much for four times as many, and what whole pixels add: n / (6 pixels) over the bound.
    assert excess[1] < 0.55 * excess[0] + 0.002
    assert excess[2] < 0.55 * excess[1] + 0.004


def test_squares_have_one_sixth():
    """n square cells: F n / |Ω|² = 1/6 exactly, pixel by pixel."""
    x = (np.arange(8) + 0.5) / 8
    sites = np.stack(np.meshgrid(x, x), axis=-1).reshape(-1, 2)
    for side in (8, 64, 104):
        energy = VoronoiEnergy(2.5, 64, resolution=side)
        f, g = energy.evaluate(sites)
        assert energy.normalized(f) == pytest.approx(1 / 6, rel=1e-12)
        np.testing.assert_allclose(g, 0, atol=1e-15)


def test_fun_goes_into_minimize_in_every_kind():
    shape = (32, 48)
    start = scattered(12, shape)
    box = (np.zeros(24), np.tile([1.0, 32 / 48], 12))
    options = {"ftol": 1e-10}
    plain = stepwell.minimize(
        VoronoiEnergy(1.0, 12, resolution=shape, scale=100).fun, start.ravel(), jac=True, bounds=box, options=options
    )
    assert plain.success
    torch = pytest.importorskip("torch")
    kind = stepwell.minimize(
        VoronoiEnergy(1.0, 12, resolution=shape, scale=100).fun,
        torch.tensor(start.ravel()),
        jac=True,
        bounds=box,
        options=options,
    )
    np.testing.assert_array_equal(kind.x.numpy(), plain.x)


@pytest.mark.parametrize("method", ["exact", "jump-flooding"])
def test_not_a_number_gives_not_a_number(method):
    energy = VoronoiEnergy(1.0, 3, resolution=16, method=method)
    f, _ = energy.fun(np.full(6, np.nan))
    assert np.isnan(f)


def test_pixels_without_an_owner_are_added_to_nobody():
    """Sites that are nowhere own nothing: no moment is written, not even in front of the first site's."""
    moments = np.full((4, 3), 7)
    host = _core.VoronoiHost(16, 16, 3, 1)
    host.evaluate(np.full((3, 2), np.nan), True, np.ones((16, 16), np.float32), 1.0, 1.0, np.empty((3, 2)), moments[1:])
    np.testing.assert_array_equal(moments, [[7] * 3, [0] * 3, [0] * 3, [0] * 3])


@pytest.mark.parametrize(
    ("density", "resolution", "message"),
    [
        (np.zeros((4, 4)), None, "density is zero everywhere; allowed: positive somewhere"),
        (np.full((4, 4), -1.0), None, r"density is -1.0 at index \(0, 0\); allowed: finite numbers of at least 0"),
        (np.array([[1.0, np.nan]]), None, r"density is nan at index \(0, 1\); allowed: finite numbers"),
        (np.array([[1.0, np.inf]]), None, r"density is inf at index \(0, 1\); allowed: finite numbers"),
        (np.ones((4, 4, 3)), None, r"density has shape \(4, 4, 3\); allowed: two dimensions"),
        (np.ones(4), None, r"density has shape \(4,\); allowed: two dimensions"),
        (np.ones((0, 4)), None, r"density has shape \(0, 4\); allowed: two dimensions \(height, width\), each from 1"),
        (np.ones((4, 4)), 4, "resolution is 4; allowed: None beside a density image"),
        (1.0, None, r"resolution is None; allowed: an integer or a pair \(height, width\)"),
        (0.0, 8, "density is 0.0; allowed: a finite number above 0"),
        (np.full((4, 4), 1e-320), None, "maximum of density is 1e-320; allowed: 1e-280 to 1e"),
        (np.full((4, 4), 1e305), None, r"maximum of density is 1e\+305; allowed: 1e-280 to 1e"),
        (1e-320, 8, "maximum of density is 1e-320; allowed"),
        (1.0, (8, 8, 8), r"resolution is \(8, 8, 8\); allowed"),
    ],
)
def test_errors_name_argument_and_value(density, resolution, message):
    with pytest.raises(ValueError, match=message):
        cvt_energy(np.array([[0.2, 0.2]]), density, resolution=resolution)


def test_more_errors():
    with pytest.raises(TypeError, match="density has dtype complex128; allowed: real numbers"):
        VoronoiEnergy(np.ones((4, 4), complex), 3)
    with pytest.raises(TypeError, match=r"density is a masked array; allowed: .* density.filled\(0\)"):
        VoronoiEnergy(np.ma.masked_greater(np.ones((4, 4)), 2), 3)
    with pytest.raises(ValueError, match="number of sites is 17; allowed: 1 to 16, the number of pixels in 4 x 4"):
        VoronoiEnergy(np.ones((4, 4)), 17)
    for options, message in (
        ({"method": "k-d tree"}, "method is 'k-d tree'; allowed: 'exact', 'jump-flooding'"),
        ({"scale": True}, "scale is True; allowed: a finite number"),
        ({"history": -1}, "history is -1; allowed: an integer of at least 0"),
    ):
        with pytest.raises(ValueError, match=message):
            VoronoiEnergy(np.ones((4, 4)), 3, **options)


def test_numbers_that_numpy_has_not():
    torch = pytest.importorskip("torch")
    odd = torch.ones((4, 4), dtype=torch.bfloat16)
    with pytest.raises(
        TypeError, match=r"density has dtype torch.bfloat16; allowed: integers, float16, float32 or float64"
    ):
        VoronoiEnergy(odd, 3)
    with pytest.raises(
        TypeError, match=r"sites has dtype torch.bfloat16; allowed: integers, float16, float32 or float64"
    ):
        cvt_energy(odd[:, :2], np.ones((4, 4)))


def test_one_thread_at_a_time():
    """Others are refused, and nothing is spoilt: the next evaluation has its bits."""
    energy = VoronoiEnergy(np.ones((200, 200)), 300)
    x = np.random.default_rng(0).random(600)
    want = energy.fun(x)
    refused, others = [], []

    def work():
        for _ in range(30):
            try:
                found = energy.fun(x)
                others.append(found[0] == want[0] and np.array_equal(found[1], want[1]))
            except RuntimeError as error:
                refused.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(others)
    assert len(others) + len(refused) == 120
    assert all("this VoronoiEnergy is in use" in text for text in refused)
