"""Trouble on one rank is trouble on all of them: at the same evaluation, with the same outcome, and nobody waits."""

from __future__ import annotations

import copy
import gc
import pickle
import time
import weakref

import numpy as np
import pytest
from rank_problems import digest_of, rosenbrock, solve_rosenbrock

import stepwell
from stepwell import LBFGSB, Status
from stepwell.distributed import RankError, part, run_threads, split

RANKS = 3
BAD = RANKS - 1


def outcomes(program):
    """Return, for each rank, what a program returns or raises."""

    def caught(comm):
        try:
            return program(comm)
        except Exception as error:
            return error

    return run_threads(RANKS, caught)


def spoiled(comm, spoil, at):
    """Return a wrapper of the function that spoils its values on one rank, at some evaluations."""

    def wrap(value, layout):
        calls = 0

        def fun(x):
            nonlocal calls
            calls += 1
            f, g = value(x)
            return spoil(f, g) if comm.rank == BAD and calls in at else (f, g)

        return fun

    return wrap


def fail(f, g):
    raise ValueError(f"no gradient here, at {g.size}")


def test_an_objective_that_raises_on_one_rank():
    evaluations = [0] * RANKS

    def program(comm):
        def wrap(value, layout):
            def fun(x):
                evaluations[comm.rank] += 1
                if evaluations[comm.rank] == 8 and comm.rank == BAD:
                    raise ValueError("no gradient here")
                return value(x)

            return fun

        return solve_rosenbrock(comm, fun=wrap)

    found = outcomes(program)
    assert evaluations == [8] * RANKS
    assert [type(error) for error in found] == [RankError, RankError, ValueError]
    assert str(found[0]) == f"rank {BAD}: ValueError: no gradient here"
    assert found[0].rank == BAD


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda f, g: (f[:-1], g), "fun returned values of shape"),
        (lambda f, g: (f, g[:-1]), "the gradient has shape"),
        (lambda f, g: 3.0, "with jac=True it must return a pair"),
    ],
)
def test_a_wrong_shape_on_one_rank(spoil, text):
    found = outcomes(lambda comm: solve_rosenbrock(comm, fun=spoiled(comm, spoil, {4})))
    assert all(isinstance(error, Exception) and text in str(error) for error in found), found


def test_a_callback_that_raises_on_one_rank():
    def program(comm):
        def callback(intermediate_result):
            if intermediate_result.nit == 7 and comm.rank == 1:
                raise KeyError("mine")

        return solve_rosenbrock(comm, callback=callback)

    found = outcomes(program)
    assert [type(error) for error in found] == [RankError, KeyError, RankError]
    assert str(found[0]) == "rank 1: KeyError: 'mine'"


def test_a_callback_that_raises_at_the_last_iteration():
    def program(comm):
        def callback(intermediate_result):
            if intermediate_result.nit == 9 and comm.rank == 1:
                raise KeyError("mine")

        return solve_rosenbrock(comm, callback=callback, maxiter=9)

    assert [type(error) for error in outcomes(program)] == [RankError, KeyError, RankError]


def test_stop_iteration_on_one_rank_ends_all_at_that_iteration():
    seen = [[] for _ in range(RANKS)]

    def program(comm):
        def callback(intermediate_result):
            seen[comm.rank].append((intermediate_result.nit, intermediate_result.nfev, intermediate_result.fun))
            if intermediate_result.nit == 11 and comm.rank == 1:
                raise StopIteration

        return solve_rosenbrock(comm, callback=callback)

    found = run_threads(RANKS, program)
    assert {(r.nit, r.reason) for r in found} == {(11, Status.CALLBACK)}
    assert seen[0] == seen[1] == seen[2]
    assert [nit for nit, *_ in seen[0]] == list(range(1, 12))
    assert seen[0][-1][1:] == (found[0].nfev, found[0].fun)  # no evaluation in vain
    alone = solve_rosenbrock("self", maxiter=11)
    np.testing.assert_array_equal(np.concatenate([r.x for r in found]), alone.x)


def test_a_time_limit_is_that_of_the_fastest_clock(monkeypatch):
    """One rank's clock runs twice as fast."""
    real = time.perf_counter

    def clock(comm):
        import threading

        return real() * (2 if threading.current_thread().name == "fast" else 1)

    monkeypatch.setattr(time, "perf_counter", lambda: clock(None))

    def program(comm):
        import threading

        threading.current_thread().name = "fast" if comm.rank == 1 else "slow"

        def wrap(value, layout):
            def fun(x):
                time.sleep(0.01)
                return value(x)

            return fun

        return solve_rosenbrock(comm, fun=wrap, time_limit=0.5, maxiter=1000)

    found = run_threads(RANKS, program)
    assert {r.reason for r in found} == {Status.TIME_LIMIT}
    assert len({(r.nit, r.nfev) for r in found}) == 1
    assert found[0].nfev <= 27  # a quarter of a second by the fast clock, and one evaluation more


