"""Relaxation maps: SciPy's fits voxel by voxel, truth without noise, bounds, series of files, runs that are stopped."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.optimize

from stepwell import FitStatus
from stepwell.apps import relaxation
from stepwell.apps.relaxation import QUANTITIES, RelaxationModel, fit_voxels, map_series, simulate


def direct(model, signed=True):
    """The signal as a textbook has it, of the maps' own parameters in their order."""
    x, tr = model.abscissa, model.tr
    curves = {
        "t2star": lambda t, T, s: s * np.exp(-t / T),
        "t2": lambda t, T, s: s * np.exp(-t / T),
        "t1": lambda t, T, s, i: s * (1 - i * np.exp(-t / T)),
        "t1-vfa": lambda a, T, s: s * np.sin(a) * (1 - np.exp(-tr / T)) / (1 - np.cos(a) * np.exp(-tr / T)),
        "adc": lambda b, d, s: s * np.exp(-b * d),
        "ivim": lambda b, f, d, fast, s: s * (f * np.exp(-b * fast) + (1 - f) * np.exp(-b * d)),
    }
    curve = curves[model.quantity]
    return x, (curve if signed else lambda *given: np.abs(curve(*given)))


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_maps_and_their_errors_are_those_of_scipy_voxel_by_voxel(quantity):
    phantom = simulate(quantity, (9, 9, 1), snr=150, seed=3)
    model, rows = phantom.model, np.flatnonzero(phantom.mask.ravel())[::9]
    signals = phantom.signal.reshape(-1, len(model.points))[rows]
    maps = fit_voxels(model, signals)
    assert (maps["status"] > 0).all()
    x, curve = direct(model, signed=False)
    names = model.parameters
    for k, row in enumerate(rows):
        truth = np.array([phantom.truth[name].reshape(-1)[row] for name in names], dtype=float)
        popt, pcov = scipy.optimize.curve_fit(
            curve, x, signals[k].astype(float), truth, x_scale=truth, ftol=1e-14, xtol=1e-14, gtol=1e-14, method="trf"
        )
        errors = np.sqrt(np.diag(pcov))
        for j, name in enumerate(names):
            # Both end within 1e-4 standard errors of the minimum; maps are float32. Differences of SciPy's in pcov.
            assert maps[name][k] == pytest.approx(popt[j], abs=1e-3 * errors[j] + 2e-7 * abs(popt[j]))
            assert maps[f"{name}_se"][k] == pytest.approx(errors[j], rel=2e-3)
        left = np.sum((curve(x, *popt) - signals[k]) ** 2) / (len(x) - len(names))
        assert maps["residual"][k] == pytest.approx(np.sqrt(left), rel=1e-6)


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_without_noise_the_truth_is_found(quantity):
    phantom = simulate(quantity, (8, 8, 2), snr=np.inf)
    maps = fit_voxels(phantom.model, phantom.signal[phantom.mask])
    # (What float32 leaves is so little that rounding of the model may end a fit.)
    assert np.all((maps["status"] > 0) | ((maps["status"] == FitStatus.ROUNDING) & (maps["distance"] < 1e-3)))
    for name, truth in phantom.truth.items():
        assert np.allclose(maps[name], truth[phantom.mask], rtol=2e-4), name  # the signal is float32


def test_inversion_times_in_any_order_and_signed_images():
    phantom = simulate("t1", (7, 7, 1), snr=np.inf)
    model, mask = phantom.model, phantom.mask
    turned = RelaxationModel("t1", model.points[::-1])
    first, second = fit_voxels(model, phantom.signal[mask]), fit_voxels(turned, phantom.signal[mask][:, ::-1])
    assert np.allclose(first["T1"], second["T1"], rtol=1e-5)
    signed = RelaxationModel("t1", model.points, signed=True)
    clean = signed.signal(**{name: truth[mask] for name, truth in phantom.truth.items()})
    assert (clean < 0).any()
    assert np.allclose(fit_voxels(signed, clean)["T1"], phantom.truth["T1"][mask], rtol=1e-5)


def test_a_field_of_flip_angles_is_each_voxels_own():
    model = RelaxationModel("t1-vfa", (3.0, 6.0, 12.0, 20.0), tr=0.02)
    field = np.array([0.8, 1.0, 1.2])
    signals = np.concatenate([model.signal(model.abscissa * one, T1=[1.1], S0=[900.0]) for one in field])
    assert np.allclose(fit_voxels(model, signals, field)["T1"], 1.1, rtol=1e-5)
    assert not np.allclose(fit_voxels(model, signals)["T1"], 1.1, rtol=0.05)


