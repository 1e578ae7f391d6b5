"""The sweeps of a GPU, thread by thread on the CPU: the CUDA source and its launches against array operations."""

from __future__ import annotations

import ctypes
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from native_programs import ROOT

from stepwell.cuda import nvrtc
from stepwell.krylov.tv import device, shrinking, sweeps
from stepwell.krylov.tv.cosine_tables import tables_of
from stepwell.krylov.tv.shrinking import Sweep
from stepwell.krylov.tv.transforms import laplacian_eigenvalues

PROGRAM = """
#define SW_SCALAR {scalar}
#define SW_THREADS 64
#include "device_emulator.hpp"
inline float rsqrt(float value) {{ return 1 / std::sqrt(value); }}
using std::sqrt;
{source}
"""
RUN = """
extern "C" void run_{entry}(const TvLaunch* job, unsigned blocks, unsigned threads) {{
    emulator::launch(blocks, threads, [=] {{ tv_{entry}(*job); }});
}}
"""
#: What the device has.
SHARED = {"MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 8 << 15}
#: Entries of the sources.
ENTRIES = {"tv_sweeps": ("lines", "update", "next"), "tv_resident": ("resident",)}


@pytest.fixture(scope="module", params=["float64", "float32"])
def emulated(request, tmp_path_factory):
    """Put NumPy's memory and the emulated kernels in the place of a device."""
    pytest.importorskip("resource", reason="no ucontext.h outside Unix")
    folder = tmp_path_factory.mktemp("tv")
    scalar = device.kernel_defines(request.param, 64)["SW_SCALAR"]
    libraries = {}
    for name, entries in ENTRIES.items():
        source = (ROOT / f"src/cuda/tv/{name}.cu").read_text()
        dynamic = "extern __shared__ __align__(16) double memory[];"
        assert source.count(dynamic) == 1
        source = source.replace(dynamic, "static double memory[1 << 15];")
        source += "".join(RUN.format(entry=entry) for entry in entries)
        (folder / f"{name}.cpp").write_text(PROGRAM.format(scalar=scalar, source=source))
        command = ["g++", "-std=c++20", "-O1", "-U_FORTIFY_SOURCE", "-w", "-shared", "-fPIC"]
        command += [f"-I{ROOT}/src", f"-I{ROOT}/tests/native"]
        subprocess.run([*command, f"{name}.cpp", "-o", f"{name}.so"], cwd=folder, check=True)
        libraries |= dict.fromkeys(entries, ctypes.CDLL(str(folder / f"{name}.so")))

    class Kernel:
        def __init__(self, entry):
            name = entry.removeprefix("tv_")
            self.run = getattr(libraries[name], f"run_{name}")

        def allow_shared_memory(self, size, device_id):
            assert size <= 8 << 15

    def launch(kernel, grid, block, stream, job, shared_bytes=0):
        kernel.run(ctypes.byref(job), ctypes.c_uint(grid), ctypes.c_uint(block))

    class Graph:
        def __init__(self, work):
            self.work = work

        def launch(self, stream):
            self.work(stream)

    patch = pytest.MonkeyPatch()
    patch.setattr(device, "THREADS", 64)
    patch.setattr(device, "RESIDENT_THREADS", 64)
    patch.setattr(device, "device_address", lambda array: array.ctypes.data)
    patch.setattr(device, "device_index", lambda array: 0)
    patch.setattr(device, "current_stream", lambda array: 0)
    patch.setattr(device, "shares_streams", lambda array: True)
    patch.setattr(device, "bytes_on_device", lambda values, like: np.array(values))
    patch.setattr(device, "empty_on_device", lambda shape, dtype, like: np.full(shape, np.nan, dtype))
    here = {"set_current": lambda self: None, "attribute": lambda self, name: SHARED[name]}
    patch.setattr(device, "Device", type("Device", (), here | {"__init__": lambda self, number: None}))
    patch.setattr(device, "_kernel", lambda entry, dtype, number: Kernel(entry))
    patch.setattr(device, "launch", launch)
    patch.setattr(device, "Graph", Graph)
    patch.setattr(device, "IN_GRAPH", 2)
    device._tables_of.cache_clear()
    yield request.param
    patch.undo()
    device._tables_of.cache_clear()


@pytest.mark.parametrize("dims", [(12, 10), (45,), (3, 8, 5), (1, 40), (6, 1, 9), (16, 150)])
def test_transforms_are_the_cosine_transform(emulated, dims):
    from scipy.fft import dctn

    rng = np.random.default_rng(0)
    images = rng.normal(size=(3, *dims)).astype(emulated)
    tables = tables_of(dims, emulated)
    found = device.transform(tables, images, False)
    axes = tuple(range(1, 1 + len(dims)))
    near = 64 * np.finfo(emulated).eps * np.abs(images).max() * np.sqrt(images[0].size)
    np.testing.assert_allclose(found, dctn(images, axes=axes, norm="ortho"), atol=near)
    np.testing.assert_allclose(device.transform(tables, found, True), images, atol=near)


@pytest.mark.parametrize(
    ("dims", "rows", "kind", "bounds"),
    [
        ((12, 10), 0, "isotropic", "none"),
        ((12, 10), 4, "isotropic", "numbers"),
        ((40, 36), 2, "anisotropic", "pixels"),
        ((4, 6, 5), 0, "huber", "problems"),
        ((4, 6, 5), 3, "isotropic", "numbers"),
        ((30,), 2, "isotropic", "none"),
        ((1, 20), 0, "isotropic", "numbers"),
        ((9, 2), 0, "isotropic", "none"),
        ((2, 15), 2, "huber", "pixels"),
        ((25, 27), 12, "isotropic", "problems"),
    ],
)
@pytest.mark.parametrize("shared", [0, 8 << 15])
def test_sweeps_agree_with_array_operations(emulated, dims, rows, kind, bounds, shared, monkeypatch):
    monkeypatch.setitem(SHARED, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN", shared)
    sweep = random_sweep(dims, rows, kind, bounds, emulated)
    found = device.run_sweeps(tables_of(dims, emulated), sweep)
    compare(found, sweep, emulated)


#: Problems that are solved for a step.
STEPS = [
    ((12, 10), 0, "isotropic", "none"),
    ((12, 10), 4, "isotropic", "numbers"),
    ((16, 9), 2, "anisotropic", "pixels"),
    ((4, 6, 5), 3, "huber", "problems"),
    ((40,), 2, "isotropic", "numbers"),
]


@pytest.mark.parametrize("emulated", ["float32"], indirect=True)
@pytest.mark.parametrize(("dims", "rows", "kind", "bounds"), [*STEPS, ((1, 20), 0, "isotropic", "none")])
def test_single_precision_sweeps_for_the_step(emulated, dims, rows, kind, bounds):
    sweep = random_sweep(dims, rows, kind, bounds, "float64")
    found = device.run_sweeps(tables_of(dims, "float64"), for_the_step(sweep, np.ones(3, dtype=bool)))
    assert all(part is None or part.dtype == np.float64 for part in found)
    compare(found, sweep, "float32")
    if bounds != "none":
        assert np.all((found[0] >= sweep.lower) & (found[0] <= sweep.upper))
        assert np.prod(dims) > np.sum(found[0][0] == np.broadcast_to(sweep.lower, found[0].shape)[0]) > 0


def for_the_step(sweep: Sweep, single: np.ndarray) -> Sweep:
    """Return the same sweeps, `single` ones for the step from a random x0; bounds of `sweep` are put in order.

    M (x - x0) = rhs + linear - M x0, so the linear part of the step is linear - (M - ρ∇ᵀ∇ - ρ) x0.
    """
    from scipy.fft import dctn

    if sweep.s is not None:
        h, sweep.upper = sweep.s + sweep.v, np.maximum(sweep.lower, sweep.upper)
        sweep.s = np.clip(h, sweep.lower, sweep.upper)
        sweep.v = h - sweep.s
    dims = sweep.linear.shape[1:]
    x0 = np.random.default_rng(3).normal(size=(3, *dims))
    at = dctn(x0, axes=range(1, 1 + len(dims)), norm="ortho").reshape(3, -1)
    shift = sweep.rho * (laplacian_eigenvalues(dims, sweep.weights).ravel() + (sweep.s is not None))
    linear = sweep.linear.copy()
    for k in np.flatnonzero(single):
        solution = np.diag(sweep.inverse[k].ravel())
        if sweep.solved is not None:
            solution -= sweep.solved[k].T @ sweep.small[k] @ sweep.solved[k]
        linear[k] -= (np.linalg.solve(solution, at[k]) - shift * at[k]).reshape(dims)
    return replace(sweep, linear=linear, single=single, x0=x0)


def random_sweep(dims, rows, kind, bounds, dtype, batch=3) -> Sweep:
    """Random states of three problems, or of the first of them, with 2, 5 and 3 sweeps to run."""
    rng = np.random.default_rng(sum(dims) + rows)
    image, pixels = (batch, *dims), int(np.prod(dims))

    def normal(*shape, size=1.0):
        return (size * rng.normal(size=shape)).astype(dtype)

    threshold = np.linspace(0.1, 0.6, batch)
    least = 0.2 / (0.2 + threshold) if kind == "huber" else np.zeros(batch)
    field = [normal(len(dims), *image) for _ in range(2)]
    for part in field:
        for axis in range(len(dims)):
            part[axis][(slice(None),) * (1 + axis) + (-1,)] = 0
    lower = upper = s = v = None
    if bounds != "none":
        shape = {"numbers": (1,) * len(image), "pixels": (1, *dims), "problems": image}[bounds]
        lower, upper = normal(*shape) - 1, normal(*shape) + 1
        h = normal(*image)
        s = np.clip(h, lower, upper)
        v = h - s
    z = shrinking.shrunk(field[0] + field[1], threshold, least, kind == "anisotropic")
    solved, small = (
        (normal(batch, rows, pixels, size=0.1), normal(batch, rows, rows, size=3 / pixels)) if rows else (None, None)
    )
    return Sweep(
        tuple(np.linspace(1.0, 0.5, len(dims))), 1.5, sweeps.OVER, kind == "anisotropic", threshold, least,
        np.array([2, 5, 3])[:batch], normal(*image), 0.1 + abs(normal(*image, size=0.1)), solved, small, z,
        field[0] + field[1] - z, s, v, lower, upper,
    )  # fmt: skip


def compare(found, sweep: Sweep, dtype: str) -> None:
    """Compare with the same sweeps, problem by problem, by array operations and SciPy's transforms."""
    from scipy.fft import dctn, idctn

    from stepwell.krylov.tv.differences import differences, divergence

    for k, count in enumerate(sweep.counts):
        one = slice(k, k + 1)
        z, u = (part[:, one].astype(float) for part in (sweep.z, sweep.u))
        s, v = (None if part is None else part[one].astype(float) for part in (sweep.s, sweep.v))
        lower, upper = (None if side is None else side[k % len(side)] for side in (sweep.lower, sweep.upper))
        axes = tuple(range(1, z.ndim - 1))
        for _ in range(count):
            pull = divergence(z - u, sweep.weights) + (0 if s is None else s - v)
            c = dctn(sweep.rho * pull, axes=axes, norm="ortho") + sweep.linear[one]
            answer = sweep.inverse[one] * c
            if sweep.solved is not None:
                S, M = sweep.solved[k].astype(float), sweep.small[k].astype(float)
                answer = answer - (S.T @ (M @ (S @ c.ravel()))).reshape(c.shape)
            x = idctn(answer, axes=axes, norm="ortho")
            w = sweep.over * differences(x, sweep.weights) + u - (sweep.over - 1) * z
            z = shrinking.shrunk(w, sweep.threshold[one], sweep.least[one], sweep.anisotropic)
            u = w - z
            if s is not None:
                h = sweep.over * x + v - (sweep.over - 1) * s
                s = shrinking.clipped(h, lower, upper)
                v = h - s
        wanted = (x if s is None else s, z, u, s, v)
        for got, right in zip(found, wanted):
            if right is not None:
                got = got[:, one] if right.ndim == z.ndim else got[one]
                near = 2000 * np.finfo(dtype).eps * max(1.0, np.abs(right).max())
                np.testing.assert_allclose(got, right, atol=near)


@pytest.mark.kernels
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_kernels_compile(dtype, architecture):
    for name, defines in device.common_kernels(dtype):
        assert nvrtc.compile_kernel(name, defines, architecture)
