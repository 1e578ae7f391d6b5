"""L-BFGS-B by reverse communication: ask for a point, tell its value and gradient."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from stepwell import _core
from stepwell.arrays import (
    Array,
    default_float,
    in_kind,
    is_bfloat16,
    is_cuda,
    is_like,
    lent,
    scalar_of,
)
from stepwell.checks import (
    read_host_array,
    require,
    require_each,
    require_finite,
    require_real,
    require_shape,
    view_on_host,
)
from stepwell.quasi_newton.bounds import read_bounds, warn_projected
from stepwell.quasi_newton.host_target import BEGIN, ENDED, FINISH, NEEDS_DIAGONAL, WHOLE, HostTarget
from stepwell.quasi_newton.results import Status, single_result, status_message
from stepwell.quasi_newton.settings import LineSearch, Settings

if TYPE_CHECKING:
    from stepwell.quasi_newton.inverse_hessian import InverseHessian
    from stepwell.quasi_newton.result_types import Result

_STATE_VERSION = 2
_STATE_NAMES = {"shape", "settings", "weights_vary", "trial", "x", "g", "d", "s", "y", "states", "small"}


def read_start(x0: Array) -> np.ndarray:
    """Check a starting point and return it as a fresh, contiguous float64 or float32 host array of the same shape."""
    values = view_on_host("x0", x0)
    require_real("x0", values)
    if values.dtype not in (np.float32, np.float64) or is_bfloat16(x0):
        values = values.astype(default_float(x0))
    require_shape(values.size > 0, "x0", values, "at least one variable")
    require_finite("x0", values)
    return np.array(values, order="C", ndmin=1)


def project_start(x0: np.ndarray, bounds: tuple[np.ndarray, np.ndarray] | None) -> np.ndarray:
    """Move a starting point into the bounds, and say so where it was outside."""
    if bounds is None:
        return x0
    inside: np.ndarray = np.clip(x0, *bounds)
    # A start that rounding alone put outside, by one unit in its last place, needs no words.
    moved = int(np.count_nonzero((inside != x0) & (np.nextafter(x0, inside) != inside)))
    warn_projected(moved, x0.size)
    return inside


def read_diagonal(h0: Any, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Check a diagonal H0: every element positive and finite."""
    diagonal = read_host_array("h0", h0, dtype)
    require_shape(is_like(diagonal.shape, shape), "h0", diagonal, shape)
    diagonal = diagonal.reshape(shape)
    require_each((diagonal > 0) & np.isfinite(diagonal), "h0", diagonal, "positive, finite numbers")
    return diagonal


def ending(status: Status) -> Status:
    """Check a status with which a run is to be ended."""
    good = isinstance(status, Status) and status is not Status.RUNNING
    require(good, "status", status, "a stepwell.Status other than RUNNING")
    return status