def test_a_time_limit_within_a_search():
    """A search that goes on and on ends at the evaluation after the one during which time was up."""

    def program(comm):
        def wrap(value, layout):
            def fun(x):
                time.sleep(0.03)
                f, _ = value(x)
                return f - 1e3 * x.sum() / layout.chunks, -1e3 * np.ones_like(x)  # downhill for ever

            return fun

        return solve_rosenbrock(comm, fun=wrap, bounded=False, time_limit=0.1, maxls=200)

    found = run_threads(RANKS, program)
    assert {r.reason for r in found} == {Status.TIME_LIMIT}
    assert found[0].nfev < 10


def test_a_gradient_that_is_not_finite_on_one_rank_is_a_retreat_on_all():
    def poison(f, g):
        g[3] = np.nan
        return f, g

    at = {5, 6, 15}
    found = [
        digest_of(run_threads(ranks, lambda comm: solve_rosenbrock(comm, fun=on_last(comm, poison, at))))
        for ranks in (1, 2, 3)
    ]
    assert len(set(found)) == 1
    assert found[0] != digest_of([solve_rosenbrock("self")])


def on_last(comm, spoil, at):
    """Return a wrapper that spoils on whichever rank has the last variables."""

    def wrap(value, layout):
        calls = 0

        def fun(x):
            nonlocal calls
            calls += 1
            f, g = value(x)
            return spoil_last(f, g) if calls in at and layout.end == layout.n and x.size else (f, g)

        def spoil_last(f, g):
            g[-3] = np.nan
            return f, g

        return fun

    return wrap


def test_a_start_that_is_not_finite_on_one_rank():
    found = outcomes(lambda comm: solve_rosenbrock(comm, fun=spoiled(comm, lambda f, g: (f * np.nan, g), {1})))
    assert {(r.reason, r.nfev) for r in found} == {(Status.NONFINITE_START, 1)}


def whole_value(comm, value_of):
    def wrap(value, layout):
        return lambda x: (value_of(comm), value(x)[1])

    return wrap


@pytest.mark.parametrize(
    ("value_of", "text"),
    [
        (lambda comm: 1.0 + (comm.rank == 1), "fun returned 1.0 on rank 0 and 2.0 on rank 1; allowed: the same value"),
        (
            lambda comm: part(1.0) if comm.rank == BAD else 1.0,
            f"fun returned a number on rank 0 and a part on rank {BAD}; allowed: the same kind",
        ),
    ],
)
def test_values_that_ranks_do_not_agree_on(value_of, text):
    found = outcomes(lambda comm: solve_rosenbrock(comm, fun=whole_value(comm, value_of)))
    assert all(isinstance(error, ValueError) and text in str(error) for error in found), found


def test_a_value_that_is_not_finite_on_one_rank_alone():
    found = outcomes(lambda comm: solve_rosenbrock(comm, fun=whole_value(comm, lambda c: 1.0 if c.rank else np.inf)))
    assert {r.reason for r in found} == {Status.NONFINITE_START}


# ---- before a run ----


@pytest.mark.parametrize(
    ("different", "text"),
    [
        ({"gtol": 0.5}, "gtol is 1e-06 on rank 0 and 0.5 on rank 1; allowed: the same on all"),
        ({"maxcor": 7}, "maxcor is 10 on rank 0 and 7 on rank 1; allowed: the same on all"),
        ({"line_search": "va15"}, "line_search is 'lbfgsb' on rank 0 and 'va15' on rank 1"),
        ({"maxls": 5}, "maxls is 20 on rank 0 and 5 on rank 1"),
        ({"weighted": True}, "h0 is 'none' on rank 0 and 'an array' on rank 1; allowed: the same on all"),
        ({"dtype": np.float32}, "the dtype of x0 is 'float64' on rank 0 and 'float32' on rank 1"),
        ({"gtol": -1}, "gtol is -1; allowed: a finite number of at least 0"),
    ],
)
def test_arguments_that_differ_between_ranks(different, text):
    found = outcomes(lambda comm: solve_rosenbrock(comm, **different if comm.rank == 1 else {}))
    assert all(isinstance(error, Exception) and text in str(error) for error in found), found


