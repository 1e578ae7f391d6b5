"""The problem in the solver's units: operator, data, λ, bounds, and the grid on which images lie."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from stepwell.arrays import (
    Array,
    as_float,
    copy_to_device_of,
    double_precision,
    dtype_name,
    namespace_of,
    take_columns,
    to_host,
)
from stepwell.krylov.tv.differences import differences, sizes
from stepwell.krylov.tv.shrinking import Widths
from stepwell.krylov.tv.transforms import Cosines, eigenvalues_like
from stepwell.operators import Operator


@dataclass(frozen=True)
class Grid:
    """Where pixels lie: images of ``shape``, a problem per column, or one problem of all columns coupled ``across``.

    A block of images is ``(batch, *dims)``: the problems, and the sides of one.
    """

    shape: tuple[int, ...]
    count: int
    weights: tuple[float, ...]
    across: bool = False

    @property
    def batch(self) -> int:
        """Number of problems."""
        return 1 if self.across else self.count

    @property
    def dims(self) -> tuple[int, ...]:
        """Sides of one problem."""
        return (self.count, *self.shape) if self.across else self.shape

    @property
    def pixels(self) -> int:
        """Unknowns of one column."""
        return math.prod(self.shape)

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes of an image block that belong to one problem."""
        return tuple(range(1, 1 + len(self.dims)))

    def images(self, columns: Array) -> Array:
        """Return a block of columns, pixels by columns, as images."""
        xp = namespace_of(columns)
        lead = (1, columns.shape[1]) if self.across else (columns.shape[1],)
        return xp.reshape(xp.asarray(columns.T, copy=True), (*lead, *self.shape))

    def columns(self, images: Array) -> Array:
        """Return images as a block of columns."""
        return namespace_of(images).reshape(images, (-1, self.pixels)).T

    def eigenvalues(self, like: Array) -> Array:
        """Eigenvalues of ∇ᵀ∇ in the order of the cosine coefficients of one problem, in the kind of an array."""
        return eigenvalues_like(self.dims, self.weights, like)

    def of_problems(self, of_columns: np.ndarray) -> np.ndarray:
        """Return sums over data, one per column, as one per problem."""
        return of_columns.sum(keepdims=True) if self.across else of_columns

    def of_columns(self, of_problems: np.ndarray) -> np.ndarray:
        """Return what each problem has as what each column has."""
        return np.broadcast_to(of_problems, (self.count,)) if self.across else of_problems


@dataclass
class Task:
    """min ½‖Ax − b‖² + λ TV(x) within bounds, for a batch of problems.

    ``lower`` and ``upper`` are image blocks that broadcast, None where there is no bound; they may hold infinities.
    ``eps`` above 0 is Huber's. ``identity``: A is the identity, and products are free. ``widths``: weights and masks.
    ``narrow``: A and the caller's arrays are in single precision, and the task's in double.
    """

    A: Operator
    B: Array
    grid: Grid
    lam: np.ndarray
    lower: Array | None = None
    upper: Array | None = None
    anisotropic: bool = False
    eps: float = 0.0
    identity: bool = False
    widths: Widths | None = None
    narrow: bool = False
    cosines: Cosines = field(init=False)

    def __post_init__(self) -> None:
        self.cosines = Cosines(self.grid.dims, self.B)

    @property
    def bounded(self) -> bool:
        """Whether there is a bound anywhere."""
        return self.lower is not None or self.upper is not None

    @property
    def precision(self) -> str:
        """The dtype of products with A and of the answer."""
        return "float32" if self.narrow else dtype_name(self.B.dtype)

    @property
    def epsilon(self) -> float:
        """Machine epsilon of products with A."""
        return float(np.finfo(self.precision).eps)

    def rounded(self, block: Array) -> Array:
        """Return numbers as the answer has them."""
        return as_float(as_float(block, "float32"), "float64") if self.narrow else block

    def product(self, columns: Array) -> Array:
        """A times columns."""
        return self._applied(self.A.forward, columns)

    def back_product(self, data: Array) -> Array:
        """Aᵀ times columns."""
        return self._applied(self.A.adjoint, data)

    def _applied(self, function: Callable[[Array], Array], block: Array) -> Array:
        return as_float(function(as_float(block, "float32")), "float64") if self.narrow else function(block)

    def forward(self, images: Array) -> Array:
        """A times images, as data columns."""
        return self.product(self.grid.columns(images))

    def adjoint(self, data: Array) -> Array:
        """Aᵀ times data columns, as images."""
        return self.grid.images(self.back_product(data))

    def take(self, rows: np.ndarray) -> Task:
        """Return some of the problems."""
        if rows.size == self.grid.batch:
            return self
        other = object.__new__(Task)
        other.__dict__.update(self.__dict__)
        other.B, other.lam = take_columns(self.B, rows), self.lam[rows]
        other.grid = Grid(self.grid.shape, rows.size, self.grid.weights)
        other.lower, other.upper = (take_images(side, rows) for side in (self.lower, self.upper))
        return other

    def objective(self, images: Array, residual: Array) -> np.ndarray:
        """f of every problem, given Ax − b."""
        squares = self.grid.of_problems(column_sums(residual, residual))
        found: np.ndarray = 0.5 * squares + self.lam * self.variation(images)
        return found

    def variation(self, images: Array) -> np.ndarray:
        """TV of every problem, Huber's where eps is above 0."""
        field = differences(images, self.grid.weights)
        widths = None if self.widths is None else self.widths.like(images)
        size = sizes(field if widths is None else widths.counting(field), self.anisotropic)
        if self.eps:
            xp = namespace_of(size)
            size = xp.where(size > self.eps, size - self.eps / 2, size * size / (2 * self.eps))
        return image_sums(size if widths is None else size * widths.values, leading=1)

    def nearest(self, images: Array) -> Array:
        """Return the nearest images within the bounds."""
        xp = namespace_of(images)
        if self.lower is not None:
            images = xp.where(images < self.lower, self.lower, images)
        return images if self.upper is None else xp.where(images > self.upper, self.upper, images)


def take_images(block: Array | None, rows: np.ndarray, axis: int = 0) -> Array | None:
    """Return some problems of a block of images, or of one that broadcasts over problems."""
    if block is None or block.shape[axis] == 1:
        return block
    return namespace_of(block).take(block, copy_to_device_of(rows, block), axis=axis)


def column_sums(left: Array, right: Array) -> np.ndarray:
    """Inner products of equal columns, summed in double precision, on the host."""
    xp = namespace_of(left)
    if isinstance(left, np.ndarray):
        found: np.ndarray = np.einsum("ij,ij->j", left, right, dtype=np.float64)
        return found
    with double_precision(left):
        wide = xp.astype(left, xp.float64) * xp.astype(right, xp.float64)
        return to_host(xp.sum(wide, axis=0))


def image_sums(images: Array, leading: int = 0) -> np.ndarray:
    """Sums over all pixels of each problem, in double precision, on the host; ``leading`` axes before it are summed."""
    xp = namespace_of(images)
    axes = tuple(axis for axis in range(images.ndim) if axis != leading)
    with double_precision(images):
        return to_host(xp.sum(images, axis=axes, dtype=xp.float64))
