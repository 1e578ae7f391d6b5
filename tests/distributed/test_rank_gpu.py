"""One problem over ranks on a GPU: the same bits on any number of them, trouble, a run in a folder."""

from __future__ import annotations

import functools
import json
import time
from pathlib import Path

import numpy as np
import pytest
from device_arrays import on_device, on_host
from device_rank_problems import CASES as MPI_CASES
from device_rank_problems import device_rosenbrock, digest_on_device, solve_on_device, split_whole
from mpi_runner import run_ranks
from rank_problems import CASES, PAIRS, signs, solve_rosenbrock

import stepwell
from stepwell.distributed import RankError, Ranks, part, run_threads

pytestmark = pytest.mark.cuda
PROGRAM = Path(__file__).parents[1] / "helpers" / "device_rank_problems.py"


@functools.cache
def found_on(ranks, **case):
    return digest_on_device(run_threads(ranks, lambda comm: solve_on_device(comm, **case)))


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_bits_do_not_depend_on_the_number_of_ranks(case):
    assert found_on(2, **case) == found_on(3, **case) == found_on(1, **case)


@pytest.mark.parametrize(
    "case",
    [
        {"bounds": "none"},
        {"bounds": "numbers"},
        {"bounds": "lower"},
        {"maxcor": 3},
        {"maxcor": 20},
        {"line_search": "va15"},
        {"history": "float32"},
        {"history": "bfloat16", "dtype": np.float32},
        {"weighted": "callable"},
        {"library": "cupy"},
        {"library": "jax"},
    ],
    ids=str,
)
def test_nor_with_other_settings(case):
    if "library" in case:
        library = pytest.importorskip(case["library"])
        if case["library"] == "jax":
            library.config.update("jax_enable_x64", True)
            if library.default_backend() != "gpu":
                pytest.skip("JAX has no GPU")
    assert found_on(3, **case) == found_on(1, **case)


def test_nor_with_ranks_that_have_no_variables():
    """Six chunks over eight ranks."""
    assert found_on(8) == found_on(1)


@pytest.mark.parametrize("align", [2, 10, 22])
def test_nor_where_chunks_begin_at_odd_places(align):
    """Chunks of 4096, 4100 and 4114 variables: the last two do not begin where eight can be read together."""
    found = [
        run_threads(ranks, lambda comm: solve_on_device(comm, layout=split_whole(PAIRS, comm, align=align)))
        for ranks in (1, 2)
    ]
    assert digest_on_device(found[0]) == digest_on_device(found[1])


@pytest.mark.parametrize("maxcor", [8, 10, 20])
@pytest.mark.parametrize("cauchy", ["exact", "first-interval", "none"])
def test_the_path_is_that_of_ranks_on_the_host(cauchy, maxcor):
    """Sums are taken in another order; in few iterations that is all that differs."""
    device = run_threads(2, lambda comm: solve_on_device(comm, cauchy=cauchy, maxiter=12, maxcor=maxcor))
    host = run_threads(
        2, lambda comm: solve_rosenbrock(comm, cauchy=cauchy, maxiter=12, maxcor=maxcor, cut=split_whole)
    )
    for here, there in zip(device, host):
        assert (here.nit, here.nfev, here.cauchy_walks) == (there.nit, there.nfev, there.cauchy_walks)
        assert here.fun == pytest.approx(there.fun, rel=1e-9)
        np.testing.assert_allclose(on_host(here.x), there.x, atol=1e-6)
        assert here.mode == there.mode == "2 ranks; same bits on any number of ranks"
        assert here.exchanges == there.exchanges


@pytest.mark.parametrize("starts", [None, 3])
def test_a_walk_over_all_bounds_takes_the_exchanges_of_ranks_on_the_host(starts):
    """Lists grow to the same length, and are counted and crossed alike."""
    n = 200_000

    def program(comm, place):
        layout = split_whole(n, comm)
        fun, start, bounds = signs(layout, n, starts, place)
        return stepwell.minimize(fun, start, jac=True, bounds=bounds, comm=layout, options={"maxiter": 3})

    device = [run_threads(ranks, lambda comm: program(comm, functools.partial(on_device, "torch"))) for ranks in (1, 2)]
    assert digest_on_device(device[0]) == digest_on_device(device[1])
    for here, there in zip(device[1], run_threads(2, lambda comm: program(comm, np.array))):
        assert (here.nit, here.nfev, here.cauchy_walks) == (there.nit, there.nfev, there.cauchy_walks)
        assert here.cauchy_walks == 1
        assert here.exchanges == there.exchanges
        np.testing.assert_allclose(on_host(here.x), there.x, atol=1e-8)


