"""What ``method="auto"`` chooses, by counts of steps, products and reductions; no test looks at a clock."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp

import stepwell
from stepwell.apps import tomography
from stepwell.common.threads import threads_at_most
from stepwell.krylov.costs import Work

#: The phantom of 128 x 128 pixels and 90 angles, λ = 0.01‖A‖; and one of 48 x 48.
PHANTOM = Work(16384, 16650, 3_350_000, 0, 102, 60.0, 1e-4, 32768, 2**26, 256)
SMALL = Work(2304, 2346, 173_000, 0, 256, 60.0, 1e-4, 4608, 2**26, 256)


def least(work):
    seconds = {"pseudo-block": work.pseudo_block, "block": work.block, "direct": work.direct}
    return min(seconds, key=seconds.get)


def scan(size=36, columns=8):
    A = tomography.parallel_beam(size, angles=np.arange(0, 180, 6.0))
    slices = tomography.shepp_logan_3d(size).reshape(size, -1).T[:, size // 5 :][:, :columns]
    return A, tomography.add_noise(A @ slices, 0.01), 0.01 * tomography.largest_singular_value(A)


def test_few_columns_to_a_tight_tolerance_share_products_alone():
    """Six columns at 1e-8: hundreds of small blocks to be made conjugate to cost more than the products they save."""
    assert least(dataclasses.replace(PHANTOM, columns=6, tol=1e-8)) == "pseudo-block"


def test_many_columns_share_a_search_space():
    assert least(PHANTOM) == "block"
    assert PHANTOM.block_steps < 0.5 * PHANTOM.steps


def test_few_unknowns_and_many_columns_are_solved_directly():
    assert least(SMALL) == "direct"
    assert least(dataclasses.replace(SMALL, columns=2)) != "direct"


def test_costly_products_favour_those_who_need_fewest():
    """The more entries A has, the less the reductions of ``block`` weigh."""
    cheap = dataclasses.replace(PHANTOM, columns=16, sparse_entries=100_000)
    costly = dataclasses.replace(cheap, sparse_entries=100_000_000)
    assert cheap.pseudo_block < cheap.block
    assert costly.block < costly.pseudo_block


def test_counts_follow_what_they_count():
    for work in (PHANTOM, SMALL):
        tighter = dataclasses.replace(work, tol=work.tol / 100)
        less_damped = dataclasses.replace(work, ratio=10 * work.ratio)
        assert work.steps < tighter.steps
        assert work.steps < less_damped.steps
        assert work.block_steps <= work.steps
        assert dataclasses.replace(work, maxiter=3).steps == 3
        assert dataclasses.replace(work, columns=1).block_steps == pytest.approx(work.steps, rel=0.2)
        assert dataclasses.replace(work, memory=0).kept_blocks <= 1
    undamped = dataclasses.replace(PHANTOM, ratio=np.inf)
    assert PHANTOM.steps < undamped.steps < 2 * PHANTOM.size
    halves = dataclasses.replace(PHANTOM, columns=512)
    assert halves.block_steps == dataclasses.replace(PHANTOM, columns=256).block_steps  # two blocks in turn


@pytest.mark.parametrize("tol", [1e-3, 1e-6])
def test_steps_are_about_those_that_are_taken(tol):
    """On a problem that had no part in the fit; a factor of three either way is what the fit itself left."""
    A, B, lam = scan()
    ratio = np.linalg.norm(A.T @ B[:, 4]) / np.linalg.norm(B[:, 4]) / lam
    work = Work(A.shape[1], A.shape[0], A.nnz, 0, 8, ratio, tol, 2000, 2**26, 256)
    for method, expected in (("pseudo-block", work.steps), ("block", work.block_steps)):
        taken = stepwell.tikhonov(A, B, lam, method=method, tol=tol).iterations.mean()
        assert taken / 3 <= expected <= 3 * taken


def test_the_result_says_the_choice_and_why():
    A, B, lam = scan()
    result = stepwell.tikhonov(A, B, lam, tol=1e-6)
    assert result.success
    assert result.method in ("pseudo-block", "block", "direct")
    for name in ("pseudo-block", "block", "direct", "steps"):
        assert name in result.choice
    told = [part.split()[0] for part in result.choice.partition("core: ")[2].split(", ")]
    assert told[0] == result.method  # least first
    one = stepwell.tikhonov(A, B[:, 3], lam, tol=1e-3)
    assert one.method == "cgls"
    assert "block" not in one.choice


def test_no_number_of_threads_changes_the_choice():
    A, B, lam = scan()
    choices = []
    for threads in (1, 2, 7):
        with threads_at_most(threads):
            result = stepwell.tikhonov(A, B, lam, tol=1e-4)
            choices.append((result.method, result.choice))
    assert len(set(choices)) == 1


def test_what_was_not_measured_goes_by_rules():
    A, B, lam = scan()
    functions = stepwell.operators.from_functions(lambda X: A @ X, lambda Y: A.T @ Y, A.shape, blocks=True)
    assert stepwell.tikhonov(functions, B, lam, tol=1e-2).method == "block"
    diagonal = 1 / (np.asarray(A.power(2).sum(axis=0)).ravel() + lam**2)
    assert stepwell.tikhonov(A, B, lam, tol=1e-2, preconditioner=diagonal).method == "block"
    assert stepwell.tikhonov(A, B, np.linspace(lam, 2 * lam, 8), tol=1e-2).method == "pseudo-block"
    assert stepwell.tikhonov(A, np.zeros_like(B), lam).success


def test_without_damping_nothing_is_factored():
    A, B, _ = scan()
    result = stepwell.tikhonov(A, B, 0.0, tol=1e-2)
    assert result.method != "direct"
    assert "direct" not in result.choice


def test_a_column_that_is_not_finite_does_not_choose():
    A, B, lam = scan()
    spoilt = B.copy()
    spoilt[5, 4] = np.nan
    spoilt[:, 2] = 0
    result = stepwell.tikhonov(A, spoilt, lam, tol=1e-3)
    assert "nan" not in result.choice
    assert [status.name for status in result.status].count("NONFINITE") == 1


def test_a_dense_matrix_and_a_penalty_count():
    random = np.random.default_rng(0)
    A, B = random.normal(size=(1300, 1200)), random.normal(size=(1300, 64))
    assert stepwell.tikhonov(A, B, 1.0).method == "direct"
    L = sp.eye(1200, format="csr")
    assert "direct" in stepwell.tikhonov(A, B, 1.0, L, tol=1e-3).choice
