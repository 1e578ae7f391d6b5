"""Normal equations of many columns, whose set is found by exchanging many at once."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import lsq_linear as bvls

import stepwell

INF = np.inf


def breach(G, c, x, lower, upper):
    """The largest breach of the optimality conditions, in units of what rounding makes of c − Gx."""
    w, norm = c - G @ x, np.sqrt(np.diag(G))
    size = (np.abs(c) / norm).max() + (norm * np.abs(x)).sum()
    assert ((x >= lower) & (x <= upper)).all()
    wrong = np.where(x <= lower, w, np.where(x >= upper, -w, np.abs(w)))
    wrong = np.where(np.broadcast_to(lower == upper, x.shape), 0.0, wrong)
    return (wrong / norm).max() / size


def normal_equations(rows, columns, seed, alike=0.0):
    """Of random columns; `alike`: how much of a column is in its neighbours."""
    random = np.random.default_rng(seed)
    A = random.normal(size=(rows, columns))
    for _ in range(4):
        A = A + alike * np.roll(A, 1, axis=1)
    b = A @ np.maximum(0, random.normal(size=columns)) + random.normal(size=rows)
    return A, b


BOUNDS = {
    "positive": (0.0, INF),
    "box": (-0.2, 0.3),
    "free": (-INF, INF),
    "from above": (-INF, 0.25),
    "far from zero": (1.0, 1.5),
}


@pytest.mark.parametrize("alike", [0.0, 0.7])
@pytest.mark.parametrize("name", BOUNDS)
def test_the_optimum(name, alike):
    A, b = normal_equations(400, 170, 3, alike)
    lower, upper = (np.full(170, end) for end in BOUNDS[name])
    if name == "box":  # every kind at once
        lower[::7], upper[::5], lower[3], upper[3] = -INF, INF, 0.1, 0.1
    G, c = A.T @ A, A.T @ b
    found = stepwell.lsq_gram(G, c, (lower, upper))
    assert found.status == stepwell.NNLSStatus.CONVERGED
    assert breach(G, c, found.x, lower, upper) < 1e-13
    if name != "box" and not alike:
        wanted = bvls(A, b, (lower, upper), method="bvls", tol=1e-14)
        np.testing.assert_allclose(found.x, wanted.x, atol=1e-9)
    # Many at once, and far fewer solutions than columns.
    assert found.solves < 60


def test_a_batch_has_the_bits_of_its_systems_alone():
    pairs = [normal_equations(300, 140, seed, 0.4) for seed in range(3)]
    G, c = np.stack([A.T @ A for A, _ in pairs]), np.stack([A.T @ b for A, b in pairs])
    together = stepwell.lsq_gram(G, c, (0, INF))
    for k in range(3):
        alone = stepwell.lsq_gram(G[k], c[k], (0, INF), threads=1)
        np.testing.assert_array_equal(together.x[k], alone.x)
        np.testing.assert_array_equal(together.dual[k], alone.dual)


@pytest.mark.parametrize("start", ["the solution", "its states", "none", "all", "half of them", "the wrong half"])
def test_warm_starts(start):
    A, b = normal_equations(400, 160, 5, 0.5)
    G, c = A.T @ A, A.T @ b
    cold = stepwell.lsq_gram(G, c, (-0.1, 0.4))
    states = {
        "the solution": cold.x,
        "its states": cold.state,
        "none": np.full(160, -1, np.int8),
        "all": np.zeros(160, np.int8),
        "half of them": np.where(np.arange(160) % 2, cold.state, 1).astype(np.int8),
        "the wrong half": np.where(cold.state == 0, 1, 0).astype(np.int8),
    }
    warm = stepwell.lsq_gram(G, c, (-0.1, 0.4), warm_start=states[start])
    assert warm.status == stepwell.NNLSStatus.CONVERGED
    np.testing.assert_allclose(warm.x, cold.x, rtol=0, atol=1e-12 * np.linalg.cond(G))
    np.testing.assert_array_equal(warm.state, cold.state)
    if start in ("the solution", "its states"):
        assert warm.solves <= 3


def test_columns_that_depend_on_each_other():
    """Exchanges give way to single steps, which leave such columns out."""
    A, b = normal_equations(90, 150, 7)
    G, c = A.T @ A, A.T @ b
    for bounds in ((0.0, INF), (-0.05, 0.05)):
        found = stepwell.lsq_gram(G, c, bounds)
        assert breach(G, c, found.x, *bounds) < 1e-12
    A[:, 75:] = A[:, :75]  # twice the same
    G, c = A.T @ A, A.T @ b
    found = stepwell.lsq_gram(G, c, (0.0, INF))
    assert breach(G, c, found.x, 0.0, INF) < 1e-12


def test_masked_columns_and_zeros():
    A, b = normal_equations(300, 150, 9, 0.3)
    A[:, 10] = 0
    G, c = A.T @ A, A.T @ b
    mask = np.arange(150) % 3 != 0
    found = stepwell.lsq_gram(G, c, (0.0, INF), mask=mask)
    assert (found.x[~mask] == 0).all()
    few = mask & (np.diag(G) > 0)
    part = stepwell.lsq_gram(G[np.ix_(few, few)], c[few], (0.0, INF))
    np.testing.assert_allclose(found.x[few], part.x, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("place", [(0, 0), (3, 140)])
def test_what_is_not_finite_is_a_status(place):
    A, b = normal_equations(300, 150, 11)
    G, c = np.stack([A.T @ A] * 2), np.stack([A.T @ b] * 2)
    G[1][place] = np.nan
    found = stepwell.lsq_gram(G, c, (0.0, INF))
    assert found.status.tolist() == [stepwell.NNLSStatus.CONVERGED, stepwell.NNLSStatus.NON_FINITE]