def test_a_bound_that_is_met_is_told_and_has_no_error():
    model = RelaxationModel("t2", (0.01, 0.05, 0.1, 0.2), bounds={"T2": (0.01, 0.1)})
    maps = fit_voxels(model, model.signal(T2=[0.05, 0.3], S0=[100.0, 100.0]))
    assert maps["bound"].tolist() == [0, 1]
    assert maps["T2"][1] == np.float32(0.1)
    assert np.isnan(maps["T2_se"][1])
    assert np.isfinite(maps["S0_se"]).all()


def test_a_noise_floor_is_fitted_where_it_is_asked_for():
    model = RelaxationModel("t2star", tuple(0.005 * k for k in range(1, 13)), offset=True)
    maps = fit_voxels(model, model.signal(T2star=[0.02], S0=[500.0], offset=[30.0]))
    assert maps["T2star"][0] == pytest.approx(0.02, rel=1e-5)
    assert maps["offset"][0] == pytest.approx(30, rel=1e-4)


def test_voxels_without_signal_or_with_nan_are_left_out_and_change_no_other():
    phantom = simulate("adc", (5, 5, 1))
    signals = phantom.signal[phantom.mask].astype(float)
    alone = fit_voxels(phantom.model, signals[2:])
    signals[0], signals[1, 3] = 0.0, np.nan
    maps = fit_voxels(phantom.model, signals)
    assert maps["status"][:2].tolist() == [-1, -1]
    assert np.isnan(maps["ADC"][:2]).all()
    assert np.array_equal(maps["ADC"][2:], alone["ADC"])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("t3", [1.0]), "quantity is 't3'"),
        (("t2", [10.0, 20.0, 40.0]), "did you mean 0.04?"),
        (("t2", [0.01, 0.01]), "at least 2 that differ"),
        (("adc", [0.0, 1.0]), "b-values in s/mm², the largest from 20"),
        (("t1-vfa", [5.0, 10.0]), "tr is None"),
        (("t2", [0.01, 0.02], 0.5), "tr is 0.5; allowed: None"),
        (("adc", [0.0, 800.0], None, True), "offset is True"),
        (("t2", [0.01, 0.02], None, False, True), "signed is True"),
        (("t2", [0.01, 0.02], None, False, False, {"T1": (0, 1)}), "bounds is 'T1'; allowed: T2, S0"),
        (("t2", [0.01, 0.02], None, False, False, {"T2": (0.0, 1.0)}), "lower < upper"),
        (("t2", [0.01, 0.02], None, False, False, [1]), "bounds is [1]; allowed: a dict"),
    ],
)
def test_wrong_models_are_named(given, words):
    with pytest.raises((ValueError, TypeError)) as told:
        RelaxationModel(*given)
    assert words in str(told.value)


# ---- whole images ----


@pytest.fixture
def series(tmp_path):
    """A phantom of T2* as one file per echo, with sidecars, as BIDS has it."""
    nibabel = pytest.importorskip("nibabel")
    phantom = simulate("t2star", (6, 5, 4), seed=1)
    paths = []
    for k, echo in enumerate(phantom.model.points):
        paths.append(tmp_path / f"sub-01_echo-{k + 1}_MEGRE.nii.gz")
        nibabel.Nifti1Image(phantom.signal[..., k], np.diag([2.0, 2, 3, 1])).to_filename(paths[-1])
        paths[-1].with_name(f"sub-01_echo-{k + 1}_MEGRE.json").write_text(json.dumps({"EchoTime": echo}))
    return phantom, paths


def test_a_series_of_files_with_sidecars(series, tmp_path):
    nibabel = pytest.importorskip("nibabel")
    phantom, paths = series
    run = map_series(paths, tmp_path / "out", "t2star")
    assert run.model.points == pytest.approx(phantom.model.points)
    assert "EchoTime" in run.notes[0]
    found = nibabel.load(run.files["T2star"])
    assert np.array_equal(found.affine, np.diag([2.0, 2, 3, 1]))
    wanted = fit_voxels(phantom.model, phantom.signal.reshape(-1, len(paths)))["T2star"].reshape(6, 5, 4)
    assert np.array_equal(np.asarray(found.dataobj), wanted)
    with pytest.raises(ValueError, match=r"sub-01_echo-1_MEGRE\.json: EchoTime is 0\.004"):
        map_series(paths, tmp_path / "other", "t2star", np.arange(1, 13) * 0.005)
    assert not (tmp_path / "other").exists()
    ours = map_series(paths, tmp_path / "other", "t2star", np.arange(1, 13) * 0.005, sidecar=False)
    assert ours.model.points[0] == 0.005


