"""The inner loop: a step's total variation problem with the metric in place of A, by ADMM. No product with A.

    x = (H + ρ∇ᵀ∇ + μ)⁻¹ (linear + ρ∇ᵀ(z − u) + μ(s − v)),   z = shrink(∇x + u),   s = clip(x + v)

with over-relaxation. Most of the time goes here: kernels of the host and of GPUs run the same iteration (kernels.py),
array operations are for everything that these do not have, and the oracle of their tests.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from stepwell.arrays import Array, copy_to_device_of, dtype_name, namespace_of
from stepwell.krylov.tv.differences import along, differences, divergence
from stepwell.krylov.tv.metric import Model
from stepwell.krylov.tv.shrinking import Sweep, shrinkage
from stepwell.krylov.tv.task import Task

#: Over-relaxation of ADMM (Eckstein and Bertsekas 1992), below 2: of steps, and where A is the identity, whose few
#: sweeps begin far from the solution.
OVER, OVER_OF_IDENTITY = 1.9, 1.8


@dataclass
class Splitting:
    """The state of ADMM: z and u of the differences, s and v of the bounds (None without)."""

    z: Array
    u: Array
    s: Array | None
    v: Array | None

    def take(self, rows: np.ndarray) -> Splitting:
        """Return the states of some problems."""
        return Splitting(
            _taken(self.z, rows, 1), _taken(self.u, rows, 1), take_some(self.s, rows), take_some(self.v, rows)
        )

    def put(self, rows: np.ndarray, part: Splitting) -> Splitting:
        """Return the states with those of some problems replaced."""
        return Splitting(
            put_rows(self.z, rows, part.z, 1),
            put_rows(self.u, rows, part.u, 1),
            None if self.s is None else put_rows(self.s, rows, part.s, 0),
            None if self.v is None else put_rows(self.v, rows, part.v, 0),
        )

    def times(self, factors: np.ndarray) -> Splitting:
        """Return the state with its multipliers times a factor per problem: for another λ."""
        return replace(self, u=self.u * along(factors, self.u, 1))


@dataclass
class Start:
    """Where a step begins: x; x and Aᵀ(Ax − b) in the cosine basis; problems that ``single`` precision will do for."""

    x: Array
    here: Array
    gradient: Array
    single: np.ndarray

    def take(self, rows: np.ndarray) -> Start:
        """Return the starts of some problems."""
        x, here, gradient = (_taken(part, rows, 0) for part in (self.x, self.here, self.gradient))
        return Start(x, here, gradient, self.single[rows])

    def linear(self, model: Model, single: np.ndarray | None = None) -> Array:
        """Return the right-hand sides Hx − g; −g, that of the step from x, of `single` problems."""
        if single is None or not single.any():
            return model.times(self.here) - self.gradient
        if single.all():
            return -self.gradient
        whole = copy_to_device_of(np.where(single, 0.0, 1.0).reshape((-1,) + (1,) * (self.here.ndim - 1)), self.here)
        return model.times(self.here * whole) - self.gradient


def take_some(block: Array | None, rows: np.ndarray) -> Array | None:
    """Return some problems of a block of images that has a row for each."""
    return None if block is None else _taken(block, rows, 0)


def put_rows(block: Array, rows: np.ndarray, values: Array, axis: int) -> Array:
    """Return a block with some of its problems replaced."""
    xp = namespace_of(block)
    order = np.arange(block.shape[axis])
    order[rows] = block.shape[axis] + np.arange(rows.size)
    return xp.take(xp.concat([block, values], axis=axis), copy_to_device_of(order, block), axis=axis)


def _taken(block: Array, rows: np.ndarray, axis: int) -> Array:
    return namespace_of(block).take(block, copy_to_device_of(rows, block), axis=axis)


def model_dtype(task: Task, single: np.ndarray) -> str:
    """Return the dtype of the model: single precision where kernels of a GPU sweep all problems in it."""
    kernels = task.cosines.kernels
    short = kernels is not None and kernels.mixed and not kernels.on_host and task.widths is None and single.all()
    return "float32" if short else dtype_name(task.B.dtype)


def run_sweeps(
    task: Task, model: Model, start: Start, splitting: Splitting, rho: float, counts: np.ndarray
) -> tuple[Array, Splitting]:
    """Run so many sweeps of every problem; return x, within the bounds exactly, and the state.

    By kernels where there are some, else by array operations. Kernels sweep in single precision where `Start` allows
    it: that halves the time. Those of a GPU do so for all problems of a call, or for none.
    """
    kernels = task.cosines.kernels
    if kernels is None or task.widths is not None:
        return _with_more_for_some(task, model, start.linear(model), splitting, rho, counts)
    single = start.single if kernels.mixed else np.zeros_like(start.single)
    if not kernels.on_host and single.any() and not single.all():
        trial = start.x
        for rows in (np.flatnonzero(single), np.flatnonzero(~single)):
            some, part = run_sweeps(
                task.take(rows), model.take(rows), start.take(rows), splitting.take(rows), rho, counts[rows]
            )
            trial, splitting = put_rows(trial, rows, some, 0), splitting.put(rows, part)
        return trial, splitting
    linear = start.linear(model, single)
    threshold, least = _thresholds(task, rho, linear)
    sweep = Sweep(
        task.grid.weights, rho, _over(task), task.anisotropic, threshold, least, counts.astype(np.int64), linear,
        model.inverse, model.solved, model.small, splitting.z, splitting.u, splitting.s, splitting.v, task.lower,
        task.upper, single, start.x,
    )  # fmt: skip
    x, z, u, s, v = kernels.run_sweeps(sweep)
    return x, Splitting(z, u, s, v)


def _with_more_for_some(
    task: Task, model: Model, linear: Array, start: Splitting, rho: float, counts: np.ndarray
) -> tuple[Array, Splitting]:
    """Run the sweeps of all problems, and more where a problem asks for more."""
    done = int(counts.min())
    trial, whole = run_array_sweeps(task, model, linear, start, rho, done)
    while (counts > done).any():
        more = np.flatnonzero(counts > done)
        upto = int(counts[more].min())
        some, part = run_array_sweeps(
            task.take(more), model.take(more), take_some(linear, more), whole.take(more), rho, upto - done
        )
        trial, whole = put_rows(trial, more, some, 0), whole.put(more, part)
        done = upto
    return trial, whole


def _thresholds(task: Task, rho: float, like: Array) -> tuple[np.ndarray, np.ndarray]:
    """λ/ρ of every problem, and the least factor of shrinking."""
    smallest = float(namespace_of(like).finfo(like.dtype).smallest_normal)  # so that λ = 0 divides nothing by zero
    threshold = np.maximum(np.asarray(task.lam, dtype=np.float64) / rho, smallest)
    return threshold, task.eps / (task.eps + threshold) if task.eps else np.zeros_like(threshold)


def run_array_sweeps(
    task: Task, model: Model, linear: Array, start: Splitting, rho: float, count: int
) -> tuple[Array, Splitting]:
    """Run so many sweeps by array operations, in any library."""
    xp = namespace_of(linear)
    weights, cosines = task.grid.weights, task.cosines
    z, u, s, v = start.z, start.u, start.s, start.v
    thresholds, leasts = _thresholds(task, rho, linear)
    threshold = along(thresholds, u, 1)
    least = along(leasts, u, 1) if task.eps else 0.0
    widths = None if task.widths is None else task.widths.like(linear)
    x, over = linear, _over(task)
    for _ in range(count):
        pull = divergence(z - u, weights)
        if s is not None:
            pull = pull + (s - v)
        x = cosines.inverse(model.solve(cosines.forward(rho * pull) + linear))
        w = _relaxed(differences(x, weights), u, z, over)
        if widths is not None:
            z = widths.shrunk(w, threshold, task.eps, task.anisotropic)
        else:
            z = w * shrinkage(w, threshold, least, task.anisotropic)
        u = w - z
        if s is not None:
            h = _relaxed(x, v, s, over)
            s = task.nearest(h)
            v = h - s
    found = x if s is None else s
    return xp.asarray(found), Splitting(z, u, s, v)


def _over(task: Task) -> float:
    return OVER_OF_IDENTITY if task.identity else OVER


def _relaxed(new: Array, dual: Array, old: Array, over: float) -> Array:
    """Return over·new + dual − (over − 1)·old; `new` may be written to."""
    if isinstance(new, np.ndarray):
        new *= over
        new += dual
        new -= (over - 1) * old
        return new
    return over * new + dual - (over - 1) * old
