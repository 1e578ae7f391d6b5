"""Every public call with each piece of memory, each thread and each step with files refused in turn.

Run under faults.cpp (see test_faults.py):

    LD_PRELOAD=faults.so python tests/faults/injected.py --kind module-memory [--all] [NAME ...]

What must hold: a clean MemoryError or OSError (threads: the right answer with fewer of them), an object that goes on or
refuses, old files whole and no leftovers, nothing leaked, and the next call right to the last bit.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import pathlib
import sys
import tempfile
import warnings

import numpy as np
import scipy.sparse as sp

import stepwell
from stepwell import _core
from stepwell.apps import tomography, voronoi, waveform

KINDS = {"module-memory": 1, "array-memory": 2, "threads": 3, "files": 4}
THREADS = 3
RNG = np.random.default_rng(0)
FOLDER = pathlib.Path(tempfile.mkdtemp())
GROWTH = 1 << 20  # bytes: less than one array of what is solved here


def bowl(x):
    scale = np.linspace(1, 30, x.shape[-1])
    return ((x - 1.5) ** 2 * scale).sum(-1), 2 * (x - 1.5) * scale


def minimize():
    r = stepwell.minimize(bowl, np.zeros(20_000), jac=True, bounds=(-1.0, 1.2), options={"threads": THREADS})
    return r.x, r.nit, r.hess_inv.matvec(r.x)


def minimize_single():
    r = stepwell.minimize(
        lambda x: tuple(np.float32(part) for part in bowl(x)),
        np.zeros(9000, np.float32),
        jac=True,
        options={"threads": THREADS, "maxcor": 40, "maxiter": 12},
    )
    return r.x, r.nit


def minimize_by_differences():
    r = stepwell.minimize(lambda x: float(bowl(x)[0]), np.zeros(30), bounds=(0.0, 1.0))
    return r.x, r.nfev


def minimize_batch():
    r = stepwell.minimize_batch(bowl, np.zeros((200, 50)), jac=True, bounds=(-1.0, 1.2), options={"threads": THREADS})
    return r.x, r.nit


def minimize_batch_long():
    r = stepwell.minimize_batch(bowl, np.zeros((2, 9000)), jac=True, options={"threads": THREADS, "maxiter": 6})
    return r.x, r.nit


def ask_and_tell():
    """The same optimizer goes on after each refusal: what failed is told again."""
    opt = stepwell.LBFGSB(np.zeros(20_000), (-1.0, 1.2), threads=THREADS, maxiter=12)
    while not opt.done:
        point = np.array(opt.x)
        f, g = bowl(point)
        try:
            opt.tell(float(f), g)
        except MemoryError:
            opt.tell(float(f), g)
    return np.array(opt.x), opt.nit, opt.nfev


def scipy_method():
    from scipy.optimize import minimize as scipy_minimize

    r = scipy_minimize(bowl, np.zeros(500), jac=True, method=stepwell.scipy_method, bounds=[(-1, 1.2)] * 500)
    return r.x, r.nit


def check_grad():
    return (stepwell.check_grad(bowl, np.zeros(20), jac=True).max_relative_error,)


def nnls_small():
    A, b = np.abs(RNG_A[:60, :40]), RNG_A[:60, :7].T
    return stepwell.nnls(A, b, threads=THREADS).x, stepwell.nnls(A.astype("f4"), b.astype("f4"), threads=THREADS).x


def nnls_large():
    """One system that all threads work on together."""
    return (stepwell.nnls(LARGE, LARGE[:, :3].sum(1) - 0.2, threads=THREADS, maxiter=30).x,)


def nnls_gram():
    return (stepwell.nnls(np.abs(RNG_A), np.abs(RNG_A[:, :90].T), threads=THREADS, method="gram").x,)


def nnls_convolution():
    A = stepwell.Convolution(np.exp(-0.5 * np.linspace(-3, 3, 25) ** 2), 200, origin=12)
    return (stepwell.nnls(A, np.abs(A @ RNG_A[:200, :1])[:, 0], threads=THREADS).x,)


def convolution_product():
    A = stepwell.Convolution(np.exp(-0.5 * np.linspace(-3, 3, 80) ** 2), 500)
    return A @ np.ones((500, 2)), A.T @ np.ones(500)


def tikhonov_sparse():
    return tuple(stepwell.tikhonov(SPARSE, RNG_A[:, :5], 0.3, method=m).x for m in ("cgls", "pseudo-block", "block"))


def tikhonov_projected():
    return tuple(stepwell.tikhonov(SPARSE, RNG_A[:, :3], 0.3, method=m).x for m in ("prcg", "aprcg"))


def tikhonov_direct():
    return (stepwell.tikhonov(RNG_A, RNG_A[:, :3], 0.3, method="direct").x,)


def tikhonov_chosen():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return (stepwell.tikhonov(RNG_A, RNG_A[:, :2] + 0.1, "gcv").x,)


def tikhonov_within_bounds():
    return (stepwell.tikhonov(SPARSE, RNG_A[:, :2], 0.3, bounds=(0, None)).x,)


def lsq_linear():
    """Matrices of their own with a bound sum, a pulse, and a few equalities."""
    A, b = np.abs(RNG_A[:90, :60]).reshape(3, 30, 60), RNG_A[:3, :30]
    pulse = stepwell.Convolution(np.exp(-0.5 * np.linspace(-3, 3, 25) ** 2), 100, origin=12)
    return (
        stepwell.lsq_linear(A, b, (0, 0.5), sum_bounds=(0, 1), threads=THREADS).x,
        stepwell.lsq_linear(pulse, RNG_A[:2, :100], (-0.1, 0.5), threads=THREADS).x,
        stepwell.lsq_linear(RNG_A[:60, :8], RNG_A[:3, :60], (-1, 1), equality=(np.ones((1, 8)), 0.5)).x,
    )


def lsq_with_rules():
    A, b = np.abs(RNG_A[:60, :20]), np.abs(RNG_A[:60, :4]).T
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tuple(stepwell.lsq_linear(A, b, (0, 1), lam=rule, threads=THREADS).x for rule in ("gcv", "lcurve"))


def lsq_gram():
    A = RNG_A[:60, :20]
    return (stepwell.lsq_gram(A.T @ A, RNG_A[:4, :60] @ A, (0, 1), threads=THREADS).x,)


def minimize_by_ranks():
    """The one rank that a process is by itself."""
    layout = stepwell.distributed.split(9000, "self")
    data = np.arange(*layout) % 7.0
    r = stepwell.minimize(
        lambda x: (layout.chunk_sums((x - data) ** 2), 2 * (x - data)), np.zeros(len(data)), jac=True, bounds=(0, 5),
        comm=layout, options={"threads": THREADS},
    )  # fmt: skip
    return r.x, r.nit


def adjoint_error():
    return (stepwell.adjoint_error(SPARSE),)


def deconvolve():
    return (waveform.deconvolve(waveform.synthetic_shots(3, seed=1)).amplitudes,)


def cg():
    H = SPARSE.T @ SPARSE + sp.identity(SPARSE.shape[1])
    return (stepwell.cg(H.tocsr(), RNG_A[: H.shape[0], :4], method="block").x,)


def projected_cg():
    solver = stepwell.ProjectedCG(SPARSE, 0.3, augmented=True)
    return tuple(solver.solve(RNG_A[:, k]).x for k in range(3))


def voronoi_energy():
    sites = np.random.default_rng(1).random((40, 2))
    energy = voronoi.VoronoiEnergy(1.0, 40, resolution=(64, 64), threads=THREADS)
    flood = voronoi.VoronoiEnergy(1.0, 40, resolution=(64, 64), threads=THREADS, method="jump-flooding")
    return energy.fun(sites.ravel()), flood.fun(sites.ravel()), energy.owners(sites)


def projector():
    return (tomography.parallel_beam(32, angles=np.arange(0, 180, 20.0)) @ np.ones(32 * 32),)


def save_optimizer():
    opt = stepwell.LBFGSB(np.zeros(400), (-1.0, 1.2))
    for _ in range(2):
        f, g = bowl(np.array(opt.x))
        opt.tell(float(f), g)
    opt.save(FOLDER / "run.ckpt")
    return np.array(stepwell.LBFGSB.load(FOLDER / "run.ckpt").x), 0


def minimize_with_checkpoint():
    """Trouble with the file is a warning, and the run ends as it would."""
    path = FOLDER / "min.ckpt"
    path.unlink(missing_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        r = stepwell.minimize(
            bowl, np.zeros(400), jac=True, checkpoint=path, checkpoint_every=3, options={"maxiter": 9}
        )
    if path.exists():
        stepwell.LBFGSB.load(path)
    return r.x, r.nit


def save_directions():
    solver = stepwell.ProjectedCG(RNG_A, 0.3)
    solver.solve(RNG_A[:, 0])
    solver.save(FOLDER / "kept.ckpt")
    return (stepwell.ProjectedCG.load(FOLDER / "kept.ckpt", RNG_A).solve(RNG_A[:, 1]).x,)


def save_shots():
    path = FOLDER / "shots.npz"
    waveform.save_shots(path, waveform.Shots(np.ones((4, 200)), np.ones((4, 5)), 0, np.zeros(4)))
    return (waveform.load_shots(path).waveforms,)


RNG_A = RNG.standard_normal((240, 120))
SPARSE = sp.random(240, 120, 0.2, format="csr", random_state=0) + sp.eye(240, 120, format="csr")
LARGE = np.abs(RNG.standard_normal((2100, 2000)))

CALLS = {
    call.__name__: call
    for call in (
        minimize,
        minimize_single,
        minimize_by_differences,
        minimize_batch,
        minimize_batch_long,
        ask_and_tell,
        scipy_method,
        check_grad,
        nnls_small,
        nnls_large,
        nnls_gram,
        nnls_convolution,
        convolution_product,
        tikhonov_sparse,
        tikhonov_projected,
        tikhonov_direct,
        tikhonov_chosen,
        tikhonov_within_bounds,
        lsq_linear,
        lsq_with_rules,
        lsq_gram,
        minimize_by_ranks,
        adjoint_error,
        deconvolve,
        cg,
        projected_cg,
        voronoi_energy,
        projector,
    )
}
FILES = {call.__name__: call for call in (save_optimizer, minimize_with_checkpoint, save_directions, save_shots)}


class Memory(ctypes.Structure):
    """What glibc's mallinfo2 returns."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in [
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        ]
    ]


