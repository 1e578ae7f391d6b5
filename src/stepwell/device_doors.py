"""The front doors for CUDA arrays: what `minimize`, `minimize_batch` and `LBFGSB` do when x0 lives on a GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from stepwell.arrays import Array, host_copy, is_cuda, namespace_of, numpy_dtype, to_like
from stepwell.device import WINDOW, DeviceObjective, DeviceRun
from stepwell.optimizer import LBFGSB
from stepwell.results import BatchResult, Result, Status, batch_result, intermediate_batch, single_result
from stepwell.settings import LineSearch, Settings


def _seconds(began: float, objective: DeviceObjective) -> dict[str, float]:
    """Total seconds, and those in which the host was inside the objective (launching it, or waiting for it)."""
    total = time.perf_counter() - began
    return {"total": total, "objective": objective.seconds, "solver": total - objective.seconds}


def minimize_on_device(
    fun: Callable[..., Any],
    x0: Array,
    args: tuple[Any, ...],
    jac: Any,
    bounds: Any,
    settings: dict[str, Any],
    h0: Any,
    callback: Callable[[Any, Callable[[], Array]], None] | None,
    graph: str | bool,
) -> Result:
    """Do what `stepwell.minimize` does, on the GPU of x0. `callback` takes the state and how to get the point."""
    began = time.perf_counter()
    run = DeviceRun(x0, bounds, h0, Settings(**settings), batch=False)
    objective = DeviceObjective(fun, jac, args, x0, run.shape, run.dtype, None)
    state = run.target.report

    def after() -> None:
        if callback is None or not state["accepted"][0]:
            return
        try:
            callback(state[0], lambda: run.accepted("x"))
        except StopIteration:
            run.stop(Status.CALLBACK)

    mode = run.drive(objective, began=began, after=None if callback is None else after, graph=graph)
    result = single_result(
        run.target.states()[0],
        x=run.accepted("x"),
        jac=run.accepted("g"),
        hess_inv=run.inverse_hessian(),
        seconds=_seconds(began, objective),
    )
    result.mode = mode
    return result


def minimize_batch_on_device(
    fun: Callable[..., Any],
    x0: Array,
    args: tuple[Any, ...],
    jac: Any,
    bounds: Any,
    settings: dict[str, Any],
    h0: Any,
    callback: Callable[..., Any] | None,
    graph: str | bool,
) -> BatchResult:
    """Do what `stepwell.minimize_batch` does, on the GPU of x0."""
    began = time.perf_counter()
    if x0.ndim != 2:
        raise ValueError(f"x0 has shape {tuple(x0.shape)}; allowed: (B, n), one row per problem")
    run = DeviceRun(x0, bounds, h0, Settings(**settings), batch=True)
    objective = DeviceObjective(fun, jac, args, x0, run.shape, run.dtype, None, batch=True)

    def after() -> None:
        if callback is None:
            return
        try:
            callback(intermediate_result=intermediate_batch(run.target.states(), run.accepted("x")))
        except StopIteration:
            run.stop(Status.CALLBACK)

    mode = run.drive(objective, began=began, after=None if callback is None else after, graph=graph)
    states = run.target.states()
    return batch_result(
        states,
        x=run.accepted("x"),
        fun=states["f"].copy(),
        jac=run.accepted("g"),
        evaluations=objective.nfev,
        hess_inv=run.inverse_hessian,
        mode=mode,
        seconds=_seconds(began, objective),
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
        self._run = DeviceRun(x0, bounds, h0, self.settings, batch=False)
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
        shape = self._run.shape
        if not (hasattr(g, "shape") and is_cuda(g)) or int(np.prod(g.shape)) != int(np.prod(shape)):
            raise ValueError(f"g is {type(g).__name__}; allowed: a device array of shape {shape}")
        if numpy_dtype(g) != self._run.dtype:
            raise TypeError(f"g has dtype {g.dtype}; allowed: {self._run.dtype}, as x0")
        value = f if hasattr(f, "shape") and is_cuda(f) else float(f)
        self._run.turn(value, namespace_of(g).reshape(g, shape))
        self._told += 1
        if time.perf_counter() - self._began > self.settings.time_limit:
            self.stop(Status.TIME_LIMIT)

    def stop(self, status: Status = Status.CALLBACK) -> None:
        """End the run now; `x` becomes the last accepted point."""
        self._run.stop(status)

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
        # History rows are padded on the device; saved without, so that a run can resume on any target.
        arrays |= {name: np.ascontiguousarray(target.read(name)[..., : target.n]) for name in "sy"}
        lower, upper = (None, None) if run.bounds is None else map(host_copy, run.bounds[:2])
        weights = None if run.weights is None else host_copy(run.weights)
        return self._saved(run.shape, lower, upper, weights, run.diagonal is not None, arrays)


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
    new._run = DeviceRun(start, bounds, h0 if callable(h0) else state.get("weights"), settings, batch=False)
    new._told = 0
    new._began = time.perf_counter()
    target = new._run.target
    for name in ("trial", "x", "g", "d", "small", "states"):
        target.write(name, state[name])
    for name in "sy":
        padded = np.zeros((1, settings.m, target.row_stride), dtype)
        padded[..., : target.n] = state[name]
        target.write(name, padded)
    return new
