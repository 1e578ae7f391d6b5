"""The loop that feeds turns to a device, tested without one: PyTorch's CPU arrays and the host engine stand in.

Only the target is replaced. Reading the inputs, the loop with its looks at the state every few turns, the objective in
all its forms, limits, callbacks and results are the code that runs on a GPU.
"""

from __future__ import annotations

import ctypes
import sys

import numpy as np
import pytest
from scipy.optimize import OptimizeWarning

import stepwell
from stepwell import arrays
from stepwell.quasi_newton import api as minimization
from stepwell.quasi_newton import device_inputs, device_objective, optimizer
from stepwell.quasi_newton import device_run as device
from stepwell.quasi_newton.host_target import WHOLE, HostTarget
from stepwell.quasi_newton.results import Status

torch = pytest.importorskip("torch")


def at(address, shape, dtype):
    """View memory by its address, as a kernel would."""
    kind = ctypes.c_double if np.dtype(dtype) == np.float64 else ctypes.c_float
    return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(kind)), shape)


class HostInPlaceOfCuda:
    """What `CudaTarget` does, by the host engine. The host sees the end late, as it does on a device."""

    made: list = []  # noqa: RUF012
    DELAY = 11

    def __init__(
        self, batch, n, dtype, start, bounds, boxed, weights, settings, *, weights_vary, device_id, stream
    ):  # fmt: skip
        self.batch, self.n, self.dtype, self.row_stride = batch, n, np.dtype(dtype), n
        box = None
        if bounds is not None:
            shape = (n,) if bounds[2] else (batch, n)
            box = tuple(at(address, shape, dtype) for address in bounds[:2])
        diagonal = None if weights is None else at(weights[0], (n,) if weights[1] else (batch, n), dtype)
        assert not weights_vary
        self.engine = HostTarget(at(start, (batch, n), dtype), box, diagonal, settings)
        self.late, self.turns, self._values = [batch], 0, []
        HostInPlaceOfCuda.made.append(self)

    def turn(self, gradient, f, f_is_single, stream=None):
        self.turns += 1
        g = at(gradient, (self.batch, self.n), self.dtype)
        values = at(f, (self.batch,), np.float32 if f_is_single else np.float64).astype(np.float64)
        if (self.engine.states["action"] != stepwell._core.ACTION_DONE).any():
            self.engine.turn_all(values, g, WHOLE)
        self.late.append(int(np.count_nonzero(self.engine.states["action"] != stepwell._core.ACTION_DONE)))

    def host_values(self, values):
        self._values.append(np.array(values, dtype=np.float64).reshape(-1))
        return self._values[-1].ctypes.data

    @property
    def running(self):
        return self.late[max(0, len(self.late) - 1 - self.DELAY)]

    @property
    def report(self):
        return self.engine.states[0:1]

    def mark(self):
        return self

    is_done = True

    def sync(self):
        pass

    def wait(self):
        self.late = self.late[-1:]

    def states(self):
        return self.engine.states.copy()

    def write_states(self, states):
        for k in np.flatnonzero(states["action"] != self.engine.states["action"]):
            self.engine.stop(int(k), int(states["status"][k]))
        self.late = [0]

    def show_accepted(self):
        self.engine.trial[...] = self.engine.x

    def array(self, name):
        return torch.from_numpy({"x": self.engine.x, "g": self.engine.gradient}.get(name, self.engine.arrays()[name]))

    def read(self, name):
        return self.engine.arrays()[name]


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    """Take PyTorch's CPU arrays for CUDA arrays, everywhere."""
    claims = lambda a: isinstance(a, torch.Tensor)  # noqa: E731
    for module in (arrays, device_inputs, device_objective, minimization, optimizer):
        monkeypatch.setattr(module, "is_cuda", claims)
    monkeypatch.setattr(arrays, "device_name", lambda a: "cuda:0" if claims(a) else "cpu")
    monkeypatch.setattr(device_inputs, "device_name", arrays.device_name)
    monkeypatch.setattr(device, "CudaTarget", HostInPlaceOfCuda)
    monkeypatch.setattr(device, "current_stream", lambda template: 0)
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
        (high + 1, high): "index 0 are 1.0, 0.0",
        (low * torch.nan, high): "index 0 are nan",
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

    monkeypatch.setattr(device, "capture", cannot)
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

    monkeypatch.setattr(device, "capture", capture)
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
        for door in (stepwell.minimize, stepwell.LBFGSB):
            with pytest.raises(error, match=words):
                door(start) if door is stepwell.LBFGSB else door(chain, start, jac=True)


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
