"""The rules that choose lambda: whether the level they promise was reached where it can be.

The fit |Ax - b|^2 never falls with lambda. Solutions with a given lambda, certified by their conditions of optimality,
say between which levels it lies.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzzing.common import exact
from fuzzing.lsq.answers import Solved
from fuzzing.lsq.optimality import DOUBLE, breach
from fuzzing.lsq.problem import rows_of

#: The core looks for lambda^2 from e^-46 to e^30 times tr A'A / tr L'L; well inside of that a level is reachable.
SMALL, LARGE = 1e-9, 1e6


def look(part: Solved) -> None:
    if part.answer.rule in ("chi2", "discrepancy"):
        by_level(part)
    else:
        on_grid(part)
        if part.answer.rule == "gcv":
            cross_validated(part)


def trace_ratio(part: Solved) -> np.ndarray:
    """sqrt(tr A'A / tr L'L) over the columns that take part."""
    problem = part.problem
    assert problem.A is not None
    squares = np.broadcast_to((problem.A**2).sum(axis=1), problem.shape)
    beneath = np.ones(problem.shape[1], np.longdouble) if problem.L is None else (problem.L**2).sum(axis=0)
    own = (problem.lower < problem.upper) & (squares + beneath > 0)
    above, below = np.where(own, squares, 0).sum(axis=1), np.where(own, beneath, 0).sum(axis=1)
    return np.sqrt(np.where((above > 0) & (below > 0), above / np.where(below > 0, below, 1), 1))


def has_squares(unit: np.ndarray) -> np.ndarray:
    """Whether the squares of lambdas about a unit are numbers: where not, 0 is the end of their range."""
    return (unit > 1e-105) & (unit < 1e105)


def fit_with(part: Solved, lam: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The fit of the solution with a lambda, whether its optimality was certified, the size of what is rounded, and by
    how much its conditions are broken."""
    case, problem = part.answer.case, part.problem
    full = np.zeros(part.answer.systems)
    full[part.which] = lam.astype(float)
    shaped: Any = full.reshape(case.turned().shape[:-1])
    changed: dict[str, Any] = dict(lam=float(full[0]) if shaped.ndim == 0 else shaped, noise=None, chi2=1.02)
    changed |= dict(maxiter=None, tol=None, uncertainty=None, warm_start=None)
    x = np.asarray(case.call(**changed).x)
    x = (x.T if case.across() else x).reshape(part.answer.systems, -1)[part.which].astype(float)
    used = full[part.which].astype(np.float32) if problem.single else full[part.which]
    finite = np.isfinite(x).all(axis=1)
    x = exact(np.where(finite[:, None], x, 0))
    found = breach(problem, x, exact(used))
    return (problem.fit(x) ** 2).sum(axis=1), finite & (found.worst <= part.answer.sure), found.size, exact(found.worst)


def size_of_sums(part: Solved) -> np.ndarray:
    """What a column between bounds makes of the terms of a sum: this is met to their rounding, and so is the fit."""
    C, norms = np.abs(part.problem.C), part.found.norms
    if not len(C):
        return np.zeros(len(part.x), np.longdouble)
    over = np.where(part.found.free[:, None, :] & (C > 0), norms[:, None, :] / np.where(C > 0, C, 1), 0)
    return (np.abs(part.x) @ C.T * over.max(axis=2)).max(axis=1)


def by_level(part: Solved) -> None:
    problem, options, rule = part.problem, part.answer.case.options, part.answer.rule
    fit, unit = (problem.fit(part.x) ** 2).sum(axis=1), trace_ratio(part)
    least, sure, size, worst = fit_with(part, np.zeros(len(unit), np.longdouble))
    # The least is that of an x that breaks its conditions by so much: a convex fit is no further above that of a y than
    # 2 w'(y - x), and of a y no larger than the points that are known that is
    lower = 2 * worst * size * (size + np.maximum(size, part.found.size))
    if rule == "chi2":
        level, below = exact(options.get("chi2", 1.02)) * least, exact(options.get("chi2", 1.02)) * lower
    else:
        below = np.zeros(len(unit))
        noise = rows_of(options["noise"], part.answer.systems, None, problem.single)[part.which]
        level = problem.rows * exact(noise) ** 2
    bottom, sure_of_bottom, *_ = fit_with(part, SMALL * unit)
    most, sure_of_most, *_ = fit_with(part, LARGE * unit)
    # The rounding of a squared residual: size of what is rounded, times the residual.
    eps, size = 1e-6 if problem.single else 1e-12, np.maximum(size, part.found.size) + size_of_sums(part)
    rounding = eps * size * (np.sqrt(least) + np.sqrt(level)) + (eps * size) ** 2
    # A fit with some lambda that is below the one without says that the latter is not the least.
    sure &= least <= np.minimum(fit, bottom) * (1 + 1e-6) + rounding
    wanted = level - least
    reachable = sure & sure_of_bottom & sure_of_most & (wanted > 1e4 * rounding) & has_squares(unit)
    reachable &= (bottom < level - 0.01 * wanted) & (most > level + 0.01 * wanted)
    room = 1e-4 * np.abs(wanted) + 30 * rounding
    off = part.finished & ((fit > level + room) | (fit < level - room - below))
    ends = part.told("lam_at_end")
    part.find_each(
        "level",
        off & reachable,
        lambda k: (
            f"{rule}: |Ax - b|^2 is {float(fit[k]):.6e}, level {float(level[k]):.6e}, between {float(least[k]):.2e} "
            f"and {float(most[k]):.2e}; lam {float(part.lam[k]):.3e}, lam_at_end {ends[k]}"
        ),
    )
    # Whatever was reached, it is at an end or at the level.
    part.find_each(
        "end",
        off & sure & ~reachable & (ends == 0),
        lambda k: f"{rule}: |Ax - b|^2 is {float(fit[k]):.6e}, level {float(level[k]):.6e}, and lam_at_end is 0",
    )


