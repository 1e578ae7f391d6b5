"""A run as a file: what `LBFGSB.save` writes, and what `minimize` with ``checkpoint=`` writes as it goes on."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from stepwell.arrays import host_copy
from stepwell.common import checkpoints
from stepwell.common.checks import warn_caller
from stepwell.common.files import Path, Unreadable
from stepwell.quasi_newton import saved_state

if TYPE_CHECKING:
    from stepwell.quasi_newton.objective import Objective
    from stepwell.quasi_newton.run import Run

KIND = "quasi-Newton run"
#: Settings that enter the arithmetic of a run; the others say when it ends or how many threads it has.
_PATH = ("m", "history", "cauchy", "line_search")


def write(path: Path, run: Run, more: Mapping[str, Any] | None = None) -> None:
    """Write a run that waits for an evaluation, or has ended; its arrays are not copied on the host."""
    checkpoints.write(path, KIND, run.state() | dict(more or {}))


def read(path: Path) -> tuple[saved_state.Saved, dict[str, Any]]:
    """Return a run that was written, checked, and whatever else was written with it."""
    fields = checkpoints.read(path, KIND)
    try:
        return saved_state.unpack(fields, from_file=True), fields
    except Unreadable:
        raise
    except Exception as error:  # whatever values of the wrong kinds lead to, such as a RecursionError
        raise Unreadable(f"{os.fspath(path)}: {error}") from error


class Checkpoint:
    """Writes a run of `minimize` to a file every so often, and takes it up again from there.

    The file never holds a run that has ended: a run that reached a limit can be taken up with another one, and one
    that converged is taken up shortly before its end.

    Parameters
    ----------
    path : path
    every : int or str
        See `stepwell.common.checkpoints.read_interval`.
    run : Run
        At its start.
    objective : Objective
    """

    def __init__(self, path: Path, every: Any, run: Run, objective: Objective) -> None:
        self._path = checkpoints.read_path(path)
        self._iterations, self._seconds = checkpoints.read_interval(every, "iterations")
        self._run, self._objective = run, objective
        self._start = hashlib.sha256(host_copy(run.target.trial).tobytes()).hexdigest()
        self._warned = False
        self._note()
        self._begin_interval()

    def resume(self) -> None:
        """Go on from the file, where there is one."""
        if not os.path.exists(self._path):
            return
        saved, more = read(self._path)
        run = self._run
        for what, same in self._comparison(saved, more).items():
            if not same:
                raise ValueError(
                    f"checkpoint is {self._path!r}, of a run with another {what}; allowed: the file of this run, or a "
                    "path where there is none"
                )
        run.target.restore(saved.arrays)
        if run.diagonal is not None:
            run.target.set_diagonal(run.variables.placed("h0", saved.weights), np.zeros(1, int))
        state = run.target.states()[0]
        self._objective.nfev = int(more.get("nfev", state["evaluations"]))
        self._objective.njev = int(more.get("njev", state["evaluations"]))
        if state["started"]:
            self._require_function(float(state["f"]))
        self._note()
        self._begin_interval()

    def _comparison(self, saved: saved_state.Saved, more: Mapping[str, Any]) -> dict[str, bool]:
        """Say of everything that the arguments tell of a run whether it is the file's."""
        run = self._run
        box = (None, None) if run.box is None else (host_copy(run.box.lower), host_copy(run.box.upper))
        weights = None if run.weights is None or run.diagonal is not None else host_copy(run.weights)
        kept = None if saved.weights_vary else saved.weights
        return {
            "shape of x0": saved.shape == run.variables.shape,
            "dtype": saved.dtype == run.variables.dtype,
            "x0": more.get("start", self._start) == self._start,
            "lower bound": _same(box[0], saved.lower),
            "upper bound": _same(box[1], saved.upper),
            "h0": saved.weights_vary == (run.diagonal is not None) and _same(weights, kept),
            **{name: getattr(saved.settings, name) == getattr(run.settings, name) for name in _PATH},
        }

    def _require_function(self, expected: float) -> None:
        """Evaluate f once more where it is known: a file of another function's run would lead anywhere."""
        run = self._run
        found = self._objective.value_again(run.target.accepted("x"))
        room = 1e-6 if run.variables.dtype == np.float64 else 1e-3
        if not abs(found - expected) <= room * max(1.0, abs(expected)):
            raise ValueError(
                f"checkpoint is {self._path!r}, in which f is {expected!r} where fun gives {found!r}; allowed: the "
                "file of a run with the same fun, or a path where there is none"
            )

    def look(self) -> None:
        """After a turn: write, where it is time."""
        self._note()
        if self._seconds is not None and time.monotonic() - self._written_at < self._seconds:
            return
        if self._iterations is not None:
            state = self._run.target.states()[0]
            if int(state["iterations"]) - self._written_after < self._iterations:
                return
        self.write()

    def write(self) -> None:
        """Write the run, unless it has ended or is in the middle of a turn; trouble with the file is a warning."""
        target = self._run.target
        target.wait()
        evaluations, nfev, njev = self._counts
        between = self._run.variables.on_device or evaluations == int(target.states()["evaluations"][0])
        if not target.running or self._run.unfinished or not between:
            return
        try:
            write(self._path, self._run, {"start": self._start, "nfev": nfev, "njev": njev})
        except OSError as error:
            if not self._warned:
                warn_caller(f"the checkpoint could not be written, and the run goes on: {error}")
            self._warned = True
        self._begin_interval()

    def _note(self) -> None:
        """Remember the counts between two turns: where the next one is interrupted, they have moved on."""
        on_device = self._run.variables.on_device  # where looking would mean to wait
        evaluations = 0 if on_device else int(self._run.target.states()["evaluations"][0])
        self._counts = (evaluations, self._objective.nfev, self._objective.njev)

    def _begin_interval(self) -> None:
        self._written_at = time.monotonic()
        self._written_after = int(self._run.target.states()["iterations"][0]) if self._iterations is not None else 0


def _same(one: np.ndarray | None, two: np.ndarray | None) -> bool:
    if one is None or two is None:
        return one is two
    alike = one.shape == two.shape or 1 in (one.size, two.size)  # a number for all variables
    return alike and bool((one == two).all())
