"""Settings of the quasi-Newton solver: named, checked, and translated for the engine."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, Literal, get_args

import numpy as np

from stepwell import _core
from stepwell.common.checks import UNLIMITED, read_choice, read_real, read_whole, require
from stepwell.common.threads import default_threads, read_threads

CauchyPolicy = Literal["exact", "first-interval", "none"]
CAUCHY_POLICIES: tuple[CauchyPolicy, ...] = get_args(CauchyPolicy)
LineSearchPreset = Literal["lbfgsb", "va15"]
HistoryDtype = Literal["float64", "float32", "bfloat16"]
HISTORY_DTYPES: tuple[HistoryDtype, ...] = get_args(HistoryDtype)  #: in the order of the engine's HistoryType

#: The Moré–Thuente search as two published codes use it: L-BFGS-B (Zhu, Byrd, Lu, Nocedal 1997) and the MCSRCH of
#: Harwell VA15 (Liu, Nocedal 1989). The last seven have no public name; src/core/quasi_newton/options.hpp says
#: what each does.
_PRESETS: dict[str, dict[str, float]] = {
    "lbfgsb": dict(
        ftol=1e-3, gtol=0.9, xtol=0.1, stpmin=0.0, stpmax=1e10, maxls=20,
        first_step_gradient=0, extrapolate_low=1.1, extrapolate_high=4.0, stage_two_needs_rise=1,
        guard_first_case=0, last_at_best=0, warning_is_step=1,
    ),
    "va15": dict(
        ftol=1e-4, gtol=0.9, xtol=float(np.finfo(float).eps), stpmin=1e-20, stpmax=1e20, maxls=20,
        first_step_gradient=1, extrapolate_low=0.0, extrapolate_high=4.0, stage_two_needs_rise=0,
        guard_first_case=1, last_at_best=1, warning_is_step=0,
    ),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class LineSearch:
    """Constants of the Moré–Thuente line search; what is left None comes from the preset.

    Parameters
    ----------
    preset : {"lbfgsb", "va15"}
        L-BFGS-B's search or that of Harwell VA15 (MCSRCH).
    ftol : float
        Sufficient decrease: f(step) <= f(0) + ftol * step * slope(0). 1e-3; VA15 1e-4.
    gtol : float
        Curvature: abs(slope(step)) <= gtol * abs(slope(0)). 0.9.
    xtol : float
        Relative width of the interval of uncertainty at which the search gives up. 0.1; VA15 machine epsilon.
    stpmin, stpmax : float
        Limits of the step. 0 and 1e10; VA15 1e-20 and 1e20.
    maxls : int
        Most evaluations in one search. 20. (A search that fails for good goes back to its best step: one more.)

    Examples
    --------
    >>> LineSearch("va15", gtol=0.1).constants()["gtol"]
    0.1
    """

    preset: LineSearchPreset = "lbfgsb"
    ftol: float | None = None
    gtol: float | None = None
    xtol: float | None = None
    stpmin: float | None = None
    stpmax: float | None = None
    maxls: int | None = None

    def __post_init__(self) -> None:
        read_choice("line_search preset", self.preset, _PRESETS)
        c = self.constants()
        read_real("line_search ftol", c["ftol"], above=0, below=1)
        read_real("line_search gtol", c["gtol"], above=0, below=1)
        read_real("line_search xtol", c["xtol"], at_least=0, infinite=True)
        largest = read_real("line_search stpmax", c["stpmax"], above=0)
        read_real("line_search stpmin", c["stpmin"], at_least=0, below=largest)
        read_whole("maxls", c["maxls"], 1, 2**31 - 1, as_float=True)
        for name in _PUBLIC_CONSTANTS:
            if getattr(self, name) is not None:  # plain numbers, whatever kind they were given as
                object.__setattr__(self, name, (int if name == "maxls" else float)(c[name]))

    @classmethod
    def of(cls, value: LineSearch | str | dict[str, Any]) -> LineSearch:
        """Make a LineSearch of a preset's name or a dict of constants."""
        if isinstance(value, LineSearch):
            return value
        if isinstance(value, str):
            return _NAMED.get(value) or cls(value)  # type: ignore[arg-type]
        require(isinstance(value, dict), "line_search", value, "'lbfgsb', 'va15', a dict of constants or a LineSearch")
        names = [field.name for field in dataclasses.fields(cls)]
        unknown = sorted(set(value) - set(names))
        require(not unknown, "line_search", unknown, f"keys among {', '.join(names)}")
        return cls(**value)

    def constants(self) -> dict[str, float]:
        """Return all constants, those of the preset where none was given."""
        given = {name: getattr(self, name) for name in _PUBLIC_CONSTANTS if getattr(self, name) is not None}
        return _PRESETS[self.preset] | given

    def apply(self, target: _core.LineSearchOptions, single: bool) -> None:
        """Write the constants into the engine's options; in single precision an interval is not that narrow."""
        c = self.constants()
        if single and self.xtol is None:
            c["xtol"] = max(c["xtol"], float(np.finfo(np.float32).eps))
        target.decrease, target.curvature, target.interval = c["ftol"], c["gtol"], c["xtol"]
        target.step_min, target.step_max, target.max_evaluations = c["stpmin"], c["stpmax"], int(c["maxls"])
        target.extrapolate_low, target.extrapolate_high = c["extrapolate_low"], c["extrapolate_high"]
        for flag in (
            "first_step_gradient",
            "stage_two_needs_rise",
            "guard_first_case",
            "last_at_best",
            "warning_is_step",
        ):
            setattr(target, flag, int(c[flag]))


