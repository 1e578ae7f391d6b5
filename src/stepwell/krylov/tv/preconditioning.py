"""The cosine metric as a preconditioner of `tikhonov` where L is the gradient of images."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from stepwell.arrays import Array, copy_to_device_of, host_view, same_library
from stepwell.common.checks import read_real, require
from stepwell.common.typing import ArrayLike, OperatorLike
from stepwell.krylov.tv.inputs import read_problem
from stepwell.krylov.tv.metric import fit_in_range
from stepwell.krylov.tv.task import Grid
from stepwell.krylov.tv.transforms import Cosines, eigenvalues_like
from stepwell.operators.error_state import own_arithmetic


def cosine_preconditioner(
    A: OperatorLike, B: ArrayLike, lam: float, *, shape: Sequence[int], axis: Any = 1
) -> Callable[[Array], Array]:
    """Approximate (AᵀA + λ²∇ᵀ∇)⁻¹ by a diagonal in the cosine basis, for `tikhonov` with ``L=gradient(shape)``.

    For operators that act on all parts of an image alike: tomography over all angles, blur. The diagonal of AᵀA is
    estimated from two products, three where angles are few.

    Parameters
    ----------
    A, B, axis
        As in :func:`stepwell.tikhonov`; of B only the library, the dtype and the shape count.
    lam : float
        λ, above 0, squared as in ``tikhonov``; one near the one wanted will do, where a rule is to choose it.
    shape : sequence of int
        The image's shape.

    Returns
    -------
    callable
        Maps blocks of columns to blocks of columns; symmetric and positive definite. For ``preconditioner=``.

    Examples
    --------
    >>> import numpy as np
    >>> import stepwell
    >>> from stepwell.apps import tomography
    >>> A = tomography.parallel_beam(32, angles=np.arange(0, 180, 6.0))
    >>> b = A @ tomography.shepp_logan_3d(32)[16].ravel()
    >>> L = stepwell.operators.gradient((32, 32))
    >>> M = stepwell.cosine_preconditioner(A, b, 1.0, shape=(32, 32))
    >>> plain, quick = (stepwell.tikhonov(A, b, 1.0, L, preconditioner=one) for one in (None, M))
    >>> bool(quick.products < 0.7 * plain.products)
    True
    """
    lam = read_real("lam", lam, above=0)
    given = read_problem(
        A, B, None, None, shape=shape, kind="isotropic", eps=None, bounds=None, spacing=None, across=None, axis=axis
    )
    with own_arithmetic():
        given, base = fit_in_range(given)
        like = given.task.B
        sides, weights = given.task.grid.shape, given.task.grid.weights
        scale = given.unit * given.unit  # A was divided by the unit
        weight = (lam / given.unit) * (lam / given.unit)
        require(0 < weight < math.inf, "lam", lam, "a number whose square is one beside the squared size of A")
        diagonal = 1 / (base.values + weight * eigenvalues_like(sides, weights, like)) / scale
    cosines = Cosines(sides, like)

    def precondition(block: Array) -> Array:
        if not same_library(block, like):
            return copy_to_device_of(precondition(host_view(block)), block)
        grid = Grid(sides, int(block.shape[1]), weights)
        return grid.columns(cosines.inverse(cosines.forward(grid.images(block)) * diagonal))

    return precondition
