"""Linear systems whose unknowns and equations lie over ranks: one answer, few messages, no hang."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from mpi_runner import run_ranks
from spread_operators import SpreadMatrix, gathered

import stepwell
from stepwell import LinearStatus
from stepwell.distributed import RankError, run_threads
from stepwell.krylov.kept import KeptBlocks
from stepwell.krylov.projected import conjugacy_error
from stepwell.krylov.reductions import Sums

random = np.random.default_rng(5)
M, N, K = 360, 240, 5
A = sp.random(M, N, 0.04, random_state=1, format="csr", data_rvs=random.standard_normal)
L = sp.diags([np.ones(N), -np.ones(N - 1)], offsets=[0, 1], format="csr")
B = random.standard_normal((M, K))
B[:, 1] = B[:, 0] + 1e-3 * B[:, 2]
#: A tolerance that is reached before rounding errors have grown far.
LAM, TOL = 1.0, 1e-5
EXACT = np.linalg.solve((A.T @ A).toarray() + LAM**2 * np.eye(N), A.T @ B)
#: Error of x for a residual of TOL: the condition of AᵀA + λ² times it.
CONDITION = np.linalg.cond((A.T @ A).toarray() + LAM**2 * np.eye(N))


def on_ranks(size, program, **options):
    """Run a program of a communicator and a spread A on ranks that are threads."""
    return run_threads(size, lambda comm: program(comm, SpreadMatrix(A, comm)), **options)


def solved(comm, spread, method, b=B, **options):
    """Solve on one rank of many; return the whole of x beside this rank's result."""
    result = stepwell.tikhonov(spread.operator, b[spread.rows], LAM, method=method, tol=TOL, comm=comm, **options)
    return gathered(comm, result.x.reshape(-1, b.shape[1]), N), result


