"""Rounds of a method with a true residual after each: what turns a method into an answer one can trust.

A method reduces the residual that it carries along. Only the residual recomputed from the operator counts here: a
column whose recomputed residual is above the tolerance goes into another round, which starts from it. A round that
does not halve a column's true residual ends that column as stagnated, unless little is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from stepwell.arrays import Array, copy_to_device_of, namespace_of, shapes_are_compiled, take_columns, to_host
from stepwell.krylov.reductions import WHOLE, Sums
from stepwell.krylov.results import LinearStatus, Progress
from stepwell.krylov.systems import Carried, State, System, TikhonovSystem
from stepwell.operators.error_state import callers_arithmetic, own_arithmetic

#: A round aims at the tolerance. One that got there, while the true residual stays at up to so many tolerances, is
#: followed by one that aims at half of that, as rounding errors take the last bit back; the least aim is a part of tol.
CLOSE, LEAST_AIM = 4, 1 / 8
#: Entries up to this size, and down to its inverse, have squares and sums of squares that every dtype holds.
MODERATE = 1e8
#: Sizes of an operator, or of λ, of which the fourth power still has room for the squares of small residuals.
SOUND_SIZES = {"float32": (1e-5, 1e8), "float64": (1e-60, 1e60)}
#: Norms of right-hand sides whose residuals have squares, times those of a sound operator, within the range.
SOUND_NORMS = {"float32": (1e-4, 1e6), "float64": (1e-40, 1e40)}
#: Powers of two, at most: of a norm of the data, and of λ, whose square is a number.
MAX_DATA, MAX_LAM = {"float32": 110, "float64": 950}, {"float32": 60, "float64": 500}


class OutOfRange(ArithmeticError):
    """The operator, or λ beside it, is so large or so small that its square may over- or underflow.

    ``size`` is about the larger of their norms, ``operator`` that of the operator alone.
    """

    def __init__(self, size: float, operator: float | None = None) -> None:
        super().__init__(f"an operator of size {size:.1e}")
        self.size, self.operator = size, size if operator is None else operator


@dataclass
class Correction:
    """What one run of a method adds to the current point (None: nothing), or with ``replaces`` the new point itself.

    ``claims`` holds the status that each column ended with, as the method sees it; ``carried`` what it believes of the
    residuals at the corrected point, where it has them for all columns.
    """

    x: Array | None
    iterations: np.ndarray
    products: np.ndarray
    history: list[list[float]]
    claims: list[LinearStatus]
    carried: Carried | None = None
    replaces: bool = False


@dataclass
class Start:
    """A point at which a method wants to start, the state and residual there, and the right-hand sides Aᵀb."""

    x: Array
    state: State
    gradient: Array
    rhs: Array


@dataclass
class Round:
    """The task of one run: bring each column of the residual below its threshold.

    ``norms`` are those of the right-hand sides, to which residuals are relative, ``relative`` those of the residual
    relative to them; the latter are to come down to ``aim``. ``spent`` are the steps of earlier rounds. ``watch`` is
    told the iteration, the number of running columns and the largest relative residual, and answers whether to stop.
    ``x`` is the current point (None: zero). Columns that are ``idle`` are only there for the shape of the blocks (None:
    there are none).
    """

    system: System
    state: State
    residual: Array
    norms: np.ndarray
    relative: np.ndarray
    aim: np.ndarray
    spent: np.ndarray
    maxiter: int
    watch: Callable[[int, int, float], bool]
    x: Array | None = None
    idle: np.ndarray | None = None


class Method(Protocol):
    """A way to solve the positive definite systems for a block of residuals."""

    #: Whether blocks may hold columns that are idle, where a library compiles programs for shapes.
    takes_idle: bool = False

    def start(self, system: System) -> Start | None:
        """Return a point better than zero that costs no more than Aᵀb does; None: there is none."""
        return None

    def __call__(self, task: Round) -> Correction:
        """Run once."""


@dataclass
class SolveStats:
    """The outcome of all rounds, column by column, in the solver's own kind of array.

    ``lift`` has the powers of two by which the columns were multiplied for the solve, and x still is (None: ones).
    """

    x: Array
    status: list[LinearStatus]
    residual: np.ndarray
    iterations: np.ndarray
    products: np.ndarray
    history: list[np.ndarray]
    lift: np.ndarray | None = None


@own_arithmetic()
def solve_in_rounds(
    system: System,
    method: Method,
    x0: Array | None,
    tol: float,
    maxiter: int,
    callback: Callable[[Progress], object] | None = None,
    memory: int = 0,
    rescalable: bool = False,
    liftable: bool = False,
) -> SolveStats:
    """Solve for all columns; columns that are zero or not finite never reach the method.

    With ``rescalable`` an operator whose square may over- or underflow raises :class:`OutOfRange` before any product.
    With ``liftable`` columns of which squares of residuals may do so are multiplied by powers of two; see `SolveStats`.
    """
    lift = None
    while True:
        start = method.start(system) if x0 is None else None
        rhs = system.rhs() if start is None else start.rhs
        norms, lost, needed = _right_hand_norms(system, rhs, rescalable)
        if not liftable or needed is None or lift is not None:
            break
        lift, factors = needed, copy_to_device_of(needed, rhs)
        system = system.times(needed)
        x0 = None if x0 is None else x0 * factors
    sums, xp = system.sums, namespace_of(rhs)
    finite = np.isfinite(norms) & np.isfinite(system.data_norms())
    count = int(rhs.shape[1])

    status = [LinearStatus.CONVERGED if ok else LinearStatus.NONFINITE for ok in finite]
    residual = np.where(finite, 0.0, np.nan)
    for column in np.flatnonzero(lost):
        status[column], residual[column] = LinearStatus.OUT_OF_RANGE, 1.0
    iterations = np.zeros(count, dtype=np.int64)
    products = np.zeros(count)
    history: list[list[float]] = [[] for _ in range(count)]
    solved: list[Array] = []
    places: list[np.ndarray] = []

    columns = np.flatnonzero(finite & ~lost & (norms > 0))  # a zero right-hand side has the solution zero
    stopped = _stops(callback, Progress(0, columns.size, count, 1.0, 0.0, memory), sums)
    sums.check()
    stopped |= sums.stopped
    if columns.size < count:
        rest = np.setdiff1d(np.arange(count), columns)
        solved.append(xp.zeros_like(take_columns(rhs, rest)))
        places.append(rest)

    whole = columns.size == count
    wide = method.takes_idle and shapes_are_compiled(rhs)
    work = system if whole else system.take(columns)
    rhs = rhs if whole else take_columns(rhs, columns)
    x = None if x0 is None else (x0 if whole else take_columns(x0, columns))
    before = np.ones(columns.size)  # relative residual at zero
    if start is None:
        state, gradient = work.state(x, rhs)
    else:
        assert whole or not columns.size  # such methods take one column
        x, state, gradient = start.x, start.state, start.gradient
    if x is not None:
        products[columns] += start is None
        before = to_host(sums.norms(gradient)) / norms[columns] if columns.size else before

    def watch(iteration: int, running: int, worst: float) -> bool:
        told = Progress(iteration, running, count, worst, float(system.products), memory)
        return _stops(callback, told, sums)

    active = np.ones(columns.size, dtype=bool)  # the others stay in the blocks for their shape alone
    aim = np.full(columns.size, tol)
    while active.any():
        limit = 0 if stopped else maxiter - int(iterations[columns[active]].max())
        idle = None if active.all() else ~active
        spent = iterations[columns]
        correction = method(Round(work, state, gradient, norms[columns], before, aim, spent, limit, watch, x, idle))
        previous = x
        if x is None or correction.replaces:
            x = xp.zeros_like(gradient) if correction.x is None else correction.x
        elif correction.x is not None:
            x = x + correction.x
        iterations[columns[active]] += correction.iterations[active]
        products[columns[active]] += correction.products[active] + 1  # one product for the true residual
        for place, column in enumerate(columns):
            history[column] += correction.history[place]
        state, gradient = work.state(x, rhs, correction.carried, tol)
        true = to_host(sums.norms(gradient)) / norms[columns]
        stopped |= sums.stopped
        if int(correction.iterations.max()) and not any(correction.history):  # in one step, of which nobody was told
            for place in np.flatnonzero(active).tolist():
                history[columns[place]].append(float(true[place]))
            shown = true[active]
            stopped |= watch(int(iterations[columns].max()), int(np.sum(shown > tol)), float(shown.max()))
        worse = true > before
        if np.isnan(true).any():
            worse |= _diverged(sums, x, true, before, correction)
        if worse.any():  # a round that made things worse is not taken
            x = xp.where(copy_to_device_of(worse, x), xp.zeros_like(x) if previous is None else previous, x)
            true = np.where(worse, before, true)

        again = np.zeros(columns.size, dtype=bool)
        for place, column in zip(np.flatnonzero(active).tolist(), columns[active].tolist()):
            residual[column] = true[place]
            claim = correction.claims[place]
            if true[place] <= tol:
                status[column] = LinearStatus.CONVERGED
            elif stopped:
                status[column] = LinearStatus.STOPPED
            else:
                status[column] = LinearStatus.STAGNATED if claim is LinearStatus.CONVERGED else claim
                mendable = claim in (LinearStatus.CONVERGED, LinearStatus.STAGNATED, LinearStatus.BREAKDOWN)
                halved = bool(true[place] <= 0.5 * before[place])
                close = bool(LEAST_AIM * tol < aim[place] and true[place] <= CLOSE * tol)
                again[place] = mendable and (halved or (close and claim is LinearStatus.CONVERGED))
                if not halved or aim[place] < tol:
                    aim[place] *= 0.5
        if (again & worse).any():
            state, gradient = work.state(x, rhs)
            products[columns[again]] += 1
        if wide and again.any():
            active, before = again, true
            continue
        keep, done = np.flatnonzero(again), np.flatnonzero(~again)
        if done.size:
            solved.append(x if not keep.size else take_columns(x, done))
            places.append(columns[done])
        if keep.size and done.size:
            work, rhs, x = work.take(keep), take_columns(rhs, keep), take_columns(x, keep)
            gradient = take_columns(gradient, keep)
            state = tuple(take_columns(part, keep) for part in state)
        columns, before, aim, active = columns[keep], true[keep], aim[keep], np.ones(keep.size, dtype=bool)

    return SolveStats(
        _assemble(solved, places, rhs),
        status,
        residual,
        iterations,
        products,
        [np.asarray(h) for h in history],
        lift,
    )


def _stops(callback: Callable[[Progress], object] | None, told: Progress, sums: Sums) -> bool:
    """Tell the caller, and return whether to stop: where ranks work together, once all have been asked to."""
    if callback is None:
        return sums.stopped
    wish = False
    with sums.holding(), callers_arithmetic():
        try:
            wish = bool(callback(told))
        except StopIteration:
            wish = True
    if wish and sums.spread:
        sums.ask_to_stop()
    return sums.stopped if sums.spread else wish


def _right_hand_norms(system: System, rhs: Array, rescalable: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Norms of right-hand sides, which of them have none that is a number, and by what to multiply columns.

    The last are powers of two, None where all squares of residuals are far within the range.
    """
    sums = system.sums
    norms = to_host(sums.norms(rhs))
    lost = np.zeros(norms.size, dtype=bool)
    dtype = "float32" if "float32" in str(rhs.dtype) else "float64"
    (least, most), (low, high) = SOUND_SIZES[dtype], SOUND_NORMS[dtype]
    data = system.data_norms()
    lam = float(system.lam.max(initial=0.0)) if isinstance(system, TikhonovSystem) else 0.0
    sound = (least * data <= norms) & (norms <= most * data)
    comfortable = (low <= norms) & (norms <= high)
    if lam <= most and (sound & comfortable).all():
        return norms, lost, None
    largest = sums.largest(rhs) if rhs.shape[0] or sums.spread else norms
    usable = np.isfinite(largest) & (largest > 0) & np.isfinite(data) & (data > 0)
    if isinstance(system, TikhonovSystem) and not (lam <= most and sound.all()):
        operator = float(np.max(largest[usable] / data[usable], initial=0.0))
        size = max(lam, operator)
        if (
            rescalable and (~np.isfinite(largest) & np.isfinite(data)).any()
        ):  # too large, unless it is not finite itself
            raise OutOfRange(max(size, 2.0 ** (MAX_DATA[dtype] - 10)))
        if rescalable and usable.any() and not least <= size <= most:
            raise OutOfRange(size, operator)
    lost = usable & ~((norms > 0) & np.isfinite(norms))
    if lam > 2.0 ** MAX_LAM[dtype]:
        lost = usable
    if not (usable & ~comfortable).any():
        return norms, lost, None
    sizes = np.where((norms > 0) & np.isfinite(norms), norms, largest)
    powers = -np.round(np.log2(np.where(usable, sizes, 1.0)))
    room = MAX_DATA[dtype] - np.ceil(np.log2(np.where(usable, data, 1.0)))
    return norms, lost, np.where(usable & ~comfortable, np.exp2(np.minimum(powers, room)), 1.0)


