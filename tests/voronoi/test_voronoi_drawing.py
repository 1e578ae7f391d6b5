"""SVG drawings, parsed: positions, sizes, colours, every edge once; and dots that carry the picture's ink."""

from __future__ import annotations

import importlib
import itertools
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy.spatial import cKDTree

from stepwell.apps.voronoi.drawing import (
    PRECISION,
    SIZES,
    cell_inks,
    cells_svg,
    dot_radii,
    mesh_svg,
    route_svg,
    stipples_svg,
)
from stepwell.apps.voronoi.mesh import delaunay_mesh, voronoi_cells
from stepwell.apps.voronoi.pens import PENS
from stepwell.apps.voronoi.picture import Picture

SVG = "{http://www.w3.org/2000/svg}"
EXTENT = (1.0, 0.6)


def random_sites(n, seed=0):
    return np.random.default_rng(seed).random((n, 2)) * EXTENT


def parse(text):
    root = ElementTree.fromstring(text)
    assert root.tag == f"{SVG}svg"
    return root


def numbers(text):
    return np.array(re.findall(r"-?[\d.]+", text), float)


def dots(root):
    """Return positions, diameters and colours of all dots, as millimetres."""
    places, widths, colours = [], [], []
    for group in root.iter(f"{SVG}g"):
        for path in group.findall(f"{SVG}path"):
            data = path.get("d")
            assert re.fullmatch(r"(M[\d.]+ [\d.]+h0)+", data)
            points = numbers(data.replace("h0", "")).reshape(-1, 2)
            places.append(points)
            widths += [float(path.get("stroke-width"))] * len(points)
            colours += [group.get("stroke")] * len(points)
        for circle in group.findall(f"{SVG}circle"):
            places.append([[float(circle.get("cx")), float(circle.get("cy"))]])
            widths.append(2 * float(circle.get("r")))
            colours.append(group.get("fill"))
    return np.concatenate(places), np.array(widths), colours


@pytest.mark.parametrize("marks", ["dots", "circles"])
def test_stipples_stand_where_the_sites_are(marks):
    sites, radii = random_sites(700), np.random.default_rng(1).uniform(0.001, 0.004, 700)
    root = parse(stipples_svg(sites, radii, EXTENT, size=250, marks=marks))
    assert (root.get("width"), root.get("height"), root.get("viewBox")) == ("250mm", "150mm", "0 0 250 150")
    assert root.find(f"{SVG}rect").get("fill") == "white"
    places, widths, colours = dots(root)
    assert len(places) == 700
    assert set(colours) == {"black"}
    distance, which = cKDTree(sites * 250).query(places)
    assert np.array_equal(np.sort(which), np.arange(700))
    assert distance.max() <= PRECISION * np.sqrt(0.5) * (1 + 1e-9)
    # A diameter is off by at most half a step, and four digits.
    step = 2 * radii.max() * 250 / SIZES
    assert np.abs(widths - 500 * radii[which]).max() <= step / 2 + 1e-3
    assert len(np.unique(widths)) <= SIZES


def test_twenty_thousand_stipples_fit_in_300_kilobytes():
    text = stipples_svg(random_sites(20_000), 0.002, EXTENT)
    assert len(text) < 15.5 * 20_000
    assert text.count("<path") == 1


def test_stipples_in_colour():
    sites = random_sites(50)
    colours = np.where(np.arange(50)[:, None] % 2, [1.0, 0.2, 0.0], [0.0, 0.0, 1.0])
    places, _, names = dots(parse(stipples_svg(sites, 0.01, EXTENT, colours=colours, background=None)))
    which = cKDTree(sites * 200).query(places)[1]
    assert names == ["#ff3300" if k % 2 else "#0000ff" for k in which]
    with pytest.raises(ValueError, match=r"colours has shape \(3,\); allowed: \(50, 3\)"):
        stipples_svg(sites, 0.01, EXTENT, colours=np.zeros(3))


def test_many_colours_are_gathered():
    sites = random_sites(3000)
    grey = np.random.default_rng(0).random(3000)
    colours = np.column_stack([grey, grey**2, 1 - grey])
    places, _, names = dots(parse(stipples_svg(sites, 0.001, EXTENT, colours=colours)))
    assert len(set(names)) <= PENS
    drawn = np.array([[int(name[k : k + 2], 16) for k in (1, 3, 5)] for name in names]) / 255
    wanted = colours[cKDTree(sites * 200).query(places)[1]]
    # The curve of colours is about 1.9 long; of 64 pieces no end is farther from its middle than a piece is long.
    assert np.linalg.norm(drawn - wanted, axis=1).max() < 1.9 / PENS
    assert drawn.mean(axis=0) == pytest.approx(colours.mean(axis=0), abs=1 / 255)


def test_dots_of_no_size_are_left_out():
    places, _, _ = dots(parse(stipples_svg([[0.1, 0.1], [0.2, 0.2]], [0.0, 0.01])))
    assert places.tolist() == [[40.0, 40.0]]
    assert "<path" not in stipples_svg([[0.1, 0.1]], 0.0)
    parse(stipples_svg(np.zeros((0, 2)), 0.1))


