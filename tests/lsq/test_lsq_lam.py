"""λ of each system: brute force, stacked rows, monotony, and rules held against their own definitions."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
from lsq_cases import decays

import stepwell

SECOND = 2 * np.eye(40) - np.eye(40, k=1) - np.eye(40, k=-1)
FIRST = np.eye(40) - np.eye(40, k=-1)


def stacked(A, b, lam, L):
    """The same by rows below A, in SciPy."""
    return scipy.optimize.nnls(np.vstack([A, lam * L]), np.r_[b, np.zeros(len(L))], maxiter=5000)[0]


@pytest.mark.parametrize("L", [None, FIRST, SECOND], ids=["unit", "first", "second"])
@pytest.mark.parametrize("shared", [True, False])
def test_chi2_meets_its_factor_and_is_the_stacked_problem(L, shared):
    A, b = decays(12, np.random.default_rng(1))
    K = np.eye(40) if L is None else L
    r = stepwell.nnls(A if shared else np.broadcast_to(A, (12, 56, 40)), b, lam="chi2", L=L)
    least = np.array([scipy.optimize.nnls(A, row)[1] for row in b])
    fit = np.linalg.norm(r.x @ A.T - b, axis=1)
    np.testing.assert_allclose((fit / least) ** 2, 1.02, atol=1e-7)
    np.testing.assert_allclose(r.chi2, 1.02, atol=1e-7)
    np.testing.assert_allclose(r.seminorm, np.linalg.norm(r.x @ K.T, axis=1), rtol=1e-9)
    assert (r.lam_at_end == 0).all()
    assert (r.status == 0).all()
    for s in range(4):
        np.testing.assert_allclose(r.x[s], stacked(A, b[s], r.lam[s], K), atol=1e-8)
        level = 1.02 * least[s] ** 2

        def missed(t, s=s, level=level):
            return np.linalg.norm(A @ stacked(A, b[s], np.exp(t), K) - b[s]) ** 2 - level

        brute = np.exp(scipy.optimize.brentq(missed, -14, 6, xtol=1e-9))
        assert r.lam[s] == pytest.approx(brute, rel=1e-5)


@pytest.mark.parametrize("rows", [1, 3, 5])
@pytest.mark.parametrize("solver", ["nnls", "lsq_linear"])
def test_chi2_of_data_that_are_met_leaves_lam_at_zero(rows, solver):
    """No factor times a fit of nothing is a level: as many equations as columns that they are met by, or fewer."""
    rng = np.random.default_rng(rows)
    A = np.concatenate([np.eye(rows), rng.random((rows, rows))], axis=1) * 2.0 ** rng.integers(-3, 4)
    b = A[:, :rows] @ rng.integers(1, 9, (20, rows, 1)).astype(float)
    r = getattr(stepwell, solver)(A, b[..., 0], lam="chi2")
    assert (r.status == 0).all()
    assert (r.lam == 0).all()
    assert (r.lam_at_end == -1).all()
    assert np.isfinite(r.x).all()
    assert (r.residual <= 1e-14 * np.linalg.norm(b[..., 0], axis=1)).all()


@pytest.mark.parametrize("seed", range(4))
def test_chi2_takes_no_other_fit_for_that_of_nearly_dependent_columns(seed):
    """They meet any data with an x of 1e7, whose rounding is all that is left; along one of them much more is."""
    rng = np.random.default_rng(seed)
    A, b = 1 + 1e-6 * rng.standard_normal((8, 8)), rng.standard_normal((4, 8))
    x = np.linalg.solve(A, b.T)
    least = np.finfo(float).eps * 8 * (np.abs(A) @ np.abs(x)).max(axis=0)
    r = stepwell.lsq_linear(A, b, lam="chi2")
    assert (r.residual <= 10 * least).all()
    assert (np.linalg.norm(r.x @ A.T - b, axis=1) <= 10 * least).all()


def test_discrepancy_reaches_the_noise_or_says_so():
    A, b = decays(40, np.random.default_rng(2))
    r = stepwell.nnls(A, b, lam="discrepancy", noise=6e-3)
    reached = r.lam_at_end == 0
    assert reached.sum() > 20
    np.testing.assert_allclose(r.residual[reached] ** 2, 56 * 6e-3**2, rtol=1e-5)
    assert (r.residual[~reached] ** 2 > 56 * 6e-3**2).all()  # λ = 0 leaves more
    assert (r.lam[~reached] == 0).all()
    huge = stepwell.nnls(A, b, lam="discrepancy", noise=1e3)
    assert (huge.lam_at_end == 1).all()


def test_cross_validation_finds_the_least_on_a_fine_grid():
    A, b = decays(6, np.random.default_rng(3))
    r = stepwell.nnls(A, b, lam="gcv")
    singular = np.linalg.svd(A, compute_uv=False) ** 2
    grid = np.sqrt((A**2).sum() / 40) * np.exp(np.linspace(-8, 2, 401))

    def function(lam, row):
        rest = 56 - (singular / (singular + lam**2)).sum()
        return np.linalg.norm(A @ stacked(A, row, lam, np.eye(40)) - row) ** 2 / rest**2

    for s in range(6):
        best = min(function(lam, b[s]) for lam in grid[::4])
        assert function(r.lam[s], b[s]) <= best * (1 + 1e-6)


@pytest.mark.parametrize("kind", ["one", "each", "dictionary", "stack"])
def test_cross_validation_with_masks_is_that_of_the_columns_left(kind):
    """No point of its grid is lower, nor a neighbour, with the trace of the columns that take part; L is cut too."""
    rng = np.random.default_rng(11)
    A, b = decays(6, rng)
    L = np.diff(np.eye(40), axis=0)
    masks = rng.random((6, 40)) < 0.7
    masks[4:] = masks[:2]
    if kind == "one":
        masks[:] = masks[0]
    matrices, more = np.broadcast_to(A, (6, 56, 40)), {}
    if kind in ("dictionary", "stack"):
        which = np.array([0, 1, 0, 1, 1, 0])
        pair = np.stack([A, A * rng.uniform(0.5, 1.5, 40)])
        matrices = pair[which]
        more = {"which": which} if kind == "dictionary" else {}
    given = {"one": A, "each": A, "dictionary": pair if more else None, "stack": matrices}[kind]
    r = stepwell.nnls(given, b, lam="gcv", L=L, mask=masks[0] if kind == "one" else masks, **more)
    assert (r.x[~masks] == 0).all()
    for s in range(6):
        own, penalty = matrices[s][:, masks[s]], L[:, masks[s]]

        def function(lam, s=s, own=own, penalty=penalty):
            inverse = np.linalg.pinv(np.vstack([own, lam * penalty]))[:, :56]
            rest = 56 - np.trace(own @ inverse)
            return np.linalg.norm(own @ stacked(own, b[s], lam, penalty) - b[s]) ** 2 / rest**2

        unit = np.sqrt((matrices[s] ** 2).sum() / (L**2).sum())
        found = function(r.lam[s]) * (1 - 1e-6)
        assert found <= min(function(lam) for lam in unit * np.exp(np.linspace(-8, 2, 16)))
        assert found <= min(function(r.lam[s] * factor) for factor in (0.99, 1.01))


def test_the_corner_is_where_three_points_bend_most():
    A, b = decays(5, np.random.default_rng(4))
    r = stepwell.nnls(A, b, lam="lcurve")
    grid = np.sqrt((A**2).sum() / 40) * np.exp(np.linspace(-8, 2, 21))
    for s in range(5):
        x = np.array([stacked(A, b[s], lam, np.eye(40)) for lam in grid])
        u, v = 2 * np.log(np.linalg.norm(x @ A.T - b[s], axis=1)), 2 * np.log(np.linalg.norm(x, axis=1))
        P = np.c_[u, v]
        one, two, three = P[1:-1] - P[:-2], P[2:] - P[1:-1], P[2:] - P[:-2]
        cross = one[:, 0] * two[:, 1] - one[:, 1] * two[:, 0]
        bend = 2 * cross / (np.linalg.norm(one, axis=1) * np.linalg.norm(two, axis=1) * np.linalg.norm(three, axis=1))
        assert r.lam[s] == pytest.approx(grid[1:-1][np.argmax(bend)], rel=1e-9)


def test_lam_per_system_and_a_dictionary_of_matrices():
    rng = np.random.default_rng(5)
    A, b = decays(30, rng)
    matrices = np.stack([A, A[:, ::-1] * 1.5, A**0.8])
    which, lam = rng.integers(0, 3, 30), 10.0 ** rng.uniform(-3, 0, 30)
    r = stepwell.nnls(matrices, b, which=which, lam=lam, L=FIRST)
    for s in range(0, 30, 3):
        np.testing.assert_allclose(r.x[s], stacked(matrices[which[s]], b[s], lam[s], FIRST), atol=1e-9)
    np.testing.assert_array_equal(r.lam, lam)
    alone = stepwell.nnls(matrices, b[7:9], which=which[7:9], lam=lam[7:9], L=FIRST)
    np.testing.assert_array_equal(alone.x, r.x[7:9])  # bit by bit


def test_residuals_grow_and_seminorms_fall_with_lam():
    A, b = decays(5, np.random.default_rng(6))
    path = [stepwell.lsq_linear(A, b, (-0.1, 0.5), lam=lam, L=SECOND) for lam in np.geomspace(1e-3, 10, 12)]
    fits, norms = np.array([r.residual for r in path]), np.array([r.seminorm for r in path])
    assert (np.diff(fits, axis=0) > -1e-12).all()
    assert (np.diff(norms, axis=0) < 1e-12).all()


def test_rules_with_bounds_and_a_sum():
    A, b = decays(8, np.random.default_rng(7))
    r = stepwell.lsq_linear(A, b, (0, 0.6), sum_bounds=(-np.inf, 1), lam="chi2")
    plain = stepwell.lsq_linear(A, b, (0, 0.6), sum_bounds=(-np.inf, 1))
    np.testing.assert_allclose((r.residual / plain.residual) ** 2, 1.02, atol=1e-6)
    again = stepwell.lsq_linear(A, b, (0, 0.6), sum_bounds=(-np.inf, 1), lam=r.lam)
    np.testing.assert_allclose(again.x, r.x, atol=1e-9)


def test_chains_and_warm_starts_change_nothing_but_the_work():
    A, b = decays(200, np.random.default_rng(8))
    cold, chain = stepwell.nnls(A, b, lam="chi2"), stepwell.nnls(A, b, lam="chi2", warm_start="chain")
    np.testing.assert_allclose(chain.lam, cold.lam, rtol=1e-5)
    np.testing.assert_allclose(chain.x, cold.x, atol=1e-5)
    box = stepwell.lsq_linear(A, b, (0, 0.3), lam=0.05)
    for start in (box.x, box.state):
        warm = stepwell.lsq_linear(A, b, (0, 0.3), lam=0.05, warm_start=start)
        np.testing.assert_allclose(warm.x, box.x, atol=1e-10)
        assert warm.solves.sum() < 0.5 * box.solves.sum()


def test_cross_validation_of_own_matrices_knows_no_company():
    """Sums that do not bind are left out first, so the others of a batch go on without these: with their own traces."""
    rng = np.random.default_rng(0)
    A, b = rng.standard_normal((9, 11, 4)), rng.standard_normal((9, 11))
    total = np.where(np.arange(9) % 2, 0.0, 0.7)
    r = stepwell.lsq_linear(A, b, (0, 1), sum_bounds=(total, np.inf), lam="gcv")
    for i in range(9):
        alone = stepwell.lsq_linear(A[i], b[i], (0, 1), sum_bounds=(total[i], np.inf), lam="gcv")
        assert r.lam[i] == alone.lam
        np.testing.assert_array_equal(r.x[i], alone.x)


@pytest.mark.parametrize("lam", [0.0, 0.5, np.full(4, 0.5)], ids=["none", "one", "each"])
@pytest.mark.parametrize("library", ["numpy", "torch", "torch with a graph", "jax"])
def test_lam_of_a_batch_is_an_array_like_what_else_systems_have(library, lam):
    rng = np.random.default_rng(1)
    A, B = rng.normal(size=(6, 3)), rng.normal(size=(4, 6))
    if library != "numpy":
        name = library.partition(" ")[0]
        module = pytest.importorskip("jax.numpy" if name == "jax" else name)
        if name == "jax":
            pytest.importorskip("jax").config.update("jax_enable_x64", True)
        A, B = (module.asarray(array) for array in (A, B))
        A = A.requires_grad_() if "graph" in library else A
        lam = module.asarray(lam) if np.ndim(lam) else lam
    gram = (A.T @ A, B @ A) if "graph" not in library else ((A.T @ A).detach(), (B @ A).detach())
    for r in (stepwell.nnls(A, B, lam=lam), stepwell.lsq_linear(A, B, lam=lam), stepwell.lsq_gram(*gram, lam=lam)):
        assert type(r.lam) is type(B)
        assert r.lam.dtype == B.dtype
        np.testing.assert_array_equal(np.asarray(r.lam), np.broadcast_to(np.asarray(lam), 4))
    for solve in (stepwell.nnls, stepwell.lsq_linear):
        one = solve(A, B[0], lam=0.5)
        assert (type(one.lam), one.lam) == (float, 0.5)
        assert "lam: 0.5" in repr(one)


@pytest.mark.parametrize("seed", [204, 351])
def test_cross_validation_sees_a_range_that_binds_between_two_lam_where_it_does_not(seed):
    """Sums of x need not fall with λ: no λ of the grid has a lower score than the one that was chosen."""
    rng = np.random.default_rng(seed)
    A, b = rng.random((8, 6)), 3 * rng.normal(size=8)
    grid = np.sqrt((A**2).sum() / 6) * np.exp(np.linspace(-8, 2, 16))

    def score(lam, x):
        trace = np.trace(A @ np.linalg.solve(A.T @ A + lam**2 * np.eye(6), A.T))
        return ((A @ x - b) ** 2).sum() / (8 - trace) ** 2

    free = stepwell.lsq_linear(A, b, lam="gcv")
    sums = [stepwell.lsq_linear(A, b, lam=lam).x.sum() for lam in grid]
    assert max(sums[0], free.x.sum(), 0) < 0.999 * max(sums)
    least = max(sums[0], free.x.sum(), 0)
    most = least + (0.02, 0.1, 0.3)[seed % 3] * (max(sums) - least)
    r = stepwell.lsq_linear(A, b, lam="gcv", sum_bounds=(-np.inf, most))
    best = min(score(lam, stepwell.lsq_linear(A, b, lam=lam, sum_bounds=(-np.inf, most)).x) for lam in grid)
    assert score(r.lam, r.x) <= best * (1 + 1e-9)
    assert r.lam != pytest.approx(free.lam, rel=1e-2)
