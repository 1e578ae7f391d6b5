"""What the tests of the problem library share."""

from __future__ import annotations

import numpy as np
import pytest

#: Every problem at a size that a loop in Python can afford; nx and ny differ.
SMALL = {
    "rosenbrock": {"n": 12},
    "beale": {"n": 12},
    "powell": {"n": 12},
    "wood": {"n": 12},
    "trigonometric": {"n": 11},
    "torsion": {"nx": 5, "ny": 4},
    "journal-bearing": {"nx": 5, "ny": 4, "e": 0.3, "b": 2.0},
    "minimal-surface": {"nx": 5, "ny": 4},
    "composites": {"nx": 5, "ny": 4},
    "ginzburg-landau-1d": {"n": 13},
    "lennard-jones": {"natoms": 7},
    "combustion": {"nx": 5, "ny": 4, "lam": 3.0},
    "ginzburg-landau-2d": {"nx": 5, "ny": 4, "nv": 2},
}
ALL = pytest.mark.parametrize("name", SMALL)


def points(problem, count, seed=0):
    """Points around the start, where no two atoms meet."""
    rng = np.random.default_rng(seed)
    scale = 0.08 if problem.name in ("lennard-jones", "composites", "torsion") else 0.3
    return problem.x0 + rng.uniform(-scale, scale, (count, problem.n))


def close(actual, expected, rtol):
    """Check values against the largest of each point."""
    expected = np.asarray(expected)
    scale = np.abs(expected).max(axis=-1, keepdims=True) if expected.ndim else np.abs(expected)
    assert np.all(np.abs(np.asarray(actual) - expected) <= rtol * scale)
