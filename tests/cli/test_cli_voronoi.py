"""`stepwell voronoi` and `stepwell stipple`: files that can be read back, summaries, and errors that help."""

from __future__ import annotations

import os
import re
import signal
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
from voronoi_commands import QUICK, call, fails, strict_json, works

import stepwell
from stepwell.apps.voronoi import HEXAGONAL_BOUND, centroidal, cvt_energy, tessellating
from stepwell.apps.voronoi.mesh import voronoi_cells

Image = pytest.importorskip("PIL.Image")
pytest.importorskip("matplotlib")
SVG = "{http://www.w3.org/2000/svg}"


def pixels_of(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("L"))


@pytest.fixture
def picture(tmp_path):
    """A wide picture that is dark on the left and white on the right edge."""
    ramp = np.broadcast_to(np.linspace(0, 255, 60).astype(np.uint8), (40, 60))
    Image.fromarray(ramp).save(tmp_path / "ramp.png")
    return tmp_path / "ramp.png"


def dots(path):
    root = ElementTree.parse(path).getroot()
    found = {}
    for group in root.iter(f"{SVG}g"):
        for stroke in group.findall(f"{SVG}path"):
            points = np.array(re.findall(r"M([\d.]+) ([\d.]+)h0", stroke.get("d")), float)
            found.setdefault((group.get("stroke"), float(stroke.get("stroke-width"))), []).append(points)
    return root, {pen: np.concatenate(parts) for pen, parts in found.items()}


def test_a_folder_of_everything(tmp_path):
    outcome = works("voronoi", "-n", 150, "-o", tmp_path / "out", *QUICK)
    assert "150 on 96 x 96 pixels" in outcome.stdout
    assert "hexagonal bound" in outcome.stdout
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {
        "cells.svg", "cells.png", "mesh.png", "quality.png", "points.csv", "points.npy", "mesh.obj", "mesh.ply",
        "statistics.json",
    }  # fmt: skip
    for name in names:
        assert name in outcome.stdout
    points = np.load(tmp_path / "out/points.npy")
    assert points.shape == (150, 2)
    table = np.genfromtxt(tmp_path / "out/points.csv", delimiter=",", names=True)
    assert table["x"] == pytest.approx(points[:, 0], rel=1e-8)
    assert table["mass"].sum() == pytest.approx(1.0, rel=1e-6)
    for name in ("cells.png", "mesh.png"):
        assert pixels_of(tmp_path / "out" / name).shape == (300, 300)
    assert pixels_of(tmp_path / "out/quality.png").shape[1] > 900
    assert (tmp_path / "out/mesh.ply").read_bytes().startswith(b"ply\n")
    record = strict_json((tmp_path / "out/statistics.json").read_text())
    assert record["stepwell"] == stepwell.__version__
    assert (record["sites"], record["resolution"], record["extent"]) == (150, [96, 96], [1.0, 1.0])
    result, quality = record["result"], record["quality"]
    assert result["exact_normalized_energy"] > HEXAGONAL_BOUND
    cells = voronoi_cells(points)
    exact = 150 * cells.second_moments(points).sum()
    assert result["exact_normalized_energy"] == pytest.approx(exact, rel=1e-12)
    assert result["projected_gradient"] == pytest.approx(np.abs(cvt_energy(points, np.ones((96, 96)))[1]).max())
    assert len(record["history"]) > 1
    lines = (tmp_path / "out/mesh.obj").read_text().splitlines()
    assert sum(line.startswith("f ") for line in lines) == quality["triangles"]
    assert sum(quality["valence"].values()) == quality["interior"]
    assert 0 < quality["q_min"] <= quality["q_mean"] <= 1
    assert record["route"] is None


@pytest.mark.parametrize("ending", ["svg", "png", "csv", "npy", "obj", "ply", "json"])
def test_one_file_by_its_ending(tmp_path, ending):
    file = tmp_path / f"out.{ending}"
    works("voronoi", "-n", 40, "-o", file, *QUICK)
    assert file.stat().st_size > 0
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


@pytest.mark.parametrize("drawn", ["stipples", "cells", "mesh", "route"])
def test_what_is_drawn(tmp_path, drawn):
    works("voronoi", "-n", 40, "--draw", drawn, "-o", tmp_path / "a.svg", "-o", tmp_path / "a.png", *QUICK)
    root = ElementTree.parse(tmp_path / "a.svg").getroot()
    assert root.find(f"{SVG}title").text == drawn
    assert pixels_of(tmp_path / "a.png").shape == (300, 300)