@pytest.mark.parametrize("maxcor", [8, 10])
def test_millions_of_variables_have_the_bits_of_one_rank_and_the_path_of_the_single_launch(maxcor):
    """Parts of many spans, blocks of several parts; twice, since copies that arrive late may arrive in time."""
    n = 4_000_000
    centre = on_device("torch", np.sin(np.arange(n)))
    steep = on_device("torch", 10 ** (4 * np.modf(0.6180339887498949 * np.arange(n))[0]))

    def program(comm):
        layout = split_whole(n, "self" if comm is None else comm)
        begin, end = layout

        def fun(x):
            away = x - centre[begin:end]
            gradient = steep[begin:end] * away
            sums = layout.chunk_sums(0.5 * away * gradient)
            return (sums if comm is not None else sums.sum()), gradient

        options = {"maxcor": maxcor, "maxiter": 15, "gtol": 0, "ftol": 0}
        low, high = (on_device("torch", np.full(end - begin, bound)) for bound in (-0.9, 0.7))
        shared = None if comm is None else layout
        start = on_device("torch", np.zeros(end - begin))
        return stepwell.minimize(fun, start, jac=True, bounds=(low, high), comm=shared, options=options)

    single = program(None)
    found = [run_threads(ranks, program) for ranks in (1, 3, 1)]
    assert len({digest_on_device(results) for results in found}) == 1
    alone = found[0][0]
    assert (alone.nit, alone.nfev, alone.cauchy_walks) == (single.nit, single.nfev, single.cauchy_walks)
    assert alone.fun == pytest.approx(single.fun, rel=1e-9)


def test_mpi_processes_have_the_bits_of_threads():
    expected = {name: found_on(1, **case) for name, case in MPI_CASES.items() if name != "cupy"}
    expected["cupy"] = expected["exact"]
    for ranks in (2, 3):
        out = run_ranks(ranks, PROGRAM, timeout=180)
        assert {line["case"]: line["found"] for line in map(json.loads, out.splitlines())} == expected


def test_pieces_of_any_size():
    """Other pieces than those of a layout: the same solution, and bits that repeat."""
    sizes = [7001, 0, 8002, 6997]

    def program(comm):
        begin = sum(sizes[: comm.rank])
        centre = np.sin(np.arange(begin, begin + sizes[comm.rank]))
        there = on_device("torch", centre)
        fun = lambda x: (part(0.5 * ((x - there) ** 2).sum()), x - there)  # noqa: E731
        x0 = on_device("torch", np.zeros(sizes[comm.rank]))
        return stepwell.minimize(fun, x0, jac=True, bounds=(-0.5, 0.75), comm=comm), centre

    for _ in range(2):
        for result, centre in run_threads(4, program):
            assert result.success
            assert result.mode == "4 ranks; same bits for these pieces"
            np.testing.assert_allclose(on_host(result.x), np.clip(centre, -0.5, 0.75), atol=1e-6)


def test_a_rank_without_bounds_takes_part_in_those_of_others():
    def program(comm, whole):
        layout = split_whole(PAIRS, comm, align=2)
        value, start, _, _ = device_rosenbrock(layout)
        begin, end = layout
        half = layout.chunk_length * 2
        inside = np.arange(begin, end) < half
        low, high = np.where(inside, -2.0, -np.inf), np.where(inside, 0.5, np.inf)
        bounds = (on_device("torch", low), on_device("torch", high)) if whole or inside.any() else None
        options = {"ftol": 0, "gtol": 1e-6, "maxiter": 15}
        return stepwell.minimize(value, start, jac=True, bounds=bounds, comm=layout, options=options)

    alone = run_threads(1, lambda comm: program(comm, True))
    apart = run_threads(3, lambda comm: program(comm, False))
    assert digest_on_device(alone) == digest_on_device(apart)


def test_values_of_f_in_all_forms():
    def wrapped(how):
        def wrap(value, layout):
            ranks = Ranks(layout)

            def fun(x):
                chunks, gradient = value(x)
                if how == "part":
                    return part(chunks.sum()), gradient
                total = float(layout.total(ranks, on_host(chunks)[:, None])[0])
                return (total if how == "number" else on_device("torch", np.array(total)).reshape(())), gradient

            return fun

        return wrap

    expected = found_on(1, maxiter=10)
    for how in ("number", "device number"):
        found = run_threads(2, lambda comm: solve_on_device(comm, maxiter=10, fun=wrapped(how)))  # noqa: B023
        assert digest_on_device(found) == expected
    found = run_threads(2, lambda comm: solve_on_device(comm, maxiter=10, fun=wrapped("part")))
    assert found[0].nit == 10
    assert found[0].mode == "2 ranks; same bits for these pieces"


def raised_on(ranks, program):
    """What a program raises on each rank."""

    def told(comm):
        try:
            program(comm)
        except BaseException as error:
            return error
        return None

    return run_threads(ranks, told)


def on_last(number, action):
    def wrap(value, layout):
        calls = 0

        def fun(x):
            nonlocal calls
            calls += 1
            f, g = value(x)
            if calls == number and layout.communicator.rank == layout.communicator.size - 1:
                f, g = action(f, g)
            return f, g

        return fun

    return wrap


