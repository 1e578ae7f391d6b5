"""What counts as solved, and profiles over many problems: functions of plain numbers, without any solver.

A run is solved to tau where f ≤ f* + tau (f₀ − f*), with f₀ at the start and f* the least value known (Moré, Wild:
Benchmarking derivative-free optimization algorithms, 2009, eq. 2.2). Performance profiles: Dolan, Moré (2002).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

#: A run that claims success is believed to be wrong where the projected gradient is above this times max(1, |f|).
FALSE_SUCCESS = 1e-2
#: A point with a projected gradient up to this times max(1, |f|) is taken for stationary.
STATIONARY = 1e-5


def projected_gradient(x: np.ndarray, g: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> float:
    """Return ‖P(x − g) − x‖ in the maximum norm, P being the projection onto the bounds; infinite if g is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> projected_gradient(np.array([0.0, 2.0]), np.array([5.0, -0.5]), np.zeros(2), np.full(2, 9.0))
    0.5
    """
    if not np.isfinite(g).all():
        return math.inf
    return float(np.abs(np.clip(x - g, lower, upper) - x).max())


def threshold(start: float, best: float, tau: float) -> float:
    """Return the value of f at which a problem is solved to tau.

    Examples
    --------
    >>> threshold(start=11.0, best=1.0, tau=0.1)
    2.0
    """
    return best + tau * (start - best)


def evaluations_to(improvements: Sequence[tuple[int, float]], wanted: float) -> int | None:
    """Return the first evaluation whose f is at most `wanted`, given (evaluation, f) of each new least value.

    Examples
    --------
    >>> evaluations_to([(1, 9.0), (4, 2.0), (7, 0.5)], 2.0)
    4
    """
    return next((count for count, f in improvements if f <= wanted), None)


def is_false_success(claimed: bool, f: float, gradient: float) -> bool:
    """Whether a run says that it converged at a point whose recomputed projected gradient says otherwise.

    Examples
    --------
    >>> is_false_success(True, -300.0, 2.9), is_false_success(True, -300.0, 3.1), is_false_success(False, 0.0, 9.0)
    (False, True, False)
    """
    return claimed and not gradient <= FALSE_SUCCESS * max(1.0, abs(f))


def is_stationary(f: float, gradient: float) -> bool:
    """Whether the recomputed projected gradient is as small as that of a minimum, be it another one."""
    return gradient <= STATIONARY * max(1.0, abs(f))


Costs = Mapping[str, Mapping[str, float | None]]


def performance_profile(costs: Costs) -> dict[str, tuple[list[float], list[float]]]:
    """Return for each solver the steps of its profile: ratios to the cheapest solver, and the share solved within.

    Parameters
    ----------
    costs : mapping
        Solver -> problem -> cost, None where it did not solve it. All solvers have the same problems; one that none
        of them solves counts as unsolved for all.

    Examples
    --------
    >>> performance_profile({"a": {"p": 1.0, "q": 4.0}, "b": {"p": 2.0, "q": None}})
    {'a': ([1.0, 1.0], [0.5, 1.0]), 'b': ([2.0], [0.5])}
    """
    problems = _problems(costs)
    least: dict[str, float] = {}
    for problem in problems:
        reached = [cost for found in costs.values() if (cost := found[problem]) is not None]
        if reached:
            least[problem] = min(reached)
    ratios = {
        solver: [cost / max(least[problem], 1e-300) for problem in problems if (cost := found[problem]) is not None]
        for solver, found in costs.items()
    }
    return {solver: _shares(values, len(problems)) for solver, values in ratios.items()}


def data_profile(costs: Costs, sizes: Mapping[str, int]) -> dict[str, tuple[list[float], list[float]]]:
    """Return for each solver the share of the problems solved within k (n + 1) evaluations, as steps over k.

    Examples
    --------
    >>> data_profile({"a": {"p": 6.0, "q": None}}, {"p": 2, "q": 5})
    {'a': ([2.0], [0.5])}
    """
    problems = _problems(costs)
    return {
        solver: _shares(
            [cost / (sizes[problem] + 1) for problem in problems if (cost := found[problem]) is not None],
            len(problems),
        )
        for solver, found in costs.items()
    }


def _problems(costs: Costs) -> list[str]:
    names = {frozenset(found) for found in costs.values()}
    if len(names) > 1:
        raise ValueError("costs has other problems for some solvers than for others; allowed: the same for all")
    return sorted(next(iter(names), frozenset()))


def _shares(values: list[float], count: int) -> tuple[list[float], list[float]]:
    return sorted(values), [(place + 1) / count for place in range(len(values))]


def as_steps(x: Sequence[float], y: Sequence[float], first: float, last: float) -> tuple[list[float], list[float]]:
    """Return a profile as the corners of a staircase between `first` and `last`.

    Examples
    --------
    >>> as_steps([1.0, 1.0, 2.0, 9.0], [0.25, 0.5, 0.75, 1.0], first=1.0, last=4.0)
    ([1.0, 2.0, 2.0, 4.0], [0.5, 0.5, 0.75, 0.75])
    """
    heights = {max(at, first): share for at, share in zip(x, y) if at <= last}  # the last share at each place
    height = heights.pop(first, 0.0)
    corners_x, corners_y = [first], [height]
    for at, share in heights.items():
        corners_x += [at, at]
        corners_y += [height, share]
        height = share
    return [*corners_x, last], [*corners_y, height]


def geometric_mean(values: Sequence[float]) -> float | None:
    """Return the geometric mean of positive numbers; None of none.

    Examples
    --------
    >>> round(geometric_mean([2.0, 8.0]), 12)
    4.0
    """
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None
