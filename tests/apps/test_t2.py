"""T2 mapping: echo trains against formulas, maps against the truth and a published table, whole images."""

from __future__ import annotations

import doctest
import importlib
import json
import tracemalloc

import numpy as np
import pytest
from scipy.optimize import nnls as scipy_nnls
from t2_cases import KNOWN, TE, TISSUE, phantom_file

from stepwell.apps import t2
from stepwell.apps.t2.fit import find_angles

# ---- echo trains ----


def test_perfect_pulses_give_plain_decays():
    times = np.geomspace(0.005, 3, 50)
    decays = t2.echo_decays(48, 0.007, times, np.array([180.0]), t1=0.8)
    expected = np.exp(-0.007 * np.arange(1, 49)[:, None] / times)
    # Each of 96 half intervals rounds its products, and cos²(90°) is 4e-33 rather than zero: a unit of rounding each.
    np.testing.assert_allclose(decays[0], expected, rtol=0, atol=200 * np.finfo(float).eps)


def rotation(axis, angle):
    c, s = np.cos(angle), np.sin(angle)
    if axis == "x":
        return np.array([[1, 0, 0], [0, c, -s], [0, s, c]])
    return np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]])


@pytest.mark.parametrize("angle", [70.0, 120.0, 165.0])
def test_imperfect_pulses_against_spins_that_dephase(angle):
    """The Bloch equations for spins all over a dephasing cycle: the mean of what they do is the echo train."""
    echoes, relax2, relax1, spins = 7, 0.06, 0.9, 64  # more spins than there are dephasing orders
    alpha = np.deg2rad(angle)
    magnetisation = np.tile(rotation("x", alpha / 2) @ np.array([0.0, 0.0, 1.0]), (spins, 1))
    steps = 2 * np.pi * np.arange(spins) / spins  # the turn of each spin in half an interval
    e2, e1 = np.exp(-0.5 * TE / relax2), np.exp(-0.5 * TE / relax1)

    def half(m):
        turned = np.empty_like(m)
        turned[:, 0] = np.cos(steps) * m[:, 0] - np.sin(steps) * m[:, 1]
        turned[:, 1] = np.sin(steps) * m[:, 0] + np.cos(steps) * m[:, 1]
        turned[:, 2] = m[:, 2]
        # (What grows back along z in the meantime is out of phase with the echoes and is left out by both.)
        return turned * np.array([e2, e2, e1])

    expected = []
    for _ in range(echoes):
        magnetisation = half(magnetisation) @ rotation("y", alpha).T
        magnetisation = half(magnetisation)
        expected.append(-magnetisation[:, 1].mean())
    found = t2.echo_decays(echoes, TE, np.array([relax2]), np.array([angle]), relax1)[0, :, 0]
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_late_states_do_not_matter():
    """As many dephasing orders as echoes suffice: a longer train begins with the shorter one."""
    times, angles = np.array([0.02, 0.1]), np.array([60.0, 130.0])
    long = t2.echo_decays(40, TE, times, angles)
    np.testing.assert_allclose(t2.echo_decays(9, TE, times, angles), long[:, :9], rtol=1e-13)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"te": 0.0}, "te is 0.0"),
        ({"t2": (1.0, 0.1)}, "t2 is"),
        ({"angles": (180.0, 50.0, 3)}, "angles is"),
        ({"lam": "chi"}, "did you mean 'chi2'"),
        ({"lam": -1.0}, "lam is -1.0"),
        ({"lam": "discrepancy"}, "noise is None; allowed: a number, with 'discrepancy'"),
        ({"chi2": 1.0}, "chi2 is 1.0"),
        ({"smooth": "L3"}, "smooth is 'L3'"),
        ({"myelin": (0.04, 0.01)}, "myelin is"),
        ({"middle": 0.02}, "middle is 0.02; allowed: more than myelin's 0.025"),
    ],
)
def test_wrong_models_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        t2.T2Model(**({"echoes": 32, "te": TE} | options))


# ---- voxels ----