def test_an_error_on_one_rank_is_raised_on_all():
    def fail(f, g):
        raise ValueError("no gradient here")

    found = raised_on(3, lambda comm: solve_on_device(comm, fun=on_last(4, fail)))
    assert isinstance(found[2], ValueError)
    for error in found[:2]:
        assert isinstance(error, RankError)
        assert "rank 2: ValueError: no gradient here" in str(error)


@pytest.mark.parametrize(
    ("wrong", "kind", "message"),
    [
        (lambda f, g: (f, g[:-1]), ValueError, "the gradient has shape"),
        (lambda f, g: (f[:-1], g), ValueError, "one value for each of this rank's"),
        (lambda f, g: (f, on_host(g)), TypeError, "on the host"),
    ],
    ids=["gradient", "value", "place"],
)
def test_wrong_returns_of_one_rank(wrong, kind, message):
    found = raised_on(2, lambda comm: solve_on_device(comm, fun=on_last(3, wrong)))
    assert isinstance(found[1], kind)
    assert message in str(found[1])
    assert isinstance(found[0], RankError)


@pytest.mark.parametrize("call", [6, 9])
def test_nan_on_one_rank_is_a_retreat_on_all(call):
    def spoil(f, g):
        g = g.clone()
        g[-1] = float("nan")
        return f, g

    found = [
        digest_on_device(run_threads(ranks, lambda comm: solve_on_device(comm, fun=on_last(call, spoil))))
        for ranks in (1, 3)
    ]
    assert found[0] == found[1]
    assert found[0] != found_on(1)


def test_not_finite_at_the_start():
    def spoil(f, g):
        return f * float("inf"), g

    for result in run_threads(2, lambda comm: solve_on_device(comm, fun=on_last(1, spoil))):
        assert result.reason is stepwell.Status.NONFINITE_START
        assert result.nfev == 1


def test_a_callback_ends_all_ranks_at_the_same_iteration():
    def program(comm):
        points = []

        def callback(intermediate_result):
            points.append(on_host(intermediate_result.x))
            if intermediate_result.nit == 5 and comm.rank == 1:
                raise StopIteration

        result = solve_on_device(comm, callback=callback)
        np.testing.assert_array_equal(points[-1], on_host(result.x))
        return result, len(points)

    for result, calls in run_threads(2, program):
        assert result.reason is stepwell.Status.CALLBACK
        assert (result.nit, calls) == (5, 5)


def test_limits():
    def slow(value, layout):
        def fun(x):
            time.sleep(0.02)
            return value(x)

        return fun

    for result in run_threads(2, lambda comm: solve_on_device(comm, fun=slow, time_limit=0.2, maxiter=1000)):
        assert result.reason is stepwell.Status.TIME_LIMIT
    for result in run_threads(2, lambda comm: solve_on_device(comm, maxfun=7)):
        assert result.reason is stepwell.Status.MAX_EVALUATIONS
        assert result.nfev == 7


def test_a_run_in_a_folder_goes_on_with_other_ranks(tmp_path):
    """Saved on three ranks, taken up by two, by one, and on the host of the same pieces' solution."""

    def begun(comm):
        layout = split_whole(PAIRS, comm, align=2)
        value, start, bounds, _ = device_rosenbrock(layout)
        opt = stepwell.LBFGSB(start, bounds, comm=layout, gtol=1e-6, ftol=0, maxiter=20)
        for _ in range(8):
            opt.tell(*value(opt.x))
        opt.save(tmp_path / "run")
        while not opt.done:
            opt.tell(*value(opt.x))
        return opt.result()

    def taken_up(comm):
        layout = split_whole(PAIRS, comm, align=2)
        value, start, *_ = device_rosenbrock(layout)
        opt = stepwell.LBFGSB.load(tmp_path / "run", layout, like=start[:0])
        while not opt.done:
            opt.tell(*value(opt.x))
        return opt.result()

    expected = digest_on_device(run_threads(3, begun))
    for ranks in (2, 1):
        assert digest_on_device(run_threads(ranks, taken_up)) == expected


def test_the_inverse_hessian_applies_to_pieces():
    def program(comm):
        result = solve_on_device(comm, maxiter=10)
        return on_host(result.hess_inv @ result.jac)

    alone, apart = (np.concatenate(run_threads(ranks, program)) for ranks in (1, 3))
    np.testing.assert_allclose(apart, alone, rtol=1e-8, atol=1e-12 * abs(alone).max())


def test_what_ranks_on_a_gpu_do_not_do_is_refused():
    with pytest.raises(ValueError, match=r"options\['graph'\] is True; allowed: 'auto' or False where comm is given"):
        solve_on_device("self", graph=True)


def test_the_device_times_objective_and_solver():
    (result,) = run_threads(1, lambda comm: solve_on_device(comm, time_objective=True))
    assert 0 < result.seconds["objective"] < result.seconds["total"]
