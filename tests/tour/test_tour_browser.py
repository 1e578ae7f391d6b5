"""The report in a real browser: no complaint, no request, every figure visible, on a phone and in the dark."""

from __future__ import annotations

import re

import pytest

# The helper lies beside this file.
from browsers import InstalledBrowser, WheelBrowser, installed_browser, wheel_browser

from stepwell.lab.tour import Chapter, take_tour, tour_page

pytestmark = pytest.mark.slow

SCHEMES = ("light", "dark")
WIDTHS = (360, 768, 1200)


@pytest.fixture(scope="module", params=["installed", "wheel"])
def browser(request):
    if request.param == "installed":
        path = installed_browser()
        if path is None:
            pytest.skip("no Chromium, Chrome or Edge on the path, and none named by STEPWELL_BROWSER")
        found = InstalledBrowser(path)
    else:
        path = wheel_browser()
        if path is None:
            pytest.skip("kaleido 0.2, whose wheel carries a Chromium, is not installed")
        found = WheelBrowser(path)
    yield found
    found.close()


@pytest.fixture(scope="module")
def failed_page(tmp_path_factory):
    def fall(stage):
        raise ArithmeticError("<script>alert('the well is dry')</script> " + "x" * 300)

    path = tmp_path_factory.mktemp("failed") / "report.html"
    path.write_text(tour_page(take_tour(chapters=[Chapter("fall", "A fall", fall)])), encoding="utf-8")
    return path


def luminance(colour: str) -> float:
    """Relative luminance of a colour as a browser names it (WCAG 2)."""
    channels = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_every_figure_is_visible(browser, quick_tour, width, scheme):
    page = quick_tour[1]
    seen = browser.inspect(page, width, scheme)
    assert seen["complaints"] == []
    assert all(url.startswith(("data:", page.as_uri())) for url in seen["requests"])
    assert seen["title"] == "A tour of Stepwell"
    assert seen["room"] == width
    assert len(seen["figures"]) == page.read_text(encoding="utf-8").count("<figure") >= 12
    for figure in seen["figures"]:
        assert figure["shown"], figure
        assert figure["drawn"], figure
        assert figure["width"] >= (80 if figure["kind"] == "img" else 200), figure
        assert figure["height"] >= 80, figure
        assert figure["right"] <= width, figure
        assert len(figure["label"]) > 10, figure
        assert figure["caption"]
    assert {figure["kind"] for figure in seen["figures"]} == {"svg", "img"}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", [320, 360, 768])
def test_nothing_sticks_out(browser, quick_tour, failed_page, width, scheme):
    for page in (quick_tour[1], failed_page):
        seen = browser.inspect(page, width, scheme)
        # A phone's browser widens its window where the page is wider.
        assert seen["room"] == width
        assert seen["width"] <= width
        assert seen["wide"] == []


def test_letters_are_readable_on_a_phone(browser, quick_tour):
    seen = browser.inspect(quick_tour[1], 360, "light")
    charts = [figure for figure in seen["figures"] if figure["chart"]]
    assert len(charts) >= 8
    assert min(figure["letters"] for figure in charts) >= 8.5


def test_the_page_follows_the_colour_scheme(browser, quick_tour):
    light, dark = (browser.inspect(quick_tour[1], 1200, scheme) for scheme in SCHEMES)
    assert (light["dark"], dark["dark"]) == (False, True)
    assert luminance(light["paper"]) > 0.8
    assert luminance(dark["paper"]) < 0.05
    for seen in (light, dark):
        assert contrast(seen["ink"], seen["paper"]) >= 7  # WCAG 2, AAA
        inks = {(ink, figure["paper"]) for figure in seen["figures"] for ink in figure["inks"]}
        assert inks
        for ink, paper in inks:
            assert contrast(ink, paper) >= 3, (ink, paper)  # WCAG 2, graphics


def test_a_failed_chapter_is_shown_and_not_run(browser, failed_page):
    seen = browser.inspect(failed_page, 360, "light")
    assert seen["complaints"] == []
    assert seen["figures"] == []
    assert len(seen["rows"]) == 1
    assert seen["rows"][0] > 0
