"""The quadratic that stands for ½‖Ax‖² in a step: AᵀA fitted in the cosine basis, and exact along recent steps.

The base is cs·S, S diagonal in the cosine basis: one product AᵀAv with v = Cᵀ(random signs) gives the diagonal of
C AᵀA Cᵀ with noise, which diagonals.py averages; where it has much structure, a second product follows. AᵀA along the
latest steps is known without a product, from differences of gradients: with D the steps and Y = AᵀA D,

    H = cs·S − (cs·S D)(Dᵀ cs·S D)⁻¹(cs·S D)ᵀ + Y (DᵀY)⁻¹ Yᵀ,

the block form of the BFGS update. Then HD = Y, and H majorises AᵀA wherever cs·S does: both differ from D's part by
their Schur complements, which keep the order.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from stepwell.arrays import (
    Array,
    as_float,
    copy_to_device_of,
    dtype_name,
    matrix_product,
    namespace_of,
    on_device_of,
    to_host,
)
from stepwell.krylov.tv.diagonals import by_frequency, structure
from stepwell.krylov.tv.given import Given
from stepwell.krylov.tv.task import Grid, Task, column_sums
from stepwell.krylov.tv.transforms import Cosines
from stepwell.operators.matrices import power_near

#: Steps along which H is exact.
PAIRS = 5
#: Directions whose part in the metric is smaller than this beside the largest are left out.
DEPENDENT = 1e-8
#: Entries of A times a vector of ones, or of random signs, below and above which A is divided by its size.
SOUND_SIZES = {"float32": (1e-10, 1e10), "float64": (1e-60, 1e60)}
#: Rounding errors of a product are below so many machine epsilons.
ROUNDING = 64.0


@dataclass
class Base:
    """S for one problem (axes of length 1 broadcast), ‖A‖_F²/n, A1, AᵀA1, how far the adjoint is from one, A's size."""

    values: Array
    geometric_mean: float
    column_square: float
    ones_data: Array
    ones_image: Array
    ones_square: float
    adjoint_error: float
    size: float
    products: float = 2.0


def fit_base(task: Task) -> Base:
    """Fit S from one product with a random vector, and apply A to a constant: two products."""
    grid = task.grid
    if task.identity:
        one = _ones(task)
        values = copy_to_device_of(np.ones((1,) * (1 + len(grid.dims))), task.B)
        return Base(
            values, geometric_mean=1.0, column_square=1.0, ones_data=one, ones_image=one,
            ones_square=float(grid.pixels), adjoint_error=0.0, size=1.0, products=0.0,
        )  # fmt: skip
    plane = Grid(grid.shape, 1, grid.weights[-len(grid.shape) :])
    cosines = Cosines(grid.shape, task.B)
    signs = np.random.default_rng(1).choice([-1.0, 1.0], size=(1, *grid.shape))
    probe = plane.columns(cosines.inverse(copy_to_device_of(signs, task.B)))
    ones = _ones(task)
    both = namespace_of(task.B).concat([probe, ones], axis=1)
    data = task.product(both)
    back = task.back_product(data)
    left, right = column_sums(data, data), column_sums(both, back)
    sizes = left + np.sqrt(column_sums(both, both) * column_sums(back, back))
    cross = column_sums(data[:, :1], data[:, 1:]) - column_sums(probe, back[:, 1:])
    errors = np.concatenate([np.abs(left - right), np.abs(cross)])
    scale = np.concatenate([sizes, [np.sqrt(sizes.prod())]])
    with np.errstate(invalid="ignore"):
        adjoint_error = float(np.max(np.where(scale > 0, errors / np.where(scale > 0, scale, 1), 0.0)))
    diagonal = signs[0] * to_host(cosines.forward(plane.images(back[:, :1])))[0]
    radial = by_frequency(diagonal, grid.shape, plane.weights)
    share = structure(diagonal, radial)
    products = 2.0
    if share.again:  # few angles: a second probe halves the noise
        more = np.random.default_rng(2).choice([-1.0, 1.0], size=(1, *grid.shape))
        image = task.back_product(task.product(plane.columns(cosines.inverse(copy_to_device_of(more, task.B)))))
        diagonal = (diagonal + more[0] * to_host(cosines.forward(plane.images(image)))[0]) / 2
        radial = by_frequency(diagonal, grid.shape, plane.weights)
        products = 3.0
    values = share.blended(diagonal, radial)
    unit = power_near(float(values.max()))  # so that another unit of A changes no bit
    mean = unit * float(np.exp(np.mean(np.log(values / unit))))
    shaped = values[None, None] if grid.across else values[None]
    return Base(
        copy_to_device_of(shaped, task.B),
        mean,
        max(0.0, float(diagonal.mean())),
        data[:, 1:],
        back[:, 1:],
        float(left[1]) if left[1] > _seen_as_zero(task) * diagonal.size * abs(diagonal.mean()) else 0.0,
        adjoint_error,
        float(np.max(np.abs(to_host(data)), initial=0.0)),
        products,
    )


def fit_in_range(given: Given) -> tuple[Given, Base]:
    """Fit the metric; divide an A whose squares leave the range of the dtype by a power of two, and fit again."""
    base = fit_base(given.task)
    least, most = SOUND_SIZES[given.task.precision]
    for _ in range(3):
        if least <= base.size <= most or base.size == 0 or np.isnan(base.size):
            break
        given = given.in_units(power_near(base.size, 120 if most == 1e10 else 1000) if np.isfinite(base.size) else most)
        before = base.products
        base = fit_base(given.task)
        base.products += before
    return given, base


def _ones(task: Task) -> Array:
    """Return a column of ones, made where the data are."""
    B = task.B
    return namespace_of(B).ones((task.grid.pixels, 1), dtype=B.dtype, **on_device_of(B))


