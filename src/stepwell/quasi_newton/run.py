"""One run: the caller's variables, the target that works on them, and the diagonal H0 between the two."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from stepwell import _core
from stepwell.arrays import Array, host_copy, namespace_of
from stepwell.quasi_newton.inputs import project_start, read_bounds, read_diagonal, read_start
from stepwell.quasi_newton.result_types import Later
from stepwell.quasi_newton.settings import Settings
from stepwell.quasi_newton.state import BEGIN, FINISH
from stepwell.quasi_newton.target import Box, Target
from stepwell.quasi_newton.variables import Variables

if TYPE_CHECKING:
    from stepwell.distributed import Ranks
    from stepwell.quasi_newton.inverse_hessian import DeviceInverseHessian
    from stepwell.quasi_newton.inverse_operator import InverseHessian
    from stepwell.quasi_newton.ranks.hessian import RankInverseHessian
    from stepwell.quasi_newton.ranks.setup import Share
    from stepwell.quasi_newton.saved_state import Saved


class Run:
    """What `LBFGSB`, `minimize` and `minimize_batch` are made of: everything but the evaluations.

    Parameters
    ----------
    x0, bounds, h0
        As in `stepwell.minimize`; with ``batch``, as in `stepwell.minimize_batch`.
    settings : Settings
    comm, ranks : optional
        As in `stepwell.minimize`, and what was made of it: then x0, bounds and h0 are this rank's pieces.
    """

    def __init__(
        self,
        x0: Array,
        bounds: Any,
        h0: Any,
        settings: Settings,
        *,
        batch: bool = False,
        comm: Any = None,
        ranks: Ranks | None = None,
    ) -> None:
        if ranks is not None:
            self._start_on_ranks(x0, bounds, h0, settings, comm, ranks)
            return
        variables, start = read_start(x0, batch=batch)
        box = read_bounds(bounds, variables)
        self._start(variables, project_start(start, box, variables.extremes), box, h0, settings)

    @classmethod
    def of(
        cls,
        variables: Variables,
        start: Array,
        box: Box | None,
        h0: Any,
        settings: Settings,
        share: Share | None = None,
    ) -> Run:
        """Make a run of what has been read already; `start`, (B, n), lies inside the bounds."""
        run = cls.__new__(cls)
        run._start(variables, start, box, h0, settings, share)
        return run

    def _start_on_ranks(self, x0: Array, bounds: Any, h0: Any, settings: Settings, comm: Any, ranks: Ranks) -> None:
        from stepwell.quasi_newton.ranks.setup import settle, together

        def read() -> tuple[Variables, Array, Box | None]:
            variables, start = read_start(x0, may_be_empty=True)
            box = read_bounds(bounds, variables)
            if h0 is not None and not callable(h0):
                read_diagonal(h0, variables)
            return variables, project_start(start, box, variables.extremes), box

        variables, start, box = together(ranks, read)
        piece, box, share = settle(ranks, comm, variables, box, h0, settings)
        together(ranks, lambda: self._start(piece, start, box, h0, settings, share))

    def _start(
        self,
        variables: Variables,
        start: Array,
        box: Box | None,
        h0: Any,
        settings: Settings,
        share: Share | None = None,
    ) -> None:
        self.variables, self.box, self.settings, self.share = variables, box, settings, share
        self.diagonal: Callable[[Array], Any] | None = h0 if callable(h0) else None
        self._unfinished: tuple[Any, Array] | None = None
        self.weights: Array | None = None
        if self.diagonal is not None:
            self.weights = namespace_of(start).ones_like(start)
        elif h0 is not None:
            self.weights = read_diagonal(h0, variables)
        vary = self.diagonal is not None
        self.target: Target
        if share is not None:
            self.target = make_rank_target(
                start, box, self.weights, settings, weights_vary=vary, share=share, on_device=variables.on_device
            )
        else:
            self.target = make_target(
                start, box, self.weights, settings, weights_vary=vary, on_device=variables.on_device
            )

    @classmethod
    def resumed(
        cls, variables: Variables, trial: Array, box: Box | None, h0: Any, saved: Saved, share: Share | None = None
    ) -> Run:
        """Go on from a saved state; `trial` is its trial points (B, n) as the target takes them."""
        run = cls.of(variables, trial, box, h0, saved.settings, share)
        run.target.restore(saved.arrays)
        return run

    def read_held(self, f: Any, g: Any) -> tuple[Any, Array]:
        """Check a value and a gradient on one of several ranks; an error is raised on all, with the next message."""
        target: Any = self.target
        found: tuple[Any, Array] | None = None
        with target.holding():
            found = self.variables.read_values(f), self.variables.read_gradient(g, "g")
        return (self.variables.read_values(math.nan), target.no_gradient()) if found is None else found

    def turn(self, f: Any, g: Array) -> None:
        """Take checked values and gradients at the trial points; a callable diagonal is asked at accepted points."""
        if self.diagonal is None:
            self.target.turn(f, g)
            return
        self.target.turn(f, g, BEGIN)
        self._unfinished = (f, g)
        waiting = np.flatnonzero(self.target.states()["action"] == _core.ACTION_ABSORB)
        if waiting.size:
            # On several ranks all must reach the next message, whose error is then that of all.
            with getattr(self.target, "holding", contextlib.nullcontext)():
                self._renew_diagonal(self.diagonal, waiting)
        self.finish()

    def _renew_diagonal(self, diagonal: Callable[[Array], Any], waiting: np.ndarray) -> None:
        trial = self.target.trial
        point = self.variables.given(namespace_of(trial).asarray(trial, copy=True))
        fresh = read_diagonal(diagonal(point), self.variables, each_its_own=True)
        problems = (self.variables.problems, self.variables.size)
        self.target.set_diagonal(namespace_of(fresh).reshape(fresh, problems), waiting)

    @property
    def unfinished(self) -> bool:
        """Whether a turn was cut for a diagonal and not ended."""
        return self._unfinished is not None

    def finish(self) -> None:
        """End a turn that was cut for a diagonal; where that failed, with the last one."""
        if self._unfinished is not None:
            self.target.turn(*self._unfinished, FINISH)
            self._unfinished = None

    def accepted(self, name: str) -> Array:
        """Return a copy of the accepted points (``"x"``) or gradients (``"g"``), in the caller's kind and shape."""
        return self.variables.given(self.target.accepted(name))

    def shared_fields(self) -> dict[str, Any]:
        """Return what a result says of the ranks, if there are any."""
        if self.share is None:
            return {}
        ranks = self.share.ranks
        return {
            "mode": self.share.mode(getattr(self.target, "value_kinds", frozenset())),
            "exchanges": ranks.exchanges,
            "bytes_sent": ranks.bytes_sent,
            "nbytes": self.target.nbytes,
        }

    def state(self) -> dict[str, Any]:
        """Put together what the run goes on from, arrays as they are: the next turn overwrites them."""
        from stepwell.quasi_newton.saved_state import VERSION, as_text

        given = {} if self.box is None else {"lower": self.box.lower, "upper": self.box.upper}
        given |= {} if self.weights is None else {"weights": self.weights}
        return {
            "version": VERSION,
            "shape": self.variables.shape,
            "settings": as_text(self.settings),
            "weights_vary": self.diagonal is not None,
            **{name: part if isinstance(part, np.ndarray) else host_copy(part) for name, part in given.items()},
            **self.target.arrays(),
        }

    def pairs(self, problem: int) -> tuple[list[Array], list[Array]]:
        """Return copies of the pairs of one problem, rows of S and of Y, oldest first."""
        s, y = ([namespace_of(row).asarray(row, copy=True) for row in rows] for rows in self.target.pairs(problem))
        return s, y

    def inverse_hessian(
        self, problem: int = 0, *, shared: bool = True
    ) -> InverseHessian | DeviceInverseHessian | RankInverseHessian:
        """Return the inverse Hessian approximation of one problem; `shared`: with the history itself, not a copy."""
        found = self.later_inverse_hessian(problem, shared=shared)
        return found.make() if isinstance(found, Later) else found

    def later_inverse_hessian(
        self, problem: int = 0, *, shared: bool = True
    ) -> Later | DeviceInverseHessian | RankInverseHessian:
        """Return the same; what takes SciPy's import, which is long, will be made when it is looked at."""
        from stepwell.quasi_newton.inverse_hessian import DeviceInverseHessian

        state = self.target.states()[problem]
        h0: Any = float(state["gamma"])
        if self.weights is not None:
            h0 = self.weights if self.weights.ndim == 1 else self.weights[problem]
        if self.diagonal is not None:
            h0 = namespace_of(h0).asarray(h0, copy=True)
        count, size = int(state["pairs"]), self.variables.size
        if self.share is not None and self.share.ranks.size > 1:
            from stepwell.quasi_newton.ranks.hessian import RankInverseHessian

            kept = None if shared else self.pairs(problem)
            rows = functools.partial(self.target.pairs, problem) if kept is None else lambda: kept
            return RankInverseHessian(rows, count, h0, self.share.ranks, self.share.pieces)
        if self.variables.on_device:
            if shared:
                return DeviceInverseHessian(functools.partial(self.target.pairs, problem), count, h0, size)
            copies = self.pairs(problem)
            return DeviceInverseHessian(lambda: copies, count, h0, size)
        s, y = self.target.pairs(problem) if shared else self.pairs(problem)
        if self.weights is not None:
            h0 = h0.astype(float)

        def make() -> InverseHessian:
            from stepwell.quasi_newton.inverse_operator import InverseHessian

            return InverseHessian(s, y, h0, size)

        return Later(make, f"<{size}x{size} InverseHessian with dtype=float64>")


