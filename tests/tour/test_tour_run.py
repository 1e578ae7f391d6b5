"""The tour and its command: what it prints and writes, what it does when a chapter fails, and what it refuses."""

from __future__ import annotations

import html.parser
import re
import webbrowser
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from stepwell.cli.group import main
from stepwell.lab.html import Text
from stepwell.lab.tour import (
    CHAPTERS,
    Account,
    Chapter,
    Comparison,
    Place,
    Stage,
    Stop,
    Tour,
    command,
    take_tour,
    tour_page,
)
from stepwell.lab.tour import rosenbrock as rosenbrock_chapter
from stepwell.lab.tour.chapter import duration
from stepwell.lab.tour.page import SITE, summary_rows

pytestmark = pytest.mark.slow

VOID = {"meta", "link", "img", "br"}


class Outline(html.parser.HTMLParser):
    """Checks that tags are closed in order, and collects them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def fall(stage):
    stage.tell("falling", 0.5)
    raise ArithmeticError("the well is <dry>")


def err(stage):
    return Account([Comparison("two and two", 1.0, "five", False, "SciPy", 2.0)], [Text("Sums.")])


def count(stage):
    return Account([Comparison("one and one", 1.0, "two", True)], [Text("More sums.")])


def test_the_command_takes_the_tour(quick_tour):
    outcome, path = quick_tour
    assert outcome.exit_code == 0, outcome.output
    for words in ("torsion, 256 variables", "extended Rosenbrock", "deconvolution", "reconstruction", "tessellation"):
        assert words in outcome.stdout
    assert str(path) in outcome.stdout.replace("\n", "")
    assert [line.partition(":")[0] for line in outcome.stderr.splitlines()] == [one.title for one in CHAPTERS]


def test_the_report_holds_everything_itself(quick_tour):
    text = quick_tour[1].read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    tags = Outline(text).tags
    assert not {"script", "iframe", "object"} & {tag for tag, _ in tags}
    guides = rf'<a href="{SITE}/[^"]*"'  # which a reader may follow; nothing is loaded from there
    assert len(re.findall(guides, text)) == len(CHAPTERS)
    assert not re.search(r"https?://|url\(|@import", re.sub(rf'href="data:[^"]*"|{guides}', "", text))
    for tag, attributes in tags:
        if tag == "img":
            assert attributes["src"].startswith("data:image/png;base64,")
            assert attributes["alt"]
        if tag == "svg":
            assert attributes["role"] == "img"
            assert attributes["aria-label"]
        if tag == "a" and not attributes["href"].startswith(SITE):
            assert f'id="{attributes["href"].removeprefix("#")}"' in text
    ids = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {chapter.key for chapter in CHAPTERS} <= set(ids)
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in tags
    assert len(text) < 1e6


def test_the_report_opens_with_pictures_and_figures_and_ends_with_the_table(quick_tour):
    text = quick_tour[1].read_text(encoding="utf-8")
    sections = re.findall(r'<section id="(\w+)"', text)
    assert sections[0] == "opening"
    assert sections[-2:] == ["summary", "machine"]
    opening = text[text.index('id="opening"') : text.index("<nav")]
    assert opening.count("<figure") == opening.count("<dd>") == 3
    assert {"myelin", "fits", "derivative", "large"} <= set(sections)


def test_the_opening_says_how_close_answers_are_and_how_fast():
    lines = [
        Comparison("a", 1.0, "", True, "SciPy", 4.0, gap=2e-9),
        Comparison("b", 1.0, "", True, "SciPy", 0.5, gap=3e-8),
        Comparison("c", 2.0, "", True, "SciPy", 6.0),
    ]
    stop = Stop(Chapter("sums", "Sums", count), 1.0, Account(lines, [Text("Sums.")]))
    page = tour_page(Tour([stop], 1.0, quick=True))
    assert "<dd>3e-08</dd>" in page
    assert "<dd>3.0x faster</dd>" in page
    assert "the median of 3 comparisons, from 2.0x slower to 4.0x faster" in page


def test_without_pytorch_the_chapter_on_derivatives_says_so(monkeypatch):
    from stepwell.lab.tour import derivative

    monkeypatch.setattr(derivative.importlib.util, "find_spec", lambda name: None)
    account = derivative.run(Stage(quick=True))
    assert not account.comparisons
    assert "it needs PyTorch" in account.blocks[0].text


def test_the_report_names_what_it_ran_on(quick_tour):
    text = quick_tour[1].read_text(encoding="utf-8")
    assert np.__version__ in text
    assert "toy sizes" in text


def test_a_failed_chapter_leaves_the_others(monkeypatch, tmp_path):
    chapters = [Chapter("fall", "A fall", fall), Chapter("err", "An error", err), Chapter("count", "A count", count)]
    monkeypatch.setattr(command, "CHAPTERS", chapters)
    path = tmp_path / "report.html"
    outcome = CliRunner().invoke(main, ["tour", "-o", str(path), "--no-open"])
    assert outcome.exit_code == 1
    assert "ArithmeticError: the well is <dry>" in outcome.stdout
    assert "wrong: five" in outcome.stdout
    assert "one and one" in outcome.stdout
    assert outcome.stderr.splitlines()[-1] == "stepwell tour: failed: A fall, An error"
    text = path.read_text(encoding="utf-8")
    Outline(text)
    assert "ArithmeticError: the well is &lt;dry&gt;" in text
    assert "in fall" in text  # where it came from
    assert text.count('class="alarm"') >= 4  # two rows and two sections at least
    assert "More sums." in text


def test_an_interrupt_is_not_a_failed_chapter():
    def interrupt(stage):
        raise KeyboardInterrupt

    done = Chapter("done", "Done", lambda stage: Account([], []))
    tour = take_tour(chapters=[done, Chapter("stop", "Stop", interrupt), done])
    assert tour.interrupted
    assert not tour.success
    assert [stop.chapter.key for stop in tour.stops] == ["done"]  # what there is, and nothing after it


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-o", "nowhere/report.html"], "there is no folder"),
        (["-o", "."], "is a directory"),
        (["-o", ""], "is a folder; a file is needed"),
        (["--device", "tpu"], "allowed: cpu, cuda, cuda:K"),
        (["--device", "cuda:77"], "cuda:77"),
    ],
)
def test_wrong_command_lines(monkeypatch, tmp_path, arguments, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "take_tour", lambda **_: pytest.fail("the tour began"))
    outcome = CliRunner().invoke(main, ["tour", *arguments])
    assert outcome.exit_code == 2
    assert words in outcome.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("flags", "terminal", "opened"),
    [([], False, False), ([], True, True), (["--open"], False, True), (["--no-open"], True, False)],
)
def test_the_report_is_opened_where_it_makes_sense(monkeypatch, tmp_path, flags, terminal, opened):
    asked = []
    monkeypatch.setattr(command, "CHAPTERS", [Chapter("count", "A count", count)])
    monkeypatch.setattr(command, "_has_browser", lambda: terminal)
    monkeypatch.setattr(webbrowser, "open", lambda url: asked.append(url) or True)
    path = tmp_path / "report.html"
    outcome = CliRunner().invoke(main, ["tour", "-o", str(path), *flags])
    assert outcome.exit_code == 0
    assert asked == ([path.as_uri()] if opened else [])


def test_a_report_that_cannot_be_written_is_told_of(monkeypatch):
    if not Path("/dev/full").exists():
        pytest.skip("this system has no device that is always full")
    monkeypatch.setattr(command, "CHAPTERS", [Chapter("count", "A count", count)])
    outcome = CliRunner().invoke(main, ["tour", "-o", "/dev/full", "--no-open"])
    assert outcome.exit_code == 1
    assert "one and one" in outcome.stdout  # what was found is not lost
    assert "the report could not be written: " in outcome.stderr
    assert "No space left" in outcome.stderr


def test_no_word_of_the_summary_is_lost_on_a_narrow_terminal(monkeypatch, tmp_path):
    def long(stage):
        return Account([Comparison("antidisestablishmentarianism", 1.0, "incomprehensibilities", True)], [])

    monkeypatch.setattr(command, "CHAPTERS", [Chapter("long", "Long words", long)])
    outcome = CliRunner().invoke(
        main, ["tour", "-o", str(tmp_path / "report.html"), "--no-open"], env={"COLUMNS": "50"}
    )
    assert "…" not in outcome.stdout.partition("the report")[0]


def test_no_browser_is_started_without_a_terminal():
    assert not command._has_browser()


def test_a_browser_that_does_not_start_is_told_of(monkeypatch, tmp_path):
    monkeypatch.setattr(command, "CHAPTERS", [Chapter("count", "A count", count)])
    monkeypatch.setattr(webbrowser, "open", lambda url: False)
    outcome = CliRunner().invoke(main, ["tour", "-o", str(tmp_path / "report.html"), "--open"])
    assert outcome.exit_code == 0
    assert "open the file yourself" in outcome.stderr


def test_every_chapter_tells_its_progress():
    for chapter in CHAPTERS:
        told = []
        chapter.run(Stage(quick=True, tell=lambda what, share, told=told: told.append((what, share))))
        assert told
        assert all(what and 0 <= share <= 1 for what, share in told)


def test_chapters_run_on_arrays_of_another_library():
    torch = pytest.importorskip("torch")
    place = Place("torch", torch, torch.device("cpu"), "cpu")
    tour = take_tour(quick=True, place=place)
    assert [(stop.chapter.key, stop.error) for stop in tour.stops if not stop.success] == []
    assert f"torch on {place.name}" in tour_page(tour)


def test_the_published_row_is_the_one_the_paper_prints():
    # The rows themselves are compared with the paper's in tests/cli/test_cli_va15.py.
    assert rosenbrock_chapter.PUBLISHED == (37, 51, 6.752264e-10, 1.013915e-03)


def test_a_peer_that_takes_too_long_is_cut_short(monkeypatch):
    from stepwell.lab.tour import bounded, phantom, waveform

    for chapter in (bounded, rosenbrock_chapter, waveform, phantom):
        monkeypatch.setattr(chapter, "PATIENCE", 1e-9)
    assert {chapter.CHAPTER for chapter in (bounded, rosenbrock_chapter, waveform, phantom)} < set(CHAPTERS)
    for chapter in (one.CHAPTER for one in (bounded, rosenbrock_chapter, waveform, phantom)):
        account = chapter.run(Stage(quick=True))
        assert all(one.agrees for one in account.comparisons), chapter.key
        # Of shots and slices fewer are taken, each to its end; a single run is told to be unfinished.
        single = chapter.key in ("bounds", rosenbrock_chapter.CHAPTER.key)
        assert [one.cut for one in account.comparisons] == [single] * len(account.comparisons)
        assert all(("not finished" in one.answer) == single for one in account.comparisons)
        tour = Tour([Stop(chapter, 1.0, account)], 1.0, quick=True)
        for cells, _ in summary_rows(tour):
            assert cells[2].startswith("> ") == cells[3].startswith("> ") == single


def test_a_peer_that_gets_to_the_end_is_not_cut_short():
    from stepwell.lab.tour import bounded

    for chapter in (bounded.CHAPTER, rosenbrock_chapter.CHAPTER):
        account = chapter.run(Stage(quick=True))
        assert not any(one.cut or "not finished" in one.answer for one in account.comparisons)


def test_durations():
    assert [duration(s) for s in (0.0, 9.99e-7, 1e-3, 0.9999, 1.0, 99.94, 100.4)] == [
        "0 µs",
        "0.999 µs",
        "1 ms",
        "1000 ms",
        "1 s",
        "99.9 s",
        "100 s",
    ]


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.key)
def test_the_code_that_a_chapter_shows_runs(chapter, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = {"200": "20", "1_000_000": "1000", "1000": "20", "128": "32", "[48:80]": "[8:16]", "(32,": "(8,"}
    small |= {"800": "50", "100": "10", "(64, 64, 1)": "(8, 8, 1)"}
    code = re.sub(
        "|".join(map(re.escape, sorted(small, key=len, reverse=True))), lambda found: small[found[0]], chapter.code
    )
    if "torch" in code:
        pytest.importorskip("torch")
    exec(compile(code, chapter.key, "exec"), {})
    assert (Path(__file__).parents[2] / "docs" / f"{chapter.guide}.md").exists()


def test_where_stepwell_stopped_higher_the_page_says_so():
    from stepwell.lab.tour.bounded import Run, _words

    ours, theirs = (Run([2.0, f], [1, 2], [0.1, 0.4], 2, True, 0.5, np.zeros(1)) for f in (1.5, 1.0))
    assert _words(0.5, ours, theirs) == "Stepwell stopped 5e-01 higher than SciPy"
    assert (theirs.until(1.5), theirs.until(2.0), theirs.until(0.5)) == (0.4, 0.1, 0.5)
