"""Fits whose model PyTorch or JAX evaluates on a CUDA device: sums, decisions and the choice of rows are kernels there.

The host learns after a turn how many run on, and evaluates that many rows. Where few do, turns of PyTorch's are a
CUDA graph, and the host looks now and then.
"""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from stepwell.arrays import (
    Array,
    as_float,
    capture,
    copy_to_device_of,
    differentiating_library,
    dtype_name,
    is_cuda,
    namespace_of,
    shapes_are_compiled,
    wait_for_values,
)
from stepwell.arrays.checks import read_array
from stepwell.arrays.device_memory import DeviceMemory
from stepwell.arrays.forward_mode import Programs, programs_for
from stepwell.arrays.kinds import as_contiguous
from stepwell.arrays.together import first_of
from stepwell.cuda import runtime
from stepwell.fit.device_arguments import DeviceFit, core_options, read_on_device, result_on_device
from stepwell.fit.functions import Curve, Function, called_jac, parameter_names
from stepwell.fit.library_evaluation import SHRINK
from stepwell.fit.models.cuda import end_columns
from stepwell.fit.models.host import ends_of
from stepwell.fit.models.job import Arrays, Settings, answers, job_of
from stepwell.fit.problem import FitProblem
from stepwell.fit.result import FitResult

#: Most parameters of a fit that kernels keep in registers.
MAX_PARAMETERS = 16
#: Up to so many their loops are unrolled; beyond, that takes minutes to compile.
UNROLLED_PARAMETERS = 9
#: Threads of a block, of the block that adds up what blocks found, and lanes of a row (src/cuda/fit/fit_turn.cu).
THREADS, OFFSET_THREADS, LANES = 128, 1024, 8
#: Turns are captured when so many have passed and so few rows run that launching them takes longer than they do; a
#: graph has `IN_GRAPH` of them.
BEFORE_GRAPH, FEW, IN_GRAPH = 4, 16384, 2
#: Fewer rows take a device no less time, and JAX another program.
LEAST = 4096


def fits_on_device(data: Any, jac: Any, parameters: int) -> bool:
    """Whether a batch is fitted without the host: of tensors or arrays of JAX on a device, by forward mode or jac."""
    known = differentiating_library(data) is not None and is_cuda(data)
    several = known and data.ndim > 1 and 0 not in tuple(data.shape)
    return several and parameters <= MAX_PARAMETERS and (jac is None or callable(jac))


def kernel_defines(single: bool, n: int) -> dict[str, str | int]:
    """Return the definitions that ``cuda/fit/fit_turn.cu`` is compiled with."""
    defines: dict[str, str | int] = {"SW_SCALAR": "float" if single else "double", "SW_PARAMETERS": n}
    return defines | ({"SW_LOOPS": 1} if n > UNROLLED_PARAMETERS else {})


@dataclasses.dataclass
class _Rows:
    """Problems that are evaluated in a turn, and the points wanted of them."""

    held: int
    points: Array  # (held, n)
    rows: Array  # (held,), int32
    spare: Array  # the next turn's rows

    def first(self, held: int) -> _Rows:
        """Return some of them, those that run first."""
        return self if held == self.held else _Rows(held, *first_of(held, self.points, self.rows, self.spare))


