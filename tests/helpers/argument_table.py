"""Right calls of every public function, by name, and values that are wrong for most of their arguments."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

import stepwell
from stepwell import distributed, operators, problems
from stepwell.apps import decomposition, relaxation, t2, tomography, unmixing, voronoi, waveform
from stepwell.apps.voronoi import quality


def nested(depth):
    """A list in a list in a list, deeper than Python shows."""
    found = []
    for _ in range(depth):
        found = [found]
    return found


#: By what they are. Each is right for some arguments; then the call is simply made.
WRONG = {
    "None": None, "True": True, "text": "x", "bytes": b"x", "object": object(), "dict": {},
    "dict of something": {"a": 1}, "set": {1, 2}, "memory": memoryview(b"abc"), "empty list": [], "empty tuple": (),
    "nan": np.nan, "inf": np.inf, "-inf": -np.inf, "-1": -1, "0": 0, "fraction": 1.5, "imaginary": 1j,
    "large": 2**70, "larger": 1e308, "-large": -(2**70), "ragged": [[1.0], [1.0, 2.0]], "words": ["a", "b"],
    "ragged array": [np.ones(2), np.ones(3)], "3 axes": np.ones((2, 3, 4)), "2 axes": np.ones((2, 7)),
    "1 axis": np.ones(7), "empty array": np.ones(0), "no rows": np.ones((0, 3)), "complex": np.ones(3, complex),
    "flags": np.ones(7, bool), "texts": np.array(["a", "b"]), "objects": np.array([1, None], dtype=object),
    "nans": np.full(3, np.nan), "infs": np.full(3, np.inf), "masked": np.ma.masked_array([1.0, 2, 3], [0, 1, 0]),
    "sparse": sp.eye(7, format="csr"), "date": np.datetime64("2020-01-01"), "date array": np.zeros(3, "M8[s]"),
    "function": lambda *a, **k: None, "generator": (k for k in ()), "slice": slice(3), "numpy nan": np.float64("nan"),
    "void": np.void(b"abc"), "nested": nested(3000),
}  # fmt: skip


#: Classes that hold what functions found, or what a caller put together, and check nothing.
DATA = {
    "Scan", "Phantom", "T2Run", "Scene", "UnmixRun", "Assignment", "Cells", "Intermediate", "Mesh", "MeshQuality",
    "Route", "Tessellation", "TVGap", "Quantity", "RelaxationPhantom", "RelaxationRun", "Decomposition",
    "DecompositionRun", "SimulatedReturns",
}  # fmt: skip


class Evaluations:
    """Functions of a caller's, which count how often they are called."""

    def __init__(self) -> None:
        self.count = 0

    def fun(self, x, *args):
        """A sum of squares and its gradient."""
        self.count += 1
        return float((np.asarray(x) ** 2).sum()), 2 * np.asarray(x)

    def rows(self, x, *args):
        """The same of every row."""
        self.count += 1
        return (np.asarray(x) ** 2).sum(axis=1), 2 * np.asarray(x)

    def curve(self, x, a, k):
        """A line."""
        self.count += 1
        return a + k * x

    def residual(self, x):
        """Three residuals."""
        self.count += 1
        return np.stack([x[..., 0] - 1, x[..., 1] - 2, x[..., 0] + x[..., 1]], axis=-1)

    def slopes(self, x):
        """Their derivatives."""
        self.count += 1
        return np.broadcast_to(np.array([[1.0, 0], [0, 1], [1, 1]]), (*x.shape[:-1], 3, 2))

    def forward(self, x):
        """The identity."""
        self.count += 1
        return x


