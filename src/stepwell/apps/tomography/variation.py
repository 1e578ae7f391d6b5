"""`stepwell reconstruct --tv`: slices by total variation, in blocks that stay on the disk until all are done."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from stepwell.apps.images.work import Work, plain
from stepwell.apps.tomography.tasks import Task
from stepwell.arrays import host_copy
from stepwell.cli.console import make_table
from stepwell.cli.progress_bar import ProgressBar
from stepwell.krylov.tv import TVProgress, TVStatus, tv

#: Rules for λ, and the tolerance unless another is given: a proven relative gap.
RULES, TOL = ("noise", "discrepancy"), 1e-3
#: Slices of a block at most: what an interrupted run may lose.
BLOCK = 16
#: Where blocks are kept until the volume is written.
FOLDER = "reconstruct.unfinished"
_STATUSES = list(TVStatus)


@dataclass
class Variation:
    """What became of all slices."""

    volume: np.ndarray
    gap: np.ndarray
    lam: np.ndarray
    lam_at_end: np.ndarray
    products: np.ndarray
    iterations: np.ndarray
    status: list[TVStatus]
    history: list[np.ndarray]
    resumed: int
    seconds: float
    method: str = "total variation"

    @property
    def success(self) -> bool:
        """Whether the tolerance is proved for every slice."""
        return all(status.success for status in self.status)

    @property
    def message(self) -> str:
        """How many slices ended how, and the worst gap."""
        parts = [f"{self.status.count(one)} of {len(self.status)}: {one.message}" for one in dict.fromkeys(self.status)]
        return f"{'; '.join(parts)}; worst proven gap {np.max(self.gap, initial=0.0):.2e}"

    def record(self, quality: list[float]) -> dict[str, Any]:
        """Return the account of all slices, for JSON."""
        return {
            "method": self.method, "success": self.success, "message": self.message,
            "status": [status.name for status in self.status], "lam": self.lam, "gap": self.gap,
            "iterations": self.iterations, "products": self.products, "resumed": self.resumed,
            "signal_to_noise": quality or None,
        }  # fmt: skip

    def summary(self) -> Table:
        """Return what the solver did as a table."""
        table = make_table("", "", header=False)
        table.add_row("method", self.method)
        low, high = (f"{end(self.lam):.4g}" for end in (np.min, np.max))
        table.add_row("lam", low if low == high else f"{low} to {high}")
        ends = int(np.count_nonzero(self.lam_at_end))
        if ends:
            table.add_row(
                "", f"at an end of the range searched for {ends} slices; give --lam a number, or --relative-noise"
            )
        proved = sum(status.success for status in self.status)
        table.add_row("proved", f"{proved} of {len(self.status)} slices")
        table.add_row("proven gap", f"{np.median(self.gap):.1e} median, {np.max(self.gap):.1e} worst")
        table.add_row("products", f"{self.products.sum():.0f} ({self.products.mean():.1f} per slice)")
        if self.resumed:
            table.add_row("from an earlier run", f"{self.resumed} slices")
        table.add_row("seconds", f"{self.seconds:.2f}")
        return table


class Watch:
    """Moves the bar slice by slice; true ends the run."""

    def __init__(self, bar: ProgressBar, count: int, pressed: Callable[[], bool]) -> None:
        self.bar, self.count, self.pressed, self.before = bar, count, pressed, 0
        self.task = bar.add_task("solving", total=count, note="")

    def __call__(self, told: TVProgress) -> bool:
        """Move the bar; True ends the run."""
        self.show(self.before + told.columns - told.running, f"gap {told.gap:.1e}")
        return self.pressed()

    def show(self, done: int, note: str = "") -> None:
        """Show how many slices are done."""
        self.bar.update(self.task, completed=done, note=f"{done}/{self.count} slices{', ' if note else ''}{note}")


def solve(
    task: Task, A: Any, put: Callable[[np.ndarray], Any], lam: str | None, relative_noise: float, *, nonnegative: bool,
    across: float | None, tol: float, output: Path, settings: dict[str, Any], restart: bool, watch: Watch,
) -> Variation | None:  # fmt: skip
    """Solve block by block; return None where the run was interrupted: the blocks that are done stay on the disk."""
    from scipy.optimize import OptimizeWarning

    start = time.perf_counter()
    count, sides = task.B.shape[1], task.shape
    one = ((count,), "f8")
    maps = {"volume": ((count, *sides), "f8"), "status": ((count,), "i8")}
    maps |= dict.fromkeys(("gap", "lam", "lam_at_end", "products", "iterations"), one)
    work = Work(output / FOLDER, plain(settings), maps, count, restart=restart)
    norms = np.nan_to_num(np.linalg.norm(task.B, axis=0), posinf=0.0)
    level = relative_noise * norms / np.sqrt(max(1, task.B.shape[0]))
    value: Any = lam if lam in RULES else "noise" if lam is None else float(lam)
    history: list[np.ndarray] = [np.zeros(0)] * count
    step = count if across is not None else BLOCK
    for first in range(0, count, max(1, step)):
        last = min(count, first + step)
        watch.before = first
        if not work.is_done(first, last):
            with warnings.catch_warnings():  # what they say of λ stands in the table
                warnings.simplefilter("ignore", OptimizeWarning)
                result = tv(
                    A, put(np.ascontiguousarray(task.B[:, first:last])), value, shape=sides, noise=level[first:last],
                    bounds=(0, None) if nonnegative else None, across=across, tol=tol, callback=watch,
                )  # fmt: skip
            if any(status is TVStatus.STOPPED for status in result.status):
                return None
            ends = np.zeros(last - first) if result.lam_at_end is None else result.lam_at_end
            work.put(0, first, last, {
                "volume": host_copy(result.x).T, "gap": result.gap, "lam": result.lam, "lam_at_end": ends,
                "products": result.products, "iterations": result.iterations,
                "status": np.array([_STATUSES.index(status) for status in result.status]),
            })  # fmt: skip
            history[first:last] = result.history
        watch.show(last)
    found = {name: np.array(array) for name, array in work.arrays.items()}
    return Variation(
        found["volume"], found["gap"], found["lam"], found["lam_at_end"], found["products"], found["iterations"],
        [_STATUSES[int(code)] for code in found["status"]], history, work.resumed, time.perf_counter() - start,
    )  # fmt: skip


def forget(output: Path) -> None:
    """Remove the blocks: the volume is written."""
    import shutil

    shutil.rmtree(output / FOLDER, ignore_errors=True)
