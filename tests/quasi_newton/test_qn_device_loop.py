"""The loop that feeds turns to a device, tested without one: PyTorch's CPU arrays and the host engine stand in.

Only the target is replaced. Reading the inputs, the loop with its looks at the state every few turns, the objective in
all its forms, limits, callbacks and results are the code that runs on a GPU.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy.optimize import OptimizeWarning

import stepwell
from stepwell import arrays
from stepwell.quasi_newton import inputs, objective, run, variables
from stepwell.quasi_newton.cuda import windows as cuda_windows
from stepwell.quasi_newton.host_target import HostTarget
from stepwell.quasi_newton.state import WHOLE
from stepwell.quasi_newton.status import Status
from stepwell.quasi_newton.target import Box

torch = pytest.importorskip("torch")


class HostInPlaceOfCuda:
    """What `CudaTarget` does, by the host engine. The host sees the end late, as it does on a device."""

    made: list = []  # noqa: RUF012
    DELAY = 11
    follows = True
    is_done = True  # of a mark

    def __init__(self, start, box, weights, settings, *, weights_vary):
        self.batch, self.n = start.shape
        box = None if box is None else Box(box.lower.numpy(), box.upper.numpy(), box.boxed)
        self.engine = HostTarget(
            start.numpy(), box, None if weights is None else weights.numpy(), settings, weights_vary=weights_vary
        )
        self.late, self.turns = [self.batch], 0
        HostInPlaceOfCuda.made.append(self)

    @property
    def trial(self):
        return torch.from_numpy(self.engine.trial)

    def turn(self, f, g, part=WHOLE):
        self.launch(f, g, part, None)

    def launch(self, f, g, part, stream):
        self.turns += 1
        values = f if isinstance(f, float | np.ndarray) else f.reshape(-1).double().numpy()
        if self.engine.running:
            self.engine.turn(np.broadcast_to(values, (self.batch,)).astype(float), g.numpy(), part)
        self.late.append(self.engine.running)

    @property
    def running(self):
        return self.late[max(0, len(self.late) - 1 - self.DELAY)]

    def mark(self):
        return self

    def played(self):
        pass

    def wait(self):
        self.late = self.late[-1:]

    def states(self):
        self.wait()
        return self.engine.states()

    def stop(self, status):
        self.engine.stop(status)
        self.late = [0]

    def accepted(self, name):
        return torch.from_numpy(self.engine.accepted(name))

    def pairs(self, problem):
        return tuple([torch.from_numpy(row.copy()) for row in rows] for rows in self.engine.pairs(problem))

    def set_diagonal(self, weights, problems):
        self.engine.set_diagonal(weights.numpy(), problems)

    def repeated(self, evaluate, turn, graph, clock):
        return cuda_windows.Windows(self, evaluate, turn, graph, clock)


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    """Take PyTorch's CPU arrays for CUDA arrays, everywhere."""
    claims = lambda a: isinstance(a, torch.Tensor)  # noqa: E731
    for module in (arrays, inputs, objective, variables):
        monkeypatch.setattr(module, "is_cuda", claims)
    for module in (arrays, variables):
        monkeypatch.setattr(module, "device_name", lambda a: "cuda:0" if claims(a) else "cpu")
    on_host = run.make_target

    def make_target(start, box, weights, settings, *, weights_vary, on_device):
        if on_device:
            return HostInPlaceOfCuda(start, box, weights, settings, weights_vary=weights_vary)
        return on_host(start, box, weights, settings, weights_vary=weights_vary, on_device=False)

    monkeypatch.setattr("stepwell.quasi_newton.run.make_target", make_target)
    monkeypatch.setattr(stepwell, "_core", sys.modules["stepwell._core"], raising=False)
    HostInPlaceOfCuda.made.clear()


def chain(x):
    """A convex function that couples neighbours; its minimum is at 1."""
    d = x - 1
    e = d[..., 1:] - d[..., :-1]
    f = (d * d * (1 + d * d)).sum(-1) + 5 * (e * e).sum(-1)
    g = d * (2 + 4 * d * d)
    g[..., 1:] += 10 * e
    g[..., :-1] -= 10 * e
    return f, g


OPTIONS = {"gtol": 1e-9, "ftol": 0, "graph": False}


@pytest.mark.parametrize("bounds", [None, (-1.0, 0.5), (np.full(40, -1.0), np.full(40, 0.5))])
def test_same_bits_as_the_host(bounds):
    start = np.linspace(-1, 0.4, 40)
    expected = stepwell.minimize(lambda x: [v.numpy() for v in chain(torch.tensor(x))], start, jac=True, bounds=bounds,
                                 options=OPTIONS)  # fmt: skip
    found = stepwell.minimize(chain, torch.tensor(start), jac=True, bounds=bounds, options=OPTIONS)
    assert HostInPlaceOfCuda.made[0].turns >= found.nfev  # turns after the end do nothing
    assert np.array_equal(found.x.numpy(), expected.x)
    assert (found.nit, found.nfev, found.reason) == (expected.nit, expected.nfev, expected.reason)
    assert found.mode == "one launch a turn"
    assert set(found.seconds) == {"total", "setup", "objective", "solver"}


