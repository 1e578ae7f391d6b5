"""The C++ core and host engine on their own, compiled with the sanitizers; numbers are checked against NumPy."""

from __future__ import annotations

import json

import numpy as np
import pytest
from native_programs import MEMORY, POOL, ROOT, THREADS, build_once, output_of
from qn_oracles import EPS, dense_bfgs

HARNESS = [ROOT / "tests/native/engine_check.cpp", ROOT / "src/host/quasi_newton/kernels.cpp", POOL]
pytestmark = pytest.mark.native


def run(program, *parts):
    """The lines of JSON that the program prints."""
    return [json.loads(line) for line in output_of(program, *parts).splitlines()]


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """The harness under AddressSanitizer and UndefinedBehaviorSanitizer."""
    return build_once(tmp_path_factory, HARNESS, ["-O0", *MEMORY])


def test_ldlt_solves_quasi_definite_systems(checked):
    lines = run(checked, "ldlt")
    assert [line["size"] for line in lines] == [2, 4, 10, 32]
    for line in lines:
        a = np.reshape(line["a"], (line["size"], line["size"]))
        x = np.linalg.solve(a, line["b"])
        assert line["sound"]
        # Quasi-definite: LDLᵀ without pivoting is stable (Gill, Saunders, Shinnerl 1996).
        for found in (line["x"], line["x by registers"]):
            assert np.abs(x - found).max() <= 100 * EPS * np.linalg.cond(a) * np.abs(x).max()
        assert line["refused"] == [0, 0, 0]


def test_compact_step_is_that_of_dense_bfgs_on_a_wrapped_ring(checked):
    for line in run(checked, "compact"):
        s, y = (np.reshape(line[name], (-1, line["n"])) for name in "sy")
        b = dense_bfgs(s, y, np.full(line["n"], line["gamma"]))
        d = -np.linalg.solve(b, line["g"])
        assert line["sound"]
        assert np.abs(d - line["d"]).max() <= 100 * EPS * np.linalg.cond(b) * np.abs(d).max()


def test_what_a_walk_crosses_is_taken_out_of_the_sums(checked):
    lines = run(checked, "walk sums")
    assert [(line["crossed"], line["known"], line["known with ties"]) for line in lines] == [
        (0, 1, 0),
        (5, 1, 0),
        (12, 1, 0),
        (40, 0, 0),  # nothing is left but rounding
    ]
    for line in lines[:3]:
        assert np.abs(np.subtract(line["left"], line["wanted"])).max() <= 1000 * EPS


def test_segments_of_the_cauchy_path_with_and_without_curvature(checked):
    outcome = [(line["settled"], line["finite"], line["t"]) for line in run(checked, "settles")]
    assert outcome == [
        (1, 1, 2),  # the minimiser of the parabola lies inside
        (0, 1, 2),  # ... beyond the end
        (1, 1, 2),  # ... at the beginning
        (1, 1, 3),  # ... before it: the slope is positive already
        (1, 1, 0),  # no descent at all
        (0, 1, 0),  # f'' = 0: on to the end of the segment
        (1, 1, 0),  # f'' = 0 and no end: stay
        (0, 1, 2),  # f'' < 0: on
        (1, 1, 2),  # f'' < 0 and no end: stay
        (1, 1, 2),
        (1, 1, 0),
        (1, 1, 1),  # not a number: stay
        (1, 1, 1),
        (1, 1, pytest.approx(1e300)),
    ]


def test_line_searches_end_by_themselves_and_meet_their_conditions(checked):
    lines = run(checked, "search")
    assert len(lines) == 16
    for line in lines:
        assert line["info"] == 1
        assert line["f"] <= line["decrease"] * line["step"] * line["slope0"]
        assert abs(line["slope"]) <= line["curvature"] * abs(line["slope0"])
        assert line["evaluations"] <= 20


def chain_minimum(n, load, bounded):
    """The chain of springs between obstacles by an active-set method (it ends for such matrices), with its matrix."""
    index = np.arange(n)
    pull = load * ((7 * index) % 11 - 4.0)
    matrix = 2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
    x = np.linalg.solve(matrix, pull)
    lower = np.where(index % 7 == 0, 0.25, 0.0)
    upper = np.where(index % 7 == 0, 0.25, 0.3 + 0.1 * (index % 5))
    for _ in range(3 * n if bounded else 0):
        goal = x - (matrix @ x - pull)
        x = np.clip(goal, lower, upper)
        free = (lower < goal) & (goal < upper)
        x[free] = np.linalg.solve(matrix[np.ix_(free, free)], (pull - matrix[:, ~free] @ x[~free])[free])
    if bounded:
        assert np.abs(np.clip(x - (matrix @ x - pull), lower, upper) - x).max() < 1e-14
    return x, matrix


def test_engine_runs_clean_and_finds_the_minimum(checked):
    lines = run(checked, "engine")
    assert len(lines) == 12
    for line in lines:
        assert set(line["status"]) == {1}
        assert line["inside"]
        if line["n"] > 60:
            continue
        x, matrix = chain_minimum(line["n"], 0.02 * len(line["status"]), line["bounded"])
        gtol = 1e-6 if line["bits"] == 64 else 1e-3
        # |x - x*| <= (1 + L)/mu |projected gradient| for eigenvalues of the Hessian between mu and L (Pang 1987).
        values = np.linalg.eigvalsh(matrix)
        limit = (1 + values[-1]) / values[0] * np.sqrt(line["n"]) * gtol
        assert np.linalg.norm(np.array(line["x"]) - x) <= limit
    assert any(max(line["walks"]) > 0 for line in lines)


@pytest.fixture(scope="module")
def raced(tmp_path_factory):
    """The harness under ThreadSanitizer."""
    return build_once(tmp_path_factory, HARNESS, ["-O0", *THREADS])


def test_threads_race_nowhere_and_change_no_bit(raced):
    lines = run(raced, "threads", "pool")
    alone, many = lines[:2], lines[2:4]
    for one, three in zip(alone, many):
        assert (one.pop("threads"), three.pop("threads")) == (1, 3)
        assert one == three
        assert set(one["status"]) == {1}
    pool = lines[4]
    assert pool["jobs"] == 3000
    assert pool["wrong"] == 0
    assert len(set(pool["sums"])) == 1


def test_ranks_that_exchange_sums_take_the_steps_of_one(raced, checked):
    """Between sums and decisions stands an exchange: with pieces of whole chunks or tiles, added by one tree, no bit of
    the run changes, also where a point is absorbed before it is accepted."""
    apart, *ahead = run(raced, "exchange", "ranks")
    assert len(ahead) == 3
    for line in (apart, *ahead, *run(checked, "ranks")):
        assert line["same"]
        assert line["alone"] == line["apart"]
        iterations, _, _, _, walks, _ = line["alone"][:6]
        assert iterations > 10
        assert walks > 0
    assert apart["alone"][5] == 1  # its status
    assert apart["messages"] > 3 * apart["alone"][0]
    assert ahead[0]["messages"] < 3 * ahead[0]["alone"][0] + 10


def test_late_workers_touch_no_later_job(tmp_path_factory):
    program = build_once(tmp_path_factory, [ROOT / "tests/native/pool_check.cpp", POOL], ["-O2"])
    assert run(program) == [0]


def test_a_piece_that_throws_ends_its_job_after_all_others(tmp_path_factory):
    program = build_once(tmp_path_factory, [ROOT / "tests/native/pool_throws.cpp", POOL], ["-g", "-O1", *THREADS])
    assert run(program) == [0]