class _Batch:
    """Fits on a device: states and answers in its memory, and the launches of a turn."""

    def __init__(self, fit: DeviceFit) -> None:
        self.fit = fit
        self.memory = memory = DeviceMemory(fit.template)
        memory.make_current()
        n, B = fit.parameters, fit.problems
        bounds = {id(side): memory.upload(np.ascontiguousarray(side).tobytes()) for side in (fit.low, fit.high)}
        end_reals, end_counts = end_columns(n)  # of a state, beside the trial point, S, five reals and three counts
        packed, blocks = n * (n + 1) // 2, _blocks(B)
        own = {
            "_reals": ((end_reals + n + packed + 5, B), "float64"),
            "_counts": ((end_counts + 3, B), "int32"),
            "_sums": ((1 + n + packed, B), "float64"),
            "_going": ((blocks * THREADS // 32,), "int32"),
            "_totals": ((blocks,), "int32"),
            "_running": ((1,), "int32"),
        }
        rows = {"points": ((B, n), fit.real), "rows": ((B,), "int32"), "spare": ((B,), "int32")}
        made = memory.several(own | rows | answers(B, n, fit.real, fit.uncertainty))
        self._kept = [*bounds.values(), *(made[name] for name in own)]
        self._reals, self._counts, self._sums, self._going, self._totals, self._running = (
            memory.address(made.pop(name)) for name in own
        )
        self._rows = _Rows(B, *(made.pop(name) for name in rows))
        self._seen = runtime.PinnedBuffer(4)
        self.arrays = Arrays(x=None, y=fit.y, weights=fit.weights, start=fit.start, low=fit.low, high=fit.high, **made)
        self._job = job_of(
            self.arrays, Settings(**fit.options), lambda one: memory.address(bounds.get(id(one), one)), B, fit.points, n
        )
        defines = kernel_defines(fit.single, n)
        self._kernels = {
            name: runtime.load_kernel("fit_turn", name, defines, memory.device_id)
            for name in ("fit_begin", "fit_sums", "fit_decide", "fit_offsets", "fit_pick", "fit_ends")
        }

    def _launch(self, name: str, blocks: int, *arguments: Any, threads: int = THREADS) -> None:
        address = self.memory.address
        given = (address(one) if hasattr(one, "shape") else one for one in arguments)
        runtime.launch(self._kernels[name], blocks, threads, self.memory.stream(), *given)

    def begin(self) -> _Rows:
        """Begin all fits; return all rows, at their starts."""
        memory, room = self.memory, self._rows
        self._launch("fit_begin", _blocks(room.held), self._job, self._reals, self._counts, room.rows, room.points)
        memory.done(memory.stream(), [])
        return room

    def turn(self, room: _Rows, values: Array, columns: Array) -> None:
        """Take values (rows, m) and columns of J (n, rows, m), decide, and put those that run on first."""
        held, job, reals, counts = room.held, self._job, self._reals, self._counts
        blocks, of_rows = _blocks(held), (room.rows, held)
        self._launch("fit_sums", _blocks(LANES * held), job, counts, *of_rows, values, columns, self._sums)
        self._launch("fit_decide", blocks, job, reals, counts, *of_rows, self._sums, self._going, self._totals)
        counted = (self._totals, blocks, self._running, self._seen.handle)
        self._launch("fit_offsets", 1, *counted, threads=OFFSET_THREADS)
        found = (reals, self._going, self._totals, self._running)
        self._launch("fit_pick", blocks, self.fit.problems, *found, *of_rows, room.spare, room.points)
        room.rows, room.spare = room.spare, room.rows

    def running(self) -> int:
        """Return how many fits run on, when all that is launched is done."""
        self.memory.wait(self.memory.stream())
        return ctypes.c_int32.from_address(self._seen.handle).value

    def ends(self) -> dict[str, Any]:
        """Return what holds at the ends, on the device."""
        self._launch("fit_ends", _blocks(self.fit.problems), self._job, self._reals, self._counts)
        self.memory.done(self.memory.stream(), [])
        return ends_of(self.arrays)


def _blocks(threads: int) -> int:
    return -(-threads // THREADS)


class _Model:
    """The caller's model: values and columns of J of some rows, in one piece and in the type of the fit."""

    def __init__(self, fit: DeviceFit, function: Function, jac: Any) -> None:
        self._fit, self._function = fit, function
        self._given = None if jac is None else called_jac(function, jac)
        self._programs: Programs = programs_for(function, fit.template, fit.points or None)

    def _abscissa(self, rows: Array) -> Any:
        return self._function.abscissa(rows) if isinstance(self._function, Curve) else None

    def values(self, points: Array, rows: Array) -> Array:
        """Return values (rows, m)."""
        return self._programs.values(self._abscissa(rows), points, rows)

    def both(self, points: Array, rows: Array) -> tuple[Array, Array]:
        """Return values (rows, m) and columns (n, rows, m)."""
        if self._given is None:
            values, columns = self._programs.both(self._abscissa(rows), points, rows)
        else:
            values, found = self.values(points, rows), self._given(points, rows)
            wanted = (*(int(side) for side in values.shape), self._fit.parameters)
            if tuple(found.shape) != wanted:
                raise ValueError(f"jac returned shape {tuple(found.shape)}; allowed: {wanted}, points by parameters")
            columns = namespace_of(found).moveaxis(found, 2, 0)
        values, columns = (self._readable(part) for part in (values, columns))
        return values, columns

    def _readable(self, array: Array) -> Array:
        if dtype_name(array.dtype) != self._fit.real:
            array = as_float(array, self._fit.real)
        return wait_for_values(as_contiguous(array))


def solve_on_device(fit: DeviceFit, model: _Model, made: tuple[Array, Array] | None = None) -> dict[str, Any]:
    """Fit a batch on the device of its arrays, from `made` at the start if that is known; return what is there, too."""
    batch = _Batch(fit)
    compiled, problems = shapes_are_compiled(fit.template), fit.problems
    room, running, turns = batch.begin(), problems, 0
    replay: Callable[[], Any] | None = None
    captures = batch.memory.follows
    while running:
        if replay is None:
            batch.turn(room, *(made or model.both(room.points, room.rows)))
            made = None
            turns += 1
        else:
            replay()
        running = batch.running()
        if fit.progress is not None:
            fit.progress(problems - running, problems)
        if running and replay is None:
            room = room.first(_held(running, room.held) if compiled else running)
            if captures and turns >= BEFORE_GRAPH and running <= FEW:
                replay = _captured(batch, model, room)
                captures = replay is not None
    return batch.ends()


def _held(running: int, held: int) -> int:
    """Return how many rows are evaluated, where programs are compiled for few numbers of them."""
    while held > LEAST and running * SHRINK <= held:
        held = max(-(-held // SHRINK), LEAST, running)
    return held


def _captured(batch: _Batch, model: _Model, room: _Rows) -> Callable[[], Any] | None:
    """Return some turns of some rows as one launch; None where the model cannot be captured."""

    def turns(stream: int) -> None:
        for _ in range(IN_GRAPH):  # (an even number: rows are back where they were)
            batch.turn(room, *model.both(room.points, room.rows))

    try:
        replay: Callable[[], Any] = capture(batch.fit.template, turns)
        return replay
    except Exception:  # whatever a library says of what cannot be captured: turns are launched one by one
        return None


def fit_curve_on_device(f: Callable[..., Any], jac: Any, n: int, xdata: Any, *arguments: Any) -> FitResult:
    """Fit data by the caller's model where they are; the arguments are those of ``read_on_device``."""
    fit, own = read_on_device(parameter_names(f), n, xdata, *arguments)
    x = xdata
    if isinstance(x, np.ndarray | list | tuple):
        x = copy_to_device_of(np.ascontiguousarray(read_array("xdata", x)), fit.template)
    if own:
        x = x.reshape((*tuple(x.shape)[: x.ndim - len(fit.lead) - 1], -1, fit.points))
    model = _Model(fit, Curve(f, x, own), jac)
    return _result(fit, model, solve_on_device(fit, model))


def minimise_on_device(problem: FitProblem, function: Function, jac: Any) -> FitResult:
    """Minimise residuals where the start is."""
    template = problem.template
    start = copy_to_device_of(problem.x0, template)
    fit = DeviceFit(
        problem.lead, problem.single, template, None, None, start, problem.low, problem.high, core_options(problem),
        problem.uncertainty, names=problem.names, progress=problem.progress,
    )  # fmt: skip
    model = _Model(fit, function, jac)
    made = model.both(start, copy_to_device_of(np.arange(problem.problems, dtype=np.int32), template))
    fit.points = int(made[0].shape[1])
    return _result(fit, model, solve_on_device(fit, model, made))


def _result(fit: DeviceFit, model: _Model, ends: dict[str, Any]) -> FitResult:
    return result_on_device(ends, fit.lead, fit.names, _Again(fit, model, ends["x"]))


class _Again:
    """Weighed residuals, or their derivatives, at the ends."""

    def __init__(self, fit: DeviceFit, model: _Model, x: Array) -> None:
        self._fit, self._model, self._x = fit, model, x

    def __call__(self, derivatives: bool) -> Any:
        fit, xp = self._fit, namespace_of(self._x)
        rows = copy_to_device_of(np.arange(fit.problems, dtype=np.int32), fit.template)
        if derivatives:
            found = xp.moveaxis(self._model.both(self._x, rows)[1], 0, 2)
            weights = None if fit.weights is None else fit.weights[..., None]
        else:
            found, weights = self._model.values(self._x, rows), fit.weights
            found = found if fit.y is None else found - fit.y
        if weights is not None:
            found = xp.where(weights == 0, xp.zeros_like(found), found * weights)
        return xp.reshape(found, fit.lead + tuple(found.shape[1:]))
