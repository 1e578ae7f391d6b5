"""A small scan that the tests of `tv` share: three slices of the phantom, twenty angles."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from stepwell.apps import tomography

SIDE = 24
SHAPE = (SIDE, SIDE)


def scan(slices=(12, 9, 15), noise=0.02, seed=1, side=SIDE):
    A = sp.csr_matrix(tomography.parallel_beam(side, angles=np.arange(0, 180, 9.0)))
    X = tomography.shepp_logan_3d(side)[list(slices)].reshape(len(slices), -1).T
    return A, tomography.add_noise(A @ X, noise, seed), X
