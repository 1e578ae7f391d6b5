"""Models that PyTorch and JAX evaluate: Jacobians by forward mode, n tangents of the whole batch at once.

Rows are independent, so that one tangent e_j serves all of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stepwell.arrays import copy_to_device_of, shapes_are_compiled
from stepwell.arrays.forward_mode import programs_for, programs_of
from stepwell.fit.functions import Curve, Function, called_jac, complex_values, jacobian_as_rows, on_host
from stepwell.fit.problem import FitProblem

__all__ = ["SHRINK", "SMALLEST", "LibraryEvaluation", "programs_of"]

#: Programs are compiled for so many rows: all, and then a quarter of what was held, when no more run.
SHRINK = 4
SMALLEST = 16
#: More rows are evaluated so many at a time: what stays in the caches, with less to fill up, and one program for all.
BLOCK = 8192


class LibraryEvaluation:
    """A model of tensors or JAX arrays.

    JAX compiles values and derivatives apart, for few numbers of rows; what is compiled is kept with the function for
    the next call.
    """

    accuracy = 0.0

    def __init__(self, function: Function, jac: Any, problem: FitProblem) -> None:
        self._function, self._problem, self._template = function, problem, problem.template
        self._points: int | None = problem.points or None
        self._in_steps = shapes_are_compiled(problem.template)
        self.picks = not self._in_steps
        self._held = min(problem.problems, BLOCK) if self._in_steps else problem.problems
        self._room: np.ndarray | None = None  # for derivatives of many rows: fresh memory takes as long as they do
        self._kept_at: np.ndarray | None = None  # the points whose derivatives it has
        self._jac = None if jac is None else called_jac(function, jac)
        self._programs = programs_for(function, problem.template, self._points)
        self._x = self._abscissa()

    def _abscissa(self) -> Any:
        function = self._function
        if not isinstance(function, Curve):
            return None
        x = function.x
        if isinstance(x, np.ndarray | list | tuple) and np.asarray(x).dtype.kind in "biuf":
            found = np.asarray(x)
            found = (
                found.astype(np.float32 if self._problem.single else np.float64) if found.dtype.kind == "f" else found
            )
            return copy_to_device_of(np.ascontiguousarray(found), self._template)
        return x

    def _arguments(self, x: np.ndarray, rows: np.ndarray) -> tuple[int, Any, Any, Any]:
        """Return how many rows count, and x, points and rows in the library, filled up to a number compiled for."""
        k = len(rows)
        if self._in_steps and k < self._held:
            while self._held > SMALLEST and k * SHRINK <= self._held:
                self._held = max(-(-self._held // SHRINK), SMALLEST, k)
            fill = self._held - k
            if fill > 0:
                x = np.concatenate([x, np.broadcast_to(x[:1], (fill, x.shape[1]))])
                rows = np.concatenate([rows, np.broadcast_to(rows[:1], (fill,))])
        there, which = (copy_to_device_of(np.ascontiguousarray(part), self._template) for part in (x, rows))
        abscissa = self._x
        if isinstance(self._function, Curve) and self._function.own:
            abscissa = abscissa[..., which, :]
        return k, abscissa, there, which

    def _blocks(self, k: int) -> list[slice] | None:
        """Return the blocks that k rows are evaluated in; None where they are one."""
        if not self._in_steps or k <= BLOCK:
            return None
        return [slice(first, min(first + BLOCK, k)) for first in range(0, k, BLOCK)]

    def values(self, x: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the model's values (k, m)."""
        blocks = self._blocks(len(rows))
        if blocks is not None:
            return np.concatenate([self.values(x[block], rows[block]) for block in blocks])
        k, abscissa, there, which = self._arguments(x, rows)
        return self._checked(self._programs.values(abscissa, there, which), len(there))[:k]

    def _checked(self, values: Any, rows: int) -> np.ndarray:
        found = on_host(values)
        if found.ndim != 2 or found.shape[0] != rows or self._points not in (None, found.shape[1]):
            raise self._function.refused(tuple(found.shape), rows, self._points)
        self._points = int(found.shape[1])
        return _real(found)

    def values_ahead(self, x: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return values, with derivatives kept for ``jacobian`` at the same points: one program finds both."""
        if not self._in_steps or self._jac is not None:
            return self.values(x, rows)
        pieces = []
        for block in self._blocks(len(rows)) or [slice(0, len(rows))]:
            k, abscissa, there, which = self._arguments(x[block], rows[block])
            values, columns = self._programs.both(abscissa, there, which)
            pieces.append(self._checked(values, len(there))[:k])
            self._keep(columns, block, k, len(rows))
        self._kept_at = x
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def jacobian(self, x: np.ndarray, rows: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return its derivatives (k, m, n), by forward mode or the caller's jac; they stay until the next call."""
        if self._kept_at is not x:
            if self._jac is not None:
                return self._by_jac(x, rows, values)
            for block in self._blocks(len(rows)) or [slice(0, len(rows))]:
                k, abscissa, there, which = self._arguments(x[block], rows[block])
                self._keep(self._programs.columns(abscissa, there, which), block, k, len(rows))
        assert self._room is not None
        self._kept_at = None
        return np.moveaxis(self._room[:, : len(rows)], 0, 2)

    def _keep(self, columns: Any, block: slice, k: int, rows: int) -> None:
        found = _real(on_host(columns))
        if k == rows:  # in one piece
            self._room = found
            return
        if self._room is None or self._room.shape[1] < rows or self._room.dtype != found.dtype:
            self._room = np.empty((found.shape[0], rows, found.shape[2]), found.dtype)
        self._room[:, block] = found[:, :k]

    def _by_jac(self, x: np.ndarray, rows: np.ndarray, values: np.ndarray) -> np.ndarray:
        blocks = self._blocks(len(rows))
        if blocks is not None:
            return np.concatenate([self._by_jac(x[block], rows[block], values[block]) for block in blocks])
        assert self._jac is not None
        k, _, there, which = self._arguments(x, rows)
        shape = np.broadcast_to(values[:1], (len(there), values.shape[1]))
        return jacobian_as_rows(on_host(self._jac(there, which)), shape, x.shape[1])[:k]


def _real(found: np.ndarray) -> np.ndarray:
    if found.dtype.kind == "c":
        raise complex_values("the model f")
    return found if found.dtype in (np.float32, np.float64) else found.astype(np.float64)