def _diverged(sums: Sums, x: Array, true: np.ndarray, before: np.ndarray, correction: Correction) -> np.ndarray:
    """Which columns have no true residual as x has left all bounds, and not because the operator has become NaN.

    That x is not finite shows it, or the last residual that the iteration itself has seen.
    """
    finite = sums.finite(x)
    seen = [next((norm for norm in reversed(norms) if np.isfinite(norm)), 0.0) for norms in correction.history]
    gone: np.ndarray = np.isnan(true) & (~finite | (np.array(seen) > before))
    return gone


def _assemble(blocks: list[Array], places: list[np.ndarray], rhs: Array) -> Array:
    """Put finished columns back in the caller's order."""
    if not blocks:
        return rhs  # no columns at all
    if len(blocks) == 1:
        return blocks[0]
    joined = namespace_of(rhs).concat(blocks, axis=1)
    order = np.argsort(np.concatenate(places))
    return take_columns(joined, order)


def scale_columns(block: Array, sums: Sums = WHOLE) -> tuple[Array, Array]:
    """Divide every column by its largest entry, so that no square over- or underflows; return those entries too.

    One column whose largest entry is far from both is left as it is.
    """
    unscaled = copy_to_device_of(np.ones((1, int(block.shape[1]))), block)
    if (not block.shape[0] and not sums.spread) or not block.shape[1]:
        return block, unscaled
    largest = sums.largest(block)
    if largest.size == 1 and 1 / MODERATE < largest[0] < MODERATE:
        return block, unscaled
    scale = copy_to_device_of(np.where((largest > 0) & np.isfinite(largest), largest, 1.0), block)
    return block / scale, scale