def test_order_of_the_pen():
    sites = random_sites(100)
    kept, _, _ = dots(parse(stipples_svg(sites, 0.01, EXTENT, keep_order=True)))
    assert kept == pytest.approx(sites * 200, abs=PRECISION)
    curve, _, _ = dots(parse(stipples_svg(sites, 0.01, EXTENT)))
    travel = [np.linalg.norm(np.diff(points, axis=0), axis=1).sum() for points in (kept, curve)]
    assert travel[1] < travel[0] / 3


@pytest.mark.parametrize("marks", ["dots", "circles"])
def test_dots_of_all_sizes_are_in_the_order_of_the_pen(marks):
    sites, radii = random_sites(200), np.random.default_rng(3).uniform(0.002, 0.01, 200)
    text = stipples_svg(sites, radii, EXTENT, marks=marks, keep_order=True)
    number = r"(-?[\d.]+)"
    found = re.findall(rf"M{number} {number}h0" if marks == "dots" else rf'cx="{number}" cy="{number}"', text)
    assert np.array(found, float) == pytest.approx(sites * 200, abs=PRECISION)


def test_dots_of_one_ink_are_in_the_order_of_the_pen():
    sites, radii = random_sites(90), np.random.default_rng(3).uniform(0.002, 0.01, 90)
    ink = np.arange(90) % 3
    text = stipples_svg(sites, radii, EXTENT, colours=np.eye(3)[ink], keep_order=True)
    found = np.array(re.findall(r"M([\d.]+) ([\d.]+)h0", text), float)
    expected = np.concatenate([sites[ink == k] for k in (2, 1, 0)]) * 200  # by the number of the colour
    assert found == pytest.approx(expected, abs=PRECISION)


def test_bad_marks():
    with pytest.raises(ValueError, match="marks is 'stars'; allowed: 'dots', 'circles'"):
        stipples_svg([[0.1, 0.1]], 0.1, marks="stars")


def segments(data):
    """Every segment of a path of M and L as sorted pairs of end points."""
    found = []
    for stroke in data.split("M")[1:]:
        points = [tuple(float(x) for x in point.split()) for point in stroke.split("L")]
        found += [tuple(sorted(pair)) for pair in itertools.pairwise(points)]
    return found


def test_cells_have_every_edge_once():
    sites = random_sites(300)
    cells = voronoi_cells(sites, EXTENT)
    root = parse(cells_svg(cells, EXTENT, size=200))
    drawn = segments(root.find(f"{SVG}g/{SVG}path").get("d"))
    assert len(drawn) == len(set(drawn))
    corners = np.rint(cells.vertices * 200 / PRECISION)
    wanted = set()
    for a, b in zip(corners, corners[cells.following]):
        if np.any(a != b):
            wanted.add(tuple(sorted([tuple(np.round(a * PRECISION, 2)), tuple(np.round(b * PRECISION, 2))])))
    assert set(drawn) == wanted


