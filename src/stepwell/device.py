"""Runs on the GPU: the same doors for CUDA arrays of PyTorch, CuPy and JAX.

Points, gradients and values stay on the device. Turns are launched on the caller's stream without waiting; the host
looks at the state every few turns, through pinned memory. Where the objective can be captured, several turns with their
evaluations go into one CUDA graph.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import OptimizeWarning

from stepwell import _core
from stepwell.arrays import (
    Array,
    capture,
    current_stream,
    device_address,
    device_index,
    device_name,
    from_dlpack,
    host_copy,
    is_contiguous,
    is_cuda,
    kind_of,
    namespace_of,
    numpy_dtype,
    shares_streams,
    to_like,
)
from stepwell.bounds import read_bounds, split_bounds
from stepwell.inverse_hessian import DeviceInverseHessian
from stepwell.objective import Objective
from stepwell.results import Status
from stepwell.settings import Settings
from stepwell.targets.cuda import CudaTarget

WINDOW = 8  # turns between two looks at the state


def require_same_device(name: str, array: Array, x0: Array) -> None:
    """Raise if an array lives on another device than x0, or is of another library."""
    if device_name(array) != device_name(x0) or kind_of(array) != kind_of(x0):
        raise ValueError(
            f"{name} is a {kind_of(array)} array on {device_name(array)}, x0 a {kind_of(x0)} array on "
            f"{device_name(x0)}; allowed: one library and one device (nothing is moved silently)"
        )


def read_device_start(x0: Array) -> Array:
    """Check a starting point on a device."""
    dtype = str(x0.dtype).rpartition(".")[2]
    if dtype not in ("float64", "float32"):
        raise TypeError(f"x0 has dtype {dtype}; allowed on a GPU: float64, float32")
    if not is_contiguous(x0):
        raise ValueError("x0 is not contiguous; allowed on a GPU: a contiguous array (x0.contiguous(), or a copy)")
    xp = namespace_of(x0)
    if 0 in x0.shape:
        raise ValueError("x0 is empty; allowed: at least one variable")
    if not bool(xp.all(xp.isfinite(x0))):
        raise ValueError("x0 is not finite everywhere; allowed: finite numbers")
    return x0


def read_device_bounds(bounds: Any, x0: Array, batch: bool) -> tuple[Array, Array, bool, bool] | None:
    """Return lower, upper (device arrays), whether the batch shares them, and whether every variable is boxed."""
    halves = split_bounds(bounds, tuple(x0.shape))
    if halves is None:
        return None
    dtype = numpy_dtype(x0)
    shape = tuple(x0.shape)
    for half in halves:
        if hasattr(half, "shape") and is_cuda(half):
            require_same_device("bounds", half, x0)
    if not any(hasattr(half, "shape") and is_cuda(half) for half in halves):
        host = read_bounds(bounds, shape, dtype, batch=batch)
        if host is None:
            return None
        boxed = bool(np.isfinite(host[0]).all() and np.isfinite(host[1]).all())
        lower, upper = (to_like(half, x0) for half in host)
        return lower, upper, lower.ndim == 1, boxed
    xp = namespace_of(x0)
    own = shape[1:] if batch else shape
    size = int(np.prod(own))
    arrays = []
    for name, half in zip(("lower", "upper"), halves):
        array = half if hasattr(half, "shape") and is_cuda(half) else to_like(np.asarray(half, dtype=dtype), x0)
        if array.ndim == 0 or tuple(array.shape) in ((1,), own):
            array = xp.broadcast_to(xp.reshape(array, (-1,)), (size,))
        elif tuple(array.shape) == shape:
            array = xp.reshape(array, (shape[0], size) if batch else (size,))
        else:
            raise ValueError(
                f"bounds: the {name} bounds have shape {tuple(array.shape)}; allowed: a number or shape {shape}"
            )
        arrays.append(xp.astype(array, x0.dtype))
    lower, upper = (xp.asarray(a, copy=True) for a in xp.broadcast_arrays(*arrays))
    if not bool(xp.all(lower <= upper)):
        bad = int(np.flatnonzero(~(host_copy(lower).reshape(-1) <= host_copy(upper).reshape(-1)))[0])
        raise ValueError(f"bounds: lower > upper, or NaN, at index {bad}; allowed: lower <= upper")
    boxed = bool(xp.all(xp.isfinite(lower) & xp.isfinite(upper)))
    return lower, upper, lower.ndim == 1, boxed


def project_device_start(x0: Array, bounds: tuple[Array, Array, bool, bool] | None, rows: int) -> Array:
    """Return x0 as a fresh (rows, n) array inside the bounds, and say so where it was outside."""
    xp = namespace_of(x0)
    start = xp.reshape(x0, (rows, -1))
    if bounds is None:
        return start
    inside = xp.minimum(xp.maximum(start, bounds[0]), bounds[1])
    moved = int(xp.count_nonzero(inside != start)) if hasattr(xp, "count_nonzero") else int(xp.sum(inside != start))
    if moved:
        warnings.warn(
            f"x0 lies outside the bounds in {moved} of {inside.size if kind_of(x0) != 'torch' else inside.numel()} "
            "variables; it was projected onto them",
            OptimizeWarning,
            stacklevel=5,
        )
    return inside


class DeviceObjective(Objective):
    """The caller's objective on the device: values and gradients stay there."""

    def kindly(self, x: Any) -> Array:
        """Return a device point as it is."""
        return x

    def _values(self, f: Any) -> Any:
        if hasattr(f, "shape") and is_cuda(f):
            count = self._shape[0] if self._batch else 1
            if int(np.prod(f.shape)) != count:
                raise ValueError(f"fun returned values of shape {tuple(f.shape)}; allowed: {count} of them")
            if str(f.dtype).rpartition(".")[2] not in ("float64", "float32"):
                raise TypeError(f"fun returned values of dtype {f.dtype}; allowed: float64, float32")
            return f
        if self._batch:
            return np.ascontiguousarray(host_copy(f) if hasattr(f, "shape") else f, dtype=np.float64)
        return float(f)

    def _gradient(self, g: Any) -> Any:
        if not (hasattr(g, "shape") and is_cuda(g)):
            raise TypeError(
                f"the gradient is a {type(g).__name__} on the host; allowed: an array on {device_name(self._template)}"
            )
        require_same_device("the gradient", g, self._template)
        if int(np.prod(g.shape)) != int(np.prod(self._shape)):
            raise ValueError(f"the gradient has shape {tuple(g.shape)}; allowed: {self._shape}")
        if g.dtype != self._template.dtype:
            raise TypeError(f"the gradient has dtype {g.dtype}; allowed: {self._template.dtype}, as x0")
        return g if is_contiguous(g) else namespace_of(g).asarray(g, copy=True)

    def _choose(self) -> Callable[[Any], tuple[Any, Any]]:
        if self._kind == "cupy" and not callable(self._jac) and self._jac is not True:
            raise ValueError("jac is missing; CuPy functions need it: a callable, or True if fun returns (f, gradient)")
        return super()._choose()