def test_bounds_that_are_wrong_on_one_rank():
    def program(comm):
        bounds = (0.0, -1.0) if comm.rank == 1 else (0.0, 1.0)
        return stepwell.minimize(lambda x: (part(0.0), x), np.zeros(10), jac=True, bounds=bounds, comm=comm)

    found = outcomes(program)
    assert all("bounds: lower > upper at index 0" in str(error) for error in found)


def test_bounds_on_one_rank_are_bounds_of_the_run():
    """Ranks without bounds of their own take part in the Cauchy point of the others."""
    n = 12_000

    def program(comm, low, high):
        layout = split(n, comm)
        piece = slice(*layout)
        centre = np.linspace(-1, 1, n)[piece]

        def value(x):
            far = x - centre
            return layout.chunk_sums(far**2 + far**4), 2 * far + 4 * far**3

        bounds = (low[piece], high[piece])
        if not (np.isfinite(bounds[0]) | np.isfinite(bounds[1])).any():
            bounds = None
        return stepwell.minimize(value, np.zeros(centre.size), jac=True, bounds=bounds, comm=layout)

    low, high = np.full(n, -np.inf), np.full(n, np.inf)
    high[-1000:] = 0.1
    found = [run_threads(ranks, lambda comm: program(comm, low, high)) for ranks in (1, 3)]
    assert digest_of(found[0]) == digest_of(found[1])


@pytest.mark.parametrize("jac", [None, "2-point", False])
def test_gradients_must_be_given(jac):
    found = outcomes(lambda comm: stepwell.minimize(lambda x: part(0.0), np.zeros(3), jac=jac, comm=comm))
    assert all(
        isinstance(error, ValueError) and "True or a callable where comm is given" in str(error) for error in found
    )


def test_a_piece_of_another_size_than_the_layout():
    found = outcomes(lambda comm: stepwell.minimize(len, np.zeros(5), jac=True, comm=split(9, comm)))
    assert {str(error) for error in found} == {"x0 has 5 variables on rank 0; allowed: 0, as the layout says"}


def test_no_variables_at_all():
    found = outcomes(lambda comm: stepwell.minimize(len, np.zeros(0), jac=True, comm=comm))
    assert {str(error) for error in found} == {"x0 has no variable on any rank; allowed: at least one variable"}


def test_batches_are_dealt_out_instead():
    with pytest.raises(ValueError, match="comm is 'self'; allowed: None: deal the problems out"):
        stepwell.minimize_batch(len, np.zeros((2, 3)), comm="self")


# ---- reverse communication ----


def test_a_rank_that_has_decided_otherwise_is_found():
    """One number of its state is off by one unit in the last place, as on a processor of another kind."""

    def program(comm):
        layout = split(22_000, comm, align=2)
        value, start, bounds, _ = rosenbrock(layout)
        opt = LBFGSB(start, bounds, comm=layout, threads=1)
        for turn in range(9):
            if turn == 5 and comm.rank == 1:
                opt.state["gamma"] = np.nextafter(opt.state["gamma"], 1)
            opt.tell(*value(opt.x))

    found = outcomes(program)
    assert all(isinstance(error, RankError) and "ranks disagree: ranks 0 and 1" in str(error) for error in found), found


def test_telling_what_cannot_be_read_leaves_a_run_that_goes_on():
    def program(comm):
        layout = split(22_000, comm, align=2)
        value, start, bounds, _ = rosenbrock(layout)
        opt = LBFGSB(start, bounds, comm=layout, threads=1)
        for turn in range(9):
            f, g = value(opt.x)
            if turn == 6:
                with pytest.raises((ValueError, RankError), match="g has shape"):
                    opt.tell(f, g[1:] if comm.rank == 1 else g)
            opt.tell(f, g)
        return opt.result()

    assert digest_of(run_threads(RANKS, program)) == digest_of(run_threads(1, program_without_trouble))


def program_without_trouble(comm):
    layout = split(22_000, comm, align=2)
    value, start, bounds, _ = rosenbrock(layout)
    opt = LBFGSB(start, bounds, comm=layout, threads=1)
    for _ in range(9):
        opt.tell(*value(opt.x))
    return opt.result()