def _seen_as_zero(task: Task) -> float:
    """Return the part of ‖A‖_F² that ‖A1‖² has by rounding alone, where A1 is zero."""
    return (ROUNDING * task.epsilon) ** 2


@dataclass
class Model:
    """H of every problem, and the inverse of H + ρ∇ᵀ∇ + μ, on blocks of cosine coefficients ``(batch, *dims)``."""

    diagonal: Array
    inverse: Array
    rows: Array | None
    signs: Array | None
    solved: Array | None
    small: Array | None

    def times(self, coefficients: Array) -> Array:
        """H times a block."""
        coefficients = as_float(coefficients, dtype_name(self.diagonal.dtype))
        image = self.diagonal * coefficients
        return image if self.rows is None else image + self._combined(self.rows, self.signs, self.rows, coefficients)

    def solve(self, coefficients: Array) -> Array:
        """(H + ρ∇ᵀ∇ + μ)⁻¹ times a block, by Woodbury's formula."""
        image = self.inverse * coefficients
        return (
            image if self.rows is None else image - self._combined(self.solved, self.small, self.solved, coefficients)
        )

    def take(self, rows: np.ndarray) -> Model:
        """Return H of some problems."""
        return Model(*(_taken(getattr(self, one.name), rows) for one in fields(self)))

    @staticmethod
    def _combined(left: Array, middle: Array, right: Array, block: Array) -> Array:
        """Return leftᵀ middle right block."""
        xp = namespace_of(block)
        parts = matrix_product(right, xp.reshape(block, (block.shape[0], -1, 1)))
        parts = matrix_product(middle, parts)
        return xp.reshape(matrix_product(xp.matrix_transpose(parts), left), block.shape)


def _taken(block: Array | None, rows: np.ndarray) -> Array | None:
    if block is None:
        return None
    return namespace_of(block).take(block, copy_to_device_of(rows, block), axis=0)


def build_model(
    base: Base, scales: np.ndarray, shift: Array, steps: Array | None, images: Array | None, like: Array, dtype: str
) -> Model:
    """Return H for problems with scales cs, recent steps D and Y = AᵀA D, rows of cosine coefficients, in a dtype."""
    xp = namespace_of(like)
    shape = (-1,) + (1,) * (like.ndim - 1)
    diagonal = as_float(base.values * copy_to_device_of(scales.reshape(shape), like), dtype)
    inverse = 1 / (diagonal + as_float(shift, dtype))
    if steps is None or images is None:
        return Model(diagonal, inverse, None, None, None, None)
    steps, images = as_float(steps, dtype), as_float(images, dtype)
    flat = xp.reshape(xp.broadcast_to(diagonal, like.shape), (like.shape[0], 1, -1))
    flat_inverse = xp.reshape(xp.broadcast_to(inverse, like.shape), (like.shape[0], 1, -1))
    weighted = steps * flat
    basis, inside = _conjugate(
        to_host(matrix_product(weighted, xp.matrix_transpose(steps))),
        to_host(matrix_product(steps, xp.matrix_transpose(images))),
        max(DEPENDENT, ROUNDING * float(np.finfo(dtype).eps)),
    )
    there = [copy_to_device_of(part, steps) for part in (inside, basis)]
    rows = _both(there[0], images, there[1], weighted)
    solved = rows * flat_inverse
    count = basis.shape[1]
    signs = np.broadcast_to(np.diag([1.0] * count + [-1.0] * count), (like.shape[0], 2 * count, 2 * count))
    small = np.linalg.inv(signs + to_host(matrix_product(rows, xp.matrix_transpose(solved))))
    signs_there, small_there = (copy_to_device_of(np.array(part), steps) for part in (signs, small))
    return Model(diagonal, inverse, rows, signs_there, solved, small_there)


def _both(first: Array, images: Array, second: Array, weighted: Array) -> Array:
    """Return two products, the rows of one behind those of the other."""
    if not isinstance(images, np.ndarray):
        return namespace_of(images).concat([matrix_product(first, images), matrix_product(second, weighted)], axis=1)
    count = first.shape[1]
    found = np.empty((images.shape[0], 2 * count, images.shape[2]), dtype=images.dtype)
    np.matmul(first, images, out=found[:, :count])
    np.matmul(second, weighted, out=found[:, count:])
    return found


def _conjugate(metric: np.ndarray, curvature: np.ndarray, dependent: float) -> tuple[np.ndarray, np.ndarray]:
    """Return T and W with T M Tᵀ = I and W K Wᵀ = I on the directions kept, zero rows for those left out.

    M = Dᵀ cs·S D and K = DᵀY of every problem; T D spans what W D does. Left out is what is smaller than `dependent`
    beside the largest.
    """
    metric, curvature = metric.astype(np.float64), curvature.astype(np.float64)
    sound = np.isfinite(metric).all(axis=(1, 2)) & np.isfinite(curvature).all(axis=(1, 2))
    M, K = (np.where(sound[:, None, None], (part + _turned(part)) / 2, 0.0) for part in (metric, curvature))
    values, vectors = np.linalg.eigh(M)
    keep = values > dependent * np.maximum(values[:, -1:], 0.0)
    first = _turned(vectors * np.where(keep, 1 / np.sqrt(np.where(keep, values, 1.0)), 0.0)[:, None, :])
    values, vectors = np.linalg.eigh(first @ K @ _turned(first))
    keep = values > dependent
    basis = np.where(keep[:, :, None], _turned(vectors) @ first, 0.0)
    return basis, basis / np.sqrt(np.where(keep, values, 1.0))[:, :, None]


def _turned(matrices: np.ndarray) -> np.ndarray:
    return np.swapaxes(matrices, -1, -2)