def test_bounds_in_every_form():
    start, low, high = torch.zeros(4, 10), torch.full((4, 10), -1.0), torch.linspace(0, 1, 40).reshape(4, 10)
    start, low, high = start.double(), low.double(), high.double()
    flat = lambda x: (chain(x.reshape(-1))[0], chain(x.reshape(-1))[1].reshape(4, 10))  # noqa: E731
    solve = lambda bounds: stepwell.minimize(flat, start, jac=True, bounds=bounds, options=OPTIONS).x  # noqa: E731
    expected = solve((low.numpy(), high.numpy()))
    for bounds in (
        (low, high),
        (-1.0, high),
        (low.reshape(-1), high),
        torch.stack([low.reshape(-1), high.reshape(-1)], 1),
        list(zip(low.reshape(-1).tolist(), high.reshape(-1).tolist())),
    ):
        assert torch.equal(solve(bounds), expected)
    assert torch.equal(solve((None, torch.full_like(high, torch.inf))), solve(None))
    for bounds, words in {
        (low[:2], high): "the lower bounds have shape",
        (high + 1, high): r"lower > upper at index 0 \(1.0 > 0.0\)",
        (low * torch.nan, high): r"the lower bound is nan at index \(?0",
    }.items():
        with pytest.raises(ValueError, match=words):
            solve(bounds)


def test_projection_is_announced_where_the_caller_stands():
    with pytest.warns(OptimizeWarning, match="in 2 of 3 variables") as caught:
        stepwell.minimize(chain, torch.tensor([0.0, 5.0, -5.0]).double(), jac=True, bounds=(-1.0, 1.0), options=OPTIONS)
    assert caught[0].filename == __file__
    with pytest.warns(OptimizeWarning, match="in 1 of 3 variables") as caught:
        stepwell.LBFGSB(torch.tensor([0.0, 5.0, 1.0]).double(), bounds=(-1.0, 1.0))
    assert caught[0].filename == __file__


@pytest.mark.parametrize("value", [float, lambda f: f, lambda f: f.float(), lambda f: f.reshape(1), np.float64])
def test_values_may_be_numbers_or_arrays(value):
    result = stepwell.minimize(lambda x: (value(chain(x)[0]), chain(x)[1]), torch.zeros(9).double(), jac=True)
    assert result.success
    assert float((result.x - 1).abs().max()) < 1e-3


@pytest.mark.parametrize("jac", ["2-point", "3-point"])
def test_differences(jac):
    fun = lambda x: chain(x.reshape(-1))[0]  # noqa: E731
    result = stepwell.minimize(fun, torch.zeros(3, 4).double(), jac=jac, bounds=(-1.0, 0.9))
    assert result.x.shape == (3, 4)
    assert float((result.x - 0.9).abs().max()) < 1e-4
    assert result.nfev == result.njev * (13 if jac == "2-point" else 25)


def test_differences_count_against_the_limit():
    options = {**OPTIONS, "maxfun": 50}
    start = np.linspace(-1, 0.4, 6)
    host = stepwell.minimize(lambda x: chain(torch.tensor(x))[0].numpy(), start, jac="2-point", options=options)
    found = stepwell.minimize(lambda x: chain(x)[0], torch.tensor(start), jac="2-point", options=options)
    batch = stepwell.minimize_batch(lambda x: chain(x)[0], torch.tensor(start)[None], jac="2-point", options=options)
    assert found.reason is host.reason is batch.reason[0] is Status.MAX_EVALUATIONS
    assert found.nfev == host.nfev == batch.nfev[0] < 50 + 7
    assert np.array_equal(found.x.numpy(), host.x)
    assert np.array_equal(batch.x[0].numpy(), host.x)


def test_batch_and_autograd():
    start = torch.rand(5, 8, dtype=torch.float64) / 2
    result = stepwell.minimize_batch(chain_value, start, bounds=(-1.0, 0.7), options=OPTIONS)
    assert float((result.x - 0.7).abs().max()) < 1e-8
    assert result.success.all()
    assert (result.hess_inv(3) @ torch.ones(8, dtype=torch.float64)).shape == (8,)
    diagonal = stepwell.minimize_batch(
        chain, start, jac=True, options=OPTIONS | {"h0": torch.full((5, 8), 0.1, dtype=torch.float64)}
    )
    assert float((diagonal.x - 1).abs().max()) < 1e-8


def chain_value(x):
    d = x - 1
    e = d[..., 1:] - d[..., :-1]
    return (d * d * (1 + d * d)).sum(-1) + 5 * (e * e).sum(-1)


