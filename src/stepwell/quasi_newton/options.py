"""The options of `minimize` and `minimize_batch`, read into settings of the solver and of the evaluations."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypedDict

import numpy as np

from stepwell.arrays import Array
from stepwell.arrays.checks import read_array, read_host_array, require_each
from stepwell.common.checks import meant, read_real, read_switch, read_whole, require, require_kind, warn_caller
from stepwell.quasi_newton.settings import CauchyPolicy, HistoryDtype, LineSearch, LineSearchPreset, Settings


class Options(TypedDict, total=False):
    """Options of `stepwell.minimize`, all of them optional; the table in its documentation says what each does."""

    maxcor: int
    ftol: float
    patience: int
    gtol: float
    relative_gtol: float
    maxiter: float
    maxfun: float
    maxls: int
    target: float
    time_limit: float
    cauchy: CauchyPolicy
    line_search: LineSearchPreset | LineSearch | dict[str, Any]
    h0: Array | Callable[[Array], Array]
    threads: int | None
    history: HistoryDtype | None
    finite_diff_rel_step: Any
    eps: Any
    zero_copy: bool
    jit: bool
    graph: Literal["auto"] | bool
    time_objective: bool
    verbose: int
    disp: bool | int | None
    iprint: int | None
    workers: Any


_NAMES = frozenset(Options.__annotations__)
_SETTINGS = (
    "ftol",
    "patience",
    "gtol",
    "relative_gtol",
    "maxfun",
    "maxiter",
    "target",
    "time_limit",
    "cauchy",
    "threads",
    "history",
)
_DEFAULT = Settings()


@dataclasses.dataclass(frozen=True)
class Plan:
    """What the options ask for."""

    settings: Settings = _DEFAULT
    h0: Any = None
    relative_step: Any = None  #: of finite differences
    absolute_step: Any = None
    workers: Any = None
    zero_copy: bool = False
    graph: Literal["auto"] | bool = "auto"
    time_objective: bool = False
    verbose: int = 0
    jit: bool = False


_PLAIN = Plan()


def read_options(options: Mapping[str, Any] | None, tol: float | None) -> Plan:
    """Read options; unknown ones warn."""
    require_kind(options is None or isinstance(options, Mapping), "options", options, "None or a dict")
    if not options and tol is None:
        return _PLAIN
    given = {name: value for name, value in (options or {}).items() if value is not None}
    unknown = sorted(map(str, set(given) - _NAMES))
    if unknown:
        close = "".join(dict.fromkeys(meant(name, _NAMES) for name in unknown))
        warn_caller(f"unknown options {unknown} are ignored{close}; known: {', '.join(sorted(_NAMES))}")
    if tol is not None:
        read_real("tol", tol, at_least=0)
        given.setdefault("ftol", tol)
        given.setdefault("gtol", tol)
    chosen = {name: given[name] for name in _SETTINGS if name in given}
    if "maxcor" in given:
        chosen["m"] = given["maxcor"]
    if "line_search" in given:
        chosen["line_search"] = LineSearch.of(given["line_search"])
    if "maxls" in given:
        search = chosen.get("line_search", _DEFAULT.line_search)
        chosen["line_search"] = dataclasses.replace(search, maxls=given["maxls"])
    graph = given.get("graph", "auto")
    known = isinstance(graph, bool) or (isinstance(graph, str) and graph == "auto")
    require(known, "options['graph']", graph, "'auto', True, False")
    return Plan(
        Settings(**chosen) if chosen else _DEFAULT,
        given.get("h0"),
        _read_step("finite_diff_rel_step", given),
        _read_step("eps", given),
        _read_workers(given.get("workers")),
        read_switch("options['zero_copy']", given.get("zero_copy", False)),
        graph,
        read_switch("options['time_objective']", given.get("time_objective", False)),
        _read_verbose(given),
        read_switch("options['jit']", given.get("jit", False)),
    )


def _read_step(name: str, given: dict[str, Any]) -> Any:
    """Return a step of differences: a positive number, or an array of them."""
    step = given.get(name)
    if step is None:
        return None
    if read_array(name, step).ndim == 0:
        if name != "eps":
            return read_real(name, step, above=0)
        number = read_real(name, step)  # SciPy's, which may have a sign
        require(number != 0, name, step, "a finite number other than 0")
        return number
    steps = read_host_array(name, step)
    require_each(np.isfinite(steps) & (steps != 0), name, steps, "finite numbers other than 0")
    return steps


def _read_workers(workers: Any) -> Any:
    """Return a map, or how many processes evaluate: -1 stands for one per core."""
    if workers is None or callable(workers):
        return workers
    count = read_whole("workers", workers, -1, other="a map")
    require(count != 0, "workers", workers, "-1, a whole number of at least 1, or a map")
    return count


def _read_verbose(given: dict[str, Any]) -> int:
    """Return how much is to be printed: 0 nothing, 1 a summary, 2 a line per iteration; SciPy's names count, too."""
    if "verbose" in given:
        level = given["verbose"]
        whole = isinstance(level, int | np.integer | np.bool_) and 0 <= int(level) <= 2
        require(whole, "options['verbose']", level, "0, 1, 2, False, True")
        return int(level)
    disp, iprint = given.get("disp"), given.get("iprint")
    if isinstance(disp, int | np.integer | np.bool_) and disp > 0:
        return min(int(disp), 2)
    return 1 if isinstance(iprint, int | np.integer) and iprint >= 0 else 0
