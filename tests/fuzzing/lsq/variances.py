"""Variances and the diagonal of covariances, held against dense algebra in wide precision."""

from __future__ import annotations

import numpy as np

from fuzzing.common import exact
from fuzzing.lsq.answers import Solved
from fuzzing.lsq.optimality import DOUBLE
from fuzzing.lsq.problem import Problem, rows_of


def variances(part: Solved) -> None:
    """The variance of x between bounds, by dense algebra where that has the digits.

    With K = (A; lam L), columns of length one, and M = (K'K)^-1, the deviation of x_p is |A M e_p|, a sum of squares:
    y'Gy of y = M e_p would cancel. A change E of K changes it by |AM||E||KMe| + |AMK'||E||Me| <= 2 |E| cond(K)^2 at the
    most, to first order, and rounding is an E of sqrt(m n) ulp. Of normal equations |E| cond(K)^2 is a change of the
    variance itself: E of G and of K'K, 2 |M||E||MGM| + |M||E||M| <= 3 |E| cond(K'K)^2.
    """
    answer, problem = part.answer, part.problem
    if answer.case.options.get("uncertainty") is None or len(problem.C) or answer.n > 40:
        return
    told, sigma = answer.per_unknown("variance")[part.which], part.told("sigma")
    noise = answer.case.options.get("noise")
    wrong, worst = np.zeros(len(part.x), bool), np.zeros(len(part.x))
    whole_looked_at = False
    for k in range(len(part.x)):
        free, norms = part.found.free[k] & (part.found.norms[k] > 0), part.found.norms[k]
        lower, upper = (end[k if len(end) > 1 else 0] for end in (problem.lower, problem.upper))
        own = sigma_of(part, k, noise, int(free.sum()))
        between = (part.x[k] > lower) & (part.x[k] < upper)
        # x is at a bound but for rounding, or was rounded to it, and its dual does not hold it there: either may count.
        rounded = ~between & (np.abs(part.found.w[k]) <= part.answer.sure * norms * part.found.size[k])
        rounded &= (lower < upper) & (norms > 0)
        if (between & (norms > 0) != free).any() or rounded.any() or np.isnan(own):
            continue
        true, room = deviations(problem, k, free, norms, part.lam[k])
        if not (own > 1e-12 * float(part.found.size[k])) or room is None:
            continue
        true, room = exact(own) * true, exact(own) * room
        small = np.abs(part.x[k][free]).min(initial=1)
        if problem.single and min((true**2).max(), own, small) < 1e-34:  # floats near the smallest have few digits
            continue
        found = [np.sqrt(exact(told[k]))]
        if not whole_looked_at:
            lead = answer.case.turned().shape[:-1]
            place = tuple(map(int, np.unravel_index(part.places[k], lead))) if lead else 0
            found.append(np.sqrt(exact(np.diag(answer.result.covariance(place)))))
            whole_looked_at = True
        # (sigma is good to 1e-4, variances near the smallest numbers are not.)
        for one in found:
            off = np.abs(one - true) / np.maximum(1e-4 * true + room, 1e-150 if not problem.single else 1e-17)
            off[np.isinf(one) & (true > (1e154 if not problem.single else 1e19))] = 0  # its square is no number
            worst[k] = max(worst[k], float(off.max(initial=0)))
        wrong[k] = worst[k] > 1 or abs(sigma[k] - own) > 1e-4 * own
    part.find_each(
        "variance",
        part.finished & wrong,
        lambda k: f"a deviation is off by {worst[k]:.1e} of what it may be, sigma {sigma[k]}",
    )


def sigma_of(part: Solved, k: int, noise: object, free: int) -> float:
    """The deviation of an entry of b; NaN where it is not known."""
    problem = part.problem
    if noise is not None:
        rounded = problem.single and problem.G is None
        return float(rows_of(noise, part.answer.systems, None, rounded)[part.places[k]])
    left = int(problem.rows[k] - free)
    if problem.G is not None or left <= 0:
        return float("nan")
    return float(np.sqrt((problem.fit(part.x)[k] ** 2).sum()) / np.sqrt(left))


def deviations(
    problem: Problem, k: int, free: np.ndarray, norms: np.ndarray, lam: np.longdouble
) -> tuple[np.ndarray, np.ndarray | None]:
    """Of x where entries of b have deviation one, and what rounding may make of them; None: they have no digits."""
    n = len(free)
    true, room = np.zeros(n, np.longdouble), np.zeros(n, np.longdouble)
    L = (np.eye(n, dtype=np.longdouble) if problem.L is None else problem.L)[:, free] / norms[free]
    if problem.G is None:
        assert problem.A is not None
        A = problem.A[k if len(problem.A) > 1 else 0][:, free] / norms[free]
        G, rows = A.T @ A, len(A) + len(L)
    else:
        G = problem.G[k if len(problem.G) > 1 else 0][np.ix_(free, free)] / norms[free] / norms[free][:, None]
        rows = n
    B = G + lam**2 * (L.T @ L)
    condition = float(np.linalg.cond(B.astype(float))) if free.any() else 1.0
    if not condition < (1e10 if problem.G is None else 1e5):
        return true, None
    inverse = exact(np.linalg.inv(B.astype(float)))
    for _ in range(3):  # (Entries of columns far from each other in size tell the rounding of a double.)
        inverse = inverse @ (2 * np.eye(len(B)) - B @ inverse)
    if problem.G is None:
        true[free] = np.sqrt(((A @ inverse) ** 2).sum(axis=0)) / norms[free]
        room[free] = 2 * np.sqrt(rows * n) * DOUBLE * condition / norms[free]
    else:
        true[free] = np.sqrt(np.maximum(np.diag(inverse @ G @ inverse), 0)) / norms[free]
        change = 3 * n * DOUBLE * condition**2  # of a variance: of its root, this over the root or its own root
        root = np.sqrt(np.maximum(np.diag(inverse @ G @ inverse), change))
        room[free] = change / root / norms[free]
    return true, room
