"""Total variation with columns over ranks: the answers of one process, one λ, errors and stops on all."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import stepwell
from stepwell import TVStatus
from stepwell.apps import tomography
from stepwell.distributed import RankError, run_threads

SIDE = 16
SHAPE = (SIDE, SIDE)
A = sp.csr_matrix(tomography.parallel_beam(SIDE, angles=np.arange(0, 180, 12.0)))
X = tomography.shepp_logan_3d(SIDE)[[8, 6, 10, 7]].reshape(4, -1).T * np.array([1.0, 1.0, 5.0, 0.2])
B = tomography.add_noise(A @ X, 0.03, 0)
SIGMA = np.linalg.norm(B - A @ X, axis=0) / np.sqrt(B.shape[0])
#: Columns of three ranks; the second has none.
CUTS = (0, 3, 3, 4)


def on_ranks(call):
    def program(comm):
        return call(comm, slice(CUTS[comm.rank], CUTS[comm.rank + 1]))

    return run_threads(3, program)


@pytest.mark.parametrize("rule", [None, "noise", "discrepancy"])
@pytest.mark.parametrize("joint", [False, True])
def test_ranks_have_the_answers_of_one_process(rule, joint):
    lam = SIGMA * 3 if rule is None else rule
    options = {"shape": SHAPE, "bounds": (0, None), "joint": joint}
    alone = stepwell.tv(A, B, lam, noise=SIGMA, **options)

    def call(comm, mine):
        own = lam[mine] if rule is None else lam
        return stepwell.tv(A, B[:, mine], own, noise=SIGMA[mine], comm=comm, **options)

    found = on_ranks(call)
    assert all(result.success for result in found)
    together = np.concatenate([np.atleast_1d(result.lam) for result in found])
    # Steps are swept in single precision, in other groups of columns: images agree to a few of its roundings, and so
    # does λ where it is found from their residuals.
    rounding = 1e-6 if rule == "discrepancy" else 1e-9
    np.testing.assert_allclose(together, alone.lam, rtol=rounding if rule == "discrepancy" else 1e-12)
    if joint and rule is not None:
        np.testing.assert_allclose(together, together[0], rtol=1e-12)
    x = np.concatenate([result.x for result in found], axis=1)
    np.testing.assert_allclose(x, alone.x, atol=rounding * np.abs(alone.x).max())
    np.testing.assert_array_equal(np.concatenate([result.iterations for result in found]), alone.iterations)


def test_a_joint_lam_is_one_in_the_units_of_the_data():
    """Columns of very different size: the residual of all together is the noise of all together."""
    result = stepwell.tv(A, B, "discrepancy", noise=SIGMA, shape=SHAPE, bounds=(0, None), joint=True)
    assert np.ptp(result.lam) <= 1e-12 * result.lam[0]
    level = np.linalg.norm(A @ result.x - B) / np.linalg.norm(SIGMA * np.sqrt(B.shape[0]))
    assert level == pytest.approx(1, abs=0.011)


def test_callbacks_are_told_of_all_and_stop_all():
    told = []

    def call(comm, mine):
        watch = None
        if comm.rank == 2:
            watch = lambda news: told.append(news) or news.iteration >= 2  # noqa: E731
        return stepwell.tv(A, B[:, mine], 1.0, shape=SHAPE, tol=1e-9, callback=watch, comm=comm)

    found = on_ranks(call)
    assert [result.status for result in found] == [[TVStatus.STOPPED] * 3, [], [TVStatus.STOPPED]]
    assert [news.iteration for news in told] == [0, 1, 2]
    assert all(news.columns == news.running == 4 for news in told)
    assert told[-1].products == pytest.approx(sum(result.products.sum() for result in found) + 2)


def test_an_error_on_one_rank_ends_all():
    class Broken(Exception):
        pass

    def call(comm, mine):
        calls = [0]

        def forward(x):
            calls[0] += 1
            if comm.rank == 2 and calls[0] > 3:
                raise Broken("lost")
            return A @ x

        with pytest.raises(Broken if comm.rank == 2 else RankError, match="lost"):
            stepwell.tv((forward, lambda y: A.T @ y), B[:, mine], 1.0, shape=SHAPE, tol=1e-9, comm=comm)
        return True

    assert on_ranks(call) == [True] * 3


def test_wrong_arguments_end_all_before_any_work():
    def differs(comm, mine):
        with pytest.raises(ValueError, match=r"tol is 0\.001 on rank 0 and 0\.01 on rank 1"):
            stepwell.tv(A, B[:, mine], 1.0, shape=SHAPE, tol=[1e-3, 1e-2, 1e-3][comm.rank], comm=comm)

    def coupled(comm, mine):
        with pytest.raises(ValueError, match=r"across is 1\.0; allowed: None with comm"):
            stepwell.tv(A, B[:, mine], 1.0, shape=SHAPE, across=1.0, comm=comm)

    on_ranks(differs)
    on_ranks(coupled)


def test_one_rank_has_the_bits_of_none():
    alone = stepwell.tv(A, B, 1.0, shape=SHAPE)
    one = stepwell.tv(A, B, 1.0, shape=SHAPE, comm="self")
    np.testing.assert_array_equal(one.x, alone.x)
