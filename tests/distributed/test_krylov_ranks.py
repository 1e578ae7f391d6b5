"""Linear systems whose unknowns and equations lie over ranks: one answer, and the same steps on all."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from krylov_rank_cases import (
    CONDITION,
    EXACT,
    LAM,
    TOL,
    A,
    B,
    K,
    L,
    M,
    N,
    assert_about_the_same_steps,
    on_ranks,
    random,
    solved,
)
from mpi_runner import run_ranks
from spread_operators import SpreadMatrix, gathered

import stepwell
from stepwell.distributed import run_threads
from stepwell.krylov.kept import KeptBlocks
from stepwell.krylov.projected import conjugacy_error

# ---- the same answer, within the tolerance ----


@pytest.mark.parametrize("method", ["cgls", "pseudo-block", "block", "prcg", "aprcg"])
def test_any_number_of_ranks_has_the_answer_and_all_take_the_same_steps(method):
    alone = stepwell.tikhonov(A, B, LAM, method=method, tol=TOL)
    for size in (2, 3, 5) if method == "block" else (2, 5):  # of five ranks the first has nothing
        found = on_ranks(size, lambda comm, spread: solved(comm, spread, method))
        for x, result in found:
            assert result.success
            np.testing.assert_array_equal(result.iterations, found[0][1].iterations)
            assert_about_the_same_steps(result.iterations, alone.iterations)
            assert np.linalg.norm(x - EXACT) <= CONDITION * TOL * np.linalg.norm(EXACT)
            assert np.all(result.residual <= TOL)


def test_one_rank_has_the_bits_of_none():
    """But for block methods, which join kept blocks over ranks."""
    for method in ("cgls", "pseudo-block", "prcg", "aprcg"):
        alone = stepwell.tikhonov(A, B, LAM, method=method, tol=TOL)
        one = stepwell.tikhonov(A, B, LAM, method=method, tol=TOL, comm="self")
        np.testing.assert_array_equal(one.x, alone.x)


def test_all_ranks_have_the_same_account():
    first, *rest = [result for _, result in on_ranks(3, lambda comm, spread: solved(comm, spread, "block"))]
    for other in rest:
        np.testing.assert_array_equal(other.residual, first.residual)
        np.testing.assert_array_equal(other.products, first.products)
        assert all(np.array_equal(a, b) for a, b in zip(other.history, first.history))
        assert (other.status, other.choice, other.calls) == (first.status, first.choice, first.calls)


def test_penalties_starts_and_preconditioners():
    penalised = (A.T @ A).toarray() + LAM**2 * (L.T @ L).toarray()
    exact = np.linalg.solve(penalised, A.T @ B)
    inverse = 1 / penalised.diagonal()
    start = exact + 1e-3 * random.standard_normal(exact.shape)
    alone = stepwell.tikhonov(A, B, LAM, L, x0=start, preconditioner=inverse, method="pseudo-block", tol=TOL)

    def program(comm, spread):
        penalty = SpreadMatrix(L, comm).operator
        options = dict(L=penalty, x0=start[spread.columns], preconditioner=inverse[spread.columns])
        return solved(comm, spread, "pseudo-block", **options)

    for size in (2, 3):
        for x, result in on_ranks(size, program):
            assert_about_the_same_steps(result.iterations, alone.iterations)
            assert np.linalg.norm(x - exact) <= np.linalg.cond(penalised) * TOL * np.linalg.norm(exact)


def test_rows_vectors_and_single_precision():
    single = B[:, 0].astype(np.float32)

    def program(comm, spread):
        vector = stepwell.tikhonov(spread.operator, single[spread.rows], LAM, tol=1e-4, comm=comm)
        rows = stepwell.tikhonov(spread.operator, B.T[:, spread.rows], LAM, tol=TOL, axis=0, comm=comm)
        return vector, gathered(comm, rows.x.T, N)

    for vector, rows in on_ranks(2, program):
        assert vector.x.dtype == np.float32
        assert vector.x.ndim == 1
        assert vector.choice == "there is one right-hand side"
        assert np.linalg.norm(rows - EXACT) <= CONDITION * TOL * np.linalg.norm(EXACT)


@pytest.mark.parametrize("method", ["pseudo-block", "block", "aprcg"])
def test_tensors(method):
    torch = pytest.importorskip("torch")
    alone = stepwell.tikhonov(A, B, LAM, method=method, tol=TOL)

    def program(comm, spread):
        inner = spread.operator
        operator = stepwell.operators.from_functions(
            lambda x: torch.from_numpy(inner.forward(x.numpy())),
            lambda y: torch.from_numpy(inner.adjoint(y.numpy())),
            inner.shape,
            blocks=True,
        )
        result = stepwell.tikhonov(operator, torch.asarray(B[spread.rows]), LAM, method=method, tol=TOL, comm=comm)
        assert isinstance(result.x, torch.Tensor)
        return gathered(comm, result.x.numpy(), N), result.iterations

    for x, iterations in on_ranks(2, program):
        assert_about_the_same_steps(iterations, alone.iterations)  # a tensor's directions are removed twice
        assert np.linalg.norm(x - EXACT) <= CONDITION * TOL * np.linalg.norm(EXACT)


def test_arrays_that_bring_their_communicator():
    """As PyLops-MPI's have a local array and a communicator."""

    class Distributed:
        def __init__(self, local_array, base_comm):
            self.local_array, self.base_comm = local_array, base_comm

    def program(comm, spread):
        result = stepwell.tikhonov(spread.operator, Distributed(B[spread.rows], comm), LAM, tol=TOL)
        assert result.exchanges > 2 * result.iterations.max()
        assert result.bytes_sent > 8 * result.exchanges
        return gathered(comm, result.x, N)

    for x in on_ranks(2, program):
        assert np.linalg.norm(x - EXACT) <= CONDITION * TOL * np.linalg.norm(EXACT)