LIBC = ctypes.CDLL(None)
LIBC.mallinfo2.restype = Memory
LIBC.faults_disarm.restype = ctypes.c_long
LIBC.faults_arm.argtypes = [ctypes.c_int, ctypes.c_long, ctypes.c_int]
LIBC.faults_module.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
LIBC.faults_array_allocator.restype = ctypes.c_void_p


def held():
    gc.collect()
    memory = LIBC.mallinfo2()
    return memory.uordblks + memory.hblkhd


def prepare():
    """Tell the shim where the module lies whose memory it may refuse, and NumPy to take arrays from the shim."""
    lines = pathlib.Path("/proc/self/maps").read_text().splitlines()
    spans = [line.split()[0].split("-") for line in lines if line.endswith(os.path.basename(_core.__file__))]
    LIBC.faults_module(min(int(low, 16) for low, _ in spans), max(int(high, 16) for _, high in spans))
    python = ctypes.pythonapi
    python.PyCapsule_New.restype = ctypes.py_object
    python.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    python.PyCapsule_GetPointer.restype = ctypes.c_void_p
    python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    umath = sys.modules.get("numpy._core._multiarray_umath") or sys.modules["numpy.core._multiarray_umath"]
    table = ctypes.cast(python.PyCapsule_GetPointer(umath._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))
    set_handler = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(table[304])  # PyDataMem_SetHandler
    set_handler(python.PyCapsule_New(LIBC.faults_array_allocator(), b"mem_handler", None))