def make_target(
    start: Array, box: Box | None, weights: Array | None, settings: Settings, *, weights_vary: bool, on_device: bool
) -> Target:
    """Make the target for starting points (B, n), inside the bounds, on the host or on a CUDA device."""
    if on_device:
        from stepwell.quasi_newton.cuda.target import CudaTarget

        return CudaTarget(start, box, weights, settings, weights_vary=weights_vary)
    from stepwell.quasi_newton.host_target import HostTarget

    return HostTarget(start, box, weights, settings, weights_vary=weights_vary)


def make_rank_target(
    start: Array,
    box: Box | None,
    weights: Array | None,
    settings: Settings,
    *,
    weights_vary: bool,
    share: Share,
    on_device: bool,
) -> Target:
    """Make the target for this rank's piece of a problem, on the host or on a CUDA device."""
    ranks, pieces, threads = share
    if on_device:
        from stepwell.quasi_newton.ranks.cuda_target import CudaRankTarget

        return CudaRankTarget(start, box, weights, settings, weights_vary=weights_vary, pieces=pieces, ranks=ranks)
    from stepwell.quasi_newton.ranks.target import PieceTarget, RankTarget

    settings = dataclasses.replace(settings, threads=threads)
    if ranks.size == 1:
        return PieceTarget(start, box, weights, settings, weights_vary=weights_vary, pieces=pieces)
    return RankTarget(start, box, weights, settings, weights_vary=weights_vary, pieces=pieces, ranks=ranks)