def test_the_numbers_that_are_read_off_by_their_formulas():
    model = t2.T2Model(32, TE, lam=0.02, angles=(150.0, 150.0, 1), myelin=TISSUE)
    phantom = t2.simulate((8, 8, 1), snr=100)
    signals = phantom.signal[phantom.mask].astype(float)
    maps = t2.fit_voxels(model, signals)
    stacked = np.vstack([model.dictionary[0], 0.02 * np.eye(40)])
    for voxel in range(len(signals)):
        x = scipy_nnls(stacked, np.concatenate([signals[voxel], np.zeros(40)]))[0]
        size = np.abs(x).max()
        np.testing.assert_allclose(maps["t2dist"][voxel], x, atol=2e-6 * size)
        times = model.t2_times
        inside = (times >= 0.00999) & (times <= 0.04001)
        total, mean = x.sum(), np.exp((x * np.log(times)).sum() / x.sum())
        left = signals[voxel] - model.dictionary[0] @ x
        expected = {
            "sfr": x[inside].sum() / total,
            "mfr": x[(times > 0.04) & (times <= 0.2)].sum() / total,
            "ffr": x[times > 0.2].sum() / total,
            "ggm": mean,
            "gva": np.exp((x * (np.log(times) - np.log(mean)) ** 2).sum() / total) - 1,
            "gdn": total,
            "fnr": total / np.sqrt((left**2).sum() / 31),
            "snr": signals[voxel].max() / left.std(ddof=1),
            "resnorm": np.linalg.norm(left),
            "alpha": 150.0,
            "mu": 0.02,
        }
        for name, value in expected.items():
            assert maps[name][voxel] == pytest.approx(value, rel=1e-4, abs=1e-6), name
        least = scipy_nnls(model.dictionary[0], signals[voxel])[1]
        assert maps["chi2factor"][voxel] == pytest.approx((np.linalg.norm(left) / least) ** 2, rel=1e-4)
    assert np.all(maps["status"] == 0)


def test_flip_angles_are_those_of_the_least_residual():
    model = t2.T2Model(32, TE, angles=(90.0, 180.0, 46), lam=0.0)
    phantom = t2.simulate((9, 9, 1), snr=np.inf)
    signals = phantom.signal[phantom.mask].astype(float)
    best, least = find_angles(model, signals)
    every = np.array([[scipy_nnls(A, b)[1] for A in model.dictionary] for b in signals])
    np.testing.assert_allclose(least, every.min(axis=1), rtol=1e-3, atol=1e-3)
    truth = phantom.truth["alpha"][phantom.mask]
    assert np.median(np.abs(model.flip_angles[best] - truth)) <= 2.0  # the spacing
    maps = t2.fit_voxels(model, signals, truth.astype(float))
    np.testing.assert_allclose(maps["alpha"], truth, atol=1.01)


def test_the_standard_error_is_the_scatter_over_noise():
    """Many noisy copies of one voxel: what the formula says of each, on average, is how they differ."""
    model = t2.T2Model(32, TE, angles=(180.0, 180.0, 1), lam=0.1, myelin=TISSUE)
    random = np.random.default_rng(0)
    clean = model.dictionary[0] @ np.exp(-0.5 * ((np.arange(40) - 14) / 8.0) ** 2)
    signals = clean + 0.01 * clean[0] * random.standard_normal((600, 32))
    maps = t2.fit_voxels(model, signals)
    # The formula takes the set of positive bins as known: of a broad distribution it changes little. The scatter of
    # 600 is known to 3 per cent.
    assert np.std(maps["sfr"]) / np.mean(maps["sfr_se"]) == pytest.approx(1, abs=0.25)


def test_voxels_that_hold_nothing_are_left_out():
    model = t2.T2Model(8, TE, angles=(180.0, 180.0, 1), lam=0.0)
    signals = np.ones((4, 8))
    signals[1], signals[2, 3], signals[3] = 0.0, np.nan, -1.0
    maps = t2.fit_voxels(model, signals)
    assert maps["status"].tolist() == [0, -1, -1, -1]
    assert np.isnan(maps["sfr"][1:]).all()
    empty = t2.fit_voxels(model, np.ones((0, 8)))
    assert empty["t2dist"].shape == (0, 40)
    with pytest.raises(ValueError, match=r"signals has shape \(3, 7\); allowed: \(voxels, 8\)"):
        t2.fit_voxels(model, np.ones((3, 7)))


@pytest.mark.parametrize("smooth", ["I", "L2"])
@pytest.mark.parametrize("rule", ["chi2", "gcv", "lcurve", "discrepancy"])
def test_every_rule_chooses_a_lam_of_its_own(rule, smooth):
    model = t2.T2Model(32, TE, lam=rule, smooth=smooth, noise=4.0, angles=(150.0, 150.0, 1), myelin=TISSUE)
    phantom = t2.simulate((9, 9, 1), snr=200)
    signals = phantom.signal[phantom.mask].astype(float)
    maps = t2.fit_voxels(model, signals)
    assert np.all(maps["status"] == 0)
    stacked_rows = np.eye(40) if model.penalty is None else model.penalty
    for voxel in range(0, len(signals), 7):
        lam = float(maps["mu"][voxel])
        rows = np.vstack([model.dictionary[0], lam * stacked_rows])
        x = scipy_nnls(rows, np.concatenate([signals[voxel], np.zeros(40)]))[0]
        np.testing.assert_allclose(maps["t2dist"][voxel], x, atol=1e-4 * x.max())  # lam is kept in single precision
    if rule == "chi2":
        np.testing.assert_allclose(maps["chi2factor"], 1.02, rtol=1e-5)


