"""Pages, charts and pictures: against other programs that read them, and against formulas."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.lab.html import (
    Aside,
    Figure,
    Section,
    Series,
    Table,
    Text,
    chart,
    diverging,
    grey,
    png_bytes,
    png_image,
    render_page,
    svg_image,
)


def drawn(picture: str) -> ElementTree.Element:
    """Parse the SVG part of a chart."""
    return ElementTree.fromstring(picture[: picture.index("</svg>") + 6])


def path_of(picture: str, kind: str) -> list[tuple[float, float]]:
    """Points of the first path of a kind."""
    for path in drawn(picture).iter("path"):
        if path.get("class", "").split()[0] == kind and "tone" in path.get("class", ""):
            return [tuple(map(float, pair)) for pair in re.findall(r"([\d.]+) ([\d.]+)", path.get("d"))]
    return []


def labels(picture: str, kind: str) -> list[str]:
    return [text.text for text in drawn(picture).iter("text") if text.get("class") == kind]


@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (5, 9, 3)])
def test_png_is_read_back(shape):
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    back = image.open(io.BytesIO(png_bytes(pixels)))
    back.verify()
    assert np.array_equal(np.asarray(image.open(io.BytesIO(png_bytes(pixels)))), pixels)


@pytest.mark.parametrize("pixels", [np.zeros((2, 2)), np.zeros((2, 2, 4), np.uint8), np.zeros((0, 3), np.uint8)])
def test_wrong_pixels(pixels):
    with pytest.raises(ValueError, match="pixels"):
        png_bytes(pixels)


def test_scales_end_where_they_should():
    values = np.array([[-9.0, -1.0, 0.0, 1.0, 9.0]])
    assert grey(values, -1, 1).tolist() == [[0, 0, 128, 255, 255]]
    colours = diverging(values, 1.0)[0]
    assert np.array_equal(colours[0], colours[1])
    assert np.array_equal(colours[3], colours[4])
    assert (colours[2] == 247).all()
    # Equal values, and no range at all, are legal.
    assert grey(np.zeros((1, 2)), 0, 0).tolist() == [[0, 0]]
    assert diverging(np.zeros((1, 1)), 0.0).tolist() == [[[247, 247, 247]]]


def test_points_of_a_linear_chart_are_where_they_belong():
    picture = chart([Series("line", [0, 5, 10], [1.0, 3.0, 2.0])], "a line", x_label="x", y_label="y")
    points = np.array(path_of(picture, "line"))
    across, down = points[:, 0], points[:, 1]
    assert across[1] - across[0] == pytest.approx(across[2] - across[1], abs=0.11)
    assert (down[0] - down[1]) == pytest.approx(2 * (down[2] - down[1]), abs=0.25)  # rounded to a tenth each
    assert labels(picture, "below") == ["0", "2", "4", "6", "8", "10"]


def test_points_of_a_logarithmic_chart_are_where_they_belong():
    picture = chart(
        [Series("power", [1, 10, 100, 1000], [1e-8, 1e-5, 1e-2, 10])],
        "",
        x_label="",
        y_label="",
        x_log=True,
        y_log=True,
    )
    points = np.array(path_of(picture, "line"))
    assert np.allclose(np.diff(points, n=2, axis=0), 0, atol=0.21)
    assert labels(picture, "below") == ["1", "10", "10²", "10³"]
    assert labels(picture, "beside") == ["10⁻⁸", "10⁻⁶", "10⁻⁴", "10⁻²", "1"]


def test_a_short_logarithmic_axis_has_more_ticks():
    picture = chart([Series("f", [1, 2], [0.02, 0.5])], "", x_label="", y_label="", y_log=True)
    assert labels(picture, "beside") == ["0.02", "0.05", "0.1", "0.2", "0.5"]


def test_what_cannot_be_shown_is_left_out():
    y = [1.0, np.nan, 0.0, -1.0, np.inf, 10.0]
    picture = chart([Series("f", range(6), y)], "", x_label="", y_label="", y_log=True)
    assert len(path_of(picture, "line")) == 2


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), max_size=12),
    x_log=st.booleans(),
    y_log=st.booleans(),
    mark=st.sampled_from(["line", "dots", "stems", "crosses", "band"]),
)
def test_any_values_give_a_drawing_inside_its_frame(values, x_log, y_log, mark):
    picture = chart(
        [Series("one", range(len(values)), values, mark=mark), Series("two", values, values, 1)],
        "anything",
        x_label="x",
        y_label="y",
        x_log=x_log,
        y_log=y_log,
    )
    for path in drawn(picture).iter("path"):
        for a, b in re.findall(r"(-?[\d.]+(?:e[+-]?\d+)?) (-?[\d.]+(?:e[+-]?\d+)?)", path.get("d").split("m")[0]):
            assert -1 <= float(a) <= 361
            assert -1 <= float(b) <= 237


def test_long_series_are_thinned():
    picture = chart([Series("many", range(100_000), range(100_000))], "", x_label="", y_label="")
    assert 400 <= len(path_of(picture, "line")) <= 500


def test_stems_stand_on_zero():
    picture = chart([Series("stems", [1, 2], [5.0, 10.0], mark="stems")], "", x_label="", y_label="")
    (zero,) = [
        float(text.get("y"))
        for text in drawn(picture).iter("text")
        if text.get("class") == "beside" and text.text == "0"
    ]
    stems = next(path.get("d") for path in drawn(picture).iter("path") if path.get("class") == "line tone-0")
    assert {float(y) for y in re.findall(r"M[\d.]+ ([\d.]+)V", stems)} == {zero}


def test_wrong_series():
    with pytest.raises(ValueError, match="mark: got 'wave'"):
        Series("f", [1], [1], mark="wave")
    with pytest.raises(ValueError, match="y: got 2 values for 1"):
        Series("f", [1], [1, 2])


def test_text_is_escaped_everywhere():
    nasty = "<b>\"&'"
    picture = chart(
        [Series(nasty, [1], [1]), Series(nasty, [2], [2])], nasty, x_label=nasty, y_label=nasty, levels=[(1.5, nasty)]
    )
    assert drawn(picture).get("aria-label") == nasty
    page = render_page(
        nasty,
        nasty,
        [
            Section("a", nasty, [Text(nasty), Aside(nasty, nasty), Figure(picture, nasty)], nasty),
            Section("b", nasty, [Table((nasty, nasty), [(nasty, nasty)], nasty)]),
        ],
        footer=nasty,
    )
    assert "<b>" not in page
    assert png_image(np.zeros((1, 1), np.uint8), nasty).count('"') == 8


def test_tables_have_as_many_cells_as_heads():
    with pytest.raises(ValueError, match="got 1 cells under 2 heads"):
        Table(("a", "b"), [("1",)]).html()


def test_an_svg_without_a_view_box_is_refused():
    with pytest.raises(ValueError, match="viewBox"):
        svg_image("<svg></svg>", "nothing")