def test_cells_filled_with_colours():
    sites = random_sites(40)
    cells = voronoi_cells(sites, EXTENT)
    fills = np.where(sites[:, :1] < 0.5, [1.0, 0.0, 0.0], [0.0, 0.0, 1.0])
    root = parse(cells_svg(cells, EXTENT, line=0, fills=fills))
    paths = root.findall(f"{SVG}g/{SVG}path")
    assert sorted(path.get("fill") for path in paths) == ["#0000ff", "#ff0000"]
    assert sum(path.get("d").count("Z") for path in paths) == 40
    areas = {}
    for path in paths:
        total = 0.0
        for polygon in path.get("d").split("Z")[:-1]:
            x, y = numbers(polygon).reshape(-1, 2).T
            total += (x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2
        areas[path.get("fill")] = total / 200**2
    left = cells.areas[sites[:, 0] < 0.5].sum()
    assert areas["#ff0000"] == pytest.approx(left, abs=1e-3)
    assert sum(areas.values()) == pytest.approx(0.6, abs=1e-3)


def test_empty_cells_are_no_trouble():
    cells = voronoi_cells(np.repeat(random_sites(10), 2, axis=0), EXTENT)
    root = parse(cells_svg(cells, EXTENT, fills=np.zeros((20, 3))))
    assert root.find(f"{SVG}g/{SVG}path").get("d").count("Z") == 10


def test_mesh_has_every_edge_once():
    mesh = delaunay_mesh(random_sites(100), EXTENT)
    root = parse(mesh_svg(mesh, EXTENT))
    drawn = segments(root.find(f"{SVG}g/{SVG}path").get("d"))
    assert len(drawn) == len(set(drawn)) == len(mesh.edges)


def test_route_is_one_line_in_order():
    points = random_sites(80)
    root = parse(route_svg(points, EXTENT, size=100))
    line = root.find(f"{SVG}g/{SVG}polyline")
    assert numbers(line.get("points")).reshape(-1, 2) == pytest.approx(points * 100, abs=PRECISION / 2 + 1e-9)


def gradient(n=160):
    y, x = np.mgrid[0:n, 0 : 2 * n]
    return np.clip(0.1 + 0.8 * x / (2 * n) * (0.5 + 0.5 * y / n), 0, 1)


def test_dots_carry_the_ink_of_the_picture():
    darkness = gradient()
    sites = np.random.default_rng(0).random((900, 2)) * (1.0, 0.5)
    rows, columns = darkness.shape
    x, y = np.meshgrid((np.arange(columns) + 0.5) / columns, (np.arange(rows) + 0.5) / columns)
    owners = cKDTree(sites).query(np.column_stack([x.ravel(), y.ravel()]))[1].reshape(darkness.shape)
    radii = dot_radii(darkness, owners, 900)
    pixel = 1 / columns
    assert np.pi * np.sum(radii**2) == pytest.approx(darkness.sum() * pixel**2, rel=1e-12)
    # Also in parts of the picture: a fifth of the dots hold the ink of their own cells.
    part = np.arange(900) < 180
    inside = part[owners]
    assert np.pi * np.sum(radii[part] ** 2) == pytest.approx(darkness[inside].sum() * pixel**2, rel=1e-12)
    even = dot_radii(darkness, owners, 900, even=True)
    assert np.ptp(even) == 0
    assert np.sum(even**2) == pytest.approx(np.sum(radii**2), rel=1e-12)


@pytest.mark.parametrize("paper", [0.0, 1.0])
def test_inks_and_paper_give_the_colours_of_the_picture(paper):
    picture = Picture(np.random.default_rng(0).random((6, 6, 3)), "noise")
    owners = np.repeat(np.arange(4), 9).reshape(6, 6)
    coverage = picture.coverage(invert=paper == 0.0)
    inks = cell_inks(picture.colours, coverage, owners, 5, paper=paper)
    for cell in range(4):
        inside = owners == cell
        covered = coverage[inside].mean()
        mixed = covered * inks[cell] + (1 - covered) * paper
        assert mixed == pytest.approx(picture.colours[inside].mean(axis=0), abs=1e-12)
    assert inks[4].tolist() == [paper] * 3
    means = cell_inks(picture.colours, np.ones((6, 6)), owners, 5, paper=paper)
    assert means[0] == pytest.approx(picture.colours[owners == 0].mean(axis=0))


@pytest.fixture
def pictures():
    pytest.importorskip("matplotlib")
    return importlib.import_module("stepwell.apps.voronoi.plots")


def read(path):
    image = importlib.import_module("matplotlib.image").imread(path)
    return image[..., :3]


def test_png_of_dots_covers_what_they_cover(tmp_path, pictures):
    grid = (np.arange(20) + 0.5) / 20
    sites = np.column_stack([part.ravel() for part in np.meshgrid(grid, grid[:12])])
    pictures.stipples_png(sites, 0.015, tmp_path / "a.png", EXTENT, pixels=800)
    image = read(tmp_path / "a.png")
    assert image.shape == (480, 800, 3)
    # Antialiasing keeps areas, to a grey level or so along 240 circles of 75 pixels.
    assert 1 - image.mean() == pytest.approx(240 * np.pi * 0.015**2 / 0.6, rel=0.01)
    # y grows downwards: without the lower rows the lower part is white.
    pictures.stipples_png(sites[:120], 0.015, tmp_path / "b.png", EXTENT, pixels=800, ink="red")
    image = read(tmp_path / "b.png")
    assert image[250:].min() == 1
    assert image[:230, :, 0].min() == 1
    assert image[:230, :, 1].min() == 0


def test_png_of_filled_cells(tmp_path, pictures):
    sites = random_sites(50)
    fills = np.where(sites[:, :1] < 0.5, [1.0, 0.0, 0.0], [0.0, 0.0, 1.0])
    cells = voronoi_cells(sites, EXTENT)
    pictures.cells_png(cells, tmp_path / "a.png", EXTENT, fills=fills, pixels=500, line=0.01)
    image = read(tmp_path / "a.png")
    assert (image[..., 0] > 0.9).mean() == pytest.approx(cells.areas[sites[:, 0] < 0.5].sum() / 0.6, abs=0.02)


def test_png_of_a_part(tmp_path, pictures):
    sites = random_sites(3000)
    window = pictures.Window.around_most(sites, EXTENT, 300)
    assert window.holds(sites).sum() == 300
    assert window.width / window.height == pytest.approx(EXTENT[0] / EXTENT[1])
    assert pictures.Window.around_most(sites, EXTENT, 3000) == pictures.Window(0.0, 0.0, *EXTENT)
    mesh = delaunay_mesh(sites, EXTENT)
    pictures.cells_png(voronoi_cells(sites, EXTENT), tmp_path / "a.png", EXTENT, mesh=mesh, pixels=400, window=window)
    pictures.mesh_png(mesh, tmp_path / "b.png", EXTENT, pixels=400, window=window)
    for name in "ab":
        image = read(tmp_path / f"{name}.png")
        assert image.shape == (240, 400, 3)
        # Filled to the corners: lines are everywhere.
        assert all(image[rows, columns].min() < 0.6 for rows, columns in itertools.product(
            (slice(0, 60), slice(180, 240)), (slice(0, 60), slice(340, 400))))  # fmt: skip
