"""Weights of differences and masks of pixels: what they allow, and the lower bound that goes with them.

    TV = Σ w_i |(D∇x)_i|,   D: 0 for differences that a mask leaves out, else 1;   |p_i| <= λ w_i, p = 0 where D is 0

Differences that count join pixels to regions. In each region sums must agree, so y moves along A1_R of every region;
p is repaired by ∇ᵀV∇φ = q − w, p − V∇φ, by conjugate gradients with the cosine solve as preconditioner.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from stepwell.arrays import (
    Array,
    as_float,
    copy_to_device_of,
    double_precision,
    is_cuda,
    matrix_product,
    namespace_of,
    to_host,
)
from stepwell.krylov.tv.certificate import MEAN_LEFT, Certifier, Room, targets
from stepwell.krylov.tv.differences import along, differences, divergence, sizes
from stepwell.krylov.tv.metric import Base
from stepwell.krylov.tv.shrinking import Widths
from stepwell.krylov.tv.task import Grid, Task, column_sums, image_sums
from stepwell.krylov.tv.transforms import Cosines

#: V of the repair is at least this part of its largest value where differences count.
LEAST_WIDTH = 1e-2
#: Conjugate gradients end where the residual is this part of the first; they prove nothing after so many steps.
SOLVED, MAX_STEPS = 1e-12, 400


@dataclass
class WeightedCertifier(Certifier):
    """The certifier of a task with weights or a mask."""

    widths: Widths | None = None
    repair: Array | None = None
    regions: Array | None = None
    outside: Array | None = None
    region_data: Array | None = None
    region_images: Array | None = None
    gram: np.ndarray | None = None

    @classmethod
    def of(cls, task: Task, base: Base) -> WeightedCertifier:
        """Return the certifier of a task; A is applied once to every region."""
        plain = Certifier.of(task, base)
        widths = task.widths
        assert widths is not None
        grid, xp = task.grid, namespace_of(task.B)
        if not is_cuda(task.B):  # many small operations, which NumPy does best
            plain = _on_host(plain)
        count = int(widths.regions.max()) + 1
        marks = np.stack([(widths.regions == k).astype(np.float64).ravel() for k in range(count)])
        data = task.product(copy_to_device_of(np.ascontiguousarray(marks.T), task.B))
        back = Grid(grid.shape, count, grid.weights).images(task.back_product(data))
        base.products += count
        if not is_cuda(task.B):
            data, back = to_host(data), to_host(back)
            xp = namespace_of(data)
        with double_precision(data):
            data, back = as_float(data, "float64"), as_float(back, "float64")
            wide = as_float(xp.zeros_like(data[:1, :0]), "float64")
            usable = np.broadcast_to(widths.usable, (len(grid.shape), 1, *grid.shape))
            most = float(widths.values.max())
            repair = np.where(usable, np.maximum(widths.values / most, LEAST_WIDTH), 0.0)
            for axis in range(len(grid.shape)):  # no difference reaches over an edge
                place = [slice(None)] * repair.ndim
                place[0], place[axis + 2] = axis, -1  # type: ignore[call-overload]
                repair[tuple(place)] = 0.0
            gram = to_host(matrix_product(data.T, data))
            return cls(
                **{name: getattr(plain, name) for name in plain.__dataclass_fields__},
                widths=widths.like(wide),
                repair=copy_to_device_of(repair, wide),
                regions=copy_to_device_of(marks, wide),
                outside=copy_to_device_of((widths.regions < 0).astype(np.float64)[None], wide),
                region_data=data,
                region_images=back,
                gram=gram,
            )

    def lower_bounds(
        self, rows: np.ndarray, lam: np.ndarray, b: Array, y: Array, back: Array, p: Array, x: Array
    ) -> np.ndarray:
        """Return a lower bound for some problems, as `Certifier` does."""
        if isinstance(self.region_data, np.ndarray):
            b, y, back, p, x = (to_host(part) for part in (b, y, back, p, x))
        return super().lower_bounds(rows, lam, b, y, back, p, x)

    def _bounds(self, lam: np.ndarray, b: Array, y: Array, back: Array, p: Array, room: Room, x: Array) -> np.ndarray:
        assert self.widths is not None
        assert self.repair is not None
        assert self.outside is not None
        xp, weights = namespace_of(y), self.grid.weights
        p = p * xp.astype(self.repair > 0, p.dtype)
        q = back + divergence(p, weights)
        above, below, shift = self._region_targets(q, room)
        if shift.any():
            moves = np.zeros_like(shift)
            assert self.gram is not None
            for i in np.flatnonzero(shift.any(axis=1)):
                some = np.flatnonzero(shift[i])
                moves[i, some] = np.linalg.lstsq(self.gram[np.ix_(some, some)], shift[i, some], rcond=1e-12)[0]
            there = copy_to_device_of(moves, y)
            y = y - matrix_product(self.region_data, there.T)
            flat = xp.reshape(self.region_images, (shift.shape[1], -1))
            q = q - xp.reshape(matrix_product(there, flat), q.shape)
            above, below, _ = self._region_targets(q, room)
        w = room.positive(q) * self._spread(above, q) + room.negative(q) * self._spread(below, q)
        w = xp.where(self.outside > 0, q, w)
        left = self._sums(q - w)
        sound = np.abs(left).max(axis=1, initial=0.0) <= MEAN_LEFT * image_sums(xp.abs(q))
        sizes_of = np.maximum(to_host(xp.sum(self.regions, axis=1)), 1.0)
        right = xp.where(self.outside > 0, xp.zeros_like(q), q - w - self._spread(left / sizes_of, q))
        p, solved, rest = self._repaired(p, right)
        lengths = self.widths.relative(sizes(p, self.anisotropic))
        largest = to_host(xp.max(xp.reshape(xp.moveaxis(lengths, 1, 0), (lengths.shape[1], -1)), axis=1))
        square = column_sums(y, y)
        # What conjugate gradients have left meets x: of the size of rounding errors.
        slack = 2 * rest * np.sqrt(image_sums(x * x))
        linear = image_sums(room.value(w)) - column_sums(b, y) - slack
        if self.eps:
            with np.errstate(divide="ignore", invalid="ignore"):
                part = np.where(lam > 0, self.eps / lam, 0.0)
            square = square + part * image_sums(self.widths.relative(p * p), leading=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            most = np.where(largest > 0, lam / np.where(largest > 0, largest, 1), np.inf)
            scale = np.clip(np.where(square > 0, linear / np.where(square > 0, square, 1), 0.0), 0.0, most)
        found: np.ndarray = np.where(sound & solved, scale * linear - 0.5 * scale * scale * square, 0.0)
        return found

    def _sums(self, images: Array) -> np.ndarray:
        """Return sums over the regions, (problems, regions)."""
        xp = namespace_of(images)
        assert self.regions is not None
        return to_host(matrix_product(xp.reshape(images, (images.shape[0], -1)), self.regions.T))

    def _spread(self, numbers: np.ndarray, like: Array) -> Array:
        """Return numbers of regions at every pixel of theirs."""
        spread = matrix_product(copy_to_device_of(numbers, like), self.regions)
        return namespace_of(like).reshape(spread, like.shape)

    def _region_targets(self, q: Array, room: Room) -> tuple[np.ndarray, ...]:
        sums = [self._sums(part) for part in (q, room.positive(q), room.negative(q))]
        found = targets(*(part.ravel() for part in sums))
        return tuple(part.reshape(sums[0].shape) for part in found)

    def _repaired(self, p: Array, right: Array) -> tuple[Array, np.ndarray, np.ndarray]:
        """Return p − V∇φ with ∇ᵀV∇φ = right, whether that was solved, and the norm of what is left."""
        xp, weights = namespace_of(right), self.grid.weights

        def precondition(block: Array) -> Array:
            return self.cosines.inverse(self.cosines.forward(block) * self.poisson)

        correction, residual = xp.zeros_like(p), right
        first = np.sqrt(image_sums(right * right))
        left = first.copy()
        direction = precondition(residual)
        energy = image_sums(residual * direction)
        for _ in range(MAX_STEPS):
            going = (left > SOLVED * first) & (energy > 0) & np.isfinite(left)
            if not going.any():
                break
            field = self.repair * differences(direction, weights)
            image = divergence(field, weights)
            curvature = image_sums(direction * image)
            going &= curvature > 0
            step = np.where(going, energy / np.where(going, curvature, 1.0), 0.0)
            correction = correction + field * along(step, field, 1)
            residual = residual - image * along(step, image)
            z = precondition(residual)
            new = image_sums(residual * z)
            share = np.where(going & (energy > 0), new / np.where(energy > 0, energy, 1.0), 0.0)
            direction = z + direction * along(share, direction)
            energy = np.where(going, new, 0.0)
            left = np.sqrt(image_sums(residual * residual))
        return p - correction, left <= 1e3 * SOLVED * first, left


def _on_host(plain: Certifier) -> Certifier:
    """Return a certifier with all its arrays on the host."""
    found = replace(plain, cosines=Cosines(plain.cosines.dims, np.empty(0)))
    for name in ("poisson", "ones_data", "ones_image", "lower", "upper"):
        part = getattr(plain, name)
        setattr(found, name, None if part is None else to_host(part))
    return found
