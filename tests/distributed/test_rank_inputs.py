"""What ranks hand in: values, bounds and arguments that must agree, arrays of other libraries, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from rank_problems import digest_of, rosenbrock, solve_rosenbrock
from rank_trouble import BAD, outcomes

import stepwell
from stepwell import Status
from stepwell.distributed import part, run_threads, split


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


def test_a_checkpoint_of_minimize_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"checkpoint is .*; allowed: None where comm is given"):
        stepwell.minimize(len, np.zeros(3), jac=True, comm="self", checkpoint=tmp_path / "run.ckpt")