class DeviceRun:
    """One run on a GPU: memory, the caller's objective, and the loop that feeds turns to the device."""

    def __init__(
        self, x0: Array, bounds: Any, h0: Any, settings: Settings, *, batch: bool, stacklevel: int = 0
    ) -> None:
        self.template = read_device_start(x0)
        self.shape = tuple(x0.shape)
        rows = self.shape[0] if batch else 1
        self.bounds = read_device_bounds(bounds, x0, batch)
        start = project_device_start(x0, self.bounds, rows)
        self.dtype = numpy_dtype(x0)
        self.diagonal = h0 if callable(h0) else None
        self.weights = self._read_weights(h0, start)
        n = int(start.shape[1])
        self.settings = settings
        self.target = CudaTarget(
            rows,
            n,
            self.dtype,
            device_address(start),
            None
            if self.bounds is None
            else (device_address(self.bounds[0]), device_address(self.bounds[1]), self.bounds[2]),
            self.bounds is not None and self.bounds[3],
            None if self.weights is None else (device_address(self.weights), self.weights.ndim == 1),
            settings,
            weights_vary=self.diagonal is not None,
            device_id=device_index(x0),
            stream=current_stream(x0),
        )
        self.batch = batch
        self._trial = from_dlpack(self.target.array("trial"), x0)
        self.follows = shares_streams(x0)

    def _read_weights(self, h0: Any, start: Array) -> Array | None:
        if h0 is None:
            return None
        xp = namespace_of(start)
        if callable(h0):
            return xp.ones_like(start)
        weights = h0 if hasattr(h0, "shape") and is_cuda(h0) else to_like(np.asarray(h0, dtype=self.dtype), start)
        require_same_device("h0", weights, start)
        return self._checked_weights(xp.reshape(weights, (-1,) if weights.ndim < 2 or not self.shape else start.shape))

    def _checked_weights(self, weights: Array) -> Array:
        xp = namespace_of(weights)
        if not bool(xp.all((weights > 0) & xp.isfinite(weights))):
            host = host_copy(weights).reshape(-1)
            index = int(np.flatnonzero(~((host > 0) & np.isfinite(host)))[0])
            raise ValueError(f"h0[{index}] is {host[index]}; allowed: positive, finite numbers")
        return xp.asarray(weights, dtype=self.template.dtype, copy=True)

    @property
    def x(self) -> Array:
        """The points to evaluate, in the caller's kind and shape: a view that the next turn overwrites."""
        if not self.follows:
            self.target.wait()
            self._trial = from_dlpack(self.target.array("trial"), self.template)
        return namespace_of(self._trial).reshape(self._trial, self.shape)

    def turn(self, f: Any, g: Array, stream: int | None = None) -> None:
        """Launch one turn with values and gradients at `x`."""
        if self.diagonal is not None:
            assert self.weights is not None
            fresh = self._checked_weights(namespace_of(g).reshape(self.diagonal(self.x), self.weights.shape))
            self.target._copy(device_address(self.weights), device_address(fresh), fresh.nbytes)
        if hasattr(f, "shape") and not isinstance(f, np.ndarray | np.generic):
            self.target.turn(device_address(g), device_address(f), "32" in str(f.dtype), stream)
        else:
            self.target.turn(device_address(g), self.target.host_values(f), False, stream)
        self._kept = (f, g)

    def drive(
        self,
        objective: DeviceObjective,
        *,
        began: float,
        after: Callable[[], None] | None = None,
        graph: str | bool = "auto",
    ) -> str:
        """Run to the end; `after` is called after every turn, with the state up to date. Returns how turns ran."""
        target, turns, marks = self.target, 0, []
        step_by_step = after is not None or not self.follows or self.diagonal is not None
        play = None
        mode = "one launch a turn"
        while target.running:
            if play is None:
                self.turn(*objective(self.x))
                turns += 1
            else:
                play()
                turns += WINDOW
            if step_by_step:
                target.wait()
                if after is not None:
                    after()
            elif turns % WINDOW == 0:
                # At most two windows ahead of the host.
                marks.append(target.mark())
                if len(marks) > 1:
                    marks.pop(0).sync()
            if time.perf_counter() - began > self.settings.time_limit:
                self.stop(Status.TIME_LIMIT)
            if play is None and turns == WINDOW and not step_by_step and graph in ("auto", True) and target.running:
                play, mode = self._captured(objective, graph)
        target.wait()
        return mode

    def _captured(self, objective: DeviceObjective, graph: str | bool) -> tuple[Any, str]:
        def window(stream: int) -> list[Any]:
            kept = []
            for _ in range(WINDOW):
                f, g = objective(self.x)
                if not hasattr(f, "shape") or isinstance(f, np.ndarray | np.generic):
                    raise TypeError("the objective returned a host number")
                self.turn(f, g, stream)
                kept.append((f, g))
            return kept

        self.target.wait()
        try:
            return capture(self.template, window), f"CUDA graph of {WINDOW} turns"
        except Exception as error:  # whatever a library says when work cannot be captured
            if graph is True:
                raise RuntimeError(
                    f"options['graph'] is True, but the objective cannot be captured: {error}"
                ) from error
            return None, f"one launch a turn (not captured: {error})"

    def stop(self, status: Status) -> None:
        """End all problems that still run."""
        states = self.target.states()
        running = states["action"] != _core.ACTION_DONE
        states["status"][running] = status.value
        states["action"][running] = _core.ACTION_DONE
        self.target.write_states(states)
        self.target.show_accepted()

    def accepted(self, name: str) -> Array:
        """Return a copy of the accepted points (``"x"``) or gradients (``"g"``), in the caller's kind and shape."""
        self.target.wait()
        view = from_dlpack(self.target.array(name), self.template)
        xp = namespace_of(view)
        return xp.asarray(xp.reshape(view, self.shape), copy=True)

    def inverse_hessian(self, problem: int = 0) -> DeviceInverseHessian:
        """Return the inverse Hessian approximation of one problem as an operator on device arrays."""
        state = self.target.states()[problem]
        head, count, m = int(state["head"]), int(state["pairs"]), self.settings.m
        slots = [(head - count + age) % m for age in range(count)]
        n = self.target.n
        s, y = (from_dlpack(self.target.array(name), self.template)[problem] for name in "sy")
        xp = namespace_of(s)
        h0: Any = float(state["gamma"])
        if self.weights is not None:
            h0 = self.weights if self.weights.ndim == 1 else self.weights[problem]
        copies = [[xp.asarray(rows[slot, :n], copy=True) for slot in slots] for rows in (s, y)]
        return DeviceInverseHessian(copies[0], copies[1], h0, n)