def test_a_grid_that_is_not_square(tmp_path):
    works("voronoi", "-n", 60, "--maxiter", 5, "--resolution", "128x64", "-o", tmp_path / "a.json",
          "-o", tmp_path / "a.npy")  # fmt: skip
    record = strict_json((tmp_path / "a.json").read_text())
    assert (record["resolution"], record["extent"]) == ([128, 64], [1.0, 0.5])
    points = np.load(tmp_path / "a.npy")
    assert points[:, 1].max() <= 0.5 < points[:, 0].max() <= 1.0


def test_one_site(tmp_path):
    works("voronoi", "-n", 1, "-o", tmp_path / "out", *QUICK)
    assert np.load(tmp_path / "out/points.npy") == pytest.approx(np.array([[0.5, 0.5]]), abs=0.02)
    assert strict_json((tmp_path / "out/statistics.json").read_text())["quality"]["angle_min"] is None


@pytest.mark.parametrize("method", ["lbfgsb", "lloyd"])
def test_an_interrupted_run_keeps_its_sites(tmp_path, monkeypatch, method):
    """Ctrl-C in the third iteration gives the sites of a run of three; pressed twice, it ends everything."""
    presses = 1

    def interrupted(*arguments, progress, **options):
        def press(done, total):
            for _ in range(presses if done == 3 else 0):
                signal.raise_signal(signal.SIGINT)
            progress(done, total)

        return centroidal(*arguments, progress=press, **options)

    monkeypatch.setattr(tessellating, "centroidal", interrupted)
    before = signal.getsignal(signal.SIGINT)
    run = ["voronoi", "-n", 60, "--resolution", 96, "--method", method, "-o", tmp_path / "a.npy"]
    outcome = call(*run, "--json", tmp_path / "a.json")
    assert outcome.exit_code == 130
    assert "interrupted; these are the sites so far: 3 iterations" in outcome.stdout
    expected = centroidal(60, np.ones((96, 96)), method=method, maxiter=3)
    assert np.array_equal(np.load(tmp_path / "a.npy"), expected.sites)
    result = strict_json((tmp_path / "a.json").read_text())["result"]
    assert (result["status"], result["success"], result["energy"]) == (99, False, expected.energy)
    presses = 2
    outcome = call(*run)
    assert outcome.exit_code == 130
    assert "interrupted" in outcome.stderr
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_after_the_last_iteration_is_told(tmp_path, monkeypatch):
    def late(*arguments, **options):
        made = centroidal(*arguments, **options)
        signal.raise_signal(signal.SIGINT)
        return made

    monkeypatch.setattr(tessellating, "centroidal", late)
    outcome = call("voronoi", "-n", 60, "-o", tmp_path / "a.npy", *QUICK)
    assert outcome.exit_code == 130
    assert "interrupted" in outcome.stdout
    assert len(np.load(tmp_path / "a.npy")) == 60


def test_who_ignores_interrupts_is_not_interrupted(tmp_path, monkeypatch):
    """As a job in the background of a shell script."""

    def pressed(*arguments, **options):
        signal.raise_signal(signal.SIGINT)
        return centroidal(*arguments, **options)

    monkeypatch.setattr(tessellating, "centroidal", pressed)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        outcome = call("voronoi", "-n", 60, "-o", tmp_path / "a.npy", *QUICK)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert outcome.exit_code == 0


def test_a_pipe_gets_no_progress(tmp_path):
    assert works("voronoi", "-n", 60, "-o", tmp_path / "a.npy", *QUICK).stderr == ""


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_few_sites_are_told_without_nan(tmp_path, count):
    """They have no triangles, or triangles round no site: what does not exist is left out."""
    outcome = works("voronoi", "-n", count, "-o", tmp_path / "a.svg", *QUICK)
    assert re.search(r"\bnan\b", outcome.stdout) is None


def test_plots_of_no_triangles_say_so(tmp_path):
    from matplotlib import rc_context

    from stepwell.apps.voronoi.mesh import delaunay_mesh
    from stepwell.apps.voronoi.plots import quality_png

    with rc_context({"svg.fonttype": "none"}):
        quality_png(delaunay_mesh([[0.5, 0.5]]), tmp_path / "quality.svg")
    text = (tmp_path / "quality.svg").read_text()
    assert text.count("no triangles") == 2
    assert re.search(r"\bnan\b", "".join(ElementTree.fromstring(text).itertext())) is None