def same(one, two):
    if isinstance(one, tuple | list):
        return len(one) == len(two) and all(map(same, one, two))
    return np.array_equal(one, two, equal_nan=True)


def files():
    return {path.name: path.read_bytes() for path in FOLDER.iterdir()}


def try_call(name, call, kind, whole, every):
    """Refuse one after the other; return how many were refused and what was wrong."""
    for _ in range(3):
        want = call()
    LIBC.faults_arm(kind, 1 << 40, 0)
    call()
    count = LIBC.faults_disarm()
    places = list(range(1, count + 1))
    if not whole and count > every:
        places = sorted(set(places[: every // 3]) | set(np.linspace(1, count, every - every // 3, dtype=int).tolist()))
    wrong = []
    expected = OSError if kind == 4 else MemoryError
    before = held()
    for nth in places:
        old = files()
        LIBC.faults_arm(kind, nth, 0)
        try:
            got = call()
            LIBC.faults_disarm()
            if not same(got, want):
                wrong.append(f"{name}: with refusal {nth} of {count} another answer")
            del got
        except expected:
            LIBC.faults_disarm()
            new = files()
            if kind == 4:
                # Either the old file is there to the byte, or (the folder's sync failed last) a new one that loads.
                lost = [file for file in old if file not in new]
                left = [file for file in new if file.startswith(".")]
                if lost or left:
                    wrong.append(f"{name}: refusal {nth} of {count} lost {lost} and left {left}")
        except Exception as error:
            LIBC.faults_disarm()
            wrong.append(f"{name}: refusal {nth} of {count} is {type(error).__name__}: {error}")
        if not same(call(), want):
            wrong.append(f"{name}: after refusal {nth} of {count} another answer")
    grown = held() - before
    if grown > GROWTH:
        wrong.append(f"{name}: {grown} bytes more are held after {len(places)} refusals")
    return len(places), count, wrong


def try_with_few_threads(name, call):
    """Refuse threads in children, where none is there yet; the answer must be the right one, with its bits."""
    want, wrong = call(), []
    refusals = [(1, 0), (1, 1), (2, 0), (2, 1)]
    for nth, rest in refusals:
        child = os.fork()
        if not child:
            status = 3
            try:
                LIBC.faults_arm(3, nth, rest)
                got = call()
                asked = LIBC.faults_disarm()
                status = (0 if asked >= nth else 77) if same(got, want) and same(call(), want) else 4
            except Exception as error:
                sys.stderr.write(f"{name}: {type(error).__name__}: {error}\n")
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        if status not in (0, 77 << 8):  # 77: that many threads are not asked for
            wrong.append(f"{name}: without thread {nth} ({'and later ones' if rest else 'alone'}): status {status}")
    return len(refusals), len(refusals), wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--all", action="store_true", help="refuse each in turn, not a selection of 30")
    parser.add_argument("--every", type=int, default=30)
    given = parser.parse_args()
    prepare()
    calls = FILES if given.kind == "files" else CALLS
    wrong = []
    for name in given.names or calls:
        if name not in calls:
            continue
        if given.kind == "threads":
            tried, count, found = try_with_few_threads(name, calls[name])
        else:
            tried, count, found = try_call(name, calls[name], KINDS[given.kind], given.all, given.every)
        wrong += found
        sys.stdout.write(f"{name}: {tried} of {count} refused, {len(found)} wrong\n")
        sys.stdout.flush()
    sys.stdout.write("\n".join(wrong) + ("\n" if wrong else "") + ("all hold\n" if not wrong else ""))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