calls = Evaluations()
RNG = np.random.default_rng(0)
A = RNG.normal(size=(5, 3))
ONES, BOX = np.ones(3), (0.0, 2.0)
SHOTS = waveform.synthetic_shots(2, samples=60, returns=1)
DONE = waveform.deconvolve(SHOTS)
GAUSSIANS = decomposition.simulate(2, samples=80, returns=1)
RELAXATION = relaxation.RelaxationModel("t2", (0.01, 0.02, 0.04, 0.08))
MODEL = t2.T2Model(echoes=6, te=0.01, bins=5, angles=(150.0, 180.0, 2))
LIBRARY = unmixing.SpectralLibrary(
    np.array([[1.0, 2, 3, 4], [4, 3, 2, 2]]), ["a", "b"], ["a", "b"], np.arange(4.0) + 400
)
PLAN = unmixing.Unmixing(LIBRARY)
SITES = RNG.random((6, 2))
MESH = voronoi.delaunay_mesh(SITES)
STATE = stepwell.LBFGSB(np.ones(3)).state_dict()
STOPPING = dict(gtol=1e-5, ftol=1e-9, relative_gtol=0.0, maxiter=5, maxfun=9, target=-1.0, time_limit=9.0, patience=2)


def with_options(**options):
    """The options of `minimize` as arguments."""
    return stepwell.minimize(calls.fun, np.ones(3), jac=True, options=options)


