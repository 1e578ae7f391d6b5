"""Table 3.1 of Luo & Duraiswami (2011): column accesses and operations of every update, counted beside the formulas."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stepwell.lab.studies.compiled import compiled
from stepwell.lab.studies.frame import Column, Context, Curve, Study

#: What is counted is the same in every library and on every device.
ON_CPU: tuple[str, ...] = ("numpy",)
ON_GPU: tuple[str, ...] = ()

COLUMNS = (
    Column("update", "update"),
    Column("m", "m", ","),
    Column("l", "ℓ", ","),
    Column("i", "i", ","),
    Column("accesses_paper", "accesses, formula", ",", paper=True),
    Column("accesses", "accesses, counted", ","),
    Column("flops_paper", "flops, formula", ",", paper=True),
    Column("flops", "flops, counted", ","),
    Column("ratio", "counted/formula", ".2f"),
)

_Formula = Callable[[int, int, int], int]

# The engine's numbers of the updates.
_CGS2, _MGS, _ROTATIONS, _CSNE = 0, 1, 2, 3


@dataclass(frozen=True)
class _Update:
    """One line of Table 3.1: formulas of m, ℓ and i, the engine's number, and what is done to count it.

    ℓ columns are there before, and i is counted from 1: a new column that comes last has i = ℓ + 1.
    """

    name: str
    accesses: _Formula | None
    flops: _Formula | None
    code: int | None
    kind: str  # "last": a column is appended; "middle": at position i; "down": position i is removed


def _corner(l: int, i: int) -> int:
    """6(ℓ − i + 1)(ℓ/2 − i/2 − 1), the operations on R right of column i."""
    return 3 * (l - i + 1) * (l - i - 2)


# Formulas as printed in Table 3.1; flops of Q and R together.
_UPDATES: Sequence[_Update] = (
    _Update("MGS, new column last", lambda m, l, i: l + 2, lambda m, l, i: 6 * m * l + 3 * m + 1, _MGS, "last"),
    _Update("MGS, in the middle", lambda m, l, i: (l + 2) * (l - i + 2),
            lambda m, l, i: (3 * m * l + 3 * m * i + 1) * (l - i + 2), _MGS, "middle"),
    _Update("rotations, new column last", lambda m, l, i: 2 * (m - l - 1),
            lambda m, l, i: 6 * m * (m - l - 1) + 2 * m * m + 8 * (m - l - 1), _ROTATIONS, "last"),
    _Update("rotations, in the middle", lambda m, l, i: 4 * (m - l - 1),
            lambda m, l, i: 6 * m * (m - i) + 2 * m * m + 8 * (m - i) + _corner(l, i), None, "middle"),
    _Update("CSNE, new column last", lambda m, l, i: 3 * m + 2 * l + 1,
            lambda m, l, i: 6 * m * m + 4 * m + 1 + 3 * l * l + 3 * l, _CSNE, "last"),
    _Update("CSNE, in the middle", lambda m, l, i: 3 * m + 4 * l - 2 * i + 1,
            lambda m, l, i: 6 * m * m + 4 * m + 1 + 3 * l * l + _corner(l, i) + 6 * l - 3 * i, None, "middle"),
    _Update("rotations, column removed", lambda m, l, i: 4 * (l - i + 1),
            lambda m, l, i: 6 * m * (m - i) + 6 * (l - i) + _corner(l, i), _CGS2, "down"),
    _Update("CGS2 (Stepwell's), new column last", None, None, _CGS2, "last"),
)  # fmt: skip


class _FactorTrial(ctypes.Structure):
    """``FactorTrial`` of nnls_factor/host.cpp."""

    _fields_ = (
        ("rows", ctypes.c_int32), ("columns", ctypes.c_int32), ("update", ctypes.c_int32),
        ("a", ctypes.c_void_p), ("moves", ctypes.c_void_p), ("move_count", ctypes.c_int64),
        ("orthogonality", ctypes.c_double), ("backward_error", ctypes.c_double),
        ("count", ctypes.c_int32), ("rejected", ctypes.c_int32), ("costs", ctypes.c_int64 * 4),
    )  # fmt: skip


class FactorReport(NamedTuple):
    """What came of a series of insertions and removals; `costs`: accesses and flops of both."""

    orthogonality: float
    backward_error: float
    kept: int
    rejected: int
    costs: tuple[int, ...]


def try_factor(A: np.ndarray, update: int, moves: np.ndarray) -> FactorReport:
    """Insert columns of `A` into a factor (a move j ≥ 0) and remove positions (−1 − p); `update` is the engine's."""
    matrix, steps = np.ascontiguousarray(A, float), np.ascontiguousarray(moves, np.int32)
    trial = _FactorTrial(*matrix.shape, update, matrix.ctypes.data, steps.ctypes.data, len(steps))
    compiled("nnls_factor", "stepwell_nnls_factor")(ctypes.byref(trial))
    numbers = trial.orthogonality, trial.backward_error, trial.count, trial.rejected
    return FactorReport(*numbers, tuple(trial.costs))


