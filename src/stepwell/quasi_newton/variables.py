"""The caller's variables: their library, shape, dtype and place; points handed out, values and gradients taken in.

The host target works on NumPy arrays, which share memory with PyTorch's and JAX's on the CPU; the CUDA target on arrays
of the caller's library. Everything that is read here ends up as one or the other.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from typing import Any

import numpy as np

from stepwell import _core
from stepwell.arrays import (
    Array,
    as_contiguous,
    as_user_array,
    copy_to_device_of,
    device_name,
    dtype_name,
    is_array,
    is_cuda,
    jax_does_alike,
    namespace_of,
    readonly_view,
    same_library,
    same_order,
    scalar_of,
    transformed_within,
    transforming,
    view_foreign,
    view_is_copy,
)
from stepwell.arrays.checks import read_host_array, require_one_home, require_real
from stepwell.common.checks import WrongKind, require_shape

_REAL = ("float64", "float32")


def refuse_traced(argument: str, value: Any) -> None:
    """Refuse an array of JAX or PyTorch that stands for others: a run has to look at values."""
    _refuse(argument, transforming(value))


def refuse_within_transformations(template: Any) -> None:
    """Refuse a function that PyTorch is to differentiate while it transforms all that is done with tensors."""
    _refuse("fun", transformed_within(template))


def _refuse(argument: str, transformation: str | None) -> None:
    if transformation is not None:
        jax = transformation.startswith("jax")
        compiled = ", and options={'jit': True} compiles the function" if jax else ""
        raise WrongKind(
            f"{argument} is traced by {transformation} around the run; allowed: arrays with values (stepwell.argmin is "
            f"minimize with derivatives, minimize_batch stands for vmap{compiled})"
        )


#: Elements of an array that is worth keeping for the next point.
_WORTH_KEEPING = 8192


@dataclasses.dataclass(frozen=True)
class Variables:
    """What is known of the variables of a run once x0 has been read."""

    template: Array  #: an array of the caller's library, on its device
    shape: tuple[int, ...]  #: as the caller sees points: that of x0, (B, n) for a batch
    dtype: np.dtype  #: float64 or float32
    is_batch: bool
    on_device: bool
    extremes: tuple[float, float] = (-math.inf, math.inf)  #: between which the elements of x0 lie

    @property
    def problems(self) -> int:
        """How many problems there are."""
        return self.shape[0] if self.is_batch else 1

    @property
    def own_shape(self) -> tuple[int, ...]:
        """The shape of one problem's variables."""
        return self.shape[1:] if self.is_batch else self.shape

    @property
    def size(self) -> int:
        """How many variables a problem has."""
        return math.prod(self.own_shape)

    def placed(self, name: str, value: Any) -> Array:
        """Return an argument that belongs to the variables as an array of the target's library, where x0 lives.

        Numbers, lists and host arrays become float64 on the host; on a device, which arrays of its own library are
        not moved to or from silently, they are copied there. Device arrays keep their dtype.
        """
        refuse_traced(name, value)
        if not self.on_device:
            return read_host_array(name, value)
        if self.is_foreign(value):
            value = view_foreign(value, self.template)
            require_one_home(name, value, "x0", self.template)
            require_real(name, value)
            return value
        return copy_to_device_of(read_host_array(name, value, self.dtype), self.template)

    @staticmethod
    def is_foreign(value: Any) -> bool:
        """Whether something is an array of a library with devices, which has to lie where x0 does."""
        return is_cuda(value) or (is_array(value) and not isinstance(value, np.ndarray | np.generic))

    def shown(self, points: Array) -> Array:
        """Return points of the target in the caller's kind and shape: a view, for reading only where that is known."""
        if self.on_device:
            return namespace_of(points).reshape(points, self.shape)
        return readonly_view(points.reshape(self.shape), self.template)

    def given(self, points: Array) -> Array:
        """Return points of the target, which are the caller's from now on, in the caller's kind and shape."""
        if self.on_device:
            return namespace_of(points).reshape(points, self.shape)
        return as_user_array(points.reshape(self.shape), self.template)

    def read_values(self, f: Any) -> Any:
        """Check values of f: one number, or one a problem; on the device only where they lie there."""
        if not self.is_batch and not self.on_device:
            if isinstance(f, float):
                return float(f)
            refuse_traced("f", f)
            return scalar_of(f)
        refuse_traced("f", f)
        count = self.problems
        if self.on_device and is_cuda(f):
            f = view_foreign(f, self.template)
            if math.prod(f.shape) != count:
                raise ValueError(f"fun returned values of shape {tuple(f.shape)}; allowed: {count} of them")
            if dtype_name(f.dtype) not in _REAL:
                raise TypeError(f"fun returned values of dtype {f.dtype}; allowed: {', '.join(_REAL)}")
            return as_contiguous(f)
        if count == 1 and not self.is_batch:
            return scalar_of(f)
        values = read_host_array("f", f)
        if values.shape != (count,):
            raise ValueError(f"fun returned values of shape {values.shape}; allowed: ({count},)")
        return values

    def read_gradient(self, g: Any, name: str = "the gradient") -> Array:
        """Check a gradient: of x0's shape and dtype and in x0's place; what is on the host may have to be cast."""
        if not self.on_device:
            plain = type(g) is np.ndarray and g.dtype == self.dtype
            if plain and g.flags.carray and g.shape == self.shape:
                return g
            gradient: Array = g if plain and _lies_plain(g.flags) else read_host_array(name, g, self.dtype)
        else:
            if not is_cuda(g):
                where = device_name(self.template)
                raise TypeError(f"{name} is a {type(g).__name__} on the host; allowed: an array on {where}")
            gradient = view_foreign(g, self.template)
            require_one_home(name, gradient, "x0", self.template)
            if dtype_name(gradient.dtype) != dtype_name(self.dtype):
                raise TypeError(f"{name} has dtype {gradient.dtype}; allowed: {self.template.dtype}, as x0")
            gradient = as_contiguous(gradient)  # (a copy of a transposed array would be transposed as well)
        if gradient.shape != self.shape:
            require_shape(same_order(tuple(gradient.shape), self.shape), name, gradient, self.shape)
        return gradient