def test_seed_and_method(tmp_path):
    for name, options in {"a": [], "b": [], "c": ["--seed", 1], "d": ["--method", "lloyd"]}.items():
        works("voronoi", "-n", 60, "-o", tmp_path / f"{name}.npy", *QUICK, *options)
    a, b, c, d = (np.load(tmp_path / f"{name}.npy") for name in "abcd")
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)
    assert not np.array_equal(a, d)


def test_density_of_a_picture(tmp_path, picture):
    works("voronoi", "-n", 300, "--density", picture, "-o", tmp_path / "dark.npy", *QUICK)
    works("voronoi", "-n", 300, "--density", picture, "--invert", "-o", tmp_path / "bright.npy", *QUICK)
    dark, bright = np.load(tmp_path / "dark.npy"), np.load(tmp_path / "bright.npy")
    assert dark[:, 0].mean() < 0.45 < 0.55 < bright[:, 0].mean()
    np.save(tmp_path / "density.npy", np.linspace(0, 5, 80)[:, None] * np.ones((80, 50)))
    works("voronoi", "-n", 300, "--density", tmp_path / "density.npy", "--maxiter", 8, "-o", tmp_path / "deep.npy")
    assert np.load(tmp_path / "deep.npy")[:, 1].mean() > 0.55


def test_json_on_standard_output(tmp_path):
    outcome = works("voronoi", "-n", 30, "--json", "-", *QUICK)
    assert strict_json(outcome.stdout)["sites"] == 30
    outcome = works("voronoi", "-n", 30, "--json", tmp_path / "a.json", *QUICK)
    assert strict_json((tmp_path / "a.json").read_text())["sites"] == 30
    assert "a.json" in outcome.stdout


def test_stipples_are_dense_where_the_picture_is_dark(tmp_path, picture):
    outcome = works("stipple", picture, "-n", 400, "-o", tmp_path / "a.svg", "-o", tmp_path / "a.csv", *QUICK)
    assert "pen travel" in outcome.stdout
    root, found = dots(tmp_path / "a.svg")
    assert root.get("viewBox") == "0 0 200 133.333"
    points = np.concatenate(list(found.values()))
    assert len(points) == 400
    assert points[:, 0].mean() < 90
    ink = sum(np.pi * width**2 / 4 * len(points) for (_, width), points in found.items())
    # The ramp is half dark on average; sizes of dots come in steps.
    assert ink == pytest.approx(0.5 * 200 * 133.333, rel=0.03)
    table = np.genfromtxt(tmp_path / "a.csv", delimiter=",", names=True)
    assert np.pi * np.sum(table["radius"] ** 2) == pytest.approx(0.5 * 2 / 3, rel=0.01)
    # Points come in the order of the pen.
    steps = np.hypot(np.diff(table["x"]), np.diff(table["y"]))
    assert steps.max() < 0.35
    assert np.median(steps) < 0.06


def test_even_dots_inverted_and_in_colour(tmp_path, picture):
    works("stipple", picture, "-n", 200, "--even", "-o", tmp_path / "even.svg", *QUICK)
    assert len(dots(tmp_path / "even.svg")[1]) == 1
    works("stipple", picture, "-n", 200, "--invert", "-o", tmp_path / "white.svg", "-o", tmp_path / "white.png", *QUICK)
    root, found = dots(tmp_path / "white.svg")
    assert root.find(f"{SVG}rect").get("fill") == "black"
    assert {colour for colour, _ in found} == {"white"}
    assert np.concatenate(list(found.values()))[:, 0].mean() > 110
    assert pixels_of(tmp_path / "white.png")[:, :20].mean() < 60
    works("stipple", picture, "-n", 200, "--colour", "-o", tmp_path / "c.svg", "-o", tmp_path / "c.png", *QUICK)
    assert len({colour for colour, _ in dots(tmp_path / "c.svg")[1]}) > 5
    works("stipple", picture, "-n", 50, "--marks", "circles", "-o", tmp_path / "circles.svg", *QUICK)
    assert len(list(ElementTree.parse(tmp_path / "circles.svg").getroot().iter(f"{SVG}circle"))) == 50


