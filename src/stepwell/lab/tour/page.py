"""The page of a tour."""

from __future__ import annotations

import time

import stepwell
from stepwell.lab.html import Aside, Block, Code, Section, Table, Text, render_page
from stepwell.lab.tour.chapter import Comparison, duration
from stepwell.lab.tour.run import Stop, Tour

#: Columns of the summary.
HEAD = ("work", "Stepwell", "other", "Stepwell is", "answer")
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
    failed = [stop.chapter.title for stop in tour.stops if not stop.success]
    summary: list[Block] = []
    if failed:
        summary.append(Text(f"Not everything went well: {', '.join(failed)}. What happened is told there."))
    summary.append(
        Table(
            HEAD,
            [cells for cells, _ in rows],
            "One run of each, so the times are those of a visit and not of a benchmark: anything else that keeps the "
            "machine busy shows in them.",
            cards=True,
            marked=[number for number, (_, good) in enumerate(rows) if not good],
        )
    )
    sections = [Section("summary", "Summary", summary), *(_section(stop) for stop in tour.stops)]
    if tour.machine:
        sections.append(Section("machine", "Machine and versions", [Table(("what", "which"), tour.machine)]))
    quick = " This was the quick tour, with toy sizes: its times say nothing." if tour.quick else ""
    lead = (
        f"Large-scale solvers for inverse problems, each at work on something small enough to watch: {len(tour.stops)} "
        f"chapter{'s' if len(tour.stops) != 1 else ''} in {duration(tour.seconds)}.{quick}"
    )
    footer = f"stepwell tour, version {stepwell.__version__}, {time.strftime('%Y-%m-%d %H:%M')}"
    return render_page("A tour of Stepwell", lead, sections, footer=footer)


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
