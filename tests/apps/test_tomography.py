"""The projector, the phantom, real scans and the commands built on them."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from click.testing import CliRunner

import stepwell
from stepwell.apps import tomography
from stepwell.cli.group import main


def data_file(name: str) -> Path:
    folder = os.environ.get("STEPWELL_DATA") or Path(__file__).resolve().parents[2].parent / "shared" / "data"
    path = Path(folder) / name
    if not path.exists():
        pytest.skip(f"{name} is not here; set STEPWELL_DATA to the folder that holds it")
    return path


def strip_area(half: float, low: float, high: float, angle: float) -> float:
    """Area of a square of side 2 half within low <= x cos + y sin <= high, by clipping the polygon."""
    points = [np.array(p, dtype=float) * half for p in ((-1, -1), (1, -1), (1, 1), (-1, 1))]
    normal = np.array([np.cos(angle), np.sin(angle)])
    for sign, bound in ((1, high), (-1, -low)):
        clipped = []
        for p, q in zip(points, points[1:] + points[:1]):
            a, b = sign * (p @ normal) - bound, sign * (q @ normal) - bound
            if a <= 0:
                clipped.append(p)
            if (a < 0 < b) or (b < 0 < a):
                clipped.append(p + (q - p) * a / (a - b))
        points = clipped
        if not points:
            return 0.0
    x, y = np.array(points).T
    return 0.5 * abs(np.sum(x * np.roll(y, -1) - y * np.roll(x, -1)))


@pytest.mark.parametrize("angles", [np.arange(0, 180, 7.5), [0.0, 45.0, 90.0, 135.0, 180.0, 271.0, -33.3]])
@pytest.mark.parametrize("size", [1, 2, 9, 16])
def test_row_and_column_sums_are_exact(size, angles):
    bins = tomography.default_detectors(size)
    A = tomography.parallel_beam(size, angles=angles, detectors=bins)
    assert A.shape == (len(angles) * bins, size * size)
    for i, degrees in enumerate(angles):
        part = A[i * bins : (i + 1) * bins]
        np.testing.assert_allclose(np.asarray(part.sum(axis=0)).ravel(), 1.0, atol=1e-11)
        edges = np.arange(bins + 1) - bins / 2
        areas = [strip_area(size / 2, lo, hi, np.radians(degrees)) for lo, hi in pairwise(edges)]
        np.testing.assert_allclose(np.asarray(part.sum(axis=1)).ravel(), areas, atol=1e-9)


def test_single_pixels_are_cut_exactly():
    A = tomography.parallel_beam(5, angles=[17.0], detectors=9, center=3.3).toarray()
    for pixel in range(25):
        x, y = pixel % 5 - 2.0, 2.0 - pixel // 5
        angle = np.radians(17.0)
        place = x * np.cos(angle) + y * np.sin(angle) + 3.3
        areas = [strip_area(0.5, b - 0.5 - place, b + 0.5 - place, angle) for b in range(9)]
        np.testing.assert_allclose(A[:, pixel], areas, atol=1e-11)


def test_the_published_system_and_its_adjoint():
    A = tomography.parallel_beam(128, angles=np.arange(0, 180, 2.0), detectors=185)
    assert A.shape == (16650, 16384)
    assert sp.issparse(A)
    assert A.format == "csr"
    assert stepwell.adjoint_error(A) < 1e-14
    volume = tomography.shepp_logan_3d(128)
    assert np.sum(volume.reshape(128, -1).any(axis=1)) == 102


def test_detector_centre_and_rectangles():
    shifted = tomography.parallel_beam(8, angles=[0.0, 30.0], detectors=20, center=5.0)
    plain = tomography.parallel_beam(8, angles=[0.0, 30.0], detectors=11)  # middle at bin 5
    np.testing.assert_allclose(
        shifted.toarray().reshape(2, 20, 64)[:, :11], plain.toarray().reshape(2, 11, 64), atol=1e-12
    )
    wide = tomography.parallel_beam((3, 7), angles=[0.0], detectors=7)
    np.testing.assert_allclose(wide @ np.ones(21), 3.0)
    assert tomography.parallel_beam(4, angles=[], detectors=5).shape == (0, 16)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 0}, "size"),
        ({"size": 2.5}, "size"),
        ({"angles": [np.nan]}, "angles"),
        ({"angles": [[1.0]]}, "angles"),
        ({"detectors": 0}, "detectors"),
        ({"center": np.inf}, "center"),
    ],
)
def test_bad_geometry_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        tomography.parallel_beam(arguments.pop("size", 4), **{"angles": [0.0], **arguments})


def test_phantom_values():
    volume = tomography.shepp_logan_3d(65)
    middle = volume[32]
    assert middle.shape == (65, 65)
    assert volume.min() == 0
    assert volume.max() == 1
    # At the centre: head and brain, 1 − 0.8. The ventricles take away 0.2 each.
    assert middle[32, 32] == pytest.approx(0.2)
    assert middle[32, 32 + round(0.22 * 32)] == pytest.approx(0.0)
    assert middle[2, 32] == 0
    assert middle[32, 32 + round(0.68 * 32)] == 1.0
    np.testing.assert_array_equal(volume[:6], 0)  # beyond the head's half axis of 0.81
    with pytest.raises(ValueError, match="size"):
        tomography.shepp_logan_3d(1)


def test_line_integrals_of_a_known_object():
    """Counts made from known integrals come back, through a beam drift, an uneven flat field and a dead pixel."""
    random = np.random.default_rng(0)
    truth = np.zeros((4, 3, 40))
    truth[:, :, 12:28] = random.uniform(0.1, 2.0, size=(4, 3, 16))
    flat = random.uniform(20000, 30000, size=(3, 40))
    dark = random.uniform(50, 100, size=(3, 40))
    drift = np.linspace(0.7, 0.9, 4)[:, None, None]
    counts = dark + (flat - dark) * drift * np.exp(-truth)
    flat[1, 35] = dark[1, 35] = 0.0
    found = tomography.line_integrals(counts, flat, dark)
    np.testing.assert_allclose(found, truth, atol=1e-12)
    np.testing.assert_allclose(tomography.line_integrals(counts, flat, dark, border=0)[:, 0, 0], -np.log(drift.ravel()))
    with pytest.raises(
        ValueError, match=r"flat and dark have shapes \(3, 3\) and \(3, 40\); allowed: \(slices, detectors\)"
    ):
        tomography.line_integrals(counts, flat[:, :3], dark)
    with pytest.raises(ValueError, match="border"):
        tomography.line_integrals(counts, flat, dark, border=21)


@pytest.mark.parametrize("apart", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_the_real_scan_reconstructs(apart):
    """A third of a real scan reaches the tolerance; a sphere on a pin holds more matter inside than outside."""
    scan = tomography.load_scan(data_file("i13_parallel_beam.npz"))
    assert scan.integrals.shape == (91, 135, 160)
    assert np.isfinite(scan.integrals).all()
    A = tomography.parallel_beam(160, angles=scan.angles, detectors=160, center=scan.center)
    assert A.shape == (14560, 25600)
    B = tomography.sinograms(scan.integrals)[:, 60:108:apart]
    lam = 0.01 * tomography.largest_singular_value(A)
    result = stepwell.tikhonov(A, B, lam, tol=1e-4)
    assert result.method == "block"
    assert result.success
    assert np.all(result.residual <= 1e-4)
    R = A.T @ B
    gap = R - A.T @ (A @ result.x) - lam**2 * result.x
    assert np.all(np.linalg.norm(gap, axis=0) <= 1.0001e-4 * np.linalg.norm(R, axis=0))
    images = result.x.T.reshape(-1, 160, 160)
    assert np.all(images[:, 60:80, 60:80].mean(axis=(1, 2)) > 5 * np.abs(images[:, :20, :20].mean(axis=(1, 2))))


def test_load_scan_says_what_is_missing(tmp_path):
    np.savez(tmp_path / "a.npz", projections=np.ones((2, 3, 4)))
    with pytest.raises(ValueError, match="angles_deg"):
        tomography.load_scan(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", angles_deg=np.zeros(2), projections=np.ones((2, 3, 4), dtype="u2"))
    with pytest.raises(ValueError, match="whole numbers up to 1, counts by their looks; needs 'flat' and 'dark'"):
        tomography.load_scan(tmp_path / "b.npz")
    np.savez(tmp_path / "c.npz", angles_deg=np.zeros(3), integrals=np.ones((2, 3, 4)))
    with pytest.raises(ValueError, match="3 angles"):
        tomography.load_scan(tmp_path / "c.npz")


def test_noise_and_quality():
    truth = np.random.default_rng(0).normal(size=(5000, 3))
    noisy = tomography.add_noise(truth, 0.1)
    # The norm of 5000 normal deviates is 1 ± 1/√10000 of its mean: five deviations.
    ratio = np.linalg.norm(noisy - truth, axis=0) / np.linalg.norm(truth, axis=0)
    np.testing.assert_allclose(ratio, 0.1, rtol=0.05)
    assert tomography.signal_to_noise(noisy[:, 0], truth[:, 0]) == pytest.approx(-20 * np.log10(ratio[0]))
    with pytest.raises(ValueError, match="level"):
        tomography.add_noise(truth, -1.0)


@pytest.mark.parametrize("scale", [1.0, 1e-300, 1e300])
def test_largest_singular_value(scale):
    A = np.random.default_rng(0).normal(size=(30, 20))
    assert tomography.largest_singular_value(scale * A) == pytest.approx(scale * np.linalg.norm(A, 2), rel=1e-8)


def test_reconstruct_writes_volume_and_pictures(tmp_path):
    pytest.importorskip("matplotlib")
    arguments = [
        "reconstruct",
        "--size",
        "32",
        "--angles",
        "24",
        "--slices",
        "12:20",
        "-o",
        str(tmp_path / "out"),
    ]
    done = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "8 of 8 slices" in done.output
    volume = np.load(tmp_path / "out" / "volume.npy")
    assert volume.shape == (8, 32, 32)
    truth = tomography.shepp_logan_3d(32)[12:20]
    assert tomography.signal_to_noise(volume, truth) > 8
    for name in ("montage.png", "convergence.png"):
        assert (tmp_path / "out" / name).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("rule", ["gcv", "discrepancy", "lcurve"])
def test_reconstruct_chooses_lam(tmp_path, rule):
    arguments = [
        "reconstruct",
        "--size",
        "24",
        "--angles",
        "20",
        "--slices",
        "8:14",
        "--lam",
        rule,
        "--smooth",
    ]
    done = CliRunner().invoke(main, [*arguments, "--no-plots", "-o", str(tmp_path)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    truth = tomography.shepp_logan_3d(24)[8:14]
    assert tomography.signal_to_noise(np.load(tmp_path / "volume.npy"), truth) > 5


def test_reconstruct_from_a_file_and_its_complaints(tmp_path):
    A = tomography.parallel_beam(16, angles=np.arange(0, 180, 10.0), detectors=16)
    X = tomography.shepp_logan_3d(16)[6:10].reshape(4, -1).T
    integrals = (A @ X).reshape(18, 16, 4).transpose(0, 2, 1)
    np.savez(tmp_path / "scan.npz", integrals=integrals, angles_deg=np.arange(0, 180, 10.0))
    run = CliRunner()
    base = [
        "reconstruct",
        str(tmp_path / "scan.npz"),
        "--no-plots",
        "-o",
        str(tmp_path / "out"),
        "--lam",
        "0.1",
    ]
    done = run.invoke(main, base, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    image = np.load(tmp_path / "out" / "volume.npy").reshape(4, -1).T
    expected = np.linalg.solve((A.T @ A).toarray() + 0.01 * np.eye(256), A.T @ (A @ X))
    np.testing.assert_allclose(image, expected, atol=1e-2)
    for wrong, message, code in (
        (["--slices", "9:4"], "--slices is '9:4'; allowed: FIRST:LAST, some of 0:4", 1),
        (["--slices", "x"], "--slices is 'x'; allowed: FIRST:LAST", 1),
        (["--slices", "0:3:2"], "--slices is '0:3:2'; allowed: FIRST:LAST", 1),
        (["--lam", "much"], "--lam is 'much'; allowed: a number or one of", 2),
        (["--tol", "-1"], "--tol is -1.0; allowed: a finite number above 0", 2),
    ):
        failed = run.invoke(main, [*base, *wrong])
        assert failed.exit_code == code
        assert message in failed.output
    missing = run.invoke(main, ["reconstruct", str(tmp_path / "none.npz")])
    assert missing.exit_code == 2
    assert "none.npz" in missing.output


def test_reconstruct_from_a_scan_with_holes(tmp_path):
    """A slice that is not finite is told; the others are what they are without it."""
    angles = np.arange(0, 180, 10.0)
    A = tomography.parallel_beam(16, angles=angles, detectors=16)
    X = tomography.shepp_logan_3d(16)[6:10].reshape(4, -1).T
    integrals = (A @ X).reshape(18, 16, 4).transpose(0, 2, 1)
    integrals[3, 1, 5], integrals[3, 2, 5] = np.nan, np.inf
    np.savez(tmp_path / "scan.npz", integrals=integrals, angles_deg=angles)
    np.savez(tmp_path / "aside.npz", integrals=integrals, angles_deg=angles, center_column=1e6)
    run, out = CliRunner(), ["--no-plots", "-o", str(tmp_path / "out"), "--lam"]
    told = run.invoke(main, ["reconstruct", str(tmp_path / "scan.npz"), *out, "0.1"])
    assert told.exit_code == 1
    assert "2 of 4: the right-hand side or an operator product is not finite" in " ".join(told.output.split())
    image = np.load(tmp_path / "out" / "volume.npy").reshape(4, -1).T
    expected = np.linalg.solve((A.T @ A).toarray() + 0.01 * np.eye(256), A.T @ (A @ X))
    np.testing.assert_allclose(image[:, [0, 3]], expected[:, [0, 3]], atol=1e-2)
    assert run.invoke(main, ["reconstruct", str(tmp_path / "scan.npz"), *out, "discrepancy"]).exit_code == 1
    aside = run.invoke(main, ["reconstruct", str(tmp_path / "aside.npz"), "-o", str(tmp_path / "out")])
    assert aside.exit_code == 1
    assert "no ray meets the image, with a rotation axis at column 1e+06" in " ".join(aside.output.split())


def test_the_command_keeps_pixels_from_going_below_zero(tmp_path):
    words = ["reconstruct", "phantom", "--size", "24", "--angles", "12", "--slices", "10:12", "--no-plots"]
    outcome = CliRunner().invoke(main, [*words, "--nonnegative", "--lam", "discrepancy", "-o", str(tmp_path)])
    assert outcome.exit_code == 0, outcome.output
    assert "bounded" in outcome.output
    assert np.load(tmp_path / "volume.npy").min() == 0
    for more, said in ((["--method", "block"], "'block' knows no bounds"), (["--lam", "gcv"], "'gcv' knows no bounds")):
        outcome = CliRunner().invoke(main, [*words, "--nonnegative", *more, "-o", str(tmp_path)])
        assert outcome.exit_code == 2
        assert said in outcome.output