def test_demonstration(tmp_path):
    works("stipple", "--demo", "-n", 300, "-o", tmp_path / "out", *QUICK)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"stipples.svg", "stipples.png", "route.svg", "route.png", "cells.svg", "mesh.obj"} <= names
    route = strict_json((tmp_path / "out/statistics.json").read_text())["route"]
    assert route["bound"] < route["length"] < route["hilbert_length"] < route["unordered_length"] / 3
    assert route["length"] < route["given_length"]
    line = ElementTree.parse(tmp_path / "out/route.svg").getroot().find(f"{SVG}g/{SVG}polyline")
    assert len(line.get("points").split()) == 600


def test_errors_of_files(tmp_path, picture):
    assert "give -o with a file or a folder, or --json" in fails("voronoi", "-n", 9)
    assert "unknown ending; allowed: .svg .png .csv" in fails("voronoi", "-n", 9, "-o", tmp_path / "a.xyz")
    assert "there is no folder" in fails("voronoi", "-n", 9, "-o", tmp_path / "no/a.svg")
    assert "there is no folder" in fails("voronoi", "-n", 9, "--json", tmp_path / "no/a.json")
    assert "there is no file" in fails("stipple", tmp_path / "no.png", "-o", tmp_path / "a.svg")
    (tmp_path / "text.png").write_text("text")
    assert "not a picture that Pillow can read" in fails("stipple", tmp_path / "text.png", "-o", tmp_path / "a.svg")
    assert "is not a regular file" in fails("stipple", tmp_path, "-o", tmp_path / "a.svg")
    assert "give either IMAGE or --demo" in fails("stipple", "-o", tmp_path / "a.svg")
    assert "give either IMAGE or --demo" in fails("stipple", picture, "--demo", "-o", tmp_path / "a.svg")
    assert not (tmp_path / "a.svg").exists()
    assert "text.png' is a file; a folder is needed" in fails("voronoi", "-n", 9, "-o", tmp_path / "text.png/new/out")


def test_what_may_not_be_written_is_refused_before_any_work(tmp_path, monkeypatch):
    (tmp_path / "old.svg").touch(mode=0o444)
    (tmp_path / "folder").mkdir(mode=0o555)
    if os.access(tmp_path / "folder", os.W_OK):
        pytest.skip("this user may write anywhere")
    monkeypatch.setattr(tessellating, "centroidal", lambda *_, **__: pytest.fail("work was done"))
    for path in ("old.svg", "folder/new.svg", "folder", "folder/new"):
        assert "nothing can be written to" in fails("voronoi", "-n", 9, "-o", tmp_path / path)
    assert "--json" in fails("voronoi", "-n", 9, "--json", tmp_path / "folder/new.json")


def test_without_matplotlib_and_pillow(tmp_path, monkeypatch, picture):
    """As after a plain installation: everything but PNG files is written; what cannot be is refused before any work."""
    np.save(tmp_path / "grey.npy", np.linspace(0, 1, 96 * 96).reshape(96, 96))
    for name in ("matplotlib", "PIL", "PIL.Image"):
        monkeypatch.setitem(sys.modules, name, None)
    outcome = works("voronoi", "-n", 50, "-o", tmp_path / "out", *QUICK)
    assert "left out the PNG files, which need matplotlib: pip install 'stepwell[plot]'" in outcome.stderr
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".svg", ".csv", ".npy", ".obj", ".ply", ".json"}
    works("stipple", tmp_path / "grey.npy", "-n", 50, "-o", tmp_path / "grey.svg", *QUICK)  # has its size already
    monkeypatch.setattr(tessellating, "centroidal", lambda *_, **__: pytest.fail("work was done"))
    assert "needs matplotlib" in fails("voronoi", "-n", 50, "-o", tmp_path / "a.png")
    for source in (["--demo"], [picture], [tmp_path / "grey.npy", "--resolution", 40]):
        assert "pictures need Pillow: pip install" in fails("stipple", *source, "-n", 50, "-o", tmp_path / "a.svg")


