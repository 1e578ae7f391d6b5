"""Trouble in linear systems over ranks: what goes wrong on one rank is told on all, and no rank waits."""

from __future__ import annotations

import numpy as np
import pytest
from krylov_rank_cases import CONDITION, EXACT, LAM, TOL, A, B, K, N, on_ranks, solved
from spread_operators import SpreadMatrix, gathered

import stepwell
from stepwell import LinearStatus
from stepwell.distributed import RankError, run_threads

# ---- trouble on one rank ----


def failing(comm, spread, where, error):
    """What each rank raises when one fails in a function of its own, after its communication."""
    operator, calls = spread.operator, [0]

    def maybe(name):
        calls[0] += 1
        if name == where and comm.rank == 1 and calls[0] > 6:
            raise error

    def forward(x):
        image = operator.forward(x)
        maybe("forward")
        return image

    def adjoint(y):
        image = operator.adjoint(y)
        maybe("adjoint")
        return image

    def precondition(block):
        maybe("preconditioner")
        return block

    mine = stepwell.operators.from_functions(forward, adjoint, operator.shape, blocks=True)
    try:
        stepwell.tikhonov(
            mine,
            B[spread.rows],
            LAM,
            method="block" if where == "forward" else "pseudo-block",
            preconditioner=precondition,
            callback=lambda told: maybe("callback"),
            comm=comm,
        )
    except BaseException as caught:
        return caught
    return None


@pytest.mark.parametrize("where", ["forward", "adjoint", "preconditioner", "callback"])
def test_an_error_on_one_rank_is_raised_on_all(where):
    error = ArithmeticError("no product here")
    found = on_ranks(3, lambda comm, spread: failing(comm, spread, where, error), timeout=20)
    assert found[1] is error
    for other in (found[0], found[2]):
        assert isinstance(other, RankError)
        assert str(other) == "rank 1: ArithmeticError: no product here"


def test_an_interrupt_on_one_rank_is_one_on_all():
    found = on_ranks(3, lambda comm, spread: failing(comm, spread, "adjoint", KeyboardInterrupt()), timeout=20)
    assert [type(one) for one in found] == [KeyboardInterrupt] * 3


def test_stop_iteration_stops_without_ranks_too():
    def callback(told):
        if told.iteration == 3:
            raise StopIteration

    result = stepwell.tikhonov(A, B, LAM, method="block", callback=callback)
    assert result.status == [LinearStatus.STOPPED] * K
    assert result.iterations.tolist() == [3] * K


def test_arguments_are_checked_on_all():
    def program(comm, spread):
        wrong = comm.rank == 1
        said = []
        for call in (
            lambda: stepwell.tikhonov(spread.operator, B[: 3 if wrong else None][spread.rows], LAM, comm=comm),
            lambda: stepwell.tikhonov(spread.operator, B[spread.rows], -1 if wrong else 1, comm=comm),
            lambda: stepwell.tikhonov(spread.operator, B[spread.rows], LAM, tol=1e-3 if wrong else 1e-6, comm=comm),
            lambda: stepwell.tikhonov(spread.operator, B[spread.rows][:, : K - wrong], LAM, comm=comm),
            lambda: stepwell.tikhonov(spread.operator, B[spread.rows], LAM, method="direct", comm=comm),
            lambda: stepwell.tikhonov(
                spread.operator, B[spread.rows], LAM, preconditioner=np.ones(3 if wrong else spread.operator.shape[1]),
                comm=comm,
            ),
        ):  # fmt: skip
            with pytest.raises((ValueError, RankError)) as caught:
                call()
            said.append(str(caught.value))
        return said

    first, second = on_ranks(2, program, timeout=20)
    assert "B has shape" in second[0]
    assert first[0].startswith("rank 1: ValueError: B has shape")
    assert "lam is -1" in second[1]
    assert first[2] == second[2] == "tol is 1e-06 on rank 0 and 0.001 on rank 1; allowed: the same on all"
    assert first[3] == "the number of columns of B is 5 on rank 0 and 4 on rank 1; allowed: the same on all"
    assert first[4] == second[4]
    assert "method is 'direct'; allowed: 'auto', 'cgls'" in first[4]
    assert "preconditioner has shape" in second[5]


@pytest.mark.parametrize("method", ["pseudo-block", "block", "aprcg"])
@pytest.mark.parametrize("way", ["answer", "StopIteration"])
def test_a_callback_on_one_rank_stops_all_at_the_same_step(method, way):
    def program(comm, spread):
        seen = []

        def callback(told):
            seen.append(told.iteration)
            if told.iteration == 4 and way == "StopIteration":
                raise StopIteration
            return told.iteration == 4

        options = dict(callback=callback) if comm.rank == 1 else {}
        result = stepwell.tikhonov(spread.operator, B[spread.rows, :1], LAM, method=method, comm=comm, **options)
        return result.iterations.tolist(), result.status, seen

    for iterations, status, _ in on_ranks(3, program, timeout=20):
        assert iterations == [4]
        assert status == [LinearStatus.STOPPED]


def test_a_right_hand_side_that_is_not_finite_on_one_rank():
    b = B.copy()
    b[-1, 2] = np.nan

    for _, result in on_ranks(2, lambda comm, spread: solved(comm, spread, "block", b)):
        assert result.status[2] is LinearStatus.NONFINITE
        assert [status for j, status in enumerate(result.status) if j != 2] == [LinearStatus.CONVERGED] * (K - 1)


def test_an_operator_of_extreme_size():
    huge = 2.0**700

    def program(comm):
        spread = SpreadMatrix(A * huge, comm)
        result = stepwell.tikhonov(spread.operator, B[spread.rows], LAM * huge, method="block", tol=TOL, comm=comm)
        return gathered(comm, result.x * huge, N)

    for x in run_threads(2, program):
        assert np.linalg.norm(x - EXACT) <= CONDITION * TOL * np.linalg.norm(EXACT)


def test_bounds_are_refused_by_name():
    def program(comm, spread):
        with pytest.raises((ValueError, RankError)) as caught:
            stepwell.tikhonov(spread.operator, B[spread.rows], LAM, bounds=(0, None), comm=comm)
        return str(caught.value)

    for said in on_ranks(2, program, timeout=20):
        assert "bounds is (0, None); allowed: None with comm" in said