def check_elsewhere(like):
    model = t2.T2Model(32, TE, angles=(120.0, 180.0, 21), myelin=TISSUE)
    phantom = t2.simulate((10, 10, 1))
    signals = phantom.signal[phantom.mask].astype(float)
    here, there = t2.fit_voxels(model, signals), t2.fit_voxels(model, signals, like=like)
    assert np.all(there["status"] == 0)
    np.testing.assert_array_equal(there["alpha"], here["alpha"])
    np.testing.assert_allclose(there["sfr"], here["sfr"], atol=1e-4)  # λ is found to 1e-6 of what χ² may rise by


def test_systems_may_be_solved_in_another_library():
    torch = pytest.importorskip("torch")
    check_elsewhere(torch.empty(0, dtype=torch.float64))


@pytest.mark.cuda
def test_systems_may_be_solved_on_a_gpu():
    torch = pytest.importorskip("torch")
    check_elsewhere(torch.empty(0, dtype=torch.float64, device="cuda"))


# ---- a published table ----

#: Canales-Rodríguez et al., Med. Image Anal. 69 (2021) 101959: mean absolute errors of the myelin water fraction over
#: 10,000 simulated voxels, and the mean λ² of the first rule.
PUBLISHED = {("chi2", "I"): 0.0433, ("chi2", "L2"): 0.0445, (0.0, "I"): 0.0517}
PUBLISHED_LAM2 = 4.63e-4


def published_voxels(random, count):
    """Two lobes of water in 32 echoes of 10 ms, angles from 90 to 180 degrees, SNR from 150 to 300, Rician noise."""
    grid = np.arange(1.0, 301.0) * 1e-3  # a millisecond: the lobes are wider than that
    angles = np.arange(90.25, 180.0, 2.0)  # between those of the dictionary
    decays = t2.echo_decays(32, TE, grid, angles)
    fraction = random.uniform(0.05, 0.25, count)

    def lobe(centre, width):
        shape = np.exp(-0.5 * ((grid - random.uniform(*centre, (count, 1))) / random.uniform(*width, (count, 1))) ** 2)
        return shape / shape.sum(axis=1, keepdims=True)

    water = fraction[:, None] * lobe((0.015, 0.035), (0.001, 0.003))
    water += (1 - fraction)[:, None] * lobe((0.060, 0.090), (0.006, 0.012))
    which = random.integers(0, len(angles), count)
    clean = np.empty((count, 32))
    for angle in np.unique(which):
        clean[which == angle] = water[which == angle] @ decays[angle].T
    sigma = clean[:, :1] / random.uniform(150, 300, (count, 1))
    signals = np.hypot(clean + sigma * random.standard_normal(clean.shape), sigma * random.standard_normal(clean.shape))
    return signals / signals[:, :1], fraction


@pytest.mark.parametrize("count", [400, pytest.param(2000, marks=pytest.mark.slow)])
def test_errors_of_the_myelin_water_fraction_are_those_published(count):
    """Within four standard errors of our sample and five per cent."""
    signals, fraction = published_voxels(np.random.default_rng(0), count)
    kept = {}
    for (lam, smooth), published in PUBLISHED.items():
        model = t2.T2Model(
            32, TE, bins=60, t2=(0.010, 2.0), angles=(90.0, 180.0, 91), lam=lam, smooth=smooth, myelin=(0.010, 0.040)
        )
        maps = t2.fit_voxels(model, signals, None if not kept else kept["alpha"].astype(float))
        kept = kept or maps  # the angles do not depend on the penalty
        errors = np.abs(maps["sfr"] - fraction)
        allowed = 4 * errors.std() / np.sqrt(count) + 0.05 * published
        assert errors.mean() == pytest.approx(published, abs=allowed), (lam, smooth)
    saturation = 1 - np.exp(-3.0)  # the published dictionary is that much smaller
    lam2 = (kept["mu"].astype(float) * saturation) ** 2
    allowed = 4 * lam2.std() / np.sqrt(count) + 0.05 * PUBLISHED_LAM2
    assert lam2.mean() == pytest.approx(PUBLISHED_LAM2, abs=allowed)