class LBFGSB:
    """L-BFGS-B that asks for evaluations instead of making them.

    Parameters
    ----------
    x0 : array
        Starting point: NumPy, PyTorch, CuPy or JAX; any shape; float64 or float32. The run takes place where it lives.
    bounds : optional
        As in `stepwell.minimize`.
    m : int, default 10
        Pairs of history.
    h0 : array or callable, optional
        Diagonal of the initial inverse Hessian, all positive; or ``h0(x)`` giving it at each accepted point.
    gtol, ftol, eps, maxiter, maxfun, target, cauchy, threads
        As the options of `stepwell.minimize`.
    line_search : str, dict or LineSearch
        ``"lbfgsb"`` or ``"va15"``, or constants of your own.

    Attributes
    ----------
    x : array
        The point to evaluate; once ``done``, the solution. A view that the next `tell` overwrites.
    done : bool
        Whether the run has ended.
    status : Status
        Why.

    Examples
    --------
    >>> import numpy as np
    >>> opt = LBFGSB(np.array([3.0, -0.5]), bounds=(np.array([1.0, -1.0]), np.array([5.0, 5.0])))
    >>> while not opt.done:
    ...     opt.tell(float(opt.x @ opt.x), 2 * opt.x)
    >>> opt.x, opt.status.name
    (array([1., 0.]), 'GRADIENT')
    """

    def __new__(cls, x0: Array = None, *args: Any, **settings: Any) -> LBFGSB:
        """Make the variant that runs where x0 lives."""
        if cls is LBFGSB and is_cuda(x0):
            from stepwell.quasi_newton.device_api import DeviceLBFGSB

            return object.__new__(DeviceLBFGSB)
        return object.__new__(cls)

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
        start = read_start(x0)
        self._template: Array = x0 if hasattr(x0, "shape") else start
        self._shape, self._dtype = start.shape, start.dtype
        box = read_bounds(bounds, start.shape, start.dtype)
        flat = project_start(start.reshape(-1), box)
        self._diagonal: Callable[[Array], Any] | None = h0 if callable(h0) else None
        weights = None
        if self._diagonal is not None:
            weights = np.ones(flat.size, flat.dtype)
        elif h0 is not None:
            weights = read_diagonal(h0, start.shape, flat.dtype).reshape(-1)
        self._target = HostTarget(flat[None], box, weights, self.settings, weights_vary=self._diagonal is not None)
        self._bind()

    @staticmethod
    def _read_settings(m: int, line_search: LineSearch | str | dict[str, Any], settings: dict[str, Any]) -> Settings:
        known = {field.name for field in dataclasses.fields(Settings)} - {"m", "line_search"}
        unknown = sorted(set(settings) - known)
        if unknown:
            raise TypeError(f"LBFGSB got unknown settings {unknown}; allowed: {', '.join(sorted(known))}")
        return Settings(m=m, line_search=LineSearch.of(line_search), **settings)

    def _bind(self) -> None:
        self._point = self._target.trial[0]
        self._state = self._target.states[0:1]
        self._turn = self._target.turn_one
        self.done = bool(self._state["action"][0] == _core.ACTION_DONE)
        self.accepted = False
        self._began = time.perf_counter()

    @property
    def x(self) -> Array:
        """The point to evaluate next; once done, the solution."""
        return lent(self._point.reshape(self._shape), self._template)

    @property
    def status(self) -> Status:
        """Why the run ended, or ``Status.RUNNING``."""
        return Status.of(self._state["status"][0])

    @property
    def message(self) -> str:
        """What the status means, in words."""
        return status_message(self.status, int(self._state["info"][0]), float(self._state["gradient_norm"][0]))

    @property
    def nit(self) -> int:
        """Iterations accepted so far."""
        return int(self._state["iterations"][0])

    @property
    def nfev(self) -> int:
        """Evaluations told so far."""
        return int(self._state["evaluations"][0])

    @property
    def fun(self) -> float:
        """Value of f at the last accepted point; NaN before the first `tell`."""
        return float(self._state["f"][0]) if self.nfev else math.nan

    @property
    def nbytes(self) -> int:
        """Bytes of memory held."""
        return self._target.nbytes

    def tell(self, f: Any, g: Array) -> None:
        """Take the value and gradient at `x`, and move `x` to the next trial point or to the solution."""
        if self.done:
            raise RuntimeError(f"the run has ended ({self.message}); tell() takes no more values")
        gradient = read_host_array("g", g, self._dtype)
        require_shape(is_like(gradient.shape, self._shape), "g", gradient, self._shape)
        self.advance(scalar_of(f), gradient)

    def advance(self, f: float, gradient: np.ndarray) -> None:
        """Do what `tell` does, without its checks: `gradient` is a contiguous host array of the right dtype."""
        if self._diagonal is None:
            flags = self._turn(f, gradient, WHOLE)
        else:
            flags = self._turn(f, gradient, BEGIN)
            if flags & NEEDS_DIAGONAL:
                assert self._target.weights is not None
                fresh = read_diagonal(self._diagonal(self.x), self._shape, self._dtype)
                self._target.weights[...] = fresh.reshape(-1)
                flags = self._turn(f, gradient, FINISH)
        self.accepted = bool(flags & 1)
        if flags & ENDED:
            self.done = True
        elif time.perf_counter() - self._began > self.settings.time_limit:
            self.stop(Status.TIME_LIMIT)

    def stop(self, status: Status = Status.CALLBACK) -> None:
        """End the run now; `x` becomes the last accepted point."""
        self._target.stop(0, ending(status).value)
        self.done = True

    def accepted_point(self) -> Array:
        """Return a copy of the last accepted point, in the caller's kind and shape."""
        return in_kind(self._target.x[0].reshape(self._shape).copy(), self._template)

    def accepted_gradient(self) -> Array:
        """Return a copy of the gradient at the last accepted point."""
        return in_kind(self._target.gradient[0].reshape(self._shape).copy(), self._template)

    def inverse_hessian(self) -> InverseHessian:
        """Return the inverse Hessian approximation as a linear operator.

        Of a run that has ended it shares the history with the optimizer; of one that goes on it has a copy.
        """
        from stepwell.quasi_newton.inverse_hessian import InverseHessian

        s, y = self._target.history(0) if self.done else map(list, self._target.pairs(0))
        weights = self._target.weights
        h0 = float(self._state["gamma"][0]) if weights is None else weights.astype(float).copy()
        return InverseHessian(s, y, h0, math.prod(self._shape))

    def result(self) -> Result:
        """Return the outcome so far, as `stepwell.minimize` does."""
        return single_result(
            self._state[0], x=self.accepted_point(), jac=self.accepted_gradient(), hess_inv=self.inverse_hessian()
        )

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to resume, as a dict of NumPy arrays and plain values (copies).

        It can be saved with `numpy.savez` (and read with `numpy.load`) or pickle. A callable ``h0`` is not in it: pass
        it again to `from_state_dict`.
        """
        bounds = self._target.bounds or (None, None)
        return self._saved(
            self._shape, bounds[0], bounds[1], self._target.weights, self._diagonal is not None, self._target.arrays()
        )

    def _saved(
        self,
        shape: tuple[int, ...],
        lower: np.ndarray | None,
        upper: np.ndarray | None,
        weights: np.ndarray | None,
        weights_vary: bool,
        arrays: dict[str, np.ndarray],
    ) -> dict[str, Any]:
        """Put a state together; what the run does not have is left out."""
        optional = {"lower": lower, "upper": upper, "weights": weights}
        return {
            "version": _STATE_VERSION,
            "shape": shape,
            "settings": json.dumps(dataclasses.asdict(self.settings), default=lambda number: number.item()),
            "weights_vary": weights_vary,
            **{name: array.copy() for name, array in optional.items() if array is not None},
            **{name: array.copy() for name, array in arrays.items()},
        }

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy by the state: what comes out goes on bit for bit, and alone."""
        return _resumed, (type(self), self.state_dict(), *self._beside_state())

    def _beside_state(self) -> tuple[Array, Callable[[Array], Any] | None]:
        """Return what a state lacks: an (empty) array of the caller's kind, and a callable diagonal."""
        return in_kind(np.empty(0, self._dtype), self._template), self._diagonal

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any], *, like: Array = None, h0: Any = None) -> LBFGSB:
        """Make an optimizer that continues, bit for bit, where `state_dict` was taken.

        Parameters
        ----------
        state : dict
            From `state_dict`.
        like : array, optional
            An array of the kind in which points are to be handed out; NumPy by default.
        h0 : callable, optional
            The callable diagonal, if the run had one.
        """
        version = int(state["version"]) if "version" in state else None
        if version != _STATE_VERSION:
            raise ValueError(f"state_dict has version {version!r}; allowed: {_STATE_VERSION}")
        missing = sorted(_STATE_NAMES - set(state))
        if missing:
            raise ValueError(f"state lacks {missing}; allowed: what state_dict() returned")
        had_one = bool(state["weights_vary"])
        good = callable(h0) if had_one else h0 is None
        require(good, "h0", h0, f"{'a callable' if had_one else 'None'}, as in the saved run")
        saved = json.loads(str(state["settings"]))
        settings = Settings(**saved | {"line_search": LineSearch(**saved["line_search"])})
        if like is not None and is_cuda(like):
            from stepwell.quasi_newton.device_api import resume_on_device

            return resume_on_device(state, settings, like, h0)
        new = cls.__new__(cls)
        new.settings = settings
        new._shape, new._dtype = tuple(map(int, state["shape"])), state["x"].dtype
        new._template = np.empty(0) if like is None else like
        new._diagonal = h0
        bounds = (state["lower"].copy(), state["upper"].copy()) if "lower" in state else None
        weights = state["weights"].copy() if "weights" in state else None
        new._target = HostTarget(state["trial"], bounds, weights, new.settings, weights_vary=callable(h0))
        for name, array in new._target.arrays().items():
            values = state[name]
            if np.shape(values) != array.shape:
                raise ValueError(f"state[{name!r}] has shape {np.shape(values)}; allowed: {array.shape}")
            array[...] = values
        new._bind()
        return new


def _resumed(cls: type[LBFGSB], state: Mapping[str, Any], like: Array, h0: Any) -> LBFGSB:
    """Make an optimizer from what `LBFGSB.__reduce__` has put away."""
    return cls.from_state_dict(state, like=like, h0=h0)
