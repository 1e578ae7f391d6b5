"""How `stepwell reconstruct` solves: λ, the bar, and the accounts of ranks put together."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

from stepwell.api.krylov import tikhonov
from stepwell.apps.tomography.ranks import World
from stepwell.apps.tomography.simulate import largest_singular_value
from stepwell.apps.tomography.tasks import Task
from stepwell.apps.tomography.volume import project_slices
from stepwell.cli.output import Output
from stepwell.cli.progress_bar import ProgressBar
from stepwell.krylov import LinearResult
from stepwell.krylov import Progress as Told
from stepwell.krylov.selection import RULES, Rule


def choose_lam(given: str | None, relative: float, A: Any) -> float | Rule:
    """Return λ itself or its rule: what was given, else a fraction of the norm of A."""
    if given is None:
        return relative * largest_singular_value(A)
    return given if given in RULES else float(given)


def lam_of_all(
    world: World, task: Task, rule: Rule, penalty: Any, level: np.ndarray
) -> tuple[float, np.ndarray | None]:
    """Choose one λ for the slices of all ranks: that of the volume as one vector, of which each rank has a piece."""
    slices = task.B.shape[1]
    squares = np.concatenate(world.comm.allgather(level**2))
    noise = float(np.mean(squares)) ** 0.5 if squares.size else 0.0
    smooth = None if penalty is None else project_slices(penalty, slices)
    volume = np.ascontiguousarray(task.B.T).reshape(-1)
    found = tikhonov(
        project_slices(task.A, slices), volume, rule, smooth, noise=noise, maxiter=0, method="cgls", comm=world.comm
    )
    assert found.lam is not None
    return found.lam, None if found.lam_at_end is None else np.array([found.lam_at_end])


def joined(parts: list[LinearResult]) -> LinearResult:
    """Put the accounts of all ranks together."""
    first = parts[0]
    lams = [part.lam for part in parts if part.lam is not None]
    ends = first.lam_at_end
    count = sum(len(part.status) for part in parts)
    return replace(
        first,
        status=[status for part in parts for status in part.status],
        residual=np.concatenate([part.residual for part in parts]),
        iterations=np.concatenate([part.iterations for part in parts]),
        products=np.concatenate([part.products for part in parts]),
        history=[history for part in parts for history in part.history],
        lam=np.concatenate(lams) if lams else None,
        calls=max(part.calls for part in parts),
        seconds=max(part.seconds for part in parts),
        memory=sum(part.memory for part in parts),
        lam_at_end=None if ends is None else np.full(count, ends[0]),
    )


class Watch:
    """Moves the bar from 1 to the tolerance on a logarithmic scale."""

    def __init__(self, bar: ProgressBar, tol: float, pressed: Callable[[], bool]) -> None:
        self.bar, self.tol, self.pressed = bar, tol, pressed
        self.task = bar.add_task("solving", total=-math.log10(tol), note="")

    def __call__(self, told: Told) -> bool:
        """Move the bar; True ends the run."""
        done = told.columns - told.running
        reached = max(told.residual, self.tol) if told.running else self.tol
        note = f"{done}/{told.columns} slices, {told.products:.0f} products"
        if not told.iteration:
            note += f", {told.memory / 2**20:.0f} MiB needed"
        self.bar.update(self.task, completed=-math.log10(min(1.0, reached)), note=note)
        return self.pressed()

    def finish(self, result: LinearResult) -> None:
        """Show the account of all slices, those included that were not worked on."""
        done = sum(status.name == "CONVERGED" for status in result.status)
        note = f"{done}/{len(result.status)} slices, {result.products.sum():.0f} products"
        self.bar.update(self.task, completed=-math.log10(self.tol) if result.success else None, note=note)


def make_bar(output: Output) -> ProgressBar:
    """Return the bar of a reconstruction, which shows nothing in a pipe."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
    )
    return ProgressBar(*columns, console=output.console(), transient=True, disable=not output.moving)
