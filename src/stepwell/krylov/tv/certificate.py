"""A proven lower bound of the least objective, from any data vector y with Aᵀy at hand and any field p: no product.

    dual: max −½‖y‖² − bᵀy + Σ min(l_j q_j, u_j q_j),   q = Aᵀy + ∇ᵀp,   |p_i| <= λ   (Huber: − ε/(2λ) ‖p‖² too)

Any (y, p) is made feasible: y along A1, so that sums agree; p by a Poisson solve ∇ᵀ∇φ = q − w, p − ∇φ, where w is the
part of q that the bounds allow; then both are scaled. All in double precision.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepwell.arrays import Array, as_float, copy_to_device_of, double_precision, namespace_of, to_host
from stepwell.krylov.tv.differences import along, differences, divergence, sizes
from stepwell.krylov.tv.metric import Base
from stepwell.krylov.tv.task import Grid, Task, column_sums, image_sums, take_images
from stepwell.krylov.tv.transforms import Cosines, poisson_inverse

#: A mean of what is to be repaired is rounding below this part of its size, in single precision too.
MEAN_LEFT = 1e-5


@dataclass
class Certifier:
    """What the bound needs of a problem, in double precision: made once."""

    grid: Grid
    cosines: Cosines
    poisson: Array
    ones_data: Array
    ones_image: Array
    ones_square: float
    lower: Array | None
    upper: Array | None
    anisotropic: bool
    eps: float

    @classmethod
    def of(cls, task: Task, base: Base) -> Certifier:
        """Return the certifier of a task."""
        wide = as_float(task.B[:0, :0], "float64")
        with double_precision(task.B):
            ones_image = Grid(task.grid.shape, 1, task.grid.weights).images(as_float(base.ones_image, "float64"))
            return cls(
                task.grid,
                Cosines(task.grid.dims, wide),
                poisson_inverse(task.grid.eigenvalues(wide)),
                as_float(base.ones_data, "float64"),
                ones_image[None] if task.grid.across else ones_image,
                base.ones_square * (task.grid.count if task.grid.across else 1),
                _wide(task.lower),
                _wide(task.upper),
                task.anisotropic,
                task.eps,
            )

    def lower_bounds(
        self, rows: np.ndarray, lam: np.ndarray, b: Array, y: Array, back: Array, p: Array, x: Array
    ) -> np.ndarray:
        """Return a lower bound for some problems; ``back`` is Aᵀy as images, x where the bounds are looked at."""
        with double_precision(b):
            b, y, back, p, x = (as_float(part, "float64") for part in (b, y, back, p, x))
            sides = take_images(self.lower, rows), take_images(self.upper, rows)
            best = self._bounds(lam, b, y, back, p, _open(sides, back), x)
            if all(side is not None for side in sides):
                best = np.maximum(best, self._bounds(lam, b, y, back, p, _active(sides, x), x))
        found: np.ndarray = np.where(np.isfinite(best), np.maximum(best, 0.0), 0.0)  # f is never negative
        return found

    def _bounds(self, lam: np.ndarray, b: Array, y: Array, back: Array, p: Array, room: Room, x: Array) -> np.ndarray:
        xp, weights = namespace_of(y), self.grid.weights
        q = back + divergence(p, weights)
        up, down, (above, below, shift) = room.split(q)
        if shift.any() and self.ones_square > 0:
            t = shift / self.ones_square
            columns = np.broadcast_to(t, (y.shape[1],)) if self.grid.across else t
            y = y - self.ones_data * copy_to_device_of(np.array(columns)[None, :], y)
            q = q - self.ones_image * along(t, q)
            up, down, (above, below, _) = room.split(q)
        rest, at_bounds = q, np.zeros_like(lam)  # q - w, and Σ min(l w, u w)
        for part, factor, side in ((up, above, room.lower), (down, below, room.upper)):
            if part is not None and side is not None:
                rest = rest - part * along(factor, q)
                at_bounds = at_bounds + factor * image_sums(
                    part * xp.where(xp.isfinite(side), side, xp.zeros_like(side))
                )
        # What is repaired must have no mean, or it is not repaired: then nothing is proved.
        sound = np.abs(image_sums(rest)) <= MEAN_LEFT * image_sums(xp.abs(q))
        p = p - differences(self.cosines.inverse(self.cosines.forward(rest) * self.poisson), weights)
        size = sizes(p, self.anisotropic)
        largest = to_host(xp.max(xp.reshape(xp.moveaxis(size, 1, 0), (size.shape[1], -1)), axis=1))
        square = self._of_problems(column_sums(y, y))
        linear = at_bounds - self._of_problems(column_sums(b, y))
        if self.eps:
            with np.errstate(divide="ignore", invalid="ignore"):
                square = square + np.where(lam > 0, self.eps / lam, 0.0) * image_sums(p * p, leading=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            most = np.where(largest > 0, lam / np.where(largest > 0, largest, 1), np.inf)
            scale = np.clip(np.where(square > 0, linear / np.where(square > 0, square, 1), 0.0), 0.0, most)
        found: np.ndarray = np.where(sound, scale * linear - 0.5 * scale * scale * square, 0.0)
        return found

    def _of_problems(self, sums: np.ndarray) -> np.ndarray:
        return sums.sum(keepdims=True) if self.grid.across else sums


def targets(total: np.ndarray, up: np.ndarray, down: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what `Certifier` wants of sums of q, and of its parts that bounds allow: two factors, and what is left."""
    above, below = np.ones_like(total), np.ones_like(total)
    shift = np.zeros_like(total)
    for i in range(total.size):
        Q, P, N = total[i], up[i], down[i]
        if P + N >= Q:
            if P > 0 and Q >= N:
                above[i] = (Q - N) / P
            elif N < 0 and Q < 0:
                above[i], below[i] = 0.0, Q / N
            else:
                above[i], below[i], shift[i] = 0.0, 0.0, Q
        elif N < 0 and Q <= P:
            below[i] = (Q - P) / N
        elif P > 0 and Q > 0:
            above[i], below[i] = Q / P, 0.0
        else:
            above[i], below[i], shift[i] = 0.0, 0.0, Q
    return above, below, shift


