"""The front doors for CUDA arrays: what `minimize`, `minimize_batch` and `LBFGSB` do when x0 lives on a GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from stepwell.arrays import Array, host_copy, numpy_dtype, to_like
from stepwell.arrays.foreign import adopt
from stepwell.checks import require_shape
from stepwell.quasi_newton.cuda_events import TurnClock
from stepwell.quasi_newton.device_inputs import device_gradient, device_values
from stepwell.quasi_newton.device_objective import DeviceObjective
from stepwell.quasi_newton.device_run import WINDOW, DeviceRun
from stepwell.quasi_newton.optimizer import LBFGSB, ending
from stepwell.quasi_newton.results import Status, batch_result, intermediate_batch, single_result
from stepwell.quasi_newton.ring import relaid
from stepwell.quasi_newton.settings import LineSearch, Settings

if TYPE_CHECKING:
    from stepwell.quasi_newton.result_types import BatchResult, Result


def _seconds(began: float, ready: float, objective: DeviceObjective, clock: TurnClock | None) -> dict[str, float]:
    """Total seconds, those before the first evaluation, in the objective and in the solver.

    With a clock, the objective's time is the device's, and ``turns`` that of the turns; without, it is the time
    for which the host was inside the objective, which mostly launches and goes on.
    """
    total, setup = time.perf_counter() - began, ready - began
    inside = objective.seconds if clock is None else clock.objective
    seconds = {"total": total, "setup": setup, "objective": inside, "solver": max(total - setup - inside, 0.0)}
    return seconds if clock is None else seconds | {"turns": clock.turns}


def minimize_on_device(
    fun: Callable[..., Any],
    x0: Array,
    args: tuple[Any, ...],
    jac: Any,
    bounds: Any,
    settings: dict[str, Any],
    callback: Callable[[Any, Callable[[], Array]], None] | None,
    **how: Any,
) -> Result:
    """Do what `stepwell.minimize` does, on the GPU of x0. `callback` takes the state and how to get the point.

    ``how`` holds ``h0``, ``rel_step``, ``graph`` and ``time_objective``.
    """
    began = time.perf_counter()
    run = DeviceRun(adopt(x0), bounds, how["h0"], Settings(**settings))
    objective = _objective(run, fun, jac, args, how["rel_step"])
    clock = run.clock() if how["time_objective"] else None
    state = run.target.report

    def after() -> None:
        if callback is None or not state["accepted"][0]:
            return
        try:
            callback(state[0], lambda: run.accepted("x"))
        except StopIteration:
            run.stop(Status.CALLBACK)

    ready = time.perf_counter()
    mode = run.drive(objective, began=began, after=None if callback is None else after, graph=how["graph"], clock=clock)
    result = single_result(
        run.target.states()[0],
        x=run.accepted("x"),
        jac=run.accepted("g"),
        hess_inv=run.inverse_hessian(),
        seconds=_seconds(began, ready, objective, clock),
        mode=mode,
    )
    if objective.differenced:
        result.nfev, result.njev = objective.nfev, objective.njev
    return result


def _objective(
    run: DeviceRun, fun: Any, jac: Any, args: tuple[Any, ...], rel_step: float | None, batch: bool = False
) -> DeviceObjective:
    box = None if run.bounds is None else run.bounds[:2]
    return DeviceObjective(fun, jac, args, run.template, run.shape, run.dtype, box, batch=batch, rel_step=rel_step)


def minimize_batch_on_device(
    fun: Callable[..., Any],
    x0: Array,
    args: tuple[Any, ...],
    jac: Any,
    bounds: Any,
    settings: dict[str, Any],
    callback: Callable[..., Any] | None,
    **how: Any,
) -> BatchResult:
    """Do what `stepwell.minimize_batch` does, on the GPU of x0; ``how`` as in `minimize_on_device`."""
    began = time.perf_counter()
    x0 = adopt(x0)
    require_shape(x0.ndim == 2, "x0", x0, "(B, n), one row per problem")
    run = DeviceRun(x0, bounds, how["h0"], Settings(**settings), batch=True)
    objective = _objective(run, fun, jac, args, how["rel_step"], batch=True)
    clock = run.clock() if how["time_objective"] else None

    def after() -> None:
        if callback is None:
            return
        try:
            callback(intermediate_result=intermediate_batch(run.target.states(), run.accepted("x")))
        except StopIteration:
            run.stop(Status.CALLBACK)

    ready = time.perf_counter()
    mode = run.drive(objective, began=began, after=None if callback is None else after, graph=how["graph"], clock=clock)
    states = run.target.states()
    return batch_result(
        states,
        calls_a_point=objective.calls_a_point,
        x=run.accepted("x"),
        fun=states["f"].copy(),
        jac=run.accepted("g"),
        evaluations=objective.nfev,
        hess_inv=run.inverse_hessian,
        mode=mode,
        seconds=_seconds(began, ready, objective, clock),
    )


class DeviceLBFGSB(LBFGSB):
    """`LBFGSB` for a starting point on a GPU; made by ``LBFGSB(x0)`` itself.

    `tell` launches a turn and returns at once. `done` looks at the state as of the last turn that has finished, and
    waits for all of them every few turns; turns after the end do nothing.
    """

    def __init__(
        self,
        x0: Array,
        bounds: Any = None,
        *,
        m: int = 10,
        h0: Any = None,
        line_search: LineSearch | str | dict[str, Any] = "lbfgsb",
        **settings: Any,
    ) -> None:
        self.settings = self._read_settings(m, line_search, settings)
        self._run = DeviceRun(adopt(x0), bounds, h0, self.settings)
        self._told = 0
        self._began = time.perf_counter()

    @property
    def _state(self) -> np.ndarray:  # type: ignore[override]
        self._run.target.wait()
        report: np.ndarray = self._run.target.report
        return report

    @property
    def done(self) -> bool:  # type: ignore[override]
        """Whether the run has ended, as far as the host has seen."""
        if self._told % WINDOW == 0:
            self._run.target.wait()
        return self._run.target.running == 0

    @property
    def accepted(self) -> bool:  # type: ignore[override]
        """Whether the last turn accepted an iteration."""
        return bool(self._state["accepted"][0])

    @property
    def x(self) -> Array:
        """The point to evaluate next; once done, the solution."""
        return self._run.x

    @property
    def nbytes(self) -> int:
        """Bytes of device memory held."""
        return self._run.target.nbytes

    def tell(self, f: Any, g: Array) -> None:
        """Take the value (a number or a device scalar) and gradient at `x`, and launch the next turn."""
        run = self._run
        run.turn(device_values(f, 1, run.template), device_gradient(g, run.template, run.shape))
        self._told += 1
        if time.perf_counter() - self._began > self.settings.time_limit:
            self.stop(Status.TIME_LIMIT)

    def stop(self, status: Status = Status.CALLBACK) -> None:
        """End the run now; `x` becomes the last accepted point."""
        self._run.stop(ending(status))

    def accepted_point(self) -> Array:
        """Return a copy of the last accepted point."""
        return self._run.accepted("x")

    def accepted_gradient(self) -> Array:
        """Return a copy of the gradient at the last accepted point."""
        return self._run.accepted("g")

    def inverse_hessian(self) -> Any:
        """Return the inverse Hessian approximation as an operator on device arrays."""
        return self._run.inverse_hessian()

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to resume, as a dict of host arrays and plain values."""
        run, target = self._run, self._run.target
        arrays = {name: target.read(name) for name in ("trial", "x", "g", "d", "states", "small")}
        # History rows are padded on the device and have a slot more; saved without, so that a run can resume on any
        # target.
        arrays |= {name: np.ascontiguousarray(target.read(name)[..., : target.n]) for name in "sy"}
        arrays = relaid(arrays, run.settings.m)
        lower, upper = (None, None) if run.bounds is None else map(host_copy, run.bounds[:2])
        weights = None if run.weights is None else host_copy(run.weights)
        return self._saved(run.shape, lower, upper, weights, run.diagonal is not None, arrays)

    def _beside_state(self) -> tuple[Array, Any]:
        return to_like(np.empty(0), self._run.template), self._run.diagonal


def resume_on_device(state: Mapping[str, Any], settings: Settings, like: Array, h0: Any) -> DeviceLBFGSB:
    """Make an optimizer on the GPU of `like` that continues from a saved state."""
    dtype = state["x"].dtype
    if numpy_dtype(like) != dtype:
        raise TypeError(f"like has dtype {like.dtype}; allowed: {dtype}, as the saved run")
    start = to_like(state["trial"].reshape(tuple(map(int, state["shape"]))), like)
    bounds = (state["lower"], state["upper"]) if "lower" in state else None
    if bounds is not None:
        bounds = tuple(to_like(half, like) for half in bounds)
    new = object.__new__(DeviceLBFGSB)
    new.settings = settings
    new._run = DeviceRun(start, bounds, h0 if callable(h0) else state.get("weights"), settings)
    new._told = 0
    new._began = time.perf_counter()
    target = new._run.target
    arrays = relaid(state, target.slots)
    for name in ("trial", "x", "g", "d", "small", "states"):
        target.write(name, arrays[name])
    for name in "sy":
        padded = np.zeros((1, target.slots, target.row_stride), dtype)
        padded[..., : target.n] = arrays[name]
        target.write(name, padded)
    return new