def counted(update: int, kind: str, m: int, l: int, i: int, seed: int = 0) -> tuple[int, int]:
    """Return the column accesses and operations of one update, counted while it runs.

    Examples
    --------
    >>> counted(1, "last", 64, 10, 4)  # modified Gram–Schmidt: ℓ + 2 accesses, 4mℓ + 3m + 1 operations
    (12, 2753)
    """
    A = np.random.default_rng(seed).random((m, l + 1))

    def costs(*moves: int) -> np.ndarray:
        return np.array(try_factor(A, update, np.array(moves, dtype=np.int32)).costs)

    if kind == "down":  # the move −i takes out the i-th column
        cost = costs(*range(l), -i)[2:]
    else:
        # In the middle, everything to the right is inserted again: the new column and the ℓ − i + 1 behind it.
        cost = (costs(*range(l + 1)) - costs(*range(l if kind == "last" else i - 1)))[:2]
    return int(cost[0]), int(cost[1])


def run(context: Context, study: Study) -> None:
    """Count every update for a few sizes."""
    sizes = context.pick(
        toy=[(64, 20, 8)],
        default=[(512, 50, 20), (512, 100, 40), (512, 200, 80)],
        full=[(m, l, i) for m in (432, 512, 1024) for l, i in ((50, 20), (100, 40), (200, 80), (400, 160))],
    )
    table = study.table("costs", "Table 3.1: column accesses and operations of one update", COLUMNS)
    for m, l, i in sizes:
        context.tell(f"m = {m}, ℓ = {l}")
        for update in _UPDATES:
            cells = None if update.code is None else counted(update.code, update.kind, m, l, i)
            flops = None if update.flops is None else update.flops(m, l, i)
            table.add(
                update=update.name, m=m, l=l, i=i, flops_paper=flops,
                accesses_paper=None if update.accesses is None else update.accesses(m, l, i),
                accesses=cells and cells[0], flops=cells and cells[1],
                ratio=cells[1] / flops if cells and flops else None,
            )  # fmt: skip
    m, l, i = sizes[-1]
    plot = study.plot(
        "flops", f"Operations of one update, m = {m}, ℓ = {l}, i = {i}", "", "flops", log_y=True,
        bars=[update.name for update in _UPDATES],
    )  # fmt: skip
    rows = [row for row in table.rows if (row["m"], row["l"], row["i"]) == (m, l, i)]
    places = list(range(len(rows)))
    plot.curves.append(Curve("formula (paper)", places, [row["flops_paper"] for row in rows], paper=True))
    plot.curves.append(Curve("counted", places, [row["flops"] for row in rows]))
    study.differs += [
        "MGS: the paper's algorithm 2 takes two inner products with each q, one of the column as it was and one of "
        "what is left of it; Stepwell's MGS takes one, 4mℓ operations instead of 6mℓ.",
        "CSNE: the paper counts A as m x m; Stepwell reads the ℓ passive columns only, 6mℓ instead of 6m² operations "
        "and 4ℓ instead of 3m + 2ℓ accesses.",
        "A removed column: the table prints 6m(m − i) operations for Q. There are ℓ − i rotations of two columns of "
        "length m, 6m(ℓ − i), and that is what is counted, with 4(ℓ − i) accesses.",
        "Insertion in the middle exists in Stepwell for no update: columns are kept in the order of their insertion, "
        "which is the paper's point. For MGS the cost is counted by inserting the columns from i on once more: each "
        "reads those before it, where the paper's accesses count all ℓ for each.",
        "CGS2, classical Gram–Schmidt twice, is Stepwell's own choice: it keeps Q orthogonal to rounding, which MGS "
        "does not, at twice the operations of MGS.",
    ]