def assert_about_the_same_steps(found, expected):
    """Sums over other pieces are rounded otherwise, which may decide about a step, or one in a hundred of many."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert np.all(np.abs(found - expected) <= 1 + 0.01 * expected), (found, expected)


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
    steps = [int(alone.solve(b, tol=TOL).iterations[0]) for b in near.T]

    def program(comm, spread):
        solver = stepwell.ProjectedCG(spread.operator, LAM, augmented=augmented, comm=comm)
        results = [solver.solve(b[spread.rows], tol=TOL) for b in near.T]
        with pytest.raises(ValueError, match=r"comm is .*; allowed: None, to save"):
            solver.save("nowhere.npz")
        with pytest.raises(ValueError, match=r"checkpoint is 'nowhere.npz'; allowed: None with comm"):
            stepwell.ProjectedCG(spread.operator, LAM, checkpoint="nowhere.npz", comm=comm)
        assert conjugacy_error(solver) < 1e-10
        return [int(result.iterations[0]) for result in results], solver.directions

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
    level = np.full(2, 0.5 * M**0.5)

    def program(comm, spread):
        options = dict(noise=level, joint=True, tol=1e-6, comm=comm)
        return stepwell.tikhonov(spread.operator, noisy[spread.rows], rule, **options).lam

    chosen = [lam for size in (1, 3) for lam in on_ranks(size, program)]
    for lam in chosen:
        np.testing.assert_allclose(lam, chosen[0], rtol=1e-5)  # the minimiser of a function known to rounding
    if rule != "lcurve":  # of which this problem has no corner
        exact = stepwell.tikhonov(A, noisy, rule, noise=level, joint=True).lam
        assert abs(np.log(chosen[0][0] / exact[0])) < np.log(1.3)  # a Krylov space, and random probes of a trace


def test_random_vectors_do_not_depend_on_the_pieces():
    sizes = (9000, 1, 0, 5000)

    def program(comm):
        sums = Sums(comm)
        (extent,) = sums.extents(sizes[comm.rank] if comm.size > 1 else sum(sizes))
        return sums.random_rows("normal", extent, 2)

    whole, pieces = run_threads(1, program), run_threads(4, program)
    np.testing.assert_array_equal(np.concatenate(pieces), whole[0])


# ---- messages ----


def messages(comm, spread, method):
    """Messages an iteration of one solve, without those before and after: by two runs of different lengths."""
    counted = []
    for limit in (20, 30):
        sums = Sums(comm)
        made = []

        def exchange(row, *rest, ranks=sums.ranks, inner=sums.ranks.exchange, made=made, **options):
            made.append(row.size)
            return inner(row, *rest, **options)

        sums.ranks.exchange = exchange
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("stepwell.krylov.calls.Sums", lambda comm, sums=sums: sums)
            right = B[spread.rows] if method != "aprcg" else B[spread.rows, :1]
            stepwell.tikhonov(spread.operator, right, LAM, method=method, maxiter=limit, tol=1e-14, comm=comm)
        counted.append(len(made))
    return (counted[1] - counted[0]) / 10


@pytest.mark.parametrize(("method", "expected"), [("pseudo-block", 2), ("block", 4), ("aprcg", 4)])
def test_messages_an_iteration(method, expected):
    (found,) = run_threads(1, lambda comm: messages(comm, SpreadMatrix(A, comm), method))
    assert found == expected


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
found = [int(solver.solve(b, tol=1e-5).iterations[0]) for b in mine.T[:2]]
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


def test_ranks_of_mpi(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    helpers = str(Path(__file__).parents[1] / "helpers")
    printed = [run_ranks(size, program, helpers).strip().split("|") for size in (1, 2, 3)]
    assert [told.strip() for _, told in printed] == ["True"] * 3
    alone, *spread = (json.loads(steps) for steps, _ in printed)
    for steps in spread:
        assert_about_the_same_steps(steps, alone)


#: Files and functions that are not spread over ranks, and a name of a small matrix.
NOT_SPREAD = {"direct.py", "reductions.py"}
NOT_SPREAD_FUNCTIONS = {"_take_up", "_exact", "diagonal_pencil"}
SMALL = {"turn"}


def raw_sums(source):
    """Lines that sum over the long axis of an array otherwise than by `Sums`."""
    found = []
    waiting = [ast.parse(source)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef) and node.name in NOT_SPREAD_FUNCTIONS:
            continue
        waiting += ast.iter_child_nodes(node)
        called = getattr(node.func, "attr", "") if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            left = node.left
            if isinstance(left, ast.Attribute) and left.attr == "T" and getattr(left.value, "id", "") not in SMALL:
                found.append((node.lineno, "a product with a transpose"))
        elif called in ("einsum", "vector_norm", "norm", "vdot", "dot"):
            found.append((node.lineno, called))
        elif isinstance(node, ast.Name | ast.alias):
            name = node.id if isinstance(node, ast.Name) else node.name
            if name in ("column_dots", "column_norms", "rows_times", "inner_products"):
                found.append((node.lineno, name))
    return found


def test_what_is_looked_for_is_found():
    sources = (
        "x = P.T @ Q",
        "np.einsum('ij,ij->j', P, Q)",
        "from stepwell.arrays import column_dots",
        "np.linalg.norm(x)",
    )
    assert all(raw_sums(source) for source in sources)


def test_sums_over_long_axes_are_taken_in_one_place():
    package = Path(__file__).parents[2] / "src" / "stepwell" / "krylov"
    wrong = [
        f"{path.name}:{line}: {what}"
        for path in sorted(package.glob("*.py"))
        if path.name not in NOT_SPREAD
        for line, what in raw_sums(path.read_text())
    ]
    assert wrong == []


def test_bounds_are_refused_by_name():
    def program(comm, spread):
        with pytest.raises((ValueError, RankError)) as caught:
            stepwell.tikhonov(spread.operator, B[spread.rows], LAM, bounds=(0, None), comm=comm)
        return str(caught.value)

    for said in on_ranks(2, program, timeout=20):
        assert "bounds is (0, None); allowed: None with comm" in said