def test_b_values_beside_a_nifti_image(tmp_path):
    nibabel = pytest.importorskip("nibabel")
    phantom = simulate("adc", (4, 4, 2))
    nibabel.Nifti1Image(phantom.signal, np.eye(4)).to_filename(tmp_path / "dwi.nii")
    (tmp_path / "dwi.bval").write_text(" ".join(f"{b:g}" for b in phantom.model.points) + "\n")
    run = map_series(tmp_path / "dwi.nii", tmp_path / "out", "adc")
    assert run.model.points == phantom.model.points
    assert run.files["ADC"].name == "ADC.nii.gz"
    (tmp_path / "dwi.bval").write_text("0 100")
    with pytest.raises(ValueError, match="one per image"):
        map_series(tmp_path / "dwi.nii", tmp_path / "again", "adc")


def test_a_run_that_was_stopped_goes_on_with_the_same_bits(tmp_path, monkeypatch):
    phantom = simulate("ivim", (5, 4, 6))
    np.save(tmp_path / "image.npy", phantom.signal)
    given = dict(points=phantom.model.points, step_bytes=1)
    whole = map_series(tmp_path / "image.npy", tmp_path / "whole", "ivim", **given)
    calls = []

    def stopping(*args, **kwargs):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return fit_voxels(*args, **kwargs)

    monkeypatch.setattr("stepwell.apps.relaxation.run.fit_voxels", stopping)
    with pytest.raises(KeyboardInterrupt):
        map_series(tmp_path / "image.npy", tmp_path / "parts", "ivim", **given)
    assert (tmp_path / "parts" / ".unfinished").is_dir()
    with pytest.raises(ValueError, match="unfinished run with other settings"):
        map_series(tmp_path / "image.npy", tmp_path / "parts", "ivim", threshold=5, **given)
    run = map_series(tmp_path / "image.npy", tmp_path / "parts", "ivim", **given)
    assert run.resumed == 2
    assert not (tmp_path / "parts" / ".unfinished").exists()
    for name, path in run.files.items():
        assert path.read_bytes() == whole.files[name].read_bytes(), name


def test_maps_of_other_settings_are_not_written_over(tmp_path):
    phantom = simulate("t2", (4, 4, 1))
    np.save(tmp_path / "image.npy", phantom.signal)
    given = (tmp_path / "image.npy", tmp_path / "out", "t2", phantom.model.points)
    map_series(*given)
    map_series(*given)  # the same again
    with pytest.raises(ValueError, match="overwrite=True"):
        map_series(*given, bounds={"T2": (0.01, 0.05)})
    run = map_series(*given, bounds={"T2": (0.01, 0.05)}, overwrite=True)
    assert run.at_bound > 0
    held = json.loads((tmp_path / "out" / "relax.json").read_text())
    assert held["settings"]["model"]["bounds"]["T2"] == [0.01, 0.05]


def test_masks_labels_and_coordinates(tmp_path):
    pytest.importorskip("xarray")
    phantom = simulate("t2", (6, 6, 2), snr=np.inf)
    np.save(tmp_path / "image.npy", phantom.signal)
    np.save(tmp_path / "mask.npy", phantom.mask.astype(np.uint8))
    labels = np.where(phantom.truth["T2"] > 0.1, 2, 1) * phantom.mask
    np.save(tmp_path / "labels.npy", labels)
    run = map_series(
        tmp_path / "image.npy", tmp_path / "out", "t2", phantom.model.points,
        mask=tmp_path / "mask.npy", labels=tmp_path / "labels.npy",
    )  # fmt: skip
    assert run.fitted == phantom.mask.sum()
    maps = run.to_xarray()
    assert maps["T2"].dims == ("x", "y", "z")
    assert np.allclose(maps["T2"], phantom.truth["T2"], rtol=1e-3, equal_nan=True)
    header, *rows = (tmp_path / "out" / "regions.csv").read_text().splitlines()
    place = header.split(",").index("T2_mean")
    means = [float(row.split(",")[place]) for row in rows]
    assert means == pytest.approx([phantom.truth["T2"][labels == k].mean() for k in (1, 2)], rel=1e-3)


def test_arrays_of_another_library_give_the_same_maps():
    torch = pytest.importorskip("torch")
    phantom = simulate("ivim", (4, 4, 1))
    signals = phantom.signal[phantom.mask]
    ours, theirs = (
        fit_voxels(phantom.model, signals, like=like) for like in (None, torch.zeros(1, dtype=torch.float64))
    )
    assert all(np.array_equal(ours[name], theirs[name], equal_nan=True) for name in ours)


def test_the_package_names_what_it_has():
    assert set(relaxation.__all__) <= set(dir(relaxation))