@dataclass
class Room:
    """Where q may be positive (a lower bound counts) and negative (an upper bound counts), with those bounds."""

    lower: Array | None
    upper: Array | None
    at_lower: Array | None
    at_upper: Array | None

    def split(self, q: Array) -> tuple[Array | None, Array | None, tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Return both parts of q, None without such a bound, and the `targets` of their sums."""
        up = None if self.at_lower is None else self.positive(q)
        down = None if self.at_upper is None else self.negative(q)
        total = image_sums(q)
        sums = (np.zeros_like(total) if part is None else image_sums(part) for part in (up, down))
        return up, down, targets(total, *sums)

    def positive(self, q: Array) -> Array:
        """Return the positive part of q where a lower bound allows it."""
        xp = namespace_of(q)
        zero = xp.zeros_like(q)
        return zero if self.at_lower is None else xp.where((q > 0) & self.at_lower, q, zero)

    def negative(self, q: Array) -> Array:
        """Return the negative part of q where an upper bound allows it."""
        xp = namespace_of(q)
        zero = xp.zeros_like(q)
        return zero if self.at_upper is None else xp.where((q < 0) & self.at_upper, q, zero)

    def value(self, w: Array) -> Array:
        """Σ min(l w, u w), pixel by pixel."""
        xp = namespace_of(w)
        total = xp.zeros_like(w)
        for side, here in ((self.lower, w > 0), (self.upper, w < 0)):
            if side is not None:
                total = total + xp.where(here, xp.where(here, side, xp.zeros_like(w)) * w, xp.zeros_like(w))
        return total


def _wide(side: Array | None) -> Array | None:
    return None if side is None else as_float(side, "float64")


def _open(sides: tuple[Array | None, Array | None], like: Array) -> Room:
    """Use every finite bound."""
    finite = [None if side is None else namespace_of(like).isfinite(side) for side in sides]
    return Room(*sides, *finite)


def _active(sides: tuple[Array | None, Array | None], x: Array) -> Room:
    """Use the bounds that x lies at, as complementary slackness has it."""
    lower, upper = sides
    return Room(lower, upper, x <= lower, x >= upper)