def _lies_plain(flags: Any) -> bool:
    """Whether an array is contiguous and aligned; `carray` says so at once, but for one that cannot be written to."""
    return bool(flags.carray or (flags.c_contiguous and flags.aligned))


class Points:
    """Trial points as the objective gets them: copies that it may keep and change.

    A copy that nobody has kept is used again: a fresh one costs the operating system more than the copying. Where the
    target can, its turn leaves the next point there (`follow`), and nothing is copied afterwards. With ``zero_copy``,
    and on a device, points are views that the solver overwrites. Functions that JAX has compiled see no array, only
    its trace: they get NumPy's, which spares JAX the making of one of its own.
    """

    def __init__(self, variables: Variables, zero_copy: bool, compiled: bool = False, threads: int = 1) -> None:
        self._variables, self._threads = variables, threads
        self._plain = compiled and not variables.on_device and jax_does_alike(variables.template, variables.dtype)
        self._views = zero_copy or variables.on_device or view_is_copy(variables.template)
        self._shape = variables.shape
        self._is_numpy = same_library(variables.template, np.empty(0))
        self._rows: np.ndarray | None = None
        self._own: np.ndarray = np.empty(0)
        self._copy: Any = None
        self._references = 0  # to our copy, where nobody else has kept it; 0: there is none
        self._leader: Any = None  # the target whose turns leave their points in our copy
        self._led = False  # whether they do so
        self._left = False  # whether one has

    def serve(self, variables: Variables, rows: np.ndarray) -> None:
        """Go on with fewer problems: `rows` of the trial points, on the host, become points of these variables."""
        self._variables, self._shape, self._rows = variables, variables.shape, rows

    def __call__(self, trial: Array) -> Array:
        """Return trial points for the objective."""
        if self._left and trial is self._leader.trial:
            self._left = False  # once: the objective may change it
            return self._own[...] if self._is_numpy else as_user_array(self._own, self._variables.template)
        if self._rows is not None:
            own = self._own_rows(trial, self._rows)
            return self._variables.shown(own) if self._views else self._variables.given(own)
        if self._plain:
            return trial.reshape(self._shape).copy()
        if self._views:
            return self._variables.shown(trial)
        if trial.size < _WORTH_KEEPING:
            own = trial.reshape(self._shape).copy()
            return own if self._is_numpy else as_user_array(own, self._variables.template)
        self._copier(trial)(trial)
        self._left = False
        return self._own[...] if self._is_numpy else as_user_array(self._own, self._variables.template)

    def follow(self, target: Any) -> None:
        """Let the turns of a target leave their points in our copy, if it can and if it pays."""
        views = self._plain or self._views
        if not views and hasattr(target, "copy_points_to") and target.batch == 1 and target.n >= _WORTH_KEEPING:
            self._leader = target

    def leave(self) -> None:
        """Give our copy up."""
        if self._leader is not None:
            self._leader.copy_points_to(None)
            self._leader, self._led, self._left = None, False, False
            self._references = 0  # the target had one of them

    def settle(self) -> None:
        """See to it, between an evaluation and the turn after it, that the turn leaves its point where nobody looks."""
        if self._leader is not None:
            if not self._led or sys.getrefcount(self._own) > self._references:
                self._make(self._leader.trial.dtype)
            self._left = True

    def _copier(self, trial: Array) -> _core.PointCopy:
        """Return what copies to our own array, with room for as many points as are asked for now."""
        # Arrays made of our copy refer to it. Differences take complex points in between: those of another type have
        # a copy of their own.
        if sys.getrefcount(self._own) > self._references or self._own.dtype != trial.dtype:
            self._make(trial.dtype)
        return self._copy

    def _own_rows(self, trial: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the named rows of trial points as an array of their own."""
        if len(rows) * trial.shape[1] < _WORTH_KEEPING:
            own: np.ndarray = trial[rows]
            return own
        self._copier(trial).rows(trial, rows)
        return self._own[: len(rows)]

    def _make(self, dtype: Any) -> None:
        self._own = np.empty(self._shape, dtype)
        self._copy = _core.PointCopy(self._own, self._threads)
        self._led = self._leader is not None and dtype == self._leader.trial.dtype
        if self._led:
            self._leader.copy_points_to(self._own)
        self._references = sys.getrefcount(self._own)
