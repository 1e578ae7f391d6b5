"""More-Garbow-Hillstrom problems in boxes that cut their solutions off, judged from outside."""

from __future__ import annotations

import numpy as np
import pytest
from mgh_boxes import P, Problem, boxes
from scipy.optimize import least_squares, lsq_linear

import stepwell


def solution(p):
    tight = dict(x_scale="jac", ftol=1e-15, xtol=1e-15, gtol=1e-15, max_nfev=2000)
    with np.errstate(all="ignore"):
        return least_squares(p.one, p.x0, jac=lambda x: p.jac(x[None])[0], **tight).x


def promise_of(p, x, low, high):
    """What the bounded Gauss-Newton model at x takes off the cost, over the cost: by SciPy's bounded solver."""
    with np.errstate(all="ignore"):
        return _promise(p.one(x), p.jac(x[None])[0], x, low, high)


def _promise(r, J, x, low, high):
    cost, g = 0.5 * r @ r, J.T @ r
    if cost <= 1e-18:
        return cost, 0.0, 0.0
    size = np.linalg.norm(J, axis=0)
    size[size == 0] = 1.0
    held = ((x <= low) & (g > 0)) | ((x >= high) & (g < 0)) | (low == high)
    cosine = np.max(np.abs(g / size)[~held], initial=0.0) / np.sqrt(2 * cost)
    below, above = (low - x) * size, (high - x) * size
    free = below < above
    d = lsq_linear((J / size)[:, free], -r, (below[free], above[free]), method="bvls", tol=1e-14).x
    left = r + (J / size)[:, free] @ d
    return cost, cosine, max(0.0, cost - 0.5 * left @ left) / cost


def verdicts(seed, count):
    rng = np.random.default_rng(seed)
    stationary = false = total = evaluations = 0
    for name in P:
        p = Problem(name)
        low, high, x0 = boxes(p.x0, solution(p), count, rng)
        with np.errstate(all="ignore"):
            r = stepwell.least_squares(
                lambda x, rows, p=p: p.fun(x), x0, jac=lambda x, rows, p=p: p.jac(x), bounds=(low, high)
            )
        assert ((r.x >= low) & (r.x <= high)).all(), name
        for i in range(count):
            cost, cosine, promise = promise_of(p, r.x[i], low[i], high[i])
            good = cost <= 1e-18 or promise <= 1e-6 or cosine <= 1e-6
            stationary += good
            false += bool(r.success[i]) and not good
            total += 1
        evaluations += int(r.nfev.sum())
    return stationary, false, total, evaluations


def test_stationary_within_boxes():
    stationary, false, total, _ = verdicts(3, 3)
    assert false == 0
    assert stationary >= 0.95 * total


@pytest.mark.slow
@pytest.mark.parametrize("seed", [7, 101])
def test_330_boxes(seed):
    """320 of 330 stationary, none falsely: the figure that is asked for, on boxes that nothing was tuned on."""
    stationary, false, total, evaluations = verdicts(seed, 15)
    assert (total, false) == (330, 0)
    assert stationary >= 320
    assert evaluations < 12523  # SciPy's trf at 1e-12 on the boxes of seed 7
