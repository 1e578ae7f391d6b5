"""The objective of a batch that is told which problems still run, and evaluates these alone."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from stepwell.arrays import (
    Array,
    as_user_array,
    copy_to_device_of,
    shapes_are_compiled,
    take_rows,
    with_rows,
    zeros_like_rows,
)
from stepwell.quasi_newton.objective import Objective
from stepwell.quasi_newton.target import Box, Target

if TYPE_CHECKING:
    from stepwell.quasi_newton.run import Run

#: Where another number of rows costs a compilation or a graph, rows leave only when so few of them still run.
STEP = 0.8

#: What an argument that may be left out is called where it is for rows.
NAMES = ("rows", "which", "index", "indices")


def takes_rows(fun: Any, args: tuple[Any, ...] = ()) -> bool:
    """Whether a function wants the rows of the running problems: a second argument, beside `args`.

    One that may be left out is meant for rows where it is ``None`` by default and its name says so, and for
    something else otherwise.

    Examples
    --------
    >>> takes_rows(lambda x: x), takes_rows(lambda x, rows: x), takes_rows(lambda x, scale: x, args=(2,))
    (False, True, False)
    >>> takes_rows(lambda x, rows=None: x), takes_rows(lambda x, rows=3: x), takes_rows(lambda x, data=None: x)
    (True, False, False)
    """
    if not callable(fun):
        return False
    try:
        parameters = inspect.signature(fun).parameters.values()
    except (TypeError, ValueError):  # some compiled functions have none
        return False
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = sum(p.default is p.empty for p in positional)
    if needed == 1 and not args and len(positional) > 1:
        return positional[1].default is None and positional[1].name in NAMES
    return needed == 2 + len(args)


class RunningRows:
    """Evaluates the rows of a batch that still run. Everything else is as its `Objective` has it.

    Parameters
    ----------
    run : Run
    fun, jac : callables
        ``fun(x, rows, *args)``; ``jac`` likewise where it takes rows.
    args : tuple
    make : callable
        Makes the objective of functions of the point alone.
    """

    def __init__(
        self,
        run: Run,
        fun: Callable[..., Any],
        jac: Any,
        args: tuple[Any, ...],
        make: Callable[[Callable[..., Any], Any], Objective],
    ) -> None:
        self._variables, self._box = run.variables, run.box
        self._in_steps = run.variables.on_device or shapes_are_compiled(run.variables.template)
        self._gathers = False  # whether the objective takes its rows out of the trial points itself
        self._held = np.arange(run.variables.problems)
        self._rows: Any = self._shown(self._held)
        self._places: Any = self._rows
        self._full: tuple[Any, ...] | None = None
        self.rows_evaluated = 0

        def with_rows_given(function: Callable[..., Any]) -> Callable[..., Any]:
            return lambda x: function(x, self._rows, *args)

        gradient = jac
        if callable(jac):
            gradient = with_rows_given(jac) if takes_rows(jac, args) else lambda x: jac(x, *args)
        self._inner = make(with_rows_given(fun), gradient)

    def __getattr__(self, name: str) -> Any:
        """Return what the objective of the rows has: counts, times, ways."""
        return getattr(self._inner, name)

    def __call__(self, trial: Array) -> tuple[Any, Array]:
        """Return f and g at the trial points: of the rows held or, where others keep what they had, of all."""
        before = self._inner.nfev
        whole = len(self._held) == self._variables.problems
        f, g = self._inner(trial if whole or self._gathers else take_rows(trial, self._places))
        if self._in_steps and not whole:  # some of the rows have ended: the target takes those of all problems
            f, g = self._spread(f, g)
        self.rows_evaluated += len(self._held) * (self._inner.nfev - before)
        return f, g

    def replayed(self, times: int) -> None:
        """Count evaluations that were made by a captured graph."""
        self._inner.replayed(times)
        self.rows_evaluated += len(self._held) * times

    def _spread(self, f: Any, g: Array) -> tuple[Any, Array]:
        """Return values and gradients of all problems, those of the rows held in their places."""
        if self._full is None:
            self._full = tuple(zeros_like_rows(part, self._variables.problems) for part in (f, g))
        places = (self._held if isinstance(part, np.ndarray) else self._places for part in (f, g))
        self._full = tuple(with_rows(*each) for each in zip(self._full, places, (f, g)))
        return self._full[0], self._full[1]

    def narrow(self, target: Target) -> bool:
        """Leave out problems that have ended; whether the number of rows is another now."""
        held = len(self._held)
        if not 0 < target.running < (STEP * held if self._in_steps else held):
            return False
        target.wait()
        self._held = target.still_running()
        if not len(self._held):
            return False
        self._rows = self._shown(self._held)
        self._places = copy_to_device_of(self._held, target.trial) if self._variables.on_device else self._held
        rows = dataclasses.replace(self._variables, shape=(len(self._held), *self._variables.own_shape))
        self._gathers = not (self._in_steps or self._inner.differenced)
        self._inner.serve(rows, self._box_of_rows(), self._held if self._gathers else None)
        return True

    def _shown(self, rows: np.ndarray) -> Array:
        template = self._variables.template
        return copy_to_device_of(rows, template) if self._variables.on_device else as_user_array(rows.copy(), template)

    def _box_of_rows(self) -> Box | None:
        if self._box is None or not self._box.differs:
            return self._box
        lower, upper = (side if side.ndim == 1 else take_rows(side, self._places) for side in self._box[:2])
        return self._box._replace(lower=lower, upper=upper, own=None)  # for the caller's points alone
