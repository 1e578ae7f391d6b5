"""Scans in every format are the same scan."""

from __future__ import annotations

import numpy as np
import pytest

from stepwell.apps import tomography

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
