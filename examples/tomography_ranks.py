"""Reconstruct a volume whose slices lie over ranks, with a penalty on differences in all three directions.

Run: mpiexec -n 4 python -m mpi4py examples/tomography_ranks.py [--size 64] [--angles 45]

Every rank has some slices and their sinograms, and gets these slices back. A rank asks its neighbour for one slice in
each product with the penalty; the solver's own messages are two a step, of a few numbers. On one rank it takes the same
steps.
"""

from __future__ import annotations

import argparse

import numpy as np
from mpi4py import MPI

import stepwell
from stepwell.apps import tomography

parser = argparse.ArgumentParser()
parser.add_argument("--size", type=int, default=64)
parser.add_argument("--angles", type=int, default=45)
options = parser.parse_args()

comm = MPI.COMM_WORLD
first, last = tomography.slices_of_rank(options.size, comm)
one = tomography.parallel_beam(options.size, angles=np.arange(options.angles) * (180 / options.angles))

# This rank's slices, their sinograms, and noise that is the same on any number of ranks: seeded by the slice.
truth = tomography.shepp_logan_3d(options.size)[first:last]
clean = np.array([one @ image.ravel() for image in truth]).reshape(last - first, one.shape[0])
noise = np.array([np.random.default_rng(first + i).standard_normal(one.shape[0]) for i in range(last - first)])
b = (clean + 0.05 * noise.reshape(clean.shape)).ravel()

A = tomography.project_slices(one, last - first)
L = tomography.volume_gradient((last - first, options.size, options.size), comm)
result = stepwell.tikhonov(A, b, 0.5, L, tol=1e-4, comm=comm)

error = comm.allreduce(float(np.sum((result.x - truth.ravel()) ** 2)))
signal = comm.allreduce(float(np.sum(truth**2)))
if comm.rank == 0:
    print(f"{options.size} slices on {comm.size} ranks: {result.message}")
    print(f"{result.iterations} steps, signal to noise {10 * np.log10(signal / error):.2f} dB, {result.seconds:.1f} s")
