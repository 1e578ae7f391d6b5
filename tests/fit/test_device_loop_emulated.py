"""The loop of fits on a device with the kernels' own source on emulated blocks: memory is the host's."""

from __future__ import annotations

import ctypes
import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from native_programs import ROOT, build
from simulated_fits import Decays, decay

import stepwell
from stepwell.api import fit as api_fit
from stepwell.arrays import device_address
from stepwell.fit import device_arguments, device_loop

pytestmark = pytest.mark.native

KERNELS = ("fit_begin", "fit_sums", "fit_decide", "fit_offsets", "fit_pick", "fit_ends")
P = Decays(300, seed=4)
OPTIONS = dict(loss="linear", uncertainty="covariance", progress=None)


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    """Return a function from a scalar type to the kernels compiled for it."""
    pytest.importorskip("resource", reason="no ucontext.h outside Unix")
    made = {}

    def of(scalar):
        if scalar not in made:
            flags = ["-O1", "-shared", "-fPIC", f"-DSW_SCALAR={scalar}", "-DSW_PARAMETERS=4"]
            folder = tmp_path_factory.mktemp("fit_turn")
            made[scalar] = ctypes.CDLL(str(build(folder, [ROOT / "tests/native/fit_turn_device.cpp"], flags)))
        return made[scalar]

    return of


class Memory:
    """What `DeviceMemory` is, of the host; arrays hold what nobody wrote."""

    def __init__(self, template):
        self.template, self.device_id, self.follows = template, 0, Memory.follows
        self.kept = []

    def make_current(self):
        pass

    def stream(self):
        return 0

    def several(self, wanted):
        return {name: None if one is None else self.empty(*one) for name, one in wanted.items()}

    def empty(self, shape, dtype):
        values = np.full(shape, np.nan if "float" in dtype else -77, dtype)
        found = self._there(values)
        self.kept.append(found)
        return found

    def _there(self, values):
        if hasattr(self.template, "data_ptr"):
            import torch

            return torch.from_numpy(values)
        import jax

        return jax.device_put(np.array(values), may_alias=False).block_until_ready()

    def upload(self, data):
        return self._there(np.frombuffer(data, np.uint8).copy())

    def address(self, array):
        return 0 if array is None else device_address(array)

    def wait(self, stream):
        pass

    def done(self, stream, used):
        used.clear()


class Pinned:
    def __init__(self, size):
        self._bytes = ctypes.create_string_buffer(size)
        self.handle = ctypes.addressof(self._bytes)


@pytest.fixture
def emulated(libraries, monkeypatch):
    launched = []

    def load_kernel(name, entry, defines, device_id):
        assert name == "fit_turn"
        assert defines["SW_PARAMETERS"] == 4
        return libraries(defines["SW_SCALAR"]), KERNELS.index(entry)

    def launch(kernel, blocks, threads, stream, *arguments):
        library, number = kernel
        launched.append(number)
        plain = [ctypes.addressof(one) if isinstance(one, ctypes.Structure) else one for one in arguments]
        library.emulated_launch(number, blocks, threads, (ctypes.c_uint64 * len(plain))(*plain))

    monkeypatch.setattr(device_loop, "DeviceMemory", Memory)
    monkeypatch.setattr(
        device_loop, "runtime", SimpleNamespace(load_kernel=load_kernel, launch=launch, PinnedBuffer=Pinned)
    )
    monkeypatch.setattr(device_loop, "OFFSET_THREADS", 64)
    monkeypatch.setattr(device_loop, "LEAST", 16)
    monkeypatch.setattr(device_loop, "is_cuda", lambda array: True)
    monkeypatch.setattr(device_arguments, "is_cuda", lambda array: not isinstance(array, np.ndarray))
    monkeypatch.setattr(api_fit, "is_cuda", lambda array: not isinstance(array, np.ndarray))
    return launched


def in_torch(t, a1, a2, k1, k2):
    import torch

    return a1 * torch.exp(-k1 * t) + a2 * torch.exp(-k2 * t)


