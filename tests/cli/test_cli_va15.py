"""The VA15 report against the program results that D'Amore et al. (2013) print."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner, Result

from stepwell import problems
from stepwell.cli.group import main

#: "Program results" of the paper: extended Rosenbrock, n = 1000000, m = 7.
HEADING = """Function to minimize: Rosenbrock
Xtol: 2.220446e-16
Number of variables n = 1000000;
Number of corrections m = 7;
f = 1.210000e+07;
gnorm = 1.646623e+05"""
ROWS = """1 4 8.968026e+06 1.338990e+05 1.275337e-04
2 5 2.223223e+06 1.835022e+04 1.000000e+00
3 6 2.071674e+06 2.874521e+03 1.000000e+00
4 7 2.066929e+06 1.253213e+03 1.000000e+00
5 8 2.064897e+06 1.409016e+03 1.000000e+00
6 9 2.050814e+06 3.691128e+03 1.000000e+00
32 46 3.391364e+02 1.188979e+02 1.000000e+00
33 47 4.085484e+01 2.639775e+02 1.000000e+00
34 48 2.229921e+00 1.018714e+01 1.000000e+00
35 49 1.162750e-02 1.781043e+00 1.000000e+00
36 50 4.912961e-06 7.652340e-02 1.000000e+00
37 51 6.752264e-10 1.013915e-03 1.000000e+00"""


@pytest.fixture(scope="module")
def paper() -> list[str]:
    command = [sys.executable, "-m", "stepwell", "solve", "rosenbrock", "-n", "1000000", "-m", "7"]
    outcome = subprocess.run(
        [*command, "--line-search", "va15"], capture_output=True, text=True, timeout=300, check=True
    )
    assert outcome.stderr == ""
    return [" ".join(line.split()) for line in outcome.stdout.splitlines()]


def test_heading_of_the_paper(paper):
    assert paper[:6] == HEADING.splitlines()
    assert set(paper[6]) == {"*"}
    assert paper[7] == "I NFN FUNC GNORM STEPLENGTH"


def test_rows_of_the_paper_to_the_last_digit(paper):
    """(That of the last f is within rounding: four orders of its sums end from 6.7522628e-10 to 6.7522635e-10.)"""
    rows, printed = paper[8 : 8 + 37], ROWS.splitlines()
    for row in printed[:-1]:
        assert rows[int(row.split()[0]) - 1] == row
    ours, theirs = rows[-1].split(), printed[-1].split()
    assert ours[:2] + ours[3:] == theirs[:2] + theirs[3:]
    assert abs(float(ours[2]) - float(theirs[2])) < 1.5e-16  # one unit of its last digit


def test_closing_of_the_paper(paper):
    assert paper[45:49] == [
        "",
        "The minimization terminated without detecting errors.",
        "",
        "Number of function and gradient evaluations for L-BFGS: 51",
    ]
    closing = dict(re.fullmatch(r"(.*): ([\d.]+)(?: ms)?", line).groups() for line in paper[48:])
    number = {name: float(value) for name, value in closing.items()}
    assert number["Number of l-bfgs calls"] == 51
    for what, one in (
        ("the function and gradient evaluations", "the function and gradient evaluations"),
        ("the execution of l-bfgs", "the executions of l-bfgs"),
    ):
        total, average = number[f"Total time for {what}"], number[f"Average time for {one}"]
        assert total == pytest.approx(51 * average, abs=51e-6)
    assert number["Total time for the minimization"] == pytest.approx(
        number["Total time for the function and gradient evaluations"]
        + number["Total time for the execution of l-bfgs"],
        abs=2e-6,
    )


def va15(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["solve", *map(str, arguments), "--line-search", "va15"])


def numbered(output: str) -> list[int]:
    """Iteration numbers of the rows printed."""
    return [int(match[1]) for match in re.finditer(r"^(\d+) +\d+ +\S+e", output, re.MULTILINE)]


def test_stops_as_the_paper_says():
    run = json.loads(va15("powell", "-n", 40, "--json", "-").stdout)
    settings = run["settings"]
    assert [settings[name] for name in ("relative_gtol", "gtol", "ftol", "maxiter")] == [1e-5, 0, 0, 2000]
    assert run["result"]["reason"] == "GRADIENT_NORM"
    assert run["history"][-1]["gradient_norm"] <= 1e-5 * max(1.0, np.sqrt(40))


@pytest.mark.parametrize("frequency", [0, 1, 7, 1000])
def test_frequency_of_rows(frequency):
    outcome = va15("rosenbrock", "-n", 10, "--iprint", frequency, 0)
    last = json.loads(va15("rosenbrock", "-n", 10, "--json", "-").stdout)["result"]["nit"]
    due = [1] if frequency == 0 else list(range(1, last + 1, frequency))
    assert numbered(outcome.stdout) == sorted({*due, last})


def test_negative_frequency_prints_nothing():
    outcome = va15("rosenbrock", "-n", 10, "--iprint", -1, 0)
    assert outcome.exit_code == 0
    assert outcome.output == ""


@pytest.mark.parametrize("detail", [0, 1, 2, 3])
def test_detail_of_rows(detail):
    outcome = va15("rosenbrock", "-n", 4, "--iprint", 1, detail)
    rows = len(numbered(outcome.stdout))
    start = 1 if detail >= 1 else 0
    assert outcome.stdout.count("Vector X =") == start + (rows if detail >= 2 else 0)
    assert outcome.stdout.count("Vector G =") == start + (rows if detail >= 3 else 0)


def test_printed_gradients_belong_to_the_printed_points():
    outcome = va15("beale", "-n", 4, "--iprint", 3, 3)
    problem = problems.get("beale", n=4)
    found = re.findall(r"Vector X =\n(.*)\nVector G =\n(.*)\n", outcome.stdout)
    assert len(found) == 1 + len(numbered(outcome.stdout))
    for x, g in found:
        point, gradient = (np.array(text.split(), float) for text in (x, g))
        # x is printed to seven digits: 5e-7 relative, times the largest second derivative (about 60 near the path),
        # times the number of variables.
        assert gradient == pytest.approx(problem.fun(point)[1], abs=4 * 60 * 5e-7 * np.abs(point).max())


def test_failed_line_search_shows_its_info_code():
    outcome = va15("rosenbrock", "-n", 10, "--maxls", 1)
    assert outcome.exit_code == 1
    assert "The line search failed, info = 3: maxls evaluations did not suffice." in outcome.stdout
    assert "info 3" in outcome.stderr


def test_limit_is_reported():
    outcome = va15("rosenbrock", "-n", 10, "--maxiter", 4)
    assert outcome.exit_code == 1
    assert "stopped before convergence: the limit on iterations (maxiter) was reached." in outcome.stdout
    assert numbered(outcome.stdout) == [1, 2, 3, 4]
