"""Ranks on a GPU without one: the kernel's source on emulated blocks, the host's exchange and decisions."""

from __future__ import annotations

import numpy as np
import pytest
from emulated_device import EmulatedDevice
from rank_problems import rosenbrock_terms, signs

from stepwell import problems
from stepwell.distributed import Ranks, run_threads
from stepwell.distributed.layout import Pieces
from stepwell.quasi_newton.ranks import cuda_target as cuda_rank_target
from stepwell.quasi_newton.ranks.target import RankTarget
from stepwell.quasi_newton.ranks.values import CHUNK_VALUES, SHARE, Value
from stepwell.quasi_newton.settings import Settings
from stepwell.quasi_newton.state import BEGIN, FINISH, STATE_DTYPE
from stepwell.quasi_newton.status import Status
from stepwell.quasi_newton.target import Box

pytestmark = pytest.mark.native


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    return tmp_path_factory.mktemp("kernels"), {}


@pytest.fixture
def device(compiled, monkeypatch):
    return EmulatedDevice(*compiled, monkeypatch)


def pieces_on(n, length, ranks, rank):
    cuts = [-(-n // length) * r // ranks for r in range(ranks + 1)]
    return Pieces(tuple(min(cut * length, n) for cut in cuts), length, rank)


def chunked(values, pieces):
    """One value a chunk of this rank, as an objective on a device returns it: float64 in its memory."""
    return np.add.reduceat(values, pieces.chunk_starts) if values.size else np.zeros(0)


CASES = {
    # iterations, n, chunk length, pairs, dtype, bounds, diagonal, policy, history
    "staged rows": (5, 160, 64, 3, "float64", "arrays", False, "exact", None),
    "parts, tiles of half a span, walks": (3, 300, 264, 9, "float64", "arrays", True, "exact", None),
    "numbers for bounds": (5, 160, 64, 3, "float64", "numbers", False, "first-interval", None),
    "no bounds": (4, 100, 64, 3, "float64", None, True, "exact", None),
    "single precision": (4, 100, 64, 3, "float32", "arrays", False, "none", None),
    "chunks that begin anywhere": (3, 90, 50, 9, "float64", "arrays", False, "exact", None),
    "anywhere, lots, walks": (4, 90, 50, 3, "float32", "arrays", True, "exact", "bfloat16"),
    "anywhere, rows from the ring": (2, 90, 50, 18, "float64", "arrays", False, "exact", None),
    "a diagonal that may vary, walks": (4, 100, 64, 3, "float64", "arrays", "vary", "exact", None),
}


def run_case(name, ranks, make, **more):
    iterations, n, length, m, dtype, kind, weighted, cauchy, history = CASES[name]
    settings = Settings(m=m, gtol=1e-7, ftol=0.0, cauchy=cauchy, history=history, maxiter=iterations)

    def program(comm):
        rank_pieces = pieces_on(n, length, ranks, comm.rank)
        i = np.arange(rank_pieces.begin, rank_pieces.end)
        start = np.where(i % 2 == 0, -1.2, 0.3 + 0.1 * np.sin(i)).astype(dtype)
        upper = np.where(i % 3 == 0, 0.4 + 0.1 * (i % 7), 2.0).astype(dtype)
        box = None
        if kind == "arrays":
            box = Box(np.full(i.size, -2.0, dtype), upper, True)
            start = np.minimum(start, upper)
        elif kind == "numbers":
            box = Box(np.full(1, -2.0, dtype), np.full(1, 0.9, dtype), True)
        weights = (1e-3 * (2 + np.cos(i))).astype(dtype) if weighted else None
        if weighted == "vary":
            weights = weights[None].copy()
        target = make(
            start[None].copy(), box, weights, settings, weights_vary=weighted == "vary", pieces=rank_pieces,
            ranks=Ranks(comm),
        )  # fmt: skip
        turns = 0
        while target.running:
            each, g = rosenbrock_terms(np.array(target.trial[0]))
            f = Value(CHUNK_VALUES, np.nan, chunked(each, rank_pieces))
            more.get("spoil", lambda *_: None)(comm, turns, f, g)
            if weighted == "vary":
                target.turn(f, g, BEGIN)
                target.turn(f, g, FINISH)
            else:
                target.turn(f, g)
            turns += 1
            if turns == more.get("stop_after"):
                target.stop(Status.CALLBACK.value)
        more.get("look", lambda *_: None)(comm, target)
        state = target.states().view(np.uint8).copy().view(STATE_DTYPE)  # with the bytes that have no name
        return np.array(target.accepted("x")), np.array(target.accepted("g")), state, turns

    found = run_threads(ranks, program)
    x, g = (np.concatenate([one[k] for one in found], axis=1) for k in (0, 1))
    states = [one[2] for one in found]
    assert all(state.tobytes() == states[0].tobytes() for state in states)
    return x, g, states[0][0], found[0][3]


@pytest.mark.parametrize("name", CASES)
def test_a_run_on_emulated_devices_is_that_of_host_ranks_and_has_the_bits_of_one(name, device):
    x, g, state, turns = run_case(name, 1, cuda_rank_target.CudaRankTarget)
    host_x, _, host_state, _ = run_case(name, 1, RankTarget)
    # Sums are taken in another order: in few iterations that is all that differs.
    assert int(state["iterations"]) == int(host_state["iterations"]) == CASES[name][0]
    close = 1e-7 if x.dtype == np.float64 else 2e-2
    assert abs(state["f"] - host_state["f"]) <= close * abs(host_state["f"])
    np.testing.assert_allclose(x, host_x, atol=100 * close)
    assert int(state["cauchy_walks"]) > 0 or "walks" not in name
    for ranks in (2, 3) if name == "staged rows" else (2,):
        other_x, other_g, other_state, other_turns = run_case(name, ranks, cuda_rank_target.CudaRankTarget)
        np.testing.assert_array_equal(other_x, x)
        np.testing.assert_array_equal(other_g, g)
        assert other_state.tobytes() == state.tobytes()
        assert other_turns == turns


class Layout:
    """What `signs` asks of a layout, of pieces."""

    def __init__(self, pieces):
        self._pieces = pieces

    def __iter__(self):
        return iter((self._pieces.begin, self._pieces.end))

    def chunk_sums(self, values):
        return chunked(values, self._pieces)


@pytest.mark.parametrize("starts", [None, 4])
def test_a_long_walk_takes_the_exchanges_of_host_ranks_and_has_the_bits_of_one(starts, device):
    """Five times as many breakpoints as the first list has, or ties that fit none of the first."""

    def program(comm, make):
        pieces = pieces_on(5000, 256, comm.size, comm.rank)
        fun, start, bounds = signs(Layout(pieces), 5000, starts)
        ranks, box = Ranks(comm), Box(*(np.full(1, bound) for bound in bounds), True)
        settings = Settings(m=3, gtol=0.0, ftol=0.0, maxiter=3)
        target = make(start[None].copy(), box, None, settings, weights_vary=False, pieces=pieces, ranks=ranks)
        points = []
        while target.running:
            points.append(np.array(target.trial[0]))
            values, gradient = fun(points[-1])
            target.turn(Value(CHUNK_VALUES, np.nan, values), gradient)
        return points, int(target.states()["cauchy_walks"][0]), ranks.exchanges

    def points_of(found):
        return [np.concatenate(pieces) for pieces in zip(*(points for points, *_ in found))]

    there = run_threads(2, lambda comm: program(comm, RankTarget))
    here = run_threads(2, lambda comm: program(comm, cuda_rank_target.CudaRankTarget))
    alone = run_threads(1, lambda comm: program(comm, cuda_rank_target.CudaRankTarget))
    np.testing.assert_allclose(points_of(here), points_of(there), rtol=0, atol=1e-9)
    np.testing.assert_array_equal(points_of(here), points_of(alone))
    for (_, walks, exchanges), (_, host_walks, host_exchanges) in zip(here, there):
        assert walks == host_walks == 1
        assert exchanges == host_exchanges


def test_ranks_without_variables_take_part(device):
    """Three chunks over four ranks."""
    alone = run_case("numbers for bounds", 1, cuda_rank_target.CudaRankTarget)
    many = run_case("numbers for bounds", 4, cuda_rank_target.CudaRankTarget)
    np.testing.assert_array_equal(many[0], alone[0])


def test_a_value_that_is_not_finite_on_one_rank_is_a_retreat_on_all(device):
    def spoil(comm, turn, f, g):
        if turn in (2, 3) and comm.rank == comm.size - 1:
            g[-1] = np.nan

    found = [run_case("staged rows", ranks, cuda_rank_target.CudaRankTarget, spoil=spoil) for ranks in (1, 3)]
    for x, _, state, _ in found:
        assert int(state["evaluations"]) > int(state["iterations"]) + 2
        np.testing.assert_array_equal(x, found[0][0])


def test_not_finite_at_the_start(device):
    def spoil(comm, turn, f, g):
        if comm.rank == 0:
            f.chunks[0] = np.inf

    x, _, state, turns = run_case("no bounds", 2, cuda_rank_target.CudaRankTarget, spoil=spoil)
    assert turns == 1
    assert Status.of(state["status"]) is Status.NONFINITE_START
    n = CASES["no bounds"][1]
    i = np.arange(n)
    np.testing.assert_array_equal(x[0], np.where(i % 2 == 0, -1.2, 0.3 + 0.1 * np.sin(i)))


def test_stopped_at_the_accepted_point_and_shown_as_the_trial(device):
    def look(comm, target):
        np.testing.assert_array_equal(target.trial, target.accepted("x"))

    _, _, state, turns = run_case("staged rows", 2, cuda_rank_target.CudaRankTarget, stop_after=3, look=look)
    assert turns == 3
    assert Status.of(state["status"]) is Status.CALLBACK
    end = run_case("staged rows", 2, cuda_rank_target.CudaRankTarget, look=look)
    assert int(end[2]["iterations"]) == 5


def test_a_run_goes_on_from_its_arrays(device):
    """Saved on two ranks after three turns, taken up by two others: the bits of a run that went through."""
    settings = Settings(m=3, gtol=1e-7, ftol=0.0, maxiter=6)
    problem = problems.get("torsion", nx=12, ny=12)
    upper = np.asarray(problem.bounds[1]).ravel()

    def program(comm):
        pieces = pieces_on(upper.size, 32, comm.size, comm.rank)
        mine = slice(pieces.begin, pieces.end)

        def make(start):
            box = Box(-upper[mine].copy(), upper[mine].copy(), True)
            return cuda_rank_target.CudaRankTarget(
                start.copy(), box, None, settings, weights_vary=False, pieces=pieces, ranks=Ranks(comm)
            )

        def advance(target):
            parts = comm.allgather(
                np.array(target.trial[0]), [b - a for a, b in zip(pieces.borders, pieces.borders[1:])]
            )
            f, g = problem.fun(parts)
            target.turn(Value(SHARE, f / comm.size), np.ascontiguousarray(np.asarray(g).ravel()[mine]))

        whole = make(upper[None, mine])
        for _ in range(3):
            advance(whole)
        saved = {name: np.array(array) for name, array in whole.arrays().items()}
        taken_up = make(np.zeros((1, pieces.end - pieces.begin)))
        taken_up.restore(saved)
        for target in (whole, taken_up):
            while target.running:
                advance(target)
        np.testing.assert_array_equal(whole.accepted("x"), taken_up.accepted("x"))
        assert whole.states()["iterations"][0] == 6
        s, y = whole.pairs(0)
        assert len(s) == len(y) == 3
        assert all(row.shape == (pieces.end - pieces.begin,) for row in s)

    run_threads(2, program)


def test_a_device_that_fails_on_one_rank_ends_all(device):
    """The others wait in the exchange: it goes on there, and raises on all."""
    run_case("staged rows", 1, cuda_rank_target.CudaRankTarget)  # compiled
    device.fail_after(7)

    def program(comm):
        pieces = pieces_on(160, 64, comm.size, comm.rank)
        size = pieces.end - pieces.begin
        box = Box(np.full(size, -2.0), np.full(size, 2.0), True)
        start = np.zeros((1, size))
        target = cuda_rank_target.CudaRankTarget(
            start, box, None, Settings(m=3, gtol=0.0, ftol=0.0), weights_vary=False, pieces=pieces, ranks=Ranks(comm)
        )
        try:
            while target.running:
                each, g = rosenbrock_terms(np.array(target.trial[0]))
                target.turn(Value(SHARE, float(each.sum())), g)
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    found = sorted(run_threads(2, program))
    assert found[1] == "RuntimeError: the device failed in the objective or in a turn: CUDA's error 700"
    assert found[0] in [f"RankError: rank {rank}: {found[1]}" for rank in (0, 1)]