def test_errors_of_density(tmp_path):
    Image.fromarray(np.full((20, 20), 255, np.uint8)).save(tmp_path / "white.png")
    out = ["-o", tmp_path / "a.svg"]
    assert "all white: the density is zero everywhere" in fails("stipple", tmp_path / "white.png", *out)
    assert "density is zero everywhere" in fails("voronoi", "--density", tmp_path / "white.png", *out)
    Image.fromarray(np.zeros((20, 20), np.uint8)).save(tmp_path / "black.png")
    assert "try without --invert" in fails("stipple", tmp_path / "black.png", "--invert", *out)
    np.save(tmp_path / "zero.npy", np.zeros((20, 20)))
    said = fails("voronoi", "--density", tmp_path / "zero.npy", *out)
    assert said.endswith("zero.npy: the density is zero everywhere")  # not a word of pictures
    assert "more than the 4096 pixels" in fails("voronoi", "-n", 5000, "--resolution", 64, *out)
    assert "--invert and --gamma need --density" in fails("voronoi", "-n", 5, "--invert", *out)
    for bad in ("0", "wide", "64x", "1x5", "32769", "99999999"):
        assert "is not PIXELS or WIDTHxHEIGHT" in fails("voronoi", "--resolution", bad, *out)
    assert "has its own shape" in fails("stipple", "--demo", "--resolution", "64x64", *out)
    np.save(tmp_path / "negative.npy", -np.ones((4, 4)))
    said = fails("voronoi", "--density", tmp_path / "negative.npy", *out)
    assert said.endswith("negative.npy is -1.0 at index (0, 0); allowed: finite numbers of at least 0")
    np.save(tmp_path / "flat.npy", np.ones(4))
    said = fails("voronoi", "--density", tmp_path / "flat.npy", *out)
    assert said.endswith("flat.npy has shape (4,); allowed: (rows, columns), at least one of each")
    (tmp_path / "bad.npy").write_text("text")
    assert "cannot be read" in fails("voronoi", "--density", tmp_path / "bad.npy", *out)
    assert "'tpu' is not a device" in fails("voronoi", "--device", "tpu", *out)


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_numbers_are_finite(tmp_path, picture, value):
    for option in ("--gamma", "--size"):
        said = fails("voronoi", "--density", picture, option, value, "-o", tmp_path / "a.svg")
        assert "is not a finite number" in said or "is not in the range" in said
    for option in ("--gamma", "--size", "--scale", "--contrast"):
        said = fails("stipple", picture, option, value, "-o", tmp_path / "a.svg")
        assert option in said
        assert "is not a finite number" in said or "is not in the range" in said


def test_the_largest_drawing_keeps_its_digits(tmp_path):
    """A hundredth of a millimetre on a hundred metres: polygons lie where the points of the same run do."""
    largest = 99_999
    works("voronoi", "-n", 40, "--size", largest, "-o", tmp_path / "a.svg", "-o", tmp_path / "a.npy", *QUICK)
    (path,) = (p for p in ElementTree.parse(tmp_path / "a.svg").getroot().iter(f"{SVG}path"))
    drawn = np.array(re.findall(r"(-?[\d.]+) (-?[\d.]+)", path.get("d")), float)
    expected = voronoi_cells(np.load(tmp_path / "a.npy")).vertices * largest
    away = np.abs(drawn[:, None] - expected[None]).max(axis=2).min(axis=1)
    assert away.max() <= 0.005 + 1e-6
    assert "is not in the range" in fails("voronoi", "-n", 40, "--size", 1e9, "-o", tmp_path / "a.svg")


def test_a_finished_folder_is_not_overwritten_with_other_settings(tmp_path, picture):
    out = tmp_path / "out"
    works("voronoi", "-n", 30, "-o", out, "--draw", "route", *QUICK)
    before = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    refused = call("voronoi", "-n", 31, "-o", out, *QUICK)
    told = " ".join(refused.stderr.split())
    assert refused.exit_code == 1
    assert "statistics.json: is the account of a finished run with other settings" in told
    assert "(sites, draw, order)" in told
    assert {path.name: path.stat().st_mtime_ns for path in out.iterdir()} == before
    works("voronoi", "-n", 30, "-o", out, "--draw", "route", "--threads", 1, *QUICK)  # the same answer
    (out / "mine.txt").write_text("not of the run")
    works("voronoi", "-n", 31, "-o", out, "--overwrite", *QUICK)
    assert (out / "mine.txt").exists()
    assert not list(out.glob("route.*"))
    assert strict_json((out / "statistics.json").read_text())["sites"] == 31
    assert call("stipple", picture, "-n", 31, "-o", out, *QUICK).exit_code == 1
    works("stipple", picture, "-n", 31, "-o", out / "one.svg", *QUICK)  # a file by its name