def test_positive_definite_systems():
    H = (A.T @ A + LAM**2 * sp.eye(N)).tocsr()
    right = A.T @ B
    alone = stepwell.cg(H, right, method="block", tol=TOL)

    def program(comm):
        spread = SpreadMatrix(H, comm)
        result = stepwell.cg(spread.operator, right[spread.rows], tol=TOL, comm=comm)
        assert result.method == "block"  # never direct
        return gathered(comm, result.x, N), result

    for x, result in run_threads(3, program):
        assert_about_the_same_steps(result.iterations, alone.iterations)
        exact = np.linalg.solve(H.toarray(), right)
        assert np.linalg.norm(x - exact) <= np.linalg.cond(H.toarray()) * TOL * np.linalg.norm(exact)


@pytest.mark.parametrize("augmented", [False, True])
def test_right_hand_sides_that_arrive_one_by_one(augmented):
    near = B[:, :1] + 1e-3 * random.standard_normal((M, 3))
    alone = stepwell.ProjectedCG(A, LAM, augmented=augmented)
    steps = [alone.solve(b, tol=TOL).iterations for b in near.T]

    def program(comm, spread):
        solver = stepwell.ProjectedCG(spread.operator, LAM, augmented=augmented, comm=comm)
        results = [solver.solve(b[spread.rows], tol=TOL) for b in near.T]
        with pytest.raises(ValueError, match=r"comm is .*; allowed: None, to save"):
            solver.save("nowhere.npz")
        with pytest.raises(ValueError, match=r"checkpoint is 'nowhere.npz'; allowed: None with comm"):
            stepwell.ProjectedCG(spread.operator, LAM, checkpoint="nowhere.npz", comm=comm)
        assert conjugacy_error(solver) < 1e-10
        return [result.iterations for result in results], solver.directions

    for size in (2, 5):
        runs = on_ranks(size, program)
        assert len({str(run) for run in runs}) == 1
        for found, directions in runs:
            assert_about_the_same_steps(found, steps)
            assert directions == sum(found)  # each step leaves one


