"""The iteration: proximal quasi-Newton steps in the cosine metric, each with a proven gap.

    g = Aᵀ(Ax − b)                                               one product pair a step: A x⁺ and Aᵀ y
    lower bound from (y = Ax − b, g, p): certificate.py          at x itself, where the run may end
    x⁺, p ≈ argmin gᵀx' + ½‖x' − x‖²_H + λTV(x') within bounds   sweeps.py, without A
    κ = ‖A(x⁺ − x)‖² / ‖x⁺ − x‖²_H;  κ > 1: cs grows;  f rises: x⁺ ← x + (x⁺ − x)/κ, A x⁺ by linearity

With an exact inner step f(x + α(x⁺ − x)) <= f(x) − (α − α²κ/2) ‖x⁺ − x‖²_H, since TV is convex: f falls with α = 1
where κ < 2, and by ‖x⁺ − x‖²_H/(2κ) with α = 1/κ in any case. Where it rises even so, the inner step was not exact
enough: x stays, and the sweeps go on. Every problem of a batch has its own cs, H, sweeps and end.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from stepwell.arrays import Array, copy_to_device_of, namespace_of, shapes_are_compiled, take_columns
from stepwell.krylov.proven import ProvenStatus, ending
from stepwell.krylov.reductions import WHOLE, Sums
from stepwell.krylov.tv.certificate import Certifier
from stepwell.krylov.tv.differences import along, divergence
from stepwell.krylov.tv.groups import groups_of, run_groups
from stepwell.krylov.tv.metric import ROUNDING, Base, Model, build_model, fit_base
from stepwell.krylov.tv.state import Books, Marks, State, joined, pushed
from stepwell.krylov.tv.sweeps import Splitting, Start, model_dtype, put_rows, run_sweeps, take_some
from stepwell.krylov.tv.task import Task, column_sums, image_sums
from stepwell.krylov.tv.transforms import poisson_inverse
from stepwell.krylov.tv.weighted import WeightedCertifier

#: ρ of the inner loop over the geometric mean of S where the mean of S is at most `EVEN` times that (CT, random
#: matrices); beyond, most of a convolution's S is below what counts, and ρ grows with the root of that ratio.
RHO, EVEN = 6.5, 3.0
#: Sweeps of a step: at first, at least, and where A is the identity (then a gap costs no product).
SWEEPS, LEAST_SWEEPS, SWEEPS_OF_IDENTITY = 40, 20, 10
#: Sweeps at most, and once the gap is small.
MOST_SWEEPS, MOST_AT_LAST = 160, 320
#: Error of the inner step over the step itself, as the certificate sees them: sweeps halve below and double above.
FINE, COARSE = 0.01, 0.06
#: The gap is small below this; down to it sweeps may be in single precision, until a step fails.
SMALL = 1e-4
#: A column has stagnated after so many steps in which its gap has not come forward.
PATIENCE = 50
#: cs grows at most by this factor at once, falls by at most this one, and falls no more after so many steps.
GROWTH, FALL, FALLING = 1.5, 0.97, 30
#: An adjoint is one where a dot-product test fails by less than this part of tol, or by rounding.
OF_TOL = 1e-3


Watch = Callable[[int, int, float, float], bool]


class Solver:
    """Runs some problems of a task to a tolerance, again and again where λ changes."""

    def __init__(
        self,
        task: Task,
        x0: Array | None = None,
        dual: Array | None = None,
        base: Base | None = None,
        team: Sums = WHOLE,
    ) -> None:
        self.task, self.team = task, team
        self.base = fit_base(task) if base is None else base
        uneven = self.base.column_square / (EVEN * self.base.geometric_mean) if self.base.geometric_mean else 1.0
        self.rho = RHO * self.base.geometric_mean * (uneven**0.5 if uneven > 1 else 1.0)
        count = task.grid.batch
        self.books = Books.begin(count, SWEEPS_OF_IDENTITY if task.identity else SWEEPS)
        self.status: list[ProvenStatus | None] = [None] * count
        self.history: list[list[float]] = [[] for _ in range(count)]
        self.epsilon = task.epsilon
        # In single precision f is at its floor, which moves, long before the lower bound is: points may follow it.
        self.noise = ROUNDING * self.epsilon if self.epsilon > 1e-10 else 0.0
        self._prepare()
        self.calls = self.base.products / 2  # both vectors of the set-up go through A together
        self.shared = self.base.products
        self.shift = self._shift()
        self.state = self._first_state(x0, dual)
        self.carried = np.zeros(count, dtype=bool)

    def _prepare(self) -> None:
        """Make what bounds and steps need of the problem."""
        task = self.task
        self.certifier = (Certifier if task.widths is None else WeightedCertifier).of(task, self.base)
        self.poisson = poisson_inverse(task.grid.eigenvalues(task.B))[None]

    def _shift(self) -> Array:
        """ρ∇ᵀ∇ + μ in the cosine basis, of one problem."""
        mu = self.rho if self.task.bounded else 0.0
        return (self.rho * self.task.grid.eigenvalues(self.task.B) + mu)[None]

    def _first_state(self, x0: Array | None, dual: Array | None) -> State:
        task, grid = self.task, self.task.grid
        xp = namespace_of(task.B)
        if x0 is None:
            zero = copy_to_device_of(np.zeros((1,) * (1 + len(grid.dims))), task.B)
            x = task.nearest(xp.asarray(xp.broadcast_to(zero, (grid.batch, *grid.dims)), copy=True))
        else:
            x = task.nearest(x0)
        field = xp.stack([xp.zeros_like(x)] * len(grid.dims))
        multiplier = field if dual is None else dual / self.rho
        box = (x, xp.zeros_like(x)) if task.bounded else (None, None)
        return State(x, xp.zeros_like(task.B), Splitting(field, multiplier, *box), np.ones(grid.batch, dtype=bool))

    # ---- runs ----

    def run(self, rows: np.ndarray, tol: np.ndarray, maxiter: int, watch: Watch | None = None) -> None:
        """Run some problems until each has a proven gap of at most its tol, or another end.

        Ranks that are through go on telling the others, until all are.
        """
        task, team = self.task, self.team
        if not rows.size and not team.spread:
            return
        tolerance = np.zeros(task.grid.batch)
        tolerance[rows] = tol
        together = team.spread or watch is not None  # every step is told of, or exchanged, for all columns
        groups = [rows] if together else groups_of(task, rows)
        states = [self.state if group.size == task.grid.batch else self.state.take(group) for group in groups]
        parts: list[tuple[np.ndarray, State]] = []
        calls = np.zeros(len(groups))

        def work(k: int, early: Callable[[], bool]) -> None:
            self._iterate(groups[k], states[k], parts, tolerance, maxiter, watch, early, calls[k : k + 1])

        try:
            if len(groups) == 1:
                work(0, lambda: False)
            else:
                run_groups([functools.partial(work, k) for k in range(len(groups))])
        finally:  # also where the caller's operator or Ctrl-C ends it
            self.calls += calls.max()
            begun = np.concatenate([places for places, _ in parts]) if parts else rows[:0]
            parts += [pair for pair in zip(groups, states) if not np.isin(pair[0], begun).any()]
            self._put_back(parts)

    def _iterate(
        self, rows: np.ndarray, state: State, parts: list[tuple[np.ndarray, State]], tolerance: np.ndarray,
        maxiter: int, watch: Watch | None, early: Callable[[], bool], calls: np.ndarray,
    ) -> None:  # fmt: skip
        """Take the steps of a group of problems; their states go to `parts`."""
        team = self.team
        marks, ended = Marks(self.task.grid.batch), np.zeros(rows.size, dtype=bool)
        with team.holding():
            self._measure_start(rows, state, calls)
        try:
            for iteration in range(maxiter + 1):
                if not ended.all():
                    with team.holding():
                        self._differentiate(rows, state, calls)
                        through = self.carried[rows] & (self.books.gaps(rows) <= tolerance[rows])
                        self._check(rows[through], rows, state, calls)
                        if iteration:
                            marks.look(rows, self.books, self.history)
                        ended = self._ends(rows, tolerance, marks, iteration >= maxiter)
                running, worst, products = self._account(rows, ended)
                if (watch is not None and watch(iteration, running, worst, products)) or early():
                    for row in rows[~ended]:
                        self.status[row] = ProvenStatus.STOPPED
                    break
                if not running:
                    break
                if ended.all():
                    continue
                if ended.any() and not shapes_are_compiled(self.task.B):
                    parts.append((rows[ended], state.take(np.flatnonzero(ended))))
                    stay = np.flatnonzero(~ended)
                    rows, state, ended = rows[stay], state.take(stay), np.zeros(stay.size, dtype=bool)
                with team.holding():
                    self._step(rows, state, marks, calls)
        finally:
            parts.append((rows, state))

    def _account(self, rows: np.ndarray, ended: np.ndarray) -> tuple[int, float, float]:
        """Return how many problems are at work, their worst gap, and products so far: of all ranks."""
        table = self.team.of_all(float((~ended).sum()), self._worst(rows, ended), self.total)
        return int(table[:, 0].sum()), float(table[:, 1].max()), float(table[:, 2].sum())

    @property
    def total(self) -> float:
        """Products so far, of all columns together."""
        columns = self.task.grid.count if self.task.grid.across else 1
        return float(self.books.products.sum()) * columns + self.shared

    def _worst(self, rows: np.ndarray, ended: np.ndarray) -> float:
        gaps = self.books.gaps(rows)[~ended]
        return float(gaps.max()) if gaps.size else 0.0

    def _put_back(self, parts: list[tuple[np.ndarray, State]]) -> None:
        """Join the states of columns that ended at different times, in their first order."""
        places = np.concatenate([rows for rows, _ in parts])
        if len(parts) == 1 and places.size == self.task.grid.batch:
            self.state = parts[0][1]
            return
        left = np.setdiff1d(np.arange(self.task.grid.batch), places)
        if left.size:
            parts.append((left, self.state.take(left)))
            places = np.concatenate([places, left])
        self.state = joined([state for _, state in parts], np.argsort(places, kind="stable"))

    def _measure_start(self, rows: np.ndarray, state: State, calls: np.ndarray) -> None:
        """Find f at the start of a run; A is applied where the start is not zero and not known."""
        books, task = self.books, self.task.take(rows)
        if state.gradient is None and bool(namespace_of(state.x).any(state.x != 0)):
            state.data = self._applied(rows, state.x, task, calls)
        books.f[rows] = task.objective(state.x, state.data - task.B)
        books.lower[rows] = 0.0
        books.single[rows] = True

    def _applied(self, rows: np.ndarray, x: Array, task: Task, calls: np.ndarray) -> Array:
        """A x, from A itself."""
        self.books.products[rows] += 0.5
        calls += 0.5
        return task.forward(x)

    def finish(self) -> None:
        """Make every objective A's own."""
        calls = np.zeros(1)
        self._check(np.flatnonzero(self.carried), np.arange(self.carried.size), self.state, calls)
        self.calls += calls[0]

    def _check(self, some: np.ndarray, rows: np.ndarray, state: State, calls: np.ndarray) -> None:
        """Apply A to some answers, those of `rows` with this state, whose A x came by linearity."""
        if not some.size:
            return
        task = self.task.take(some)
        x = task.rounded(state.x if some.size == rows.size else take_some(state.x, np.searchsorted(rows, some)))
        self.books.f[some] = task.objective(x, self._applied(some, x, task, calls) - task.B)
        self.carried[some] = False

    def stop(self) -> None:
        """Take note that the run was interrupted, perhaps between two numbers of one step."""
        self.status = [ProvenStatus.STOPPED if status is None else status for status in self.status]
        self.books.f = self.task.objective(self.state.x, self.state.data - self.task.B)

    def _differentiate(self, rows: np.ndarray, state: State, calls: np.ndarray) -> None:
        """Aᵀ(Ax − b) where x has moved, a lower bound there, and the dot-product test of the adjoint."""
        books, task = self.books, self.task.take(rows)
        y = state.data - task.B
        if state.stale.any():
            some = np.flatnonzero(state.stale)
            part = y if some.size == rows.size else take_columns(y, some)
            found = task.take(some).adjoint(part)
            state.gradient = found if some.size == rows.size else put_rows(state.gradient, some, found, 0)
            books.products[rows[some]] += 0.5
            calls += 0.5
            self._remember(state, task)
            state.stale[:] = False
        assert state.gradient is not None
        self._certify(rows, state, task, y)
        left = task.grid.of_problems(column_sums(y, state.data))
        right = image_sums(state.gradient * state.x)
        sizes = np.sqrt(
            task.grid.of_problems(column_sums(y, y)) * task.grid.of_problems(column_sums(state.data, state.data))
        ) + np.sqrt(image_sums(state.gradient * state.gradient) * image_sums(state.x * state.x))
        error = np.abs(left - right)
        with np.errstate(invalid="ignore", divide="ignore"):
            relative = np.where(sizes > 0, error / np.where(sizes > 0, sizes, 1), 0.0)
            harmful = error > ROUNDING * self.epsilon * sizes
        seen = np.where(harmful, relative, np.minimum(relative, ROUNDING * self.epsilon))
        books.mismatch[rows] = np.fmax(books.mismatch[rows], seen)

    def _remember(self, state: State, task: Task) -> None:
        """Keep the latest step and its image under AᵀA, in the cosine basis, of problems that have moved."""
        xp = namespace_of(state.x)
        x, state.ahead = state.ahead, None
        here = task.cosines.forward(state.x) if x is None else x, task.cosines.forward(state.gradient)
        if state.last is not None:
            moved = along(state.stale, state.x[:, None]) > 0
            moved = xp.reshape(moved, (-1, 1, 1))
            shape = (state.x.shape[0], 1, -1)
            step, image = (xp.reshape(now - before, shape) for now, before in zip(here, state.last))
            norms = np.sqrt(image_sums(step * step))
            scale = along(np.where(norms > 0, 1 / np.where(norms > 0, norms, 1), 0.0), step)
            state.steps = pushed(state.steps, step * scale, moved)
            state.images = pushed(state.images, image * scale, moved)
        state.last = here

    def _certify(self, rows: np.ndarray, state: State, task: Task, y: Array) -> None:
        p = self.rho * state.splitting.u
        found = self.certifier.lower_bounds(rows, task.lam, task.B, y, state.gradient, p, state.x)
        if task.narrow:
            found = found * (1 - ROUNDING * self.epsilon)
        self.books.lower[rows] = np.maximum(self.books.lower[rows], found)

    def _ends(self, rows: np.ndarray, tol: np.ndarray, marks: Marks, limit: bool) -> np.ndarray:
        """Find the columns that are through, and say how; book the gaps of the others."""
        gaps = self.books.gaps(rows)
        f = self.books.f[rows]
        ended = np.zeros(rows.size, dtype=bool)
        for i, row in enumerate(rows.tolist()):
            status = ending(f[i], gaps[i], tol[row], marks.age[row] >= PATIENCE, limit)
            self.status[row] = status
            ended[i] = status is not None
        return ended

    # ---- one step ----

    def _step(self, rows: np.ndarray, state: State, marks: Marks, calls: np.ndarray) -> None:
        books, task = self.books, self.task.take(rows)
        xp = namespace_of(state.x)
        dtype = model_dtype(task, books.single[rows])
        model = build_model(self.base, books.cs[rows], self.shift, state.steps, state.images, state.x, dtype)
        here = state.last
        assert here is not None
        trial = self._swept(rows, task, model, Start(state.x, *here, books.single[rows]), state)
        if task.narrow:  # errors of A x then come to rest, and p can take them up
            data = state.data + task.forward(trial - state.x)
        else:
            data = task.forward(trial)
        books.products[rows] += 0.5
        calls += 0.5
        there = task.cosines.forward(trial)
        change = there - here[0]
        pull = model.times(change)
        length = image_sums(change * pull)
        inexact = self._inexactness(task, state, pull, here[1])
        moved = data - state.data
        square = task.grid.of_problems(column_sums(moved, moved))
        with np.errstate(invalid="ignore", divide="ignore"):
            kappa = np.where(length > 0, square / np.where(length > 0, length, 1), 0.0)
        f = task.objective(trial, data - task.B)
        long = ~(f <= books.f[rows]) & (kappa > 1) & np.isfinite(kappa)
        if long.any():
            share = np.where(long, 1 / np.where(long, kappa, 1.0), 1.0)
            shorter = task.nearest(state.x + along(share, trial) * (trial - state.x))
            trial = xp.where(along(long, trial) > 0, shorter, trial)
            data = state.data + _of_columns(share, task, data) * moved
            f = task.objective(trial, data - task.B)
        self.carried[rows] = long | task.narrow
        accepted = f <= books.f[rows] * (1 + self.noise)  # not where f is NaN
        lost = ~np.isfinite(f) & ~np.isfinite(kappa)
        books.iterations[rows] += 1
        self._adapt(rows, kappa, accepted, inexact)
        books.f[rows] = np.where(lost, np.inf, np.where(accepted, f, books.f[rows]))
        state.stale = accepted
        if accepted.all():
            state.x, state.data, state.ahead = trial, data, None if long.any() else there
        elif accepted.any():
            state.x = xp.where(along(accepted, trial) > 0, trial, state.x)
            state.data = xp.where(_of_columns(accepted, task, data) > 0, data, state.data)

    def _swept(self, rows: np.ndarray, task: Task, model: Model, start: Start, state: State) -> Array:
        """Run the sweeps of all problems, each as many as it asks for."""
        counts = self.books.sweeps[rows]
        trial, state.splitting = run_sweeps(task, model, start, state.splitting, self.rho, counts)
        self.books.swept[rows] += counts
        return trial

    def _inexactness(self, task: Task, state: State, pull: Array, gradient: Array) -> np.ndarray:
        """‖H(x⁺ − x) + g + ∇ᵀp + box‖ / ‖H(x⁺ − x)‖, in the norm in which the certificate repairs: that of ∇(∇ᵀ∇)⁻¹."""
        inner = divergence(state.splitting.u, task.grid.weights)
        if state.splitting.v is not None:
            inner = inner + state.splitting.v
        error = pull + gradient + self.rho * task.cosines.forward(inner)
        above, below = (image_sums(part * part * self.poisson) for part in (error, pull))
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(below > 0, np.sqrt(above / np.where(below > 0, below, 1)), np.inf)

    def _adapt(self, rows: np.ndarray, kappa: np.ndarray, accepted: np.ndarray, inexact: np.ndarray) -> None:
        """Change cs by κ, and the sweeps by how exact the inner step was."""
        books = self.books
        self._limit_single(rows, accepted)
        kappa = np.where(np.isfinite(kappa), kappa, 1.0)
        least = np.where(books.iterations[rows] < FALLING, FALL, 1.0)
        down = np.clip(1.05 * kappa, least, 1.0)
        books.cs[rows] *= np.where(kappa > 1, np.minimum(GROWTH, np.maximum(kappa, 1.0)), down)
        factor = np.where(~accepted | (inexact > COARSE), 2.0, np.where(inexact < FINE, 0.5, 1.0))
        most = np.where(books.gaps(rows) > SMALL, MOST_SWEEPS, MOST_AT_LAST)
        books.sweeps[rows] = np.clip((books.sweeps[rows] * factor).astype(np.int64), LEAST_SWEEPS, most)

    def _limit_single(self, rows: np.ndarray, accepted: np.ndarray) -> None:
        """Leave single precision where a step has failed or the gap is small."""
        self.books.single[rows] &= accepted & (self.books.gaps(rows) > SMALL)

    def change_lam(self, lam: np.ndarray) -> None:
        """Go on with other λ: multipliers follow them."""
        old = self.task.lam
        with np.errstate(invalid="ignore", divide="ignore"):
            factors = np.where(old > 0, lam / np.where(old > 0, old, 1), 1.0)
        self.task.lam = lam
        self.state.splitting = self.state.splitting.times(factors)


def _of_columns(flags: np.ndarray, task: Task, data: Array) -> Array:
    return copy_to_device_of(np.array(task.grid.of_columns(flags.astype(np.float64)))[None, :], data)
