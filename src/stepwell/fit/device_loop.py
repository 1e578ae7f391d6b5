"""The loop of fits whose model PyTorch or JAX evaluates on a CUDA device: sums and decisions are a kernel there."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from stepwell.arrays import Array, copy_to_device_of, host_copy, is_cuda, kind_of, namespace_of, wait_for_values
from stepwell.arrays.device_memory import DeviceMemory
from stepwell.arrays.kinds import as_contiguous
from stepwell.cuda import runtime
from stepwell.cuda.layouts import structure
from stepwell.fit.assembling import Again
from stepwell.fit.evaluation import Evaluation
from stepwell.fit.functions import Curve, Function, called_jac
from stepwell.fit.library_evaluation import SHRINK, SMALLEST, programs_of
from stepwell.fit.models.host import ends_of
from stepwell.fit.models.job import COUNTS, REALS, Arrays
from stepwell.fit.problem import FitProblem
from stepwell.fit.result import FitResult

#: Most parameters of a fit that a warp adds up in registers.
MAX_PARAMETERS = 16
#: Threads of a block where a thread has a problem; problems of a block where a warp has one.
THREADS, WARPS = 128, 4
RUNNING = 100


def fits_on_device(problem: FitProblem, data: Any, jac: Any) -> bool:
    """Whether a batch can be fitted without the host: tensors or arrays of JAX on a device, by forward mode or jac."""
    if problem.lone or problem.problems == 0 or problem.parameters > MAX_PARAMETERS or problem.callback is not None:
        return False
    return kind_of(data) in ("torch", "jax") and is_cuda(data) and (jac is None or callable(jac))


@functools.lru_cache(maxsize=64)
def _kernels(single: bool, n: int, device_id: int) -> dict[str, Any]:
    defines: dict[str, str | int] = {"SW_SCALAR": "float" if single else "double", "SW_PARAMETERS": n}
    entries = ("fit_begin", "fit_turn_rows", "fit_ends")
    return {entry: runtime.load_kernel("fit_turn", entry, defines, device_id) for entry in entries}


class _DeviceBatch:
    """Fits on a device: states, trial points and statuses in its memory."""

    def __init__(self, problem: FitProblem, data: Array | None, template: Array, points: int, epsilon: float) -> None:
        self._problem = problem
        self.memory = memory = DeviceMemory(template)
        memory.make_current()
        n, B = problem.parameters, problem.problems
        self.real = "float32" if problem.single else "float64"
        like = template
        y = None if data is None else as_contiguous(_as(data.reshape(-1, points), self.real))
        weights = None if problem.weights is None else _as(copy_to_device_of(problem.weights, like), self.real)
        start = _as(copy_to_device_of(problem.x0, like), self.real)
        bounds = [memory.upload(np.ascontiguousarray(side).tobytes()) for side in (problem.low, problem.high)]
        wanted = problem.uncertainty
        self.arrays = Arrays(
            x=None,
            y=y,
            weights=weights,
            start=start,
            low=bounds[0],
            high=bounds[1],
            values=memory.empty((B, n), self.real),
            variances=memory.empty((B, n), "float64") if wanted is not None else None,
            covariance=memory.empty((B, n, n), "float64") if wanted == "covariance" else None,
            reals=memory.empty((len(REALS), B), "float64"),
            counts=memory.empty((len(COUNTS), B), "int32"),
            active=memory.empty((B, n), "int8"),
        )
        self.trial = memory.empty((B, n), self.real)
        self.status = memory.empty(B, "int32")
        # (A few doubles more than a state has.)
        self._states = memory.empty(B * 8 * (4 * n + n * (n + 1) + 16), "uint8")
        self._job = self._make_job(points, epsilon)
        self._kernels = _kernels(problem.single, n, memory.device_id)
        blocks = -(-B // THREADS)
        self._launch("fit_begin", blocks, THREADS, self._address(self.trial), self._address(self.status))

    def _address(self, array: Array | None) -> int:
        return self.memory.address(array)

    def _make_job(self, points: int, epsilon: float) -> Any:
        problem, a, address = self._problem, self.arrays, self._address
        options = problem.options(epsilon)
        n = problem.parameters
        names = ("ftol", "gtol", "xtol", "epsilon", "max_iterations", "max_evaluations", "single", "secant")
        step = n if len(problem.low) > 1 else 0
        return structure("FitModelJob")(
            problems=problem.problems,
            points=points,
            parameters=n,
            y=address(a.y),
            y_stride=points if a.y is not None and a.y.shape[0] > 1 else 0,
            weights=address(a.weights),
            weights_stride=points if a.weights is not None and a.weights.shape[0] > 1 else 0,
            start=address(a.start),
            start_stride=n,
            low=address(a.low),
            high=address(a.high),
            low_stride=step,
            high_stride=step,
            options=structure("FitOptions")(**{name: options[name] for name in names}),
            loss=options["loss"],
            loss_scale=options["scale"],
            unit_variance=int(options["absolute"]),
            values=address(a.values),
            variances=address(a.variances),
            covariance=address(a.covariance),
            reals=address(a.reals),
            counts=address(a.counts),
            active=address(a.active),
        )

    def _launch(self, entry: str, blocks: int, threads: int, *arguments: Any) -> None:
        memory = self.memory
        stream = memory.stream()
        runtime.launch(
            self._kernels[entry], blocks, threads, stream, self._job, self._address(self._states), *arguments
        )
        memory.done(stream, [])

    def running(self) -> np.ndarray:
        """Return which problems run, on the host: a few bytes per problem."""
        return np.flatnonzero(self.memory.read(self.status, self.memory.stream()) == RUNNING)

    def turn(self, rows: Array, count: int, values: Array, columns: Array) -> None:
        """Take values (rows, m) and columns of J (n, rows, m) of the first `count` rows, and decide."""
        values, columns = (as_contiguous(_as(part, self.real)) for part in (values, columns))
        wait_for_values(columns)
        held = int(values.shape[0]) * int(values.shape[1])
        self._launch(
            "fit_turn_rows",
            -(-count // WARPS),
            32 * WARPS,
            self._address(self.trial),
            self._address(self.status),
            self._address(rows),
            count,
            self._address(values),
            self._address(columns),
            held,
        )
        self._kept = (rows, values, columns)  # until the next turn: the kernel reads them

    def ends(self) -> dict[str, Any]:
        """Return what holds at the ends, on the device."""
        self._launch("fit_ends", -(-self._problem.problems // THREADS), THREADS)
        return ends_of(self.arrays)


def _as(array: Array, real: str) -> Array:
    xp = namespace_of(array)
    return xp.astype(array, getattr(xp, real), copy=False)


def solve_on_device(
    problem: FitProblem, function: Function, jac: Any, data: Array | None, template: Array
) -> dict[str, Any]:
    """Fit a batch on the device of its arrays; what is returned is there, too."""
    programs = programs_of(function, kind_of(template), problem.points or None)
    given = None if jac is None else called_jac(function, jac)
    compiled = kind_of(template) == "jax"
    rows, held = np.arange(problem.problems), problem.problems
    x = copy_to_device_of(problem.x0, template)
    batch: _DeviceBatch | None = None
    while len(rows):
        count = len(rows)
        if compiled and batch is not None:  # a few sizes alone are compiled for
            while held > SMALLEST and count * SHRINK <= held:
                held = max(-(-held // SHRINK), SMALLEST, count)
            rows = np.concatenate([rows, np.full(held - count, rows[0])])
        which = copy_to_device_of(rows.astype(np.int32), template)  # (int64 is not to be had of JAX as it comes)
        if batch is not None:
            x = batch.trial[which]
        abscissa = _abscissa(function, which, template)
        values = programs.values(abscissa, x, which)
        if batch is None:
            problem.points = int(values.shape[1])
            epsilon = float(np.finfo(np.float32 if problem.single else np.float64).eps)
            batch = _DeviceBatch(problem, data, template, problem.points, epsilon)
            if len(batch.running()) < count:  # some have no points, or bounds that cross
                rows = batch.running()
                continue
        if given is None:
            columns = programs.columns(abscissa, x, which)
        else:
            columns = namespace_of(x).moveaxis(given(x, which), 2, 0)
        batch.turn(which, count, values, columns)
        rows = batch.running()
        if problem.progress is not None:
            problem.progress(problem.problems - len(rows), problem.problems)
    assert batch is not None
    return batch.ends()


def _abscissa(function: Function, which: Array, template: Array) -> Any:
    if not isinstance(function, Curve):
        return None
    x = function.x
    if isinstance(x, np.ndarray):
        x = copy_to_device_of(x, template)
    return x[..., which, :] if function.own else x


def device_result(problem: FitProblem, ends: dict[str, Any], evaluation: Evaluation) -> FitResult:
    """Return the result of a batch whose ends are on a device."""
    xp, lead = namespace_of(ends["x"]), problem.lead

    def shaped(values: Array | None) -> Any:
        return None if values is None else xp.reshape(values, lead + tuple(values.shape[1:]))

    variances = ends.get("variances")
    named = ("cost", "promise", "distance", "violation", "optimality", "active_mask", "rank", "nit", "nfev", "njev",
             "status")  # fmt: skip
    return FitResult(
        x=shaped(ends["x"]),
        pcov=shaped(ends.get("pcov")),
        stderr=None if variances is None else shaped(xp.sqrt(variances)),
        dof=shaped(ends["points"] - ends["free"]),
        names=problem.names,
        _again=_Later(problem, evaluation, ends["x"]),
        **{name: shaped(ends[name]) for name in named},
    )


class _Later:
    """Residuals and derivatives at the end, evaluated when they are asked for."""

    def __init__(self, problem: FitProblem, evaluation: Evaluation, x: Array) -> None:
        self._problem, self._evaluation, self._x = problem, evaluation, x

    def __call__(self, derivatives: bool) -> Any:
        return Again(self._problem, self._evaluation, host_copy(self._x).astype(np.float64))(derivatives)
