"""A checked batch of fits, as whoever solves it receives it: host arrays, one row per problem."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from stepwell.arrays import Array
from stepwell.common.threads import default_threads

#: What the core calls the losses.
LOSSES = {"linear": 0, "soft_l1": 1, "huber": 2, "cauchy": 3, "arctan": 4, "poisson": 5}
#: Most parameters of a fit.
MAX_PARAMETERS = 64


def own_rows(values: Any, rows: Any) -> Any:
    """Return the rows of some problems, of what every problem has a row of; the one row where all share it."""
    return values if values.shape[0] == 1 else values[rows]


@dataclasses.dataclass
class FitProblem:
    """A batch of fits. Solvers of compiled models take the same: ``model.__stepwell_fit__(problem)`` returns `ends`.

    `ends` is a dict of arrays with the problems first, with the names that ``_core.FitBatch.ends`` has: x, cost,
    promise, violation, optimality, distance, condition, variances, pcov, status, nit, nfev, njev, rank, points, free
    and active_mask.
    """

    x0: np.ndarray  # (problems, n), inside the bounds
    low: np.ndarray  # (1 or problems, n)
    high: np.ndarray
    lead: tuple[int, ...]  # the shape of the problems
    lone: bool
    single: bool  # parameters are float32
    template: Array  # an array of the caller's library
    x: Any = None  # xdata as the caller gave it; with `own_x`, (..., problems, m)
    own_x: bool = False
    y: np.ndarray | None = None  # (1 or problems, m)
    weights: np.ndarray | None = None  # (1 or problems, m): 1/sigma, 0 where a point does not count
    points: int = 0
    loss: str = "linear"
    scale: float = 1.0
    absolute: bool = False
    ftol: float | None = None
    gtol: float | None = None
    xtol: float = 0.0
    maxiter: int | None = None
    max_nfev: int | None = None
    threads: int | None = None
    uncertainty: str | None = "covariance"
    names: tuple[str, ...] | None = None
    progress: Callable[[int, int], object] | None = None
    callback: Callable[[Any], object] | None = None
    secant: bool = True
    raises: bool = True  # of a lone problem that cannot begin

    @property
    def problems(self) -> int:
        """Number of fits."""
        return int(self.x0.shape[0])

    @property
    def parameters(self) -> int:
        """Parameters of a fit, n."""
        return int(self.x0.shape[1])

    def options(self, epsilon: float) -> dict[str, Any]:
        """Return what the core wants to know; `epsilon`: relative rounding of the model's values."""
        coarse = epsilon > 1e-10
        n = self.parameters
        limit = 400 * (n + 1) if self.maxiter is None else self.maxiter
        return dict(
            ftol=(1e-6 if coarse else 1e-10) if self.ftol is None else self.ftol,
            gtol=(1e-6 if coarse else 1e-10) if self.gtol is None else self.gtol,
            xtol=self.xtol,
            epsilon=epsilon,
            max_iterations=min(limit, 2**31 - 1),
            max_evaluations=2**31 - 1 if self.max_nfev is None else self.max_nfev,
            single=self.single,
            secant=self.secant,
            loss=LOSSES[self.loss],
            scale=self.scale,
            absolute=self.absolute,
            threads=1 if self.problems == 1 else default_threads() if self.threads is None else self.threads,
        )