def test_a_time_limit_of_an_optimizer():
    def program(comm):
        layout = split(22_000, comm, align=2)
        value, start, bounds, _ = rosenbrock(layout)
        opt = LBFGSB(start, bounds, comm=layout, threads=1, time_limit=0.05)
        while not opt.done:
            time.sleep(0.01)
            opt.tell(*value(opt.x))
        return opt.result()

    assert {r.reason for r in run_threads(RANKS, program)} == {Status.TIME_LIMIT}


# ---- what a result holds ----


def test_products_with_the_inverse_hessian_on_pieces():
    alone = solve_rosenbrock("self", maxcor=5, weighted=True)
    v = np.sin(np.arange(22_000.0))

    def program(comm):
        r = solve_rosenbrock(comm, maxcor=5, weighted=True)
        piece = slice(*split(22_000, comm, align=2))
        before = r.hess_inv._ranks.exchanges
        products = [r.hess_inv @ v[piece], r.hess_inv.matvec(v[piece])]
        assert r.hess_inv._ranks.exchanges - before == 3 * (comm.size > 1)  # one each, and one for the small matrices
        np.testing.assert_array_equal(*products)
        for refused in (r.hess_inv.todense, lambda: pickle.dumps(r.hess_inv)):
            with pytest.raises(TypeError, match="of a run over ranks"):
                refused()
        assert f"rank {comm.rank}>" in repr(r.hess_inv)
        return products[0]

    found = [np.concatenate(run_threads(ranks, program)) for ranks in (2, 3)]
    np.testing.assert_array_equal(*found)
    expected = alone.hess_inv @ v
    # The two-loop recursion and the compact form round differently: R has a condition number of a few thousand.
    np.testing.assert_allclose(found[0], expected, atol=1e-10 * np.abs(expected).max())


def test_products_of_pieces_of_wrong_sizes_are_refused_on_all_ranks():
    def program(comm):
        r = solve_rosenbrock(comm, maxiter=3)
        return r.hess_inv @ np.zeros(r.x.size + (comm.rank == 1))

    found = outcomes(program)
    assert all("v has shape" in str(error) for error in found)


def test_an_optimizer_over_ranks_is_not_copied():
    opt = LBFGSB(np.zeros(3), comm="self")
    for copied in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled: it holds a communicator; allowed: save and load"):
            copied(opt)


def test_arrays_over_ranks_as_pylops_mpi_has_them():
    class Distributed:
        def __init__(self, local, comm):
            self.local_array, self.base_comm = local, comm

    def program(comm):
        layout = split(22_000, comm, align=2)
        value, start, (lower, upper), _ = rosenbrock(layout)
        spread = [Distributed(array, comm) for array in (start, lower, upper)]

        def fun(x):
            f, g = value(x)
            return part(f.sum()), Distributed(g, comm)

        return stepwell.minimize(fun, spread[0], jac=True, bounds=tuple(spread[1:]), options={"maxiter": 5})

    found = run_threads(2, program)
    assert found[0].nit == 5
    assert found[0].mode.startswith("2 ranks")


def test_torch_tensors_on_the_host():
    torch = pytest.importorskip("torch")

    def program(comm):
        layout = split(22_000, comm, align=2)
        value, start, bounds, _ = rosenbrock(layout)

        def fun(x):
            f, g = value(x.numpy())
            return f, torch.from_numpy(g)

        options = {"ftol": 0, "gtol": 1e-6, "maxiter": 25, "threads": 1}
        return stepwell.minimize(fun, torch.from_numpy(start), jac=True, bounds=bounds, comm=layout, options=options)

    found = run_threads(2, program)
    assert isinstance(found[0].x, torch.Tensor)
    assert digest_of(found) == digest_of([solve_rosenbrock("self")])


def test_only_the_first_rank_prints(capfd):
    run_threads(3, lambda comm: solve_rosenbrock(comm, maxiter=2, verbose=1))
    assert capfd.readouterr().out.count("projected gradient") == 1


def test_a_checkpoint_of_minimize_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"checkpoint is .*; allowed: None where comm is given"):
        stepwell.minimize(len, np.zeros(3), jac=True, comm="self", checkpoint=tmp_path / "run.ckpt")


def test_a_run_is_let_go_when_its_results_are():
    """Engine, exchange and target hold each other in no circle that nobody sees."""
    kept = []

    def program(comm):
        layout = split(22_000, comm, align=2)
        value, start, bounds, _ = rosenbrock(layout)
        opt = LBFGSB(start, bounds, comm=layout, threads=1)
        opt.tell(*value(opt.x))
        kept.append(weakref.ref(opt._run.target))

    run_threads(2, program)
    gc.collect()
    assert [target() for target in kept] == [None, None]