def on_grid(part: Solved) -> None:
    """Lambda of the rules by a grid lies in its range."""
    unit = trace_ratio(part)
    over = (part.lam / unit).astype(float)
    off = part.finished & ~((over > np.exp(-8) * 0.99) & (over < np.exp(2) * 1.01))
    off &= has_squares(unit) | (part.lam != 0) | (part.told("lam_at_end") != -1)
    off &= unit != 1  # no column takes part, or none of them in L: any lambda will do
    part.find_each(
        "grid",
        off,
        lambda k: (
            f"{part.answer.rule}: lam is {float(part.lam[k]):.3e}, {over[k]:.3e} of sqrt(tr A'A / tr L'L); "
            "its range is e^-8 to e^2"
        ),
    )


def cross_validated(part: Solved) -> None:
    """No lambda of the grid has a clearly lower |Ax - b|^2 / (m - tr A(A'A + lam^2 L'L)^-1 A')^2.

    (Between two of its points, where the set of columns changes, there may be another minimum.)
    """
    problem, unit = part.problem, trace_ratio(part)
    systems, n = problem.shape
    if n > 40 or problem.A is None:
        return
    mask = part.answer.case.options.get("mask")
    own = np.ones((1, n), bool) if mask is None else np.asarray(mask).reshape(-1, n)
    own = np.broadcast_to(own, (part.answer.systems, n))[part.which]
    A = np.broadcast_to(problem.A, (systems, *problem.A.shape[1:])) * own[:, None, :]
    L = (np.eye(n) if problem.L is None else problem.L) * own[:, None, :]

    # No column takes part, or none of them in L: any lambda will do.
    asked = has_squares(unit) & (unit != 1)

    # [A; unit L] = U S V': in the basis V S^-1 of what counts the trace is that of U_A (U_A'U_A + (lam / unit)^2
    # U_L'U_L)^-1 U_A', for every lam with the same rank. (By the singular values of each lam another would count.)
    U, values, _ = np.linalg.svd(
        np.concatenate([A / unit[:, None, None], L], axis=1).astype(float), full_matrices=False
    )
    cut = max(A.shape[1] + L.shape[1], n) * DOUBLE
    ranks = [values > near * cut * values[:, :1] for near in (0.1, 1, 10)]  # each of them may be the rank

    def value(fit: np.ndarray, lam: np.ndarray) -> np.ndarray:
        return np.array([value_with(used, fit, lam) for used in ranks])

    def value_with(used: np.ndarray, fit: np.ndarray, lam: np.ndarray) -> np.ndarray:
        of_A, of_L = np.split(np.where(used[:, None, :], U, 0), [A.shape[1]], axis=1)
        own, beneath = (np.swapaxes(part, 1, 2) @ part for part in (of_A, of_L))
        unused = ~used[:, :, None] * np.eye(used.shape[1])
        ratio = np.where(asked, (lam / unit).astype(float), 1)[:, None, None]
        inverse = np.linalg.pinv(own + ratio**2 * beneath + unused, hermitian=True)  # (lam = 0: of A alone)
        trace = np.trace(inverse @ own, axis1=1, axis2=2)
        left = A.shape[1] - trace
        return np.where(left > 1e-4, fit / np.where(left > 1e-4, left, 1) ** 2, np.nan).astype(float)

    fit = (problem.fit(part.x) ** 2).sum(axis=1)
    found = value(fit, part.lam)
    best, where = np.full(found.shape, np.inf), np.zeros(found.shape)
    for power in np.linspace(-8, 2, 16)[::2]:
        lam = unit * np.exp(power)
        other, sure, size, _ = fit_with(part, lam)
        sure &= (other > 1e-10 * size**2) & (fit > 1e-10 * part.found.size**2)
        tried = np.where(sure, value(other, lam), np.inf)
        where = np.where(tried < best, lam.astype(float), where)
        best = np.minimum(best, tried)
    part.find_each(
        "gcv",
        part.finished & asked & (found > 1.01 * best).all(axis=0),
        lambda k: (
            f"cross-validation is {found[1, k]:.4e} at lam {float(part.lam[k]):.3e}, "
            f"{best[1, k]:.4e} at {where[1, k]:.3e}"
        ),
    )
