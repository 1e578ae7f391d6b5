"""Long walks along the Cauchy path on a GPU: the points of the host, in as many sweeps as lists that double need."""

from __future__ import annotations

import numpy as np
import pytest
from device_arrays import on_device, on_host
from rank_problems import signs

import stepwell
from stepwell import LBFGSB
from stepwell.distributed import split

pytestmark = pytest.mark.cuda


def placed(array):
    return on_device("torch", array)


def phases_of(target):
    """How many phases the grid has gone through since the start: the releases of its barrier."""
    control = target._download("control", np.zeros(6, np.uint32))
    return int(control[5]) >> 1


def run_beside_host(n, starts, dtype=np.float64):
    """Run on the device and on the host, point beside point; return the phases of each turn, and the device's run."""
    layout = split(n, "self")
    host_fun, host_start, bounds = signs(layout, n, starts)
    fun, start, _ = signs(layout, n, starts, placed)
    settings = {"gtol": 0.0, "ftol": 0.0, "maxiter": 3}
    host, device = LBFGSB(host_start, bounds, **settings), LBFGSB(start, bounds, **settings)
    turns, before = [], 0
    while not device.done:
        np.testing.assert_allclose(on_host(device.x), host.x, rtol=0, atol=1e-8)
        for opt, function in ((host, host_fun), (device, fun)):
            values, gradient = function(opt.x)
            opt.tell(values.sum(), gradient)
        device._run.target.wait()
        after = phases_of(device._run.target)
        turns.append(after - before)
        before = after
    assert host.done
    assert int(device.state["cauchy_walks"]) == int(host.state["cauchy_walks"]) == 1
    assert int(device.state["held"]) == n
    return turns, device


@pytest.mark.parametrize("n", [12_500, 50_000, 200_000, 800_000])
def test_a_walk_over_all_bounds_takes_sweeps_as_the_logarithm(torch, n):
    """Some twenty lists, as they grow to n / 16, and counts between them, some after a list that was too long.

    Where all lists have 512 breakpoints there are 3 n / 512 sweeps: from 73 to 4,700.
    """
    turns, _ = run_beside_host(n, None)
    assert max(turns) <= 4 * np.log2(n)
    assert sorted(turns)[-2] <= 8


@pytest.mark.parametrize("starts", [1, 3, 40, 900])
def test_ties_that_fit_no_list_and_ties_that_fit_a_later_one(torch, starts):
    turns, _ = run_beside_host(100_000, starts)
    assert max(turns) <= 40 + 8 * min(starts, 100)


def test_a_batch_walks_as_each_alone(torch):
    """A block each, lists in memory of its own: the bits of a lone problem, whose walk is the grid's."""
    n, batch = 20_000, 300
    layout = split(n, "self")
    fun, start, bounds = signs(layout, n, None, placed)

    def together(x):
        found = [fun(row) for row in x]
        values = [torch.as_tensor(value.sum(), device="cuda") for value, _ in found]
        return torch.stack(values), torch.stack([gradient for _, gradient in found])

    starts = torch.stack([start * (1 + k % 3) for k in range(batch)])
    options = {"maxiter": 3, "gtol": 0, "ftol": 0, "graph": False}
    many = stepwell.minimize_batch(together, starts, jac=True, bounds=bounds, options=options)
    for k in (0, 1, 2, batch - 1):
        alone = stepwell.minimize_batch(together, starts[k : k + 1], jac=True, bounds=bounds, options=options)
        assert torch.equal(alone.x[0], many.x[k])
        assert alone.nfev[0] == many.nfev[k]


def test_repeats_bitwise(torch):
    """Blocks list breakpoints in any order; sorted they are the same."""
    runs = [run_beside_host(60_000, None)[1] for _ in range(3)]
    for other in runs[1:]:
        assert torch.equal(other.accepted_point(), runs[0].accepted_point())
        assert other.state["cauchy_time"] == runs[0].state["cauchy_time"]
