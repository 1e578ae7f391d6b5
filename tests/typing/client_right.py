"""A client program that mypy --strict accepts: every call is right, and every attribute has the type it says.

It is read by a type checker, never run.
"""

from __future__ import annotations

from typing import assert_type

import numpy as np
from numpy.typing import NDArray

import stepwell
from stepwell import (
    Convolution,
    LinearResult,
    LinearStatus,
    NNLSResult,
    NNLSStatus,
    Progress,
    ProjectedCG,
    SolverStatus,
)

A = np.random.default_rng(0).normal(size=(30, 20))
b = A[:, 0]

# ---- non-negative least squares ----

one = stepwell.nnls(A, b, method="qr", lam=0.1, maxiter=100, tol=1e-9, threads=2)
assert_type(one, NNLSResult)
x, residual = one
many = stepwell.nnls(A, A.T, axis=0, insertion="single", warm_start="chain", progress=lambda done, systems: print(done))
assert_type(many.message, str)
assert_type(many.method, str)
assert_type(many.reason, NNLSStatus | list[NNLSStatus])
print(many.status.max(), many.success.all(), many.x.shape)
stepwell.nnls([[1.0, 2.0], [3.0, 4.0]], [1.0, 2.0], warm_start=[1.0, 0.0])

wave = Convolution(b, n=40, m=50, origin=3)
stepwell.nnls(wave, np.ones((7, 50)))
assert_type(wave.shape, tuple[int, ...])
assert_type(wave.T, Convolution)
print(wave @ np.ones(40), wave.T @ np.ones((50, 2)))

# ---- many right-hand sides ----

result = stepwell.tikhonov(A, A, 0.5, np.eye(20), method="block", tol=1e-4, maxiter=50, axis=1, joint=True)
assert_type(result, LinearResult)
assert_type(result.success, bool)
assert_type(result.message, str)
assert_type(result.reason, LinearStatus | list[LinearStatus])
print(result.status[0].message, result.lam)
print(result.iterations.max(), result.residual.max())  # numbers of a vector, which types do not tell
assert_type(result.calls, int)
assert_type(result.seconds, float)
stepwell.tikhonov(A, b, "gcv")
stepwell.tikhonov(A, A, [0.1] * 20, noise=np.ones(20))
stepwell.tikhonov((lambda v: A @ v, lambda v: A.T @ v), b, 0.1, preconditioner=np.ones(20))
stepwell.tikhonov(wave, np.ones(50), 0.1, memory=1e9, width=float("inf"))


def watch(told: Progress) -> bool:
    assert_type(told.residual, float)
    return told.iteration > 10


stepwell.cg(A.T @ A, A[0], callback=watch, x0=np.zeros(20))
stepwell.cg(lambda v: 2 * v, A[0])

solver = ProjectedCG(A, 0.5, augmented=True)
assert_type(solver.solve(b, tol=1e-3, maxiter=10), LinearResult)
assert_type(solver.directions, int)
assert_type(ProjectedCG.load("directions.npz", A), ProjectedCG)


def tell(status: SolverStatus) -> str:
    return f"{status.value}: {status.message}" if status.success else status.name


tell(NNLSStatus.LIMIT)
tell(LinearStatus.CONVERGED)
assert_type(NNLSStatus.of(1), NNLSStatus)

# ---- applications and operators ----

print(
    stepwell.apps.tomography.parallel_beam(16, angles=np.arange(9.0)).shape,
    stepwell.apps.waveform.synthetic_shots(3).origin,
)
print(stepwell.apps.voronoi.centroidal, stepwell.operators.gradient((3, 3)))
assert_type(stepwell.adjoint_error(A), float)

# ---- total variation ----

image = stepwell.tv(A, b, "discrepancy", noise=0.1, shape=(4, 5), kind="huber", eps=0.1, bounds=(0, None), tol=1e-2)
assert_type(image, stepwell.TVResult)
assert_type(image.success, bool)
assert_type(image.gap, NDArray[np.float64])
assert_type(image.reason, stepwell.TVStatus | list[stepwell.TVStatus])
stepwell.tv(None, np.ones((4, 5)), 0.1, shape=(4, 5), callback=lambda told: told.gap < 0.1, x0=None, axis=1)
assert_type(stepwell.tv_gap(A, b, image.x, 0.1, shape=(4, 5)), stepwell.TVGap)
