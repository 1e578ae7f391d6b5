"""Array libraries with a CUDA device for the tests that need one; random numbers and JAX as each test expects them."""

from __future__ import annotations

import functools
import inspect
import os
import signal
import sys

# Beside other processes of the tests, threads of a BLAS do little but wait for each other; read when NumPy is imported.
# Tests of such threads set their number themselves.
for _name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402
import pytest  # noqa: E402

_FIRST_STATES: dict = {}
# Set by runners of parallel tests; commands that write to a pipe would wrap their lines there.
os.environ.pop("COLUMNS", None)
# JAX would take three quarters of a device, which other libraries and processes of the tests share.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
# Shells let jobs in the background ignore Ctrl-C; what the tests interrupt must not.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    """Without tests for GPUs JAX has none, in processes that tests start neither: arrays of JAX are on the CPU then."""
    chosen = config.getoption("markexpr", "") or ""
    if chosen and "cuda" not in chosen.replace("not cuda", ""):
        os.environ["JAX_PLATFORMS"] = "cpu"


def _separate_stderr() -> None:
    """Let Click before 8.2 keep stderr apart, as later versions do, whose `output` has both."""
    testing = pytest.importorskip("click.testing")
    if "mix_stderr" in inspect.signature(testing.CliRunner.__init__).parameters:
        testing.CliRunner.__init__ = functools.partialmethod(testing.CliRunner.__init__, mix_stderr=False)
        testing.Result.output = property(lambda result: result.stdout + result.stderr)


_separate_stderr()


def _has_device() -> bool:
    try:
        from stepwell.cuda.devices import list_devices

        return bool(list_devices())
    except (ImportError, RuntimeError):
        return False


@pytest.hookimpl(trylast=True)  # after -m has left out what is not wanted
def pytest_collection_modifyitems(items):
    """Tests that need a CUDA device are skipped, and say so, where there is none."""
    wanting = [item for item in items if item.get_closest_marker("cuda")]
    if wanting and not _has_device():
        for item in wanting:
            item.add_marker(pytest.mark.skip(reason="there is no CUDA device"))


def _note_missing_library(report):
    """Write down what was skipped for a library that is not there, for CI to run once it is (see .ci/run)."""
    path = os.environ.get("STEPWELL_NOTE_SKIPPED")
    reason = str(report.longrepr[2]) if path and report.skipped and isinstance(report.longrepr, tuple) else ""
    if "could not import '" in reason or "No module named" in reason:
        with open(path, "a", encoding="utf-8") as file:
            file.write(report.nodeid + "\n")


@pytest.fixture(autouse=True)
def quick_kernels(request, monkeypatch):
    """Whether kernels compile needs no fast code; ``STEPWELL_COMPILE=full`` asks for that, as calls do."""
    if request.node.get_closest_marker("kernels") and "STEPWELL_COMPILE" not in os.environ:
        monkeypatch.setenv("STEPWELL_COMPILE", "quick")


def pytest_runtest_logreport(report):
    _note_missing_library(report)


def pytest_collectreport(report):
    _note_missing_library(report)


@pytest.fixture(autouse=True)
def jax_keeps_its_precision():
    """Some tests, and commands run in this process, switch JAX to double precision: for themselves only."""
    before = "jax" in sys.modules and sys.modules["jax"].config.jax_enable_x64
    yield
    if "jax" in sys.modules and sys.modules["jax"].config.jax_enable_x64 != before:
        sys.modules["jax"].config.update("jax_enable_x64", before)


@pytest.fixture(autouse=True)
def jax_lives_where_the_test_wants_it(request, monkeypatch):
    """Beside tests for GPUs, where JAX's default is one, all others have JAX's arrays on the CPU."""
    if os.environ.get("JAX_PLATFORMS") == "cpu":
        yield
        return
    wanted = None if request.node.get_closest_marker("cuda") else "cpu"
    if wanted is None:
        monkeypatch.delenv("JAX_DEFAULT_DEVICE", raising=False)
    else:
        monkeypatch.setenv("JAX_DEFAULT_DEVICE", wanted)
    if "jax" in sys.modules:
        sys.modules["jax"].config.update("jax_default_device", wanted)
    yield
    if "jax" in sys.modules:
        sys.modules["jax"].config.update("jax_default_device", None)


@pytest.fixture(autouse=True)
def same_numbers_in_any_order(request):
    """A module's generators begin each test where they began, whichever tests ran before it."""
    for value in vars(request.module).values() if request.module else ():
        if isinstance(value, np.random.Generator):
            first = _FIRST_STATES.setdefault(id(value), (value, value.bit_generator.state))[1]
            value.bit_generator.state = first


@pytest.fixture(scope="session")
def torch():
    """PyTorch with a GPU."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch has no GPU")
    return torch


@pytest.fixture(scope="session")
def cupy():
    """CuPy with a GPU."""
    cupy = pytest.importorskip("cupy")
    if not cupy.cuda.runtime.getDeviceCount():
        pytest.skip("CuPy has no GPU")
    return cupy


@pytest.fixture(params=["torch", "cupy", "jax"])
def library(request):
    """The name of each library that has a GPU."""
    if request.param == "jax":
        jax = pytest.importorskip("jax")
        jax.config.update("jax_enable_x64", True)
        if jax.default_backend() != "gpu":
            pytest.skip("JAX has no GPU")
    else:
        request.getfixturevalue(request.param)
    return request.param