def compare(found, wanted, tolerance=1e-9):
    status = np.asarray(found.status)
    both = (status > 0) & (wanted.status > 0)
    assert both.mean() > 0.97
    # (Another search for the damping may end in another minimum.)
    same = both & np.isclose(np.asarray(found.cost), wanted.cost, rtol=tolerance, atol=0)
    assert same.sum() > 0.99 * both.sum()
    np.testing.assert_array_equal(np.asarray(found.dof)[same], wanted.dof[same])


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("real", ["float64", "float32"])
def test_tensors(emulated, monkeypatch, real, graph):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(Memory, "follows", graph, raising=False)
    captured = []

    def capture(template, work):
        captured.append(work)
        if real == "float32":
            raise RuntimeError("cannot be captured")
        work(0)
        return lambda: work(0)

    monkeypatch.setattr(device_loop, "capture", capture)
    t, y = (torch.from_numpy(part).to(getattr(torch, real)) for part in (P.t, P.y))
    y[7, 3] = torch.nan
    seen = []
    r = stepwell.curve_fit(in_torch, t, y, P.p0, bounds=P.bounds, progress=lambda done, of: seen.append((done, of)))
    plain = stepwell.curve_fit(decay, t.numpy(), y.numpy(), P.p0, bounds=P.bounds, jac="cs")
    assert int(r.status[7]) == plain.status[7] == stepwell.FitStatus.NON_FINITE_START
    compare(r, plain, 1e-9 if real == "float64" else 1e-4)
    assert bool(captured) == graph
    assert seen == sorted(seen)
    assert seen[-1] == (300, 300)
    good = np.asarray(r.status) > 0
    residuals = decay(P.t, *r.x.numpy().T[:, :, None]) - y.numpy()
    np.testing.assert_allclose(r.residuals.numpy()[good], residuals[good], atol=1e-5)
    assert tuple(r.jac.shape) == (300, 32, 4)


def test_rows_come_in_order(emulated, monkeypatch):
    """Rows that run are a subset of those of the turn before, in their order, first."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(Memory, "follows", False, raising=False)
    turns, evaluate = [], device_loop._Model.both

    def watched(self, points, rows):
        turns.append(rows.numpy().copy())
        return evaluate(self, points, rows)

    monkeypatch.setattr(device_loop._Model, "both", watched)
    stepwell.curve_fit(in_torch, torch.from_numpy(P.t), torch.from_numpy(P.y), P.p0, bounds=P.bounds)
    assert len(turns[0]) == 300
    for before, rows in itertools.pairwise(turns):
        np.testing.assert_array_equal(rows, before[np.isin(before, rows)])
    assert len(turns[-1]) < 30


@pytest.mark.parametrize(
    "how",
    [
        {"mask": np.arange(32) % 4 != 1},
        {"sigma": np.linspace(0.5, 2, 32), "absolute_sigma": True},
        {"loss": "huber", "f_scale": 0.02},
        {"fixed": ["k1"]},
        {"uncertainty": None},
        {"nan_policy": "omit"},
        {"p0": [[0.5, 0.5, 0.5, 5.0]]},
    ],
    ids=lambda how: " ".join(how),
)
def test_arguments(emulated, monkeypatch, how):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(Memory, "follows", False, raising=False)
    y = P.y.copy()
    if "nan_policy" in how:
        y[5, :3] = np.nan
        y[6] = np.nan
    given = {"p0": P.p0, "bounds": P.bounds} | how
    r = stepwell.curve_fit(in_torch, torch.from_numpy(P.t), torch.from_numpy(y), **given)
    plain = stepwell.curve_fit(decay, P.t, y, jac="cs", **given)
    compare(r, plain, 1e-8)
    assert (r.pcov is None) == (plain.pcov is None)
    if plain.stderr is not None:
        found = np.asarray(r.stderr)
        between = np.isfinite(found * plain.stderr) & (found * plain.stderr > 0)  # at a bound there is no error
        assert np.median(np.abs(np.log(found[between] / plain.stderr[between]))) < 1e-6


def test_jax_with_few_sizes(emulated, monkeypatch):
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    monkeypatch.setattr(Memory, "follows", False, raising=False)

    @jax.jit
    def model(t, a1, a2, k1, k2):
        return a1 * jnp.exp(-k1 * t) + a2 * jnp.exp(-k2 * t)

    plain = stepwell.curve_fit(decay, P.t, P.y, P.p0, bounds=P.bounds, jac="cs")
    with jax.enable_x64(True):
        r = stepwell.curve_fit(model, jnp.asarray(P.t), jnp.asarray(P.y), P.p0, bounds=P.bounds)
        compare(r, plain)


def test_residuals_and_a_jac(emulated, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(Memory, "follows", False, raising=False)
    goal = torch.from_numpy(np.random.default_rng(0).uniform(0.5, 2, (40, 4)))

    def fun(p, rows):
        return torch.cat([p**2 - goal[rows] ** 2, 0.1 * (p - goal[rows])], dim=1)

    def jac(p, rows):
        eye = torch.eye(4, dtype=p.dtype)
        return torch.cat([2 * p[:, None, :] * eye, (0.1 * eye).expand(len(p), 4, 4)], dim=1)

    start = torch.ones((40, 4), dtype=torch.float64)
    for given in (None, jac):
        r = stepwell.least_squares(fun, start, given, bounds=(0, 10))
        np.testing.assert_allclose(r.x.numpy(), goal.numpy(), rtol=1e-7)
        assert bool((r.status > 0).all())
    with pytest.raises(ValueError, match="jac returned shape"):
        stepwell.least_squares(fun, start, lambda p, rows: jac(p, rows)[:, :3], bounds=(0, 10))
