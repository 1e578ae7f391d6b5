"""Part of a chapter: a run that is killed and goes on from its checkpoint, to the same bits."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from stepwell.lab.html import Block, Figure, Series, Text, chart
from stepwell.lab.problems import get
from stepwell.lab.tour.chapter import Account, Clock, Comparison, Stage, duration
from stepwell.quasi_newton.api import minimize
from stepwell.quasi_newton.options import Options

#: Points along each side of the grid, and evaluations after which the first run is killed: for the tour, and quick.
SIDES, LIMITS = (100, 16), (60, 12)
#: Iterations between two checkpoints.
EVERY = 10
OPTIONS: Options = {"ftol": 0.0, "gtol": 1e-6}


class Killed(Exception):
    """What ends the first run."""


def run(stage: Stage) -> Account:
    """Minimise without a break, kill a second run, and let a third go on from what it left."""
    side, limit = SIDES[stage.quick], LIMITS[stage.quick]
    problem = stage.place.problem(get("torsion", nx=side, ny=side))
    values: list[float] = []

    def fun(x: Any) -> Any:
        if len(values) == limit and killing:
            raise Killed
        f, g = problem.fun(x)
        values.append(float(f))
        return f, g

    how: dict[str, Any] = {"jac": True, "bounds": problem.bounds, "options": OPTIONS}
    killing = False
    stage.tell("without a break", 0.6)
    whole = minimize(fun, problem.x0, **how)
    alone, values = values, []
    size = 0
    with tempfile.TemporaryDirectory() as folder:
        how |= {"checkpoint": Path(folder) / "run.checkpoint", "checkpoint_every": EVERY}
        stage.tell("until it is killed", 0.75)
        killing = True
        try:
            minimize(fun, problem.x0, **how)
        except Killed:
            size = how["checkpoint"].stat().st_size
        before, values = values, []
        killing = False
        stage.tell("resumed", 0.9)
        with Clock() as clock:
            resumed = minimize(fun, problem.x0, **how)
            stage.place.wait()
    same = bool(np.array_equal(stage.place.fetch(resumed.x), stage.place.fetch(whole.x)))
    comparison = Comparison(
        f"resuming torsion, {problem.n:,} variables, killed after {limit} evaluations",
        clock.seconds,
        "the same bits as without a break" if same else "other bits than without a break",
        same and bool(resumed.success),
    )
    lowest, first = min(alone), int(resumed.nfev) - len(values)
    curves = (
        Series("without a break", range(len(alone)), np.array(alone) - lowest, 2, "line"),
        Series("until it was killed", range(len(before)), np.array(before) - lowest, 0, "line"),
        Series("resumed", range(first, first + len(values)), np.array(values) - lowest, 1, "dashed"),
    )
    blocks: list[Block] = [
        Text(
            f"A run writes its whole state to a file as it goes on, here {size / 1e6:.1f} MB after every {EVERY}th "
            f"iteration. Killed after {limit} evaluations and called again with the same file, it goes on from its "
            f"last checkpoint: {len(values)} more evaluations in {duration(clock.seconds)}, and every bit of the "
            "answer is that of a run without a break."
        ),
        Figure(
            chart(
                curves,
                f"f above its minimum against evaluations: a run of {len(alone)}, one that was killed after {limit}, "
                f"and the rest of it from evaluation {first} on.",
                x_label="evaluations",
                y_label="f − minimum",
                y_log=True,
            ),
            "The resumed run repeats what came after the checkpoint, and then goes on.",
        ),
    ]
    return Account([comparison], blocks)