#: Name -> (function, right arguments).
RIGHT = {
    "minimize": (stepwell.minimize, dict(
        fun=calls.fun, x0=ONES, args=(), method=None, jac=True, hess=None, hessp=None, bounds=BOX, constraints=(),
        tol=None, callback=None, options={"maxiter": 2}, checkpoint=None, checkpoint_every="60 s", comm=None)),
    "options": (with_options, dict(
        maxcor=5, h0=None, line_search="va15", cauchy="none", threads=1, history=None, zero_copy=False, eps=None,
        finite_diff_rel_step=None, workers=None, maxls=9, graph=False, time_objective=False, **STOPPING)),
    "minimize_batch": (stepwell.minimize_batch, dict(
        fun=calls.rows, x0=np.ones((2, 3)), args=(), jac=True, bounds=(0.0, 2.0), tol=None, callback=None,
        options={"maxiter": 2}, comm=None)),
    "check_grad": (stepwell.check_grad, dict(fun=calls.fun, x0=ONES, args=(), jac=True, directions=2, seed=0)),
    "LBFGSB": (stepwell.LBFGSB, dict(
        x0=ONES, bounds=BOX, m=3, h0=None, line_search="lbfgsb", cauchy="exact", threads=1, history=None, comm=None,
        **STOPPING)),
    "LBFGSB.tell": (lambda **given: stepwell.LBFGSB(np.ones(3)).tell(**given), dict(f=1.0, g=ONES)),
    "LBFGSB.stop": (lambda **given: stepwell.LBFGSB(np.ones(3)).stop(**given), dict(status=stepwell.Status.CALLBACK)),
    "LBFGSB.from_state_dict": (stepwell.LBFGSB.from_state_dict, dict(state=STATE, like=None, h0=None, comm=None)),
    "LineSearch": (stepwell.LineSearch, dict(
        preset="lbfgsb", ftol=None, gtol=None, xtol=None, stpmin=None, stpmax=None, maxls=None)),
    "tikhonov": (stepwell.tikhonov, dict(
        A=A, B=np.ones((5, 2)), lam=0.1, L=np.eye(3), method="auto", x0=None, tol=1e-6, maxiter=9, axis=1,
        preconditioner=None, callback=None, noise=None, joint=False, memory=None, width=4, bounds=None, comm=None)),
    "cg": (stepwell.cg, dict(
        H=np.eye(3), B=np.ones((3, 2)), method="auto", x0=None, tol=1e-6, maxiter=9, axis=1, preconditioner=None,
        callback=None, memory=None, width=4, comm=None)),
    "ProjectedCG": (stepwell.ProjectedCG, dict(
        A=A, lam=0.1, L=np.eye(3), memory=2**20, augmented=False, preconditioner=None, comm=None, checkpoint=None,
        checkpoint_every="60 s")),
    "ProjectedCG.solve": (lambda **given: stepwell.ProjectedCG(A, 0.1).solve(**given), dict(
        b=np.ones(5), tol=1e-6, maxiter=9, x0=None, callback=None)),
    "tv": (stepwell.tv, dict(
        A=A, B=np.ones((5, 2)), lam=0.1, shape=(3,), kind="huber", eps=0.1, bounds=(0.0, 2.0), noise=None, joint=False,
        spacing=None, across=None, weights=None, mask=None, x0=None, dual=None, tol=1e-2, maxiter=2, axis=1,
        callback=None, comm=None)),
    "tv_gap": (stepwell.tv_gap, dict(
        A=A, b=np.ones((5, 2)), x=np.ones((3, 2)), lam=0.1, shape=(3,), kind="huber", eps=0.1, bounds=(0.0, 2.0),
        spacing=None, across=None, weights=None, mask=None, dual=None, tol=1e-2, maxiter=2, axis=1)),
    "lasso": (stepwell.lasso, dict(
        A=A, B=np.ones((5, 2)), lam=0.1, groups=None, transform=None, bounds=(0.0, 2.0), method="auto", x0=None,
        tol=1e-2, maxiter=2, axis=1, callback=None)),
    "cosine_preconditioner": (stepwell.cosine_preconditioner, dict(
        A=A, B=np.ones((5, 2)), lam=0.1, shape=(3,), axis=1)),
    "curve_fit": (stepwell.curve_fit, dict(
        f=calls.curve, xdata=np.arange(6.0), ydata=np.ones((2, 6)), p0=np.ones(2), sigma=None, absolute_sigma=False,
        check_finite=None, bounds=(0.0, 2.0), method=None, jac=None, full_output=False, nan_policy=None, mask=None,
        fixed=None, linear=None, own_x=None, loss="linear", f_scale=1.0, x_scale="jac", starts=None,
        uncertainty="covariance", ftol=1e-8, xtol=None, gtol=1e-8, maxiter=9, maxfev=None, max_nfev=None, threads=1,
        progress=None, callback=None, dim=None)),
    "least_squares": (stepwell.least_squares, dict(
        fun=calls.residual, x0=np.ones(2), jac=None, bounds=(0.0, 2.0), method=None, ftol=1e-8, xtol=None, gtol=1e-8,
        x_scale="jac", loss="linear", f_scale=1.0, diff_step=None, tr_solver=None, tr_options=None, jac_sparsity=None,
        max_nfev=None, verbose=0, args=(), kwargs=None, callback=None, workers=None, fixed=None, starts=None,
        uncertainty="covariance", maxiter=9, threads=1, progress=None)),
    "check_jac": (stepwell.check_jac, dict(
        fun=calls.residual, x0=np.ones(2), jac=calls.slopes, bounds=(0.0, 2.0), args=(), kwargs=None, rtol=1e-5)),
    "find_axis": (tomography.find_axis, dict(
        integrals=RNG.random((19, 1, 20)), angles=np.arange(0, 181, 10.0))),
    "extract_endmembers": (unmixing.extract_endmembers, dict(
        pixels=RNG.random((20, 4)), count=3, method="nfindr", seed=0)),
    "adjoint_error": (stepwell.adjoint_error, dict(A=A, shape=None, like=None, trials=2, seed=0)),
    "nnls": (stepwell.nnls, dict(
        A=A, b=np.ones((2, 5)), method="auto", insertion="guarded", lam=0.1, L=np.eye(3), noise=None,
        chi2=1.02, uncertainty=None, mask=None, weights=None, which=None, warm_start=None, maxiter=9, tol=None, axis=0,
        threads=1, progress=None, dim=None)),
    "lsq_linear": (stepwell.lsq_linear, dict(
        A=A, b=np.ones((2, 5)), bounds=(0.0, 2.0), sum_bounds=None, equality=None, mask=None, weights=None, which=None,
        lam=0.1, L=np.eye(3), noise=None, chi2=1.02, uncertainty=None, warm_start=None, method="auto",
        insertion="guarded", maxiter=9, tol=None, threads=1, progress=None, dim=None)),
    "lsq_gram": (stepwell.lsq_gram, dict(
        G=A.T @ A, c=np.ones((2, 3)), bounds=(0.0, 2.0), bb=None, rows=None, sum_bounds=None, mask=None, lam=0.1,
        L=np.eye(3), noise=None, uncertainty=None, warm_start=None, maxiter=9, tol=None, threads=1, progress=None)),
    "Convolution": (stepwell.Convolution, dict(pulse=ONES, n=4, m=5, origin=1)),
    "Convolution.matvec": (stepwell.Convolution(ONES, 4).matvec, dict(x=np.ones(4))),
    "Convolution.rmatvec": (stepwell.Convolution(ONES, 4).rmatvec, dict(y=np.ones(4))),
    "as_operator": (operators.as_operator, dict(A=A, dtype=None, name="A", columns=None)),
    "from_functions": (operators.from_functions, dict(
        forward=calls.forward, adjoint=calls.forward, shape=(3, 3), blocks=False, like=None, name="mine")),
    "gradient": (operators.gradient, dict(shape=(3, 4), like=None)),
    "in_library_of": (operators.in_library_of, dict(matrix=sp.eye(3, format="csr"), like=ONES)),
    "split": (distributed.split, dict(n=10, comm="self", align=1, chunk=None, whole_chunks=False, timeout=None)),
    "chunk_sums": (distributed.split(7, "self").chunk_sums, dict(values=np.ones(7))),
    "thread_communicators": (distributed.thread_communicators, dict(size=2, timeout=1.0)),
    "run_threads": (distributed.run_threads, dict(size=2, program=lambda comm: 1, timeout=5.0)),
    "problems.get": (problems.get, dict(name="rosenbrock", xp=None, dtype=None, device=None, n=4, c=1.0)),
    "problems.get grid": (problems.get, dict(name="torsion", nx=4, ny=5)),
    "synthetic_shots": (waveform.synthetic_shots, dict(
        count=2, samples=60, returns=1, noise=1.0, background=1.0, seed=0)),
    "gedi_shots": (waveform.gedi_shots, dict(
        tx=RNG.random((2, 30)), rx=RNG.random((2, 80)), rx_count=np.array([70, 80]), noise_mean=np.zeros(2),
        samples=40)),
    "deconvolve": (waveform.deconvolve, dict(shots=SHOTS, lam=0.1, progress=None, dim=None, threads=1, put=None)),
    "convolve": (waveform.convolve, dict(shots=SHOTS, amplitudes=SHOTS.truth)),
    "noise_threshold": (waveform.noise_threshold, dict(done=DONE, factor=8.0)),
    "find_returns": (waveform.find_returns, dict(amplitudes=np.ones(5), least=0.0)),
    "parallel_beam": (tomography.parallel_beam, dict(size=4, angles=[0.0, 90.0], detectors=4, center=None)),
    "fan_beam": (tomography.fan_beam, dict(
        size=4, angles=[0.0], source=10.0, detector=20.0, detectors=4, spacing=1.0, center=None)),
    "default_detectors": (tomography.default_detectors, dict(size=4)),
    "shepp_logan_3d": (tomography.shepp_logan_3d, dict(size=4)),
    "add_noise": (tomography.add_noise, dict(B=np.ones((5, 2)), level=0.1, seed=0)),
    "largest_singular_value": (tomography.largest_singular_value, dict(A=A)),
    "line_integrals": (tomography.line_integrals, dict(
        projections=np.ones((3, 2, 9)), flat=np.full((2, 9), 2.0), dark=np.zeros((2, 9)), border=1)),
    "sinograms": (tomography.sinograms, dict(integrals=np.ones((3, 2, 9)))),
    "signal_to_noise": (tomography.signal_to_noise, dict(image=np.ones((3, 3)), truth=np.ones((3, 3)))),
    "project_slices": (tomography.project_slices, dict(A=A, slices=2)),
    "volume_gradient": (tomography.volume_gradient, dict(shape=(3, 3, 3), comm=None)),
    "slices_of_rank": (tomography.slices_of_rank, dict(slices=4, comm="self")),
    "T2Model": (t2.T2Model, dict(
        echoes=6, te=0.01, bins=5, t2=(0.01, 2.0), angles=(150.0, 180.0, 2), t1=1.0, lam="chi2", chi2=1.02, noise=None,
        smooth="I", myelin=(0.01, 0.025), middle=0.2)),
    "echo_decays": (t2.echo_decays, dict(
        echoes=6, te=0.01, t2=np.array([0.01, 0.1]), angles=np.array([150.0, 180.0]), t1=1.0)),
    "fit_voxels": (t2.fit_voxels, dict(
        model=MODEL, signals=np.ones((2, 6)), angles=None, errors=False, like=None, threads=1, progress=None)),
    "t2.simulate": (t2.simulate, dict(shape=(3, 3, 1), echoes=6, te=0.01, snr=100.0, t1=1.0, seed=0)),
    "relaxation.RelaxationModel": (relaxation.RelaxationModel, dict(
        quantity="t2", points=(0.01, 0.02, 0.04, 0.08), tr=None, offset=False, signed=False,
        bounds={"T2": (0.01, 1.0)})),
    "relaxation.fit_voxels": (relaxation.fit_voxels, dict(
        model=RELAXATION, signals=np.ones((2, 4)), b1=None, like=None, threads=1)),
    "relaxation.simulate": (relaxation.simulate, dict(
        quantity="t2", shape=(3, 3, 1), points=(0.01, 0.02, 0.04), snr=100.0, tr=None, seed=0)),
    "decomposition.decompose": (decomposition.decompose, dict(
        shots=GAUSSIANS.shots, starts="peaks", most=3, level=0.05, threads=1, put=None, progress=None)),
    "decomposition.decomposition_table": (decomposition.decomposition_table, dict(
        done=decomposition.decompose(GAUSSIANS.shots, most=2), offset=0)),
    "decomposition.simulate": (decomposition.simulate, dict(
        count=2, samples=80, returns=1, noise=1.0, background=1.0, seed=0)),
    "models": (stepwell.models.gaussians, dict(count=1, offset=False)),
    "models.gaussian2d": (stepwell.models.gaussian2d, dict(elliptical=False)),
    "models.tofts": (stepwell.models.tofts, dict(extended=False)),
    "part": (distributed.part, dict(f=1.0)),

    "SpectralLibrary": (unmixing.SpectralLibrary, dict(
        spectra=LIBRARY.spectra, names=["a", "b"], classes=["a", "b"], wavelengths=LIBRARY.wavelengths)),
    "SpectralLibrary.at": (LIBRARY.at, dict(wavelengths=np.array([401.0]))),
    "Unmixing": (unmixing.Unmixing, dict(
        library=LIBRARY, total="most", lower=0.0, upper=1.0, noise=None, by_class=True, draws=0, subset=2, best=False,
        seed=0)),
    "unmix_pixels": (unmixing.unmix_pixels, dict(
        plan=PLAN, pixels=np.ones((2, 4)), like=None, threads=1, line=0, samples=None)),
    "unmixing.simulate": (unmixing.simulate, dict(lines=3, samples=3, bands=6, noise=0.1, variants=1, seed=0)),
    "VoronoiEnergy": (voronoi.VoronoiEnergy, dict(
        density=np.ones((8, 8)), count=3, resolution=None, method="exact", scale=1.0, threads=1, like=None, history=0)),
    "assign": (voronoi.assign, dict(sites=SITES, shape=(8, 8), method="exact", check=False, threads=1)),
    "centroidal": (voronoi.centroidal, dict(
        sites=3, density=1.0, resolution=8, method="lbfgsb", assignment="exact", seed=0, maxiter=1, maxcor=2, ftol=1e-3,
        gtol=1e-3, time_limit=1.0, threads=1, like=None, time_parts=False, callback=None, progress=None)),
    "cvt_energy": (voronoi.cvt_energy, dict(
        sites=SITES, density=np.ones((8, 8)), resolution=None, method="exact", threads=1)),
    "delaunay_mesh": (voronoi.delaunay_mesh, dict(sites=SITES, extent=(1.0, 1.0), density=None)),
    "draw_sites": (voronoi.draw_sites, dict(count=3, density=1.0, resolution=8, seed=0, like=None)),
    "mesh_quality": (quality.mesh_quality, dict(mesh=MESH)),
    "plotting_route": (voronoi.plotting_route, dict(points=SITES, extent=None, method="auto")),
    "voronoi_cells": (voronoi.voronoi_cells, dict(sites=SITES, extent=(1.0, 1.0))),
}  # fmt: skip
