"""Scans in every format are the same scan."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
import scipy.io
from click.testing import CliRunner

from stepwell.apps import tomography
from stepwell.cli.group import main

RANDOM = np.random.default_rng(2)
INTEGRALS = RANDOM.random((6, 3, 8))
ANGLES = np.arange(6) * 30.0


def test_axes_in_either_order(tmp_path):
    for name, values in (("a.npz", INTEGRALS), ("b.npz", INTEGRALS.swapaxes(1, 2))):
        np.savez(tmp_path / name, integrals=values, angles_deg=ANGLES)
    first = tomography.load_scan(tmp_path / "a.npz")
    second = tomography.load_scan(tmp_path / "b.npz", order="angles,detectors,slices")
    assert np.array_equal(first.integrals, second.integrals)
    with pytest.raises(ValueError, match="order is 'other'; allowed"):
        tomography.load_scan(tmp_path / "a.npz", order="other")


def test_counts_in_either_order(tmp_path):
    counts = 100 + 50 * RANDOM.random((6, 3, 20))
    flat, dark = np.full((3, 20), 200.0), np.zeros((3, 20))
    np.savez(tmp_path / "a.npz", projections=counts, flat=flat, dark=dark, angles_deg=ANGLES)
    turned = {"projections": counts.swapaxes(1, 2), "flat": flat.T, "dark": dark.T}
    np.savez(tmp_path / "b.npz", angles_deg=ANGLES, **turned)
    first = tomography.load_scan(tmp_path / "a.npz")
    second = tomography.load_scan(tmp_path / "b.npz", order="angles,detectors,slices")
    assert np.array_equal(first.integrals, second.integrals)


def test_hdf5_by_our_names_and_by_those_of_synchrotrons(tmp_path):
    h5py = pytest.importorskip("h5py")
    counts, flat, dark = 100 + 50 * RANDOM.random((6, 3, 20)), np.full((2, 3, 20), 200.0), np.zeros((2, 3, 20))
    with h5py.File(tmp_path / "ours.h5", "w") as file:
        file["projections"], file["flat"], file["dark"], file["angles_deg"] = counts, flat, dark, ANGLES
        file["center_column"] = 9.5
    with h5py.File(tmp_path / "theirs.h5", "w") as file:
        group = file.create_group("exchange")
        group["data"], group["data_white"], group["data_dark"], group["theta"] = counts, flat, dark, ANGLES
    expected = tomography.line_integrals(counts, flat, dark)
    ours, theirs = (tomography.load_scan(tmp_path / name) for name in ("ours.h5", "theirs.h5"))
    assert np.array_equal(ours.integrals, expected)
    assert np.array_equal(theirs.integrals, expected)
    assert ours.center == 9.5
    (tmp_path / "bad.h5").write_bytes(b"no")
    with pytest.raises(ValueError, match=r"bad\.h5: is no HDF5 file"):
        tomography.load_scan(tmp_path / "bad.h5")


def test_tiff_stack_and_folder(tmp_path):
    tifffile = pytest.importorskip("tifffile")
    pages = INTEGRALS.astype(np.float32)
    tifffile.imwrite(tmp_path / "stack.tif", pages)
    folder = tmp_path / "pages"
    folder.mkdir()
    for number, page in enumerate(pages):
        tifffile.imwrite(folder / f"{number:04}.tiff", page)
    for path in (tmp_path / "stack.tif", folder):
        scan = tomography.load_scan(path, angle_range=180.0)
        assert np.array_equal(scan.integrals, pages)
        assert np.allclose(scan.angles, ANGLES)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="holds no TIFF file"):
        tomography.load_scan(tmp_path / "empty")
    (tmp_path / "bad.tif").write_bytes(b"no")
    with pytest.raises(ValueError, match=r"bad\.tif: is no TIFF file"):
        tomography.load_scan(tmp_path / "bad.tif")


@pytest.mark.parametrize("name", ["integrals", "sinogram", "Sino", "projections", "data", "b"])
def test_a_sinogram_of_two_axes_by_any_sensible_name(tmp_path, name):
    one = INTEGRALS[:, 1]
    np.savez(tmp_path / "a.npz", **{name: one}, angles=ANGLES)
    scan = tomography.load_scan(tmp_path / "a.npz")
    assert np.array_equal(scan.integrals, one[:, None])
    assert bool(scan.notes) == (name in ("projections", "data"))  # taken for line integrals, and said so
    scipy.io.savemat(tmp_path / "a.mat", {name: one, "angles": ANGLES})
    assert np.array_equal(tomography.load_scan(tmp_path / "a.mat").integrals, one[:, None])
    np.savez(tmp_path / "turned.npz", **{name: one.T}, angles=ANGLES)
    with pytest.raises(ValueError, match=r"has 6 angles and 8 projections.* transposed\? see --order"):
        tomography.load_scan(tmp_path / "turned.npz")
    scan = tomography.load_scan(tmp_path / "turned.npz", order="detectors,angles")
    assert np.array_equal(scan.integrals, one[:, None])


def test_every_order_of_axes(tmp_path):
    counts, flat = 100 + 50 * RANDOM.random((6, 3, 20)), np.full((2, 3, 20), 200.0)
    expected = tomography.line_integrals(counts, flat, 0 * flat)
    names = ("angles", "slices", "detectors")
    for axes in itertools.permutations(range(3)):
        order = ",".join(names[axis] for axis in axes)
        rest = [axis for axis in axes if axis != 0]
        field = flat.transpose(0, *rest)  # frames come first
        np.savez(tmp_path / "a.npz", angles=ANGLES, data=counts.transpose(axes), data_white=field, data_dark=0 * field)
        found = tomography.load_scan(tmp_path / "a.npz", order=order).integrals
        np.testing.assert_allclose(found, expected, atol=1e-14)  # means over the border are summed in other orders


def test_bare_arrays_have_evenly_spread_angles(tmp_path):
    one = INTEGRALS[:, 1]
    np.save(tmp_path / "a.npy", one)
    np.savetxt(tmp_path / "a.csv", one, delimiter=",")
    np.savetxt(tmp_path / "b.txt", one)
    for name in ("a.npy", "a.csv", "b.txt"):
        scan = tomography.load_scan(tmp_path / name)
        np.testing.assert_allclose(scan.integrals, one[:, None], rtol=1e-15)
        np.testing.assert_allclose(scan.angles, ANGLES)
        assert "6 are spread evenly over 180 degrees" in scan.notes[0]


def test_angles_by_name_unit_and_contradiction(tmp_path):
    many = RANDOM.random((20, 1, 8))
    degrees = np.arange(20) * 9.0

    def read(name, values, **options):
        np.savez(tmp_path / "a.npz", integrals=many, **{name: values})
        return tomography.load_scan(tmp_path / "a.npz", **options).angles

    np.testing.assert_allclose(read("angles_rad", np.deg2rad(degrees)), degrees)
    np.testing.assert_allclose(read("theta", degrees), degrees)
    np.testing.assert_allclose(read("angles", np.deg2rad(degrees), angle_unit="rad"), degrees)
    np.testing.assert_allclose(read("angles_deg", degrees / 60, angle_unit="deg"), degrees / 60)
    for name, values, options, message in (
        ("angles", np.deg2rad(degrees), {}, "as radians 171 degrees; allowed: --angle-unit rad"),
        ("angles_deg", np.deg2rad(degrees), {}, "as degrees is no scan"),
        ("angles_rad", degrees, {}, "as radians is 27.2 turns"),
        (
            "angles_deg",
            degrees,
            {"angle_unit": "rad"},
            "contradictory units: the array is called 'angles_deg', and the",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            read(name, values, **options)
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["exchange/data"], file["exchange/theta"] = many, np.deg2rad(degrees)
        file["exchange/theta"].attrs["units"] = "radians"
    np.testing.assert_allclose(tomography.load_scan(tmp_path / "a.h5").angles, degrees)


@pytest.mark.parametrize("center", [31.5, 30.25, 35.0])
@pytest.mark.parametrize("angles", [np.arange(0, 181, 4.0), np.arange(0, 180, 4.0), np.arange(90, -271, -4.0)])
def test_the_axis_is_found_from_opposite_projections(center, angles):
    A = tomography.parallel_beam(64, angles=angles, detectors=64, center=center)
    X = tomography.shepp_logan_3d(64)[28:34].reshape(6, -1).T
    B = tomography.add_noise(A @ X, 0.01).reshape(len(angles), 64, 6).transpose(0, 2, 1)
    assert abs(tomography.find_axis(B, angles) - center) < 0.15  # columns
    with pytest.raises(ValueError, match="no two projections are opposite"):
        tomography.find_axis(B[:20], angles[:20])


@pytest.mark.parametrize("kind", ["tif", "h5"])
def test_the_command_finds_the_axis_and_writes_volumes_that_others_read(tmp_path, kind):
    library = pytest.importorskip({"tif": "tifffile", "h5": "h5py"}[kind])
    angles = np.arange(0, 180, 6.0)
    A = tomography.parallel_beam(32, angles=angles, detectors=32, center=17.0)
    image = tomography.shepp_logan_3d(32)[15]
    sinogram = (A @ image.ravel()).reshape(30, 32)
    np.savez(tmp_path / "scan.npz", sinogram=sinogram, theta=angles)
    words = ["reconstruct", str(tmp_path / "scan.npz"), "--center", "auto", "--lam", "0.1", "--no-plots"]
    run = CliRunner().invoke(main, [*words, "--format", kind, "-o", str(tmp_path / "out")])
    assert run.exit_code == 0, run.output
    found = float(re.search(r"rotation axis at detector column ([\d.]+), found from", run.stdout)[1])
    assert abs(found - 17) < 0.1
    path = tmp_path / "out" / f"volume.{kind}"
    volume = library.imread(path) if kind == "tif" else library.File(path)["volume"][:]
    volume = volume.reshape(32, 32)
    assert np.linalg.norm(volume - image) < 0.3 * np.linalg.norm(image)  # λ = 0.1 leaves 0.2
    again = CliRunner().invoke(main, [*words, "--format", kind, "--smooth", "-o", str(tmp_path / "out")])
    assert again.exit_code == 1
    assert "a finished run with other settings or another input (smooth)" in again.output
    again = CliRunner().invoke(main, [*words, "--format", kind, "--smooth", "--overwrite", "-o", str(tmp_path / "out")])
    assert again.exit_code == 0, again.output


def test_counts_without_a_name_are_told(tmp_path):
    np.save(tmp_path / "a.npy", RANDOM.poisson(1000, (6, 8)))
    np.save(tmp_path / "b.npy", INTEGRALS[:, 0])
    assert "whole numbers up to" in tomography.load_scan(tmp_path / "a.npy").notes[0]
    assert not any("whole numbers" in note for note in tomography.load_scan(tmp_path / "b.npy").notes)


def test_a_truncated_stack_is_told_in_one_line(tmp_path, caplog):
    tifffile = pytest.importorskip("tifffile")
    for page in INTEGRALS.astype(np.float32):
        tifffile.imwrite(tmp_path / "a.tif", page, append=True)
    np.testing.assert_array_equal(tomography.load_scan(tmp_path / "a.tif").integrals, INTEGRALS.astype(np.float32))
    whole = (tmp_path / "a.tif").read_bytes()
    for size in (0, 7, len(whole) // 2, len(whole) - 9):
        (tmp_path / "a.tif").write_bytes(whole[:size])
        told = CliRunner().invoke(
            main, ["reconstruct", str(tmp_path / "a.tif"), "--lam", "1", "-o", str(tmp_path / "o")]
        )
        assert told.exit_code == 1
        assert len(told.stderr.splitlines()) == 1, told.stderr
        assert not caplog.records


def test_overwriting_leaves_no_volume_of_other_settings(tmp_path):
    pytest.importorskip("tifffile")
    np.savez(tmp_path / "a.npz", integrals=INTEGRALS[:, :1], angles_deg=ANGLES)
    words = ["reconstruct", str(tmp_path / "a.npz"), "-o", str(tmp_path / "out")]
    assert CliRunner().invoke(main, [*words, "--lam", "1"]).exit_code == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "volume.npy", "montage.png", "convergence.png", "reconstruct.json",
    }  # fmt: skip
    other = [*words, "--lam", "2", "--format", "tif", "--no-plots"]
    assert CliRunner().invoke(main, other).exit_code == 1
    assert CliRunner().invoke(main, [*other, "--overwrite"]).exit_code == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"volume.tif", "reconstruct.json"}
