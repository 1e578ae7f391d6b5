"""The fan beam against sampled areas, parallel rays, and chords of a disc."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from stepwell.apps import tomography
from stepwell.cli.group import main

GEOMETRY = {"source": 9.0, "detector": 20.0, "detectors": 15, "spacing": 1.3, "center": 6.6}


def edges_seen(detector, detectors, spacing, center, **_):
    """Angles of the rays between bins, at the source."""
    return np.arctan((np.arange(detectors + 1) - 0.5 - center) * spacing / detector)


def seen_from_source(x, y, angle, source):
    """Distance and angle of points as the source, turned by an angle in degrees, sees them."""
    turn = np.radians(angle)
    across, ahead = x * np.cos(turn) + y * np.sin(turn), source - x * np.sin(turn) + y * np.cos(turn)
    return np.hypot(across, ahead), np.arctan2(across, ahead)


@pytest.mark.parametrize("angle", [0.0, 23.0, 90.0, 205.0])
def test_pixels_are_cut_by_the_rays_between_bins(angle):
    A = tomography.fan_beam(5, angles=[angle], **GEOMETRY).toarray()
    edges, count = edges_seen(**GEOMETRY), 300
    offsets = (np.arange(count) + 0.5) / count - 0.5
    dx, dy = np.meshgrid(offsets, offsets)
    for pixel in range(25):
        x, y = pixel % 5 - 2.0, 2.0 - pixel // 5
        _, place = seen_from_source(x + dx, y + dy, angle, GEOMETRY["source"])
        sampled = np.histogram(place, edges)[0] / count**2
        far, _ = seen_from_source(x, y, angle, GEOMETRY["source"])
        # A line cuts at most 2 count of the count² cells, each of which may be counted wholly or not at all.
        np.testing.assert_allclose(A[:, pixel] * np.diff(edges) * far, sampled, atol=2 * 2 / count)


def test_areas_of_a_pixel_sum_to_one():
    wide = GEOMETRY | {"detectors": 60, "center": 29.0}
    angles = np.arange(0, 360, 17.0)
    A = tomography.fan_beam((4, 6), angles=angles, **wide).toarray().reshape(len(angles), 60, 24)
    widths = np.diff(edges_seen(**wide))
    y, x = np.mgrid[0:4, 0:6]
    for k, angle in enumerate(angles):
        far, _ = seen_from_source(x.ravel() - 2.5, 1.5 - y.ravel(), angle, wide["source"])
        np.testing.assert_allclose(widths @ A[k] * far, 1.0, atol=1e-11)


def test_a_far_source_sends_parallel_rays():
    angles = np.arange(0, 180, 7.3)
    parallel = tomography.parallel_beam(12, angles=angles, detectors=21, center=9.2)
    fan = tomography.fan_beam(12, angles=angles, source=1e7, detector=2e7, detectors=21, spacing=2.0, center=9.2)
    assert abs(parallel - fan).max() < 10 * 12 / 1e6  # rays lean by at most half the image over the distance


@pytest.mark.parametrize(
    ("name", "value"), [("source", 3.0), ("detector", 0.0), ("spacing", -1.0), ("detectors", 0), ("center", np.nan)]
)
def test_wrong_geometry_is_named(name, value):
    with pytest.raises(ValueError, match=f"{name} is"):
        tomography.fan_beam(5, angles=[0.0], **(GEOMETRY | {name: value}))


def disc_scan(path, *, attenuation=0.02, radius=6.0, at=(3.0, -2.0), axis=100.0, detector=200.0, width=0.8):
    """Line integrals through a disc, the mean of nine rays a bin, in millimetres."""
    angles, bins = np.arange(0, 360, 5.0), 64
    places = (np.arange(bins)[:, None] - (bins - 1) / 2 + (np.arange(9) - 4) / 9) * width
    rays = np.arctan(places / detector)
    integrals = np.empty((len(angles), 1, bins))
    for k, angle in enumerate(angles):
        far, place = seen_from_source(*at, angle, axis)
        off = far * np.sin(rays - place)
        integrals[k, 0] = attenuation * np.mean(2 * np.sqrt(np.maximum(radius**2 - off**2, 0.0)), axis=1)
    np.savez(path, angles_deg=angles, integrals=integrals)


def test_the_command_reconstructs_a_disc_by_its_fan(tmp_path):
    disc_scan(tmp_path / "scan.npz")
    words = [
        "reconstruct",
        str(tmp_path / "scan.npz"),
        "-o",
        str(tmp_path / "out"),
        "--no-plots",
        "--relative-lam",
        "0.002",
    ]
    run = CliRunner().invoke(main, [*words, "--fan", "100", "200", "--pixel-size", "0.8"])
    assert run.exit_code == 0, run.output
    image = np.load(tmp_path / "out" / "volume.npy")[0]
    y, x = np.mgrid[0:64, 0:64]
    x, y = 0.4 * (x - 31.5), 0.4 * (31.5 - y)  # a pixel is half as wide as the detector's
    away = np.hypot(x - 3.0, y + 2.0)
    assert image[away < 5].mean() == pytest.approx(0.02, rel=0.02)
    assert abs(image[(away > 7) & (np.hypot(x, y) < 12)].mean()) < 0.001
    for wrong, message in ((["--fan", "200", "100"], "an axis between"), (["--fan", "0", "1"], "--fan")):
        assert message in CliRunner().invoke(main, [*words, *wrong]).output
    phantom = CliRunner().invoke(main, ["reconstruct", "phantom", "--fan", "1", "2", "-o", str(tmp_path / "no")])
    assert phantom.exit_code == 2
    assert not (tmp_path / "no").exists()
