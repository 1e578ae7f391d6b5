"""Cases of the fuzzer that once failed, and a few new ones of each kind; `python tests/fuzz.py` goes on for hours."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
from fuzzing import KINDS, run_case

CORPUS = Path(__file__).resolve().parent / "fuzzing/corpus.txt"
KEPT = [line.split()[0] for line in CORPUS.read_text().splitlines() if line.strip() and not line.startswith("#")]


@pytest.mark.parametrize("case", KEPT)
def test_what_failed_once(case):
    kind, _, number = case.partition(":")
    run_case(kind, int(number))


@pytest.mark.parametrize("kind", KINDS)
def test_some_of_each_kind(kind):
    for number in np.random.default_rng(1).integers(2**32, size=5):
        run_case(kind, int(number))
