"""Cases of the fuzzer that once failed, and a few new ones of each kind; `python tests/fuzz.py` goes on for hours."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
from fuzzing import KINDS, run_case
from fuzzing.lsq.cases import Case
from fuzzing.lsq.judging import judge
from fuzzing.lsq.problem import HAS_ORACLE

CORPUS = Path(__file__).resolve().parent / "fuzzing/corpus.txt"
KEPT = [line.split()[0] for line in CORPUS.read_text().splitlines() if line.strip() and not line.startswith("#")]
needs_oracle = pytest.mark.skipif(not HAS_ORACLE, reason="longdouble is double here: no oracle for least squares")


@pytest.mark.parametrize("case", [pytest.param(case, marks=needs_oracle if "lsq:" in case else ()) for case in KEPT])
def test_what_failed_once(case):
    kind, _, number = case.partition(":")
    run_case(kind, int(number))


@needs_oracle
def test_least_squares_that_failed_once():
    """In a process of their own, each with a limit: some of these calls never returned."""
    command = [sys.executable, str(CORPUS.parents[1] / "fuzz.py"), "--only", "kept", "--minutes", "10"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


RIGHT = Case(
    "lsq_linear",
    np.array([[1.0, 2.0, 0.5], [0.0, 1.0, -1.0], [1.0, 1.0, 2.0], [0.3, -1.0, 1.0]]),
    np.array([[1.0, 2.0, 3.0, -1.0], [-1.0, 0.5, 0.2, 2.0]]),
    {"bounds": (-1e20, 0.8), "lam": 0.1},
)


@needs_oracle
@pytest.mark.parametrize(
    ("kind", "field", "change"),
    [
        (None, "x", lambda x: x),
        ("kkt", "x", lambda x: x * (1 - 1e-9)),
        ("kkt", "x", lambda x: x + 1e-9 * np.array([1.0, 0.0, 0.0])),
        ("outside", "x", lambda x: x + 1),
        ("not finite", "x", lambda x: x * np.nan),
        ("residual", "residual", lambda value: value * (1 + 1e-6)),
        ("dual", "dual", lambda value: value + 1e-6),
        ("status", "violation", lambda value: value + 1e-6),
        ("infeasible", "status", lambda value: value + 5),
        ("finite", "status", lambda value: value + 4),
        ("lam", "lam", lambda value: value + 1e-3),
    ],
)
def test_judge_of_least_squares_sees_what_is_wrong(monkeypatch, kind, field, change):
    """The oracle of the fuzzer: right answers pass, and each kind of wrong ones is found."""
    result = RIGHT.call()
    changed = dataclasses.replace(result, **{field: change(getattr(result, field))})
    monkeypatch.setattr(Case, "call", lambda case, **options: changed)
    found = {finding.kind for finding in judge(RIGHT).findings}
    assert (kind in found) if kind else not found


@pytest.mark.parametrize("kind", KINDS)
def test_some_of_each_kind(kind):
    for number in np.random.default_rng(1).integers(2**32, size=5):
        run_case(kind, int(number))
