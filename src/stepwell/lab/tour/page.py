"""The page of a tour."""

from __future__ import annotations

import statistics
import time

import stepwell
from stepwell.lab.html import Aside, Block, Code, Gallery, Numbers, Section, Table, Text, render_page
from stepwell.lab.tour.chapter import Comparison, duration
from stepwell.lab.tour.run import Stop, Tour

#: Columns of the summary.
HEAD = ("work", "Stepwell", "the other solver", "Stepwell is", "how the answers compare")
#: Where the guides are.
SITE = "https://stepwell.readthedocs.io"


def summary_rows(tour: Tour) -> list[tuple[tuple[str, ...], bool]]:
    """Return the lines of the summary, cells under `HEAD`, and whether each is as it should be."""
    rows: list[tuple[tuple[str, ...], bool]] = []
    for stop in tour.stops:
        if stop.account is None:
            rows.append(((stop.chapter.title, "failed", "", "", stop.error), False))
        rows += [(_cells(one), one.agrees) for one in stop.comparisons]
    return rows


def _cells(one: Comparison) -> tuple[str, ...]:
    other = "" if one.peer_seconds is None else f"{duration(one.peer_seconds)}, {one.peer}"
    ratio = "" if one.ratio is None else in_words(one.ratio)
    if one.cut:
        other, ratio = f"> {other}", f"> {ratio}"
    return one.what, duration(one.seconds), other, ratio, one.answer if one.agrees else f"wrong: {one.answer}"


def in_words(ratio: float) -> str:
    """Return how much faster something is that takes so many times less time.

    Examples
    --------
    >>> in_words(12.34), in_words(250.0), in_words(0.5), in_words(1.01)
    ('12x faster', '250x faster', '2.0x slower', 'as fast')
    """
    if 1 / 1.05 < ratio < 1.05:
        return "as fast"
    times, word = (ratio, "faster") if ratio > 1 else (1 / ratio, "slower")
    return f"{times:.1f}x {word}" if times < 10 else f"{times:.0f}x {word}"


def tour_page(tour: Tour) -> str:
    """Return the HTML of a tour.

    Examples
    --------
    >>> page = tour_page(Tour([], 1.0, True))
    >>> page.startswith("<!DOCTYPE html>")
    True
    """
    rows = summary_rows(tour)
    summary = Table(
        HEAD,
        [cells for cells, _ in rows],
        "One run of each, so the times are those of a visit and not of a benchmark: anything else that keeps the "
        "machine busy shows in them.",
        cards=True,
        marked=[number for number, (_, good) in enumerate(rows) if not good],
    )
    sections = [
        Section("opening", "In short", opening(tour)),
        *(_section(stop) for stop in tour.stops),
        Section("summary", "Summary", [summary]),
    ]
    if tour.machine:
        sections.append(Section("machine", "Machine and versions", [Table(("what", "which"), tour.machine)]))
    quick = " This was the quick tour, with toy sizes: its times say nothing." if tour.quick else ""
    lead = (
        f"Solvers for large inverse problems, each at work on something small enough to watch: {len(tour.stops)} "
        f"chapter{'s' if len(tour.stops) != 1 else ''} in {duration(tour.seconds)}.{quick}"
    )
    footer = f"stepwell tour, version {stepwell.__version__}, {time.strftime('%Y-%m-%d %H:%M')}"
    return render_page("A tour of Stepwell", lead, sections, footer=footer)


def opening(tour: Tour) -> list[Block]:
    """Return what the page opens with: what went wrong, three pictures, three figures.

    Examples
    --------
    >>> opening(Tour([], 1.0, True))
    []
    """
    failed = [stop.chapter.title for stop in tour.stops if not stop.success]
    blocks: list[Block] = []
    if failed:
        blocks.append(Text(f"Not everything went well: {', '.join(failed)}. What happened is told there."))
    accounts = [stop.account for stop in tour.stops if stop.account is not None]
    if pictures := [one.picture for one in accounts if one.picture is not None][:3]:
        blocks.append(Gallery(pictures, small=True))
    if numbers := [*(pair for one in accounts for pair in one.figures), *_figures(tour)]:
        blocks.append(Numbers(numbers))
    return blocks


def _figures(tour: Tour) -> list[tuple[str, str]]:
    """Return how close the answers are to those of others, and how much faster they came."""
    found = []
    lines = [one for stop in tour.stops for one in stop.comparisons]
    if gaps := [one.gap for one in lines if one.gap is not None]:
        many = f"comparisons of {len(gaps)} kinds" if len(gaps) > 1 else "a comparison"
        found.append(
            (f"{max(gaps):.0e}", f"at most between the answers and SciPy's, in {many}, relative to their size")
        )
    if ratios := [one.ratio for one in lines if one.ratio is not None]:
        ends = f"from {in_words(min(ratios))} to {in_words(max(ratios))}"
        found.append((in_words(statistics.median(ratios)), f"the median of {len(ratios)} comparisons, {ends}"))
    return found


def _section(stop: Stop) -> Section:
    if stop.account is None:
        blocks: list[Block] = [
            Text(f"This chapter failed: {stop.error}"),
            Aside("Where it came from", stop.trace, alarm=True),
        ]
    else:
        blocks = list(stop.account.blocks)
        wrong = [f"{one.what}: {one.answer}" for one in stop.comparisons if not one.agrees]
        if wrong:
            blocks.insert(0, Aside("An answer is not what it should be", "\n".join(wrong), alarm=True))
    if stop.chapter.code:
        address = f"{SITE}/{stop.chapter.guide}.html" if stop.chapter.guide else ""
        # After the paragraph that says what it is about.
        blocks.insert(1, Code(stop.chapter.code, "The guide says more", address))
    return Section(stop.chapter.key, stop.chapter.title, blocks, duration(stop.seconds), alarm=not stop.success)
