"""A bound sum: quadratic programming, the simplex, limits of heavy rows, corners, and sums that nothing has."""

from __future__ import annotations

import numpy as np
import pytest
from lsq_cases import breach

import stepwell
from stepwell import NNLSStatus

KINDS = ("noise", "corner", "exact", "equal", "low rank", "wide", "box", "free")


def problem(kind, rng):
    n = int(rng.integers(1, 13))
    m = max(1, n // 2) if kind == "wide" else n + int(rng.integers(0, 25))
    A, lower, upper = np.abs(rng.standard_normal((m, n))), np.zeros(n), np.full(n, np.inf)
    x = rng.dirichlet(np.full(n, 0.4))
    if kind == "corner":
        x = np.eye(n)[rng.integers(n)]
        upper = np.ones(n)
    if kind == "equal":
        A[:, rng.integers(n)] = A[:, rng.integers(n)]
        A[:, rng.integers(n)] = 0
    if kind == "low rank":
        rank = max(1, n // 2)
        A = np.abs(rng.standard_normal((m, rank))) @ np.abs(rng.standard_normal((rank, n)))
    b = A @ x + (0 if kind in ("corner", "exact") else 0.05) * rng.standard_normal(m)
    total = 1.0
    if kind == "box":
        lower = rng.uniform(-0.2, 0.05, n)
        upper = lower + rng.uniform(0.1, 0.8, n)
        total = lower.sum() + rng.uniform(0.02, 0.98) * (upper - lower).sum()
    if kind == "free":
        lower[0] = -np.inf
    return A, b, lower, upper, total


@pytest.mark.parametrize("kind", KINDS)
def test_optimality(kind):
    rng = np.random.default_rng([11, KINDS.index(kind)])
    for k in range(60):
        A, b, lower, upper, total = problem(kind, rng)
        spread = rng.uniform(0, 0.3)
        sums = [(total, total), (-np.inf, total), (total, np.inf), (total - spread, total)][k % 4]
        r = stepwell.lsq_linear(A, b, (lower, upper), sum_bounds=sums)
        assert r.status == NNLSStatus.CONVERGED
        worst, outside = breach(A, b, r.x, lower, upper, sums=sums, multiplier=float(r.multipliers[0]))
        assert outside < 1e-13
        assert worst < 1e-11
        assert r.equality_error < 1e-13 * (1 + np.abs(r.x).sum())


def test_ranges_whose_ends_are_sums_of_bounds():
    """With bounds ±1 and sums up to 1, all variables are at bounds and the sum at its end in many a corner."""
    rng = np.random.default_rng(0)
    for k in range(300):
        n = int(rng.integers(2, 7))
        A = rng.standard_normal((n + int(rng.integers(0, 6)), n))
        b = 3 * rng.standard_normal(len(A))
        lower, upper, sums = -np.ones(n), np.ones(n), (-0.2, 1.0)
        r = stepwell.lsq_linear(A, b, (lower, upper), sum_bounds=sums)
        assert r.status == NNLSStatus.CONVERGED, k
        worst, outside = breach(A, b, r.x, lower, upper, sums=sums, multiplier=float(r.multipliers[0]))
        assert outside < 1e-13
        assert worst < 1e-11


def test_against_quadprog():
    quadprog = pytest.importorskip("quadprog")
    rng = np.random.default_rng(2)
    for _ in range(60):
        n = int(rng.integers(2, 10))
        A = rng.random((n + 20, n))
        b = A @ rng.dirichlet(np.full(n, 0.4)) + 0.05 * rng.standard_normal(n + 20)
        r = stepwell.lsq_linear(A, b, (0, np.inf), sum_bounds=(1, 1))
        C = np.c_[np.ones(n), np.eye(n)]
        x = quadprog.solve_qp(A.T @ A, A.T @ b, C, np.r_[1.0, np.zeros(n)], 1)[0]
        np.testing.assert_allclose(r.x, x, atol=1e-11)


def test_units_of_the_data_do_not_matter_and_a_heavy_row_is_the_limit():
    rng = np.random.default_rng(4)
    A = rng.random((30, 5))
    b = rng.dirichlet(np.ones(5), 50) @ A.T + 0.02 * rng.standard_normal((50, 30))
    r = stepwell.lsq_linear(A, b, (0, np.inf), sum_bounds=(1, 1))
    large = stepwell.lsq_linear(1e4 * A, 1e4 * b, (0, np.inf), sum_bounds=(1, 1))
    np.testing.assert_allclose(large.x, r.x, atol=1e-13)
    errors = []
    for weight in (1e2, 1e3):
        heavy = stepwell.nnls(np.vstack([A, np.full((1, 5), weight)]), np.c_[b, np.full(50, weight)])
        errors.append(np.abs(heavy.x - r.x).max())
    assert errors[1] < 1e-5
    assert errors[1] < 0.03 * errors[0]  # it falls with the square of the weight


def test_at_most_one_is_nnls_or_one():
    rng = np.random.default_rng(6)
    A = rng.random((40, 6))
    b = rng.dirichlet(np.ones(6), 80) @ A.T * rng.uniform(0.4, 1.6, (80, 1)) + 0.02 * rng.standard_normal((80, 40))
    most = stepwell.lsq_linear(A, b, (0, np.inf), sum_bounds=(-np.inf, 1)).x
    plain, one = stepwell.nnls(A, b).x, stepwell.lsq_linear(A, b, (0, np.inf), sum_bounds=(1, 1)).x
    below = plain.sum(axis=1) < 1
    assert 10 < below.sum() < 70
    np.testing.assert_allclose(most, np.where(below[:, None], plain, one), atol=1e-12)


def test_sums_that_nothing_has_or_one_point_alone():
    A, b = np.eye(3), np.array([[1.0, 2.0, 3.0]] * 4)
    r = stepwell.lsq_linear(A, b, (0, 0.5), sum_bounds=(np.array([2.0, 1.5, 0.0, -1.0]),) * 2)
    bad = NNLSStatus.INFEASIBLE
    assert r.status.tolist() == [bad, 0, 0, bad]
    np.testing.assert_allclose(r.x[1:3], [[0.5] * 3, [0.0] * 3], atol=1e-15)


def test_the_gap_of_frank_and_wolfe_bounds_the_error():
    rng = np.random.default_rng(8)
    A, b = rng.random((20, 6)), rng.random((50, 20))
    r = stepwell.lsq_linear(A, b, (0, np.inf), sum_bounds=(1, 1))
    gradient = (r.x @ A.T - b) @ A
    gap = (gradient * r.x).sum(axis=1) - gradient.min(axis=1)
    assert (gap < 1e-12 * (b**2).sum(axis=1)).all()
    np.testing.assert_allclose(r.gap, 2 * np.maximum(gap, 0), atol=1e-13 * (b**2).sum(axis=1).max())


def test_the_gap_is_that_of_the_x_that_is_returned():
    """Mixtures that fit to 1e-4, in float32: rounding x to it leaves a gap far above that of the x before."""
    random = np.random.default_rng(5)
    A = random.random((40, 6)).astype(np.float32)
    b = (random.dirichlet(np.full(6, 4.0), 200) @ A.T + 1e-4 * random.normal(size=(200, 40))).astype(np.float32)
    r = stepwell.lsq_linear(A, b, (0, np.inf), sum_bounds=(1, 1))
    x, wide = r.x.astype(float), A.astype(float)
    gradient = (x @ wide.T - b) @ wide
    gap = 2 * ((gradient * x).sum(axis=1) - gradient.min(axis=1))
    # The dual that it is found from is rounded to float32.
    np.testing.assert_allclose(r.gap, np.maximum(gap, 0), atol=4 * np.finfo(np.float32).eps * np.abs(gradient).max())
    assert np.median(gap / (b**2).sum(axis=1)) > 1e-10  # of the x before it was rounded it would be 1e-15


@pytest.mark.parametrize("kind", ["one", "at most one", "a range", "coefficients", "masked", "float32"])
def test_the_gap_is_that_of_the_vertices(kind):
    """At points that are not optimal, as a limit on solutions leaves them: over all vertices of what is allowed."""
    rng = np.random.default_rng(9)
    A, b = rng.random((20, 6)), rng.random((40, 20)) * rng.uniform(0.1, 3, (40, 1))
    more = {"sum_bounds": (1, 1)}
    low, high, c, taking_part = 1.0, 1.0, np.ones(6), np.ones(6, bool)
    if kind == "at most one":
        more, low = {"sum_bounds": (-np.inf, 1)}, 0.0
    if kind == "a range":
        more, low = {"sum_bounds": (0.5, 1)}, 0.5
    if kind == "coefficients":
        c = rng.uniform(0.5, 2, 6)
        more = {"equality": (c, 1.0)}
    if kind == "masked":
        taking_part[2] = False
        more["mask"] = taking_part
    dtype = np.float32 if kind == "float32" else float
    r = stepwell.lsq_linear(A.astype(dtype), b.astype(dtype), (0, np.inf), maxiter=2, insertion="single", **more)
    x, A, b = (np.asarray(array, float) for array in (r.x, A.astype(dtype), b.astype(dtype)))
    gradient = 2 * (x @ A.T - b) @ A
    vertices = np.concatenate([size * np.diag(1 / c)[taking_part] for size in (low, high)])
    gap = (gradient * x).sum(axis=1) - (gradient @ vertices.T).min(axis=1)
    assert gap.max() > 0.01  # some stopped early
    units = 1e-12 if dtype is float else 1e-5
    np.testing.assert_allclose(r.gap, np.maximum(gap, 0), rtol=units, atol=units * (b**2).sum(axis=1).max())


def test_no_gap_where_more_is_asked():
    A, b = np.eye(3), np.ones(3)
    assert stepwell.lsq_linear(A, b, (0, 1), sum_bounds=(1, 1)).gap is None
    assert stepwell.lsq_linear(A, b, (0, np.inf)).gap is None
    assert stepwell.lsq_linear(A, b, (0, np.inf), sum_bounds=(1, 1)).gap < 1e-12


def test_columns_of_very_different_sizes_are_judged_by_their_own():
    """Norms 1e±6 apart: a column at zero whose dual says that it should not be there is no convergence.

    Oracle: the duals in extended precision. Of columns between bounds they are all equal, of those at zero no larger,
    to the rounding of a column's own norm times that of the residual.
    """
    exact = np.longdouble
    converged = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        m, n = int(rng.integers(3, 25)), int(rng.integers(2, 12))
        A = rng.random((m, n)) * 10.0 ** rng.uniform(-6, 6, n)
        b = rng.standard_normal(m) * 10.0 ** rng.uniform(-2, 4)
        r = stepwell.lsq_linear(A, b, (0, np.inf), sum_bounds=(1, 1))
        wide, x = A.astype(exact), r.x.astype(exact)
        w = wide.T @ (b.astype(exact) - wide @ x)
        norms = np.sqrt((wide**2).sum(axis=0))
        scale = norms * (np.linalg.norm(b) + (norms * x).sum())
        breaches = [np.max(np.where(x > 0, abs(w - mu), np.maximum(w - mu, 0)) / scale) for mu in w[x > 0]]
        assert min(breaches) < 1e-10, seed
        converged += r.status == NNLSStatus.CONVERGED
    assert converged > 290


@pytest.mark.parametrize(("dtype", "size"), [(np.float32, 1e-25), (np.float64, 1e-60)])
@pytest.mark.parametrize("masked", [False, True])
def test_a_residual_far_below_the_sum(dtype, size, masked):
    """A column of zeros takes the sum, beside which b is next to nothing: the residual has its digits all the same."""
    rng = np.random.default_rng(3)
    A = np.abs(rng.standard_normal((9, 3)))
    A[:, 1] = 0
    b = size * (rng.uniform(0.3, 1, (8, 3)) @ A.T + 0.2 * rng.standard_normal((8, 9)))
    A, b = A.astype(dtype), b.astype(dtype)
    mask = np.ones((8, 3), bool) if masked else None
    found = stepwell.lsq_linear(A, b, (0, np.inf), sum_bounds=(1, 1), mask=mask)
    x = found.x.astype(np.float64)
    assert found.success.all()
    assert x.sum(1) == pytest.approx(1, rel=4 * float(np.finfo(dtype).eps))
    direct = np.linalg.norm((x @ A.T.astype(np.float64) - b) / size, axis=1)
    # Residuals are a tenth of b and more: of their squares at most two digits are lost.
    assert found.residual / size == pytest.approx(direct, rel=100 * 2.3e-16 + 10 * float(np.finfo(dtype).eps))


@pytest.mark.parametrize("side", ["lower", "upper", "both"])
def test_a_sum_in_float32_that_bounds_reach_but_for_rounding(side):
    """Bounds and sum are rounded one by one, to 2^-24 of themselves: what they then miss is no proof of anything."""
    rng = np.random.default_rng(11)
    for _ in range(50):
        n = int(rng.integers(1, 6))
        A, b = rng.standard_normal((7, n)).astype(np.float32), rng.standard_normal(7).astype(np.float32)
        at = rng.standard_normal(n)
        ends = {"lower": (at, np.inf), "upper": (-np.inf, at), "both": (at, at)}[side]
        total = {"lower": (-np.inf, at.sum()), "upper": (at.sum(), np.inf), "both": (at.sum(), at.sum())}[side]
        size = np.abs(at).sum()
        for r in (
            stepwell.lsq_linear(A, b, ends, sum_bounds=total),
            stepwell.lsq_gram(A.T @ A, A.T @ b, ends, sum_bounds=total),
        ):
            assert r.status == NNLSStatus.CONVERGED
            assert r.x == pytest.approx(at, abs=8 * 2.0**-24 * size)
            assert r.equality_error <= 8 * 2.0**-24 * size
    for apart in (1e-5, 1.0):
        r = stepwell.lsq_linear(A, b, (at, at), sum_bounds=(at.sum() + apart * size, np.inf))
        assert r.status == NNLSStatus.INFEASIBLE


def test_a_column_of_zeros_between_bounds_takes_the_multiplier_away():
    """It costs nothing, so the sum costs nothing: the others are at their own minimum, to the last digit."""
    G, c = np.diag([0.0, 7e14, 40.0]), np.array([0.0, 1.77e-48, 0.0])
    lower, upper = np.array([-4e-57, 0, 0]), np.array([6e-58, 2e-57, 1e-57])
    r = stepwell.lsq_gram(G, c, (lower, upper), sum_bounds=(-1e-56, -2e-58))
    assert r.status == NNLSStatus.CONVERGED
    assert r.x[1] == pytest.approx(1.77e-48 / 7e14, rel=1e-12)
    assert r.x[2] == pytest.approx(0, abs=1e-72)
    assert r.multipliers[0] == pytest.approx(0, abs=1e-75)


@pytest.mark.parametrize("method", ["gram", "qr"])
def test_bounds_nearer_to_each_other_than_the_rounding_of_the_sum_hold(method):
    """A term of 2e9 leaves a rounding of 4e-7 in the sum; other bounds are 1e-9 apart, and count all the same."""
    rng = np.random.default_rng(11)
    apart = np.array([0, 5e-9, 1.5e-9, 2.3e-9, 3e-9])
    for _ in range(40):
        A = rng.standard_normal((2, 5)) * np.array([1e-9, 1e-9, 1e10, 1e8, 1e-9])
        lower = np.array([2.2e9, 13.4, 1e-11, -1.3e-9, 3.4e5]) * rng.uniform(0.9, 1.1, 5)
        upper = lower + apart
        r = stepwell.lsq_linear(A, np.zeros((2, 2)), (lower, upper), sum_bounds=(lower.sum(),) * 2, method=method)
        assert ((r.x >= lower) & (r.x <= upper)).all()
        true = np.linalg.norm(r.x @ A.T, axis=1)
        np.testing.assert_allclose(r.residual, true, rtol=1e-10, atol=1e-12 * (np.abs(A) @ upper).max())
        assert (true <= np.linalg.norm(A @ lower) * (1 + 1e-10)).all()  # which has the sum