def test_an_image_is_what_its_voxels_are(tmp_path):
    phantom = phantom_file(tmp_path)
    run = t2.map_image(tmp_path / "image.npy", tmp_path / "out", TE, mask=tmp_path / "mask.npy", **KNOWN)
    assert (run.voxels, run.fitted, run.converged) == (360, phantom.mask.sum(), phantom.mask.sum())
    alone = t2.fit_voxels(run.model, phantom.signal[phantom.mask].astype(float))
    for name, path in run.files.items():
        found = np.load(path)
        assert found.shape[:3] == phantom.mask.shape
        np.testing.assert_array_equal(found[phantom.mask], alone[{"mwf": "sfr"}.get(name, name)])
        outside = found[~phantom.mask]
        assert np.all(outside == -1) if name == "status" else np.isnan(outside).all()
    account = json.loads((tmp_path / "out" / "t2map.json").read_text())
    assert account["converged"] == run.converged
    assert account["means"]["sfr"] == pytest.approx(np.nanmean(alone["sfr"]), rel=1e-5)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(
        [*(f"{name}.npy" for name in t2.MAPS), "mwf.npy", "t2map.json"]
    )


def test_an_image_that_was_stopped_goes_on_to_the_same_maps(tmp_path, monkeypatch):
    phantom_file(tmp_path)
    image, steps = tmp_path / "image.npy", {"step_bytes": 1, **KNOWN}
    whole = t2.map_image(image, tmp_path / "whole", TE, **steps)
    done = []

    def stop(count, total):
        done.append(count)
        if count == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        t2.map_image(image, tmp_path / "out", TE, progress=stop, **steps)
    with pytest.raises(ValueError, match="an unfinished run with other settings"):
        t2.map_image(image, tmp_path / "out", TE, **(steps | {"lam": 0.5}))
    resumed = t2.map_image(image, tmp_path / "out", TE, **steps)
    assert resumed.resumed == 3
    for name, path in whole.files.items():
        np.testing.assert_array_equal(np.load(resumed.files[name]), np.load(path))
    assert not (tmp_path / "out" / ".unfinished").exists()


def test_memory_does_not_grow_with_the_image(tmp_path):
    peaks = []
    slab = t2.simulate((3, 12, 8)).signal[1:2]
    for slabs in (4, 24):
        np.save(tmp_path / "image.npy", np.repeat(slab, slabs, axis=0))
        tracemalloc.start()
        t2.map_image(tmp_path / "image.npy", tmp_path / f"out{slabs}", TE, step_bytes=1, **KNOWN)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] <= 1.05 * peaks[0] + 50_000  # six times the voxels


def test_maps_of_nifti_images_lie_where_the_image_lies(tmp_path):
    nibabel = pytest.importorskip("nibabel")
    phantom = t2.simulate((8, 7, 3))
    affine = np.array([[0, -2.0, 0, 9], [1.5, 0, 0, 8], [0, 0, 4, 7], [0, 0, 0, 1]])
    nibabel.save(nibabel.Nifti1Image(phantom.signal, affine), tmp_path / "image.nii.gz")
    nibabel.save(nibabel.Nifti1Image(phantom.mask.astype(np.uint8), affine), tmp_path / "mask.nii.gz")
    b1 = np.where(phantom.mask, phantom.truth["alpha"] / 180, 0).astype(np.float32)
    nibabel.save(nibabel.Nifti1Image(b1, affine), tmp_path / "b1.nii.gz")
    run = t2.map_image(
        tmp_path / "image.nii.gz",
        tmp_path / "out",
        TE,
        mask=tmp_path / "mask.nii.gz",
        b1=tmp_path / "b1.nii.gz",
        angles=(120.0, 180.0, 61),
        lam=0.02,
    )
    made = nibabel.load(run.files["alpha"])
    np.testing.assert_array_equal(made.affine, affine)
    np.testing.assert_allclose(np.asarray(made.dataobj)[phantom.mask], phantom.truth["alpha"][phantom.mask])
    assert nibabel.load(run.files["t2dist"]).shape == (8, 7, 3, 40)
    assert not (tmp_path / "out" / ".unpacked").exists()


def test_what_does_not_fit_the_image_is_told(tmp_path):
    phantom_file(tmp_path)
    np.save(tmp_path / "small.npy", np.ones((3, 3)))
    with pytest.raises(ValueError, match=r"has shape \(3, 3\); allowed: \(10, 9, 4\)"):
        t2.map_image(tmp_path / "image.npy", tmp_path / "out", TE, mask=tmp_path / "small.npy")
    with pytest.raises(ValueError, match="allowed: four axes"):
        t2.map_image(tmp_path / "small.npy", tmp_path / "out", TE)


@pytest.mark.parametrize("name", ["epg", "model", "fit", "simulate"])
def test_docstring_examples(name):
    failed, tried = doctest.testmod(importlib.import_module(f"stepwell.apps.t2.{name}"))
    assert tried > 0
    assert failed == 0
