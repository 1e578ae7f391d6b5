"""`stepwell study`: help, files, messages and errors."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from stepwell.cli.group import main
from stepwell.lab.studies import STUDIES
from stepwell.lab.studies.command import _fitting
from stepwell.lab.studies.frame import Column, Table
from stepwell.lab.studies.measure import blas_threads
from stepwell.lab.studies.pages import read_study
from stepwell.lab.studies.projected_cg import POSTER, reaches_poster


def call(*arguments):
    return CliRunner().invoke(main, ["study", *arguments])


def test_help_lists_every_study():
    done = call("--help")
    assert done.exit_code == 0
    for name in STUDIES:
        assert name in done.output
        one = call(name, "--help")
        assert one.exit_code == 0
        assert "--full" in one.output
        assert "--device" in one.output
        assert "--output" in one.output


def test_the_page_names_every_study_and_what_bounds_its_runs():
    head = (Path(__file__).parents[2] / "docs" / "studies.md").read_text(encoding="utf-8").partition("<!-- below")[0]
    (bounded,) = re.findall(r"([^.]*) take `--run-seconds S`", head)
    for name in STUDIES:
        assert f"\n| `{name}` |" in head
        assert (f"`{name}`" in bounded) == ("--run-seconds" in call(name, "--help").output)


def test_a_study_prints_its_tables_and_writes_its_files(tmp_path):
    done = call("rosenbrock", "--toy", "-o", str(tmp_path / "out"))
    assert done.exit_code == 0, done.output
    assert "Figure 3: shares of a run" in done.output
    assert "(paper)" in done.output
    assert "What differs from the paper" in done.output
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"rosenbrock-cpu.json", "rosenbrock-cpu.md", "rosenbrock-cpu-speed.csv"} <= names
    assert "wrote" in done.output
    bare = call("rosenbrock", "--toy")
    assert bare.exit_code == 0
    assert "wrote" not in bare.output


def test_tables_that_are_too_wide_are_cut_into_parts():
    """No figure is lost on a narrow terminal, and every part says which rows it has."""
    columns = [Column("kind", "kind"), Column("size", "size"), *(Column(f"c{k}", f"figure {k}") for k in range(12))]
    table = Table("wide", "A wide table", columns)
    for kind in ("first", "second"):
        for size in (10, 20):
            table.add(kind=kind, size=size, **{f"c{k}": f"{kind[0]}{size}{k:06d}" for k in range(12)})
    for width, parts in ((60, range(2, 7)), (400, range(1, 2))):
        console = Console(width=width, record=True, file=io.StringIO())
        shown = _fitting(table, console)
        assert len(shown) in parts
        for part in shown:
            console.print(part)
        text = console.export_text()
        assert "…" not in text
        assert all(cell in text for row in table.texts() for cell in row)
        assert text.count("A wide table") == text.count("kind") == len(shown)
        assert text.count("second") == 2 * len(shown)


@pytest.mark.parametrize("width", [40, 80, 260])
def test_a_papers_figures_stand_beside_ours(width):
    """However narrow the terminal: the column right of ours, in the same part of the table."""
    names = ("size", "time", "steps")
    columns = [
        *(Column(name, name, ".0f") for name in names),
        *(Column(f"{name}_paper", name, ".0f", paper=True) for name in names[1:]),
    ]
    table = Table("two", "Two machines", columns)
    table.add(size=10, time=123456, steps=234567, time_paper=345678, steps_paper=456789)
    console = Console(width=width, record=True, file=io.StringIO())
    for part in _fitting(table, console):
        console.print(part)
    rows = [line.split() for line in console.export_text().splitlines() if line.startswith("10 ")]
    cells = [cell for row in rows for cell in row]
    for ours, theirs in (("123456", "345678"), ("234567", "456789")):
        (row,) = (row for row in rows if ours in row)
        assert row[row.index(ours) + 1] == theirs
    assert cells.count("345678") == 1


def test_no_figure_is_lost_however_narrow_the_terminal():
    table = Table("words", "Words", [Column("n", "n"), Column("how", "ended by"), Column("t", "seconds")])
    table.add(n="abcdefghij", how="klmnopqrst", t=1234567)
    console = Console(width=12, record=True, file=io.StringIO())
    for part in _fitting(table, console):
        console.print(part)
    text = console.export_text()
    assert "…" not in text
    assert set("abcdefghijklmnopqrst1234567") <= set(text)


def test_words_begin_where_their_heading_begins():
    table = Table("words", "Words", [Column("n", "n"), Column("how", "ended by"), Column("t", "seconds")])
    table.add(n=1, how="x", t=2)
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(*_fitting(table, console))
    head, _, row = console.export_text().splitlines()[1:4]
    assert head.index("ended by") == row.index("x")
    assert head.index("seconds") + len("seconds") - 1 == row.index("2")


def test_in_a_pipe_a_sentence_is_a_line():
    done = call("rosenbrock", "--toy")
    lines = done.stdout.splitlines()
    assert not any(line.endswith(" ") for line in lines)
    assert [line[-1] for line in lines if line.startswith("- ")] == ["."] * 6


@pytest.mark.slow
def test_the_poster_is_repeated_at_its_own_size(tmp_path):
    """Slices 65 to 68 of the 128-cube: the projection saves what the poster says, at no cost in quality."""
    with blas_threads(1):  # on a busy machine OpenBLAS's threads spin
        done = call("projected-cg", "--tol", "3e-3", "-o", str(tmp_path))
    assert done.exit_code == 0, done.output
    assert "reached or passed in products at tolerance 0.003" in done.output
    table = read_study(tmp_path / "projected-cg-cpu.json").find_table("slices")
    assert reaches_poster(table, "CPU", 3e-3)
    for number in POSTER:
        (cold,), (ours,) = (table.find(slice=number, method=method) for method in ("CG", "APrCG"))
        assert ours["quality"] >= cold["quality"] - 0.05  # the projection costs no quality
        assert max(cold["residual"], ours["residual"]) <= 3e-3


def test_a_folder_that_cannot_be_made_is_refused_before_any_work(tmp_path):
    (tmp_path / "file").write_text("")
    done = call("torsion", "--full", "-o", str(tmp_path / "file" / "out"))
    assert done.exit_code == 2
    assert "is a file; a folder is needed" in " ".join(done.output.split())


def test_errors_name_what_is_wrong():
    unknown = call("torsoin")
    assert unknown.exit_code == 2
    words = " ".join(unknown.output.split())
    assert "got 'torsoin'; did you mean 'torsion'?" in words
    assert all(name in words for name in STUDIES)
    both = call("torsion", "--toy", "--full")
    assert both.exit_code == 2
    assert "--full and --toy were both given" in both.output
    device = call("torsion", "--toy", "--device", "gpu")
    assert device.exit_code == 2
    assert "'gpu' is not a device; allowed: cpu, cuda, cuda:K" in device.output
    absent = call("torsion", "--toy", "--device", "cuda:999")
    assert absent.exit_code == 2
    assert "cuda:999" in absent.output
    setting = call("projected-cg", "--toy", "--tol", "much")
    assert setting.exit_code == 2
    assert "--tol" in setting.output
