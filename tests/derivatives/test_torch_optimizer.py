"""``stepwell.torch.LBFGSB`` as an optimizer of PyTorch."""

from __future__ import annotations

import io

import numpy as np
import pytest
from scipy.optimize import OptimizeWarning

torch = pytest.importorskip("torch")

import stepwell.torch  # noqa: E402


def net(dtype=torch.float64):
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(1, 12), torch.nn.Tanh(), torch.nn.Linear(12, 1)).to(dtype)
    t = torch.linspace(-2, 2, 60, dtype=dtype)[:, None]
    return layers, t


def closure_of(layers, t, optimizer, count=None):
    def closure():
        optimizer.zero_grad()
        loss = ((layers(t) - torch.sin(2 * t)) ** 2).mean()
        loss.backward()
        if count is not None:
            count.append(float(loss.detach()))
        return loss

    return closure


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_net_within_bounds(dtype):
    layers, t = net(dtype)
    optimizer = stepwell.torch.LBFGSB(layers.parameters(), bounds=(-2.0, 2.0), max_iter=40)
    seen = []
    closure = closure_of(layers, t, optimizer, seen)
    first = float(optimizer.step(closure).detach())
    assert first == seen[0]
    for _ in range(4):
        before = float(optimizer._loss)
        assert float(optimizer.step(closure).detach()) == before  # the loss that the step began with
    assert min(seen) < 1e-2 * first
    assert max(float(p.detach().abs().max()) for p in layers.parameters()) <= 2
    assert float(closure().detach()) <= first


def test_it_needs_about_as_many_evaluations_as_that_of_torch():
    """On Rosenbrock's function, to the same loss."""

    def evaluations(make, **options):
        x = torch.nn.Parameter(torch.tensor([-1.2, 1.0], dtype=torch.float64))
        optimizer, count = make([x], **options), []

        def closure():
            optimizer.zero_grad()
            loss = (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
            loss.backward()
            count.append(float(loss.detach()))
            return loss

        optimizer.step(closure)
        return next(k for k, loss in enumerate(count) if loss < 1e-8)

    ours = evaluations(stepwell.torch.LBFGSB, max_iter=200)
    theirs = evaluations(torch.optim.LBFGS, max_iter=200, line_search_fn="strong_wolfe")
    assert ours <= 1.25 * theirs + 2


def test_pairs_of_history_by_default_and_as_asked():
    for given, pairs in (({}, 50), ({"bounds": (-1.0, 2.0)}, 10), ({"history_size": 7}, 7)):
        x = torch.nn.Parameter(torch.zeros(4, dtype=torch.float64))
        optimizer = stepwell.torch.LBFGSB([x], **given)

        def closure(x=x, optimizer=optimizer):
            optimizer.zero_grad()
            loss = ((x - 1) ** 2).sum()
            loss.backward()
            return loss

        optimizer.step(closure)
        assert optimizer.state_dict()["run"]["s"].shape == (1, pairs, 4)


def test_groups_differ_in_bounds():
    a, b = (torch.nn.Parameter(torch.zeros(3, dtype=torch.float64)) for _ in range(2))
    upper = torch.tensor([0.1, 0.2, 5.0], dtype=torch.float64)
    optimizer = stepwell.torch.LBFGSB([{"params": [a], "bounds": (None, upper)}, {"params": [b]}])

    def closure():
        optimizer.zero_grad()
        loss = ((a - 1) ** 2).sum() + ((b - 1) ** 2).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    np.testing.assert_allclose(a.detach(), [0.1, 0.2, 1.0], atol=1e-7)
    np.testing.assert_allclose(b.detach(), np.ones(3), atol=1e-7)
    with pytest.raises(RuntimeError, match="from the first step on"):
        optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))]})
    again = optimizer.step(closure)  # of a run that has ended
    assert torch.is_tensor(again)


def test_a_saved_state_goes_on_bit_for_bit():
    layers, t = net()
    optimizer = stepwell.torch.LBFGSB(layers.parameters(), bounds=(-2.0, 2.0), max_iter=7)
    closure = closure_of(layers, t, optimizer)
    optimizer.step(closure)
    file = io.BytesIO()
    torch.save({"model": layers.state_dict(), "optimizer": optimizer.state_dict()}, file)
    optimizer.step(closure)
    wanted = [p.detach().clone() for p in layers.parameters()]
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    other, _ = net()
    resumed = stepwell.torch.LBFGSB(other.parameters(), bounds=(-2.0, 2.0), max_iter=7)
    other.load_state_dict(saved["model"])
    resumed.load_state_dict(saved["optimizer"])
    resumed.step(closure_of(other, t, resumed))
    for mine, theirs in zip(other.parameters(), wanted):
        assert torch.equal(mine.detach(), theirs)


def test_parameters_changed_between_steps_begin_a_new_run():
    x = torch.nn.Parameter(torch.tensor([3.0, 3.0], dtype=torch.float64))
    optimizer = stepwell.torch.LBFGSB([x], max_iter=2)

    def closure():
        optimizer.zero_grad()
        loss = (x**4).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    with torch.no_grad():
        x.fill_(2.0)
    with pytest.warns(OptimizeWarning, match="changed between steps"):
        assert float(optimizer.step(closure).detach()) == 32.0
    bounded = stepwell.torch.LBFGSB([x], bounds=(0.0, 0.5))
    with torch.no_grad():
        x.fill_(2.0)
    with pytest.warns(OptimizeWarning, match="outside the bounds"):
        bounded.step(closure)
    assert (x <= 0.5).all()


def test_errors_name_the_argument():
    def make(*shapes, **options):
        given = [torch.nn.Parameter(torch.zeros(s, dtype=d)) for s, d in shapes or (((2,), torch.float64),)]
        return stepwell.torch.LBFGSB(given, **options)

    for call, error, said in (
        (lambda: make(lr=0.1), ValueError, "lr is 0.1; allowed: 1"),
        (lambda: make(max_iter=0), ValueError, "max_iter is 0"),
        (lambda: make(line_search_fn="armijo"), ValueError, "line_search_fn is 'armijo'"),
        (lambda: make(((2,), torch.float64), ((2,), torch.float32)), TypeError, "the dtype of params is torch.float32"),
        (lambda: make(((2,), torch.float16)), TypeError, "params is torch.float16"),
        (lambda: make(bounds=3.0), TypeError, "bounds is 3.0"),
        (lambda: make(bounds=[None, None]), ValueError, "bounds is .*a list of 1"),
        (lambda: make(bounds=(torch.zeros(3), 1.0)), ValueError, r"bounds has shape \(3,\)"),
        (lambda: make().step(), TypeError, "closure is None"),
    ):
        with pytest.raises(error, match=said):
            call()
