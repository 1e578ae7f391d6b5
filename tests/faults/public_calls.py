"""Every public call, small and with the same bits each time: injected.py refuses it memory, threads and files."""

from __future__ import annotations

import pathlib
import tempfile
import warnings

import numpy as np
import scipy.sparse as sp

import stepwell
from stepwell.apps import tomography, voronoi, waveform

THREADS = 3
RNG = np.random.default_rng(0)
FOLDER = pathlib.Path(tempfile.mkdtemp())


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
