"""Voronoi diagrams on a CUDA device: kernels compile without one; with one, it agrees with the CPU."""

from __future__ import annotations

import re

import numpy as np
import pytest
from device_arrays import on_device, on_host

from stepwell.apps.voronoi import HEXAGONAL_BOUND, VoronoiEnergy, assign, centroidal, cvt_energy, device, draw_sites
from stepwell.cuda import nvrtc


@pytest.mark.kernels
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_kernels_compile_without_a_device(architecture, tmp_path, monkeypatch):
    monkeypatch.setenv("STEPWELL_CACHE", str(tmp_path))
    try:
        code = nvrtc.compile_kernel("voronoi", device.KERNEL_DEFINES, architecture)
    except ImportError as error:
        pytest.skip(str(error))
    except Exception as error:
        if "DynamicLibNotFound" in type(error).__name__:
            pytest.skip(f"NVRTC is not installed: {error}")
        raise
    for entry in device.KERNELS:
        assert entry.encode() in code


def test_every_kernel_is_launched_by_name():
    source = (nvrtc.source_folder() / "cuda/voronoi/voronoi.cu").read_text()
    assert set(re.findall(r"\b(voronoi_\w+)\(", source)) == set(device.KERNELS)


def hills(shape):
    y, x = np.indices(shape) / max(shape)
    return np.where((x - 0.4) ** 2 + (y - 0.3) ** 2 < 0.3, 1 + np.sin(9 * x) * np.cos(7 * y), 0.0)


def scattered(count, shape, seed=0):
    return np.random.default_rng(seed).random((count, 2)) * [shape[1], shape[0]] / max(shape)


@pytest.mark.cuda
@pytest.mark.parametrize("method", ["exact", "jump-flooding"])
@pytest.mark.parametrize(
    ("count", "shape"), [(1, (5, 9)), (45, (5, 9)), (300, (100, 37)), (4000, (256, 512)), (30000, (333, 300))]
)
def test_owners_and_energy_are_the_cpus(torch, method, count, shape):
    sites = scattered(count, shape)
    sites[0] = [shape[1] / max(shape), 0.0]  # on the border
    sites[-1] = sites[0]  # and there twice
    density = hills(shape) + (count < 100)
    here = assign(sites, shape, method=method, check=True)
    there = assign(on_device("torch", sites), shape, method=method, check=True)
    # Rounding may tell pixels at equal distance apart: fewer than one in 10^4, none of them wrong.
    assert np.mean(on_host(there.owners) != here.owners) < 1e-4
    assert there.misassigned == pytest.approx(here.misassigned, abs=1e-4)
    if method == "exact":
        np.testing.assert_array_equal(on_host(there.empty), here.empty)
    np.testing.assert_array_equal(on_host(there.shared), here.shared)
    f, g = cvt_energy(sites, density, method=method)
    f2, g2 = cvt_energy(on_device("torch", sites), on_device("torch", density), method=method)
    assert float(f2) == pytest.approx(f, rel=1e-12)
    np.testing.assert_allclose(on_host(g2), g, atol=1e-9 * np.abs(g).max())


@pytest.mark.cuda
def test_evaluations_repeat_bit_for_bit(torch):
    shape = (512, 512)
    sites = on_device("torch", scattered(5000, shape))
    energy = VoronoiEnergy(on_device("torch", hills(shape)), 5000)
    first_f, first_g = energy.evaluate(sites)
    for _ in range(5):
        f, g = energy.evaluate(sites)
        assert torch.equal(f, first_f)
        assert torch.equal(g, first_g)


@pytest.mark.cuda
def test_clusters_far_from_most_pixels(torch):
    shape = (256, 300)
    sites = scattered(2000, shape) * 0.01
    here, there = assign(sites, shape), assign(on_device("torch", sites), shape)
    assert np.mean(on_host(there.owners) != here.owners) < 1e-4


@pytest.mark.cuda
def test_every_library(library):
    shape = (96, 128)
    density = hills(shape)
    start = draw_sites(200, on_device(library, density), seed=3)
    np.testing.assert_array_equal(on_host(start), draw_sites(200, density, seed=3))
    there = centroidal(start, on_device(library, density))
    here = centroidal(on_host(start), density)
    assert type(there.sites).__module__.split(".")[0] in (library, "jaxlib")
    assert there.success
    # Two local minima of one start: they differ as minima do.
    assert there.normalized_energy == pytest.approx(here.normalized_energy, rel=0.02)
    f, _ = cvt_energy(on_host(there.sites), density)
    assert there.energy == pytest.approx(f, rel=1e-12)
    assert len(there.history) == there.evaluations
    assert there.history[0] == pytest.approx(here.history[0], rel=1e-12)
    np.testing.assert_array_equal(on_host(there.owners), assign(on_host(there.sites), shape).owners)
    lloyd = centroidal(on_device(library, on_host(start)), on_device(library, density), method="lloyd", maxiter=5)
    assert np.all(np.diff(lloyd.history) < 0)
    assert lloyd.history[-1] == pytest.approx(
        centroidal(200, density, seed=3, method="lloyd", maxiter=5).energy, rel=1e-9
    )


@pytest.mark.cuda
def test_images_and_points_of_any_layout(torch):
    shape = (60, 90)
    density, sites = hills(shape), scattered(80, shape)
    f, g = cvt_energy(sites, density)
    turned = on_device("torch", np.ascontiguousarray(density.T)).T
    spread = on_device("torch", np.repeat(sites.ravel(), 2))[::2]
    assert not turned.is_contiguous()
    assert not spread.is_contiguous()
    there, slope = cvt_energy(spread.reshape(80, 2), turned)
    assert float(there) == pytest.approx(f, rel=1e-12)
    np.testing.assert_allclose(on_host(slope), g, atol=1e-9 * np.abs(g).max())
    there, slope = VoronoiEnergy(turned, 80).fun(spread)
    assert float(there) == pytest.approx(f, rel=1e-12)
    np.testing.assert_allclose(on_host(slope), g.ravel(), atol=1e-9 * np.abs(g).max())


@pytest.mark.cuda
def test_uniform_density_on_the_callers_stream(torch):
    with torch.cuda.stream(torch.cuda.Stream()):
        t = centroidal(2000, resolution=512, like=torch.empty(0, device="cuda"))
        assert t.sites.is_cuda
        # Where the device never waits for the host no graph is asked for; it may not be refused.
        assert t.mode.startswith(("CUDA graph", "one launch a turn"))
        assert "not captured" not in t.mode
        assert t.success
        assert 1 <= t.normalized_energy / HEXAGONAL_BOUND < 1.05


@pytest.mark.cuda
def test_callback_stops_and_float32_gradients(torch):
    seen = []

    def stop(intermediate):
        seen.append(intermediate.energy)
        if intermediate.iteration == 3:
            raise StopIteration

    t = centroidal(500, resolution=128, like=torch.empty(0, device="cuda"), callback=stop)
    assert t.status == 99
    assert len(seen) == 3
    energy = VoronoiEnergy(1.0, 500, resolution=128, like=t.sites)
    _, g = energy.fun(t.sites.reshape(-1).float())
    assert g.dtype == torch.float32
    assert g.shape == (1000,)


@pytest.mark.cuda
def test_mixed_homes_are_an_error(torch):
    with pytest.raises(ValueError, match="allowed: one library and one device"):
        cvt_energy(scattered(5, (8, 8)), on_device("torch", np.ones((8, 8))))
    with pytest.raises(ValueError, match="allowed: one library and one device"):
        centroidal(on_device("torch", scattered(5, (8, 8))), np.ones((8, 8)))