def test_callback_limits_and_stop():
    seen = []

    def callback(intermediate_result):
        seen.append((intermediate_result.nit, float(intermediate_result.x.sum())))
        if intermediate_result.nit == 4:
            raise StopIteration

    result = stepwell.minimize(chain, torch.zeros(30).double(), jac=True, callback=callback, options=OPTIONS)
    assert [nit for nit, _ in seen] == [1, 2, 3, 4]
    assert result.reason is Status.CALLBACK
    assert float(result.x.sum()) == seen[-1][1]
    limited = stepwell.minimize(chain, torch.zeros(30).double(), jac=True, options=OPTIONS | {"time_limit": 1e-9})
    assert limited.reason is Status.TIME_LIMIT


def test_graph_is_tried_where_the_device_waits(monkeypatch):
    tried = []

    def cannot(template, work):
        tried.append(1)
        raise RuntimeError("no capture here")

    monkeypatch.setattr(cuda_windows, "capture", cannot)
    options = OPTIONS | {"graph": "auto"}
    result = stepwell.minimize(chain, torch.zeros(30).double(), jac=True, options=options)
    assert tried == [1]
    assert "not captured: no capture here" in result.mode
    with pytest.raises(RuntimeError, match="cannot be captured: no capture here"):
        stepwell.minimize(chain, torch.zeros(30).double(), jac=True, options=options | {"graph": True})
    monkeypatch.setattr(HostInPlaceOfCuda, "is_done", False)
    result = stepwell.minimize(chain, torch.zeros(30).double(), jac=True, options=options)
    assert len(tried) == 2
    assert "host ahead" in result.mode


def test_captured_windows_replay(monkeypatch):
    """A graph replays the launches; standing in for it, the window is evaluated again."""

    def capture(template, work):
        return lambda: work(0)

    monkeypatch.setattr(cuda_windows, "capture", capture)
    plain = stepwell.minimize(chain, torch.zeros(30).double(), jac=True, options=OPTIONS)
    played = stepwell.minimize(chain, torch.zeros(30).double(), jac=True, options=OPTIONS | {"graph": True})
    assert torch.equal(plain.x, played.x)
    assert "CUDA graph" in played.mode


@pytest.mark.parametrize(
    ("fun", "error", "words"),
    [
        (lambda x: (x.sum(), x.float()), TypeError, "the gradient has dtype"),
        (lambda x: (x.sum(), x[:-1]), ValueError, "the gradient has shape"),
        (lambda x: (x.sum(), x.numpy()), TypeError, "on the host"),
        (lambda x: (x, x), ValueError, "values of shape"),
        (lambda x: (x.sum().int(), x), TypeError, "values of dtype"),
        (lambda x: x.sum(), TypeError, "pair"),
    ],
)
def test_wrong_answers_of_the_objective(fun, error, words):
    with pytest.raises(error, match=words):
        stepwell.minimize(fun, torch.ones(7).double(), jac=True)


def test_wrong_starts():
    for start, error, words in (
        (torch.ones(8).double()[::2], ValueError, "not contiguous"),
        (torch.ones(8).half(), TypeError, "float16"),
        (torch.ones(0).double(), ValueError, "at least one variable"),
        (torch.tensor([1.0, torch.nan]).double(), ValueError, "at index 1"),
    ):
        for call in (stepwell.minimize, stepwell.LBFGSB):
            with pytest.raises(error, match=words):
                call(start) if call is stepwell.LBFGSB else call(chain, start, jac=True)


def test_strided_answers_are_read_right():
    def strided(x):
        f, g = chain(x)
        return torch.stack([f, -f], -1)[..., 0], torch.stack([g, -g], -1)[..., 0]

    start = torch.zeros(3, 6).double()
    plain = stepwell.minimize_batch(chain, start, jac=True, options=OPTIONS)
    assert torch.equal(plain.x, stepwell.minimize_batch(strided, start, jac=True, options=OPTIONS).x)
    opt = stepwell.LBFGSB(start[0], gtol=1e-9, ftol=0)
    while not opt.done:
        opt.tell(*strided(opt.x))
    assert torch.equal(opt.x, plain.x[0])


def test_a_callable_diagonal_is_asked_at_accepted_points_alone():
    """As documented, and as on the host: trial points may lie outside its domain."""
    asked = []

    def h0(x):
        asked.append(x.clone())
        return 1 / (5 + x * x)

    start = torch.linspace(-1, 0.4, 12).double()
    result = stepwell.minimize(chain, start, jac=True, options=OPTIONS | {"h0": h0})
    assert result.success or result.reason is Status.ROUNDING
    assert len(asked) == result.nit + 1 <= result.nfev
    host = stepwell.minimize(
        lambda x: [v.numpy() for v in chain(torch.tensor(x))],
        start.numpy(),
        jac=True,
        options=OPTIONS | {"h0": lambda x: 1 / (5 + x * x)},
    )
    assert np.array_equal(result.x.numpy(), host.x)