_PUBLIC_CONSTANTS = ("ftol", "gtol", "xtol", "stpmin", "stpmax", "maxls")
#: The searches that nearly all runs use, checked once.
_NAMED = {name: LineSearch(name) for name in get_args(LineSearchPreset)}


@dataclasses.dataclass(frozen=True)
class Settings:
    """All settings of one run. See `stepwell.minimize` for what each means."""

    m: int = 10
    gtol: float = 1e-5
    ftol: float = 1e7 * float(np.finfo(float).eps)
    patience: int = 10
    relative_gtol: float = 0.0
    maxiter: float = 15000
    maxfun: float = 15000
    target: float = -math.inf
    time_limit: float = math.inf
    cauchy: CauchyPolicy = "exact"
    line_search: LineSearch = _NAMED["lbfgsb"]
    threads: int | None = None
    history: HistoryDtype | None = None  #: None: the dtype of x

    def __post_init__(self) -> None:
        kept: dict[str, Any] = {
            "m": read_whole("m (maxcor)", self.m, 1, _core.MAX_CAPACITY),
            "gtol": read_real("gtol", self.gtol, at_least=0),
            "ftol": read_real("ftol", self.ftol, at_least=0),
            "patience": read_whole("patience", self.patience, 1, 2**31 - 1),
            "relative_gtol": read_real("relative_gtol", self.relative_gtol, at_least=0),
            "maxiter": read_whole("maxiter", self.maxiter, 0, as_float=True, infinite=True),
            "maxfun": read_whole("maxfun", self.maxfun, 1, as_float=True, infinite=True),
            "target": read_real("target", self.target, infinite=True),
            "time_limit": read_real("time_limit", self.time_limit, above=0, infinite=True),
            "cauchy": read_choice("cauchy", self.cauchy, CAUCHY_POLICIES),
            "threads": read_threads(self.threads),
            "history": None if self.history is None else read_choice("history", self.history, HISTORY_DTYPES),
        }
        for name, value in kept.items():  # plain numbers, whatever kind they were given as
            object.__setattr__(self, name, value)

    def by_option(self) -> dict[str, Any]:
        """Return what must be the same on all ranks, by the names that a caller has for it."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        search: LineSearch = fields.pop("line_search")
        del fields["threads"]  # each rank has its own
        constants = {
            name if name == "maxls" else f"line_search {name}": value for name, value in search.constants().items()
        }
        return {"maxcor": fields.pop("m"), **fields, "line_search": search.preset, **constants}

    @functools.lru_cache(maxsize=64)  # noqa: B019 (settings are small, and few differ)
    def engine_options(
        self, *, bounded: bool, boxed: bool, weighted: bool, weights_vary: bool, single: bool = False
    ) -> _core.Options:
        """Translate for the engine, which takes a copy; `single`: vectors are of single precision."""
        o = _core.Options()
        o.capacity = o.slots = int(self.m)
        o.cauchy = CAUCHY_POLICIES.index(self.cauchy)
        self.line_search.apply(o.search, single)
        o.gtol, o.ftol = float(self.gtol), float(self.ftol)
        o.patience = self.patience
        o.f_rounding = float(np.finfo(np.float32 if single else np.float64).eps)
        o.eps, o.target = float(self.relative_gtol), float(self.target)
        o.max_iterations = int(min(self.maxiter, UNLIMITED))
        o.max_evaluations = int(min(self.maxfun, UNLIMITED))
        o.bounded, o.boxed = int(bounded), int(boxed)
        o.weighted, o.weights_vary = int(weighted), int(weights_vary)
        history = self.history_dtype(single)
        o.history, o.narrowed = HISTORY_DTYPES.index(history), int(history != self._widest(single))
        return o

    @staticmethod
    def _widest(single: bool) -> HistoryDtype:
        return "float32" if single else "float64"

    def history_dtype(self, single: bool) -> HistoryDtype:
        """Return the dtype of the history, for variables of single or double precision: theirs, or a narrower one."""
        widest = self._widest(single)
        if self.history is None:
            return widest
        allowed = HISTORY_DTYPES[HISTORY_DTYPES.index(widest) :]
        require(self.history in allowed, "history", self.history, f"{', '.join(allowed)}, as x0 is {widest}")
        return self.history

    def thread_count(self) -> int:
        """Return the number of threads to use: as asked, else all that this process may run on."""
        return default_threads() if self.threads is None else int(self.threads)