def test_memory_is_that_of_all_ranks(monkeypatch):
    """As many directions are kept on two and three ranks as on one, and no more than there is room for."""
    most, few = 12, 8 * 2 * N * 12
    held = {}
    inner = KeptBlocks.add

    def add(self, *new):
        inner(self, *new)
        held.setdefault(self.sums.ranks.size, []).append(self.bytes_held // (8 * 2 * N))

    monkeypatch.setattr(KeptBlocks, "add", add)
    for size in (1, 2, 3):
        assert all(result.success for _, result in on_ranks(size, lambda c, s: solved(c, s, "block", memory=few)))
    assert {max(counts) for counts in held.values()} == {most}
    first = [sorted(set(counts[: 2 * size])) for size, counts in held.items()]  # of the first two steps
    assert first == [[K - 1, 2 * (K - 1)]] * 3  # one right-hand side is a combination of two others
    with pytest.raises(ValueError, match=r"memory is 100; allowed: .* for two directions of 240 unknowns"):
        on_ranks(2, lambda comm, spread: solved(comm, spread, "prcg", memory=100))


@pytest.mark.filterwarnings("ignore:lam of 2 of 2 columns is where an L-curve")
@pytest.mark.parametrize("rule", ["gcv", "discrepancy", "lcurve"])
def test_rules_choose_the_same_on_any_number_of_ranks(rule):
    truth = np.cumsum(random.standard_normal((N, 2)), axis=0)
    noisy = A @ truth + 0.5 * random.standard_normal((M, 2))
    level = np.full(2, 0.5)

    def program(comm, spread):
        options = dict(noise=level, joint=True, tol=1e-6, comm=comm)
        return stepwell.tikhonov(spread.operator, noisy[spread.rows], rule, **options).lam

    chosen = [lam for size in (1, 3) for lam in on_ranks(size, program)]
    for lam in chosen:
        np.testing.assert_allclose(lam, chosen[0], rtol=1e-5)  # the minimiser of a function known to rounding
    if rule != "lcurve":  # of which this problem has no corner
        exact = stepwell.tikhonov(A, noisy, rule, noise=level, joint=True).lam
        assert abs(np.log(chosen[0][0] / exact[0])) < np.log(1.3)  # a Krylov space, and random probes of a trace


# ---- processes, and the source ----

PROGRAM = """
import sys
import numpy as np, scipy.sparse as sp, stepwell
from mpi4py import MPI
sys.path.insert(0, sys.argv[1])
from spread_operators import SpreadMatrix
comm = MPI.COMM_WORLD
random = np.random.default_rng(5)
A = sp.random(360, 240, 0.04, random_state=1, format="csr", data_rvs=random.standard_normal)
B = random.standard_normal((360, 5))

class Rows:
    rank, size = comm.rank, comm.size
    def allgather(self, row, counts):
        received = np.empty(sum(counts))
        comm.Allgatherv(row, (received, counts))
        return received

spread = SpreadMatrix(A, Rows())
mine = B[spread.rows]
solver = stepwell.ProjectedCG(spread.operator, 1.0, augmented=True, comm=comm)
found = [solver.solve(b, tol=1e-5).iterations for b in mine.T[:2]]
for method in ("pseudo-block", "block"):
    found += stepwell.tikhonov(spread.operator, mine, 1.0, method=method, tol=1e-5, comm=comm).iterations.tolist()
try:
    fail = lambda told: told.iteration == 3 and comm.rank == comm.size - 1 and 1 // 0
    stepwell.tikhonov(spread.operator, mine, 1.0, callback=fail, comm=comm)
    said = "nothing"
except Exception as error:
    said = str(error)
said = comm.gather(said)
if comm.rank == 0:
    print(found, "|", all("integer division" in one for one in said))
"""


@pytest.mark.slow
def test_ranks_of_mpi(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    helpers = str(Path(__file__).parents[1] / "helpers")
    printed = [run_ranks(size, program, helpers).strip().split("|") for size in (1, 2, 3)]
    assert [told.strip() for _, told in printed] == ["True"] * 3
    alone, *spread = (json.loads(steps) for steps, _ in printed)
    for steps in spread:
        assert_about_the_same_steps(steps, alone)
