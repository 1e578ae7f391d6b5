"""Wrong arguments: a ValueError or TypeError that names one of them, before any work; never a crash or another error.

The right calls are those of tests/helpers/argument_table.py: every public function, with every argument.
"""

from __future__ import annotations

import re

import argument_table
import numpy as np
import scipy.sparse as sp
from argument_table import RIGHT

from fuzzing.common import hold, pick

JUNK = (
    None, True, -1, 0, 2**70, 1.5, np.nan, np.inf, -np.inf, 1j, "x", b"x", [], {}, (), object(), np.array([]),
    np.array(np.nan), np.ones(3), np.ones((2, 3)), np.ones((0, 3)), np.ones((2, 3, 4)), np.array(["a"]),
    np.array([1, None]), np.ones(3, bool), np.ones(3, complex), np.ones(3, "f2"), np.ones(3, "i8"),
    np.full(3, np.nan), np.full(3, np.inf), np.ma.ones(3), [1, "a"], [[1], [1, 2]], sp.eye(3, format="csr"),
    np.datetime64("2020-01-01"), range(3), lambda *a: 1 / 0, lambda *a: None, "auto", np.float32(3), np.int8(3),
    1e-320, 1e308, float,
)  # fmt: skip
#: Arguments that are told by another's name, or by Python: as in tests/test_wrong_arguments.py.
UNNAMED = {"kwargs", "spectra", "density", "integrals", "pixels", "align"}


def arguments(rng):
    for _ in range(10):
        name = pick(rng, *RIGHT)
        call, right = RIGHT[name]
        given = dict(right)
        changed = {}
        for _ in range(int(rng.integers(1, 3))):
            argument = pick(rng, *right)
            given[argument] = changed[argument] = pick(rng, *JUNK)
        argument_table.calls.count = 0
        shown = ", ".join(f"{argument}={value!r:.60}" for argument, value in changed.items())
        try:
            call(**given)
        except (ValueError, TypeError, MemoryError, NotImplementedError) as error:
            text = str(error)
            hold(bool(text), f"{name}({shown}): an error without a text")
            told_early = argument_table.calls.count == 0 and not any(map(callable, changed.values()))
            names = [
                *changed,
                *(given[it] for it in ("name",) if isinstance(given.get(it), str)),
            ]  # A's, of `as_operator`
            named = any(re.search(rf"(?<!\w){re.escape(argument)}(?!\w)", text) for argument in names)
            hold(named or not told_early or bool(UNNAMED & set(changed)), f"{name}({shown}) names none of them: {text}")
        except Exception as error:
            if argument_table.calls.count or isinstance(error, ZeroDivisionError):
                continue  # of the caller's function
            raise AssertionError(f"{name}({shown}) raised {type(error).__name__}: {error}") from error
