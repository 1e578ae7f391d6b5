"""The rules that choose lambda: whether the level they promise was reached where it can be.

The fit |Ax - b|^2 never falls with lambda. Solutions with a given lambda, certified by their conditions of optimality,
say between which levels it lies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fuzzing.common import exact
from fuzzing.lsq.optimality import Breach, breach
from fuzzing.lsq.problem import Problem

if TYPE_CHECKING:
    from fuzzing.lsq.judging import Answer

#: The core looks for lambda^2 from e^-46 to e^30 times tr A'A / tr L'L; well inside of that a level is reachable.
SMALL, LARGE = 1e-9, 1e6


def look(answer: Answer, where: np.ndarray, part: Problem, x: np.ndarray, lam: np.ndarray, found: Breach) -> None:
    if answer.rule in ("chi2", "discrepancy"):
        by_level(answer, where, part, x, lam, found)
    elif answer.rule in ("gcv", "lcurve"):
        on_grid(answer, where, part, lam)


def trace_ratio(part: Problem) -> np.ndarray:
    """sqrt(tr A'A / tr L'L) over the columns that take part."""
    assert part.A is not None
    own = part.lower < part.upper
    squares = np.broadcast_to((part.A**2).sum(axis=1), part.shape)
    beneath = np.ones(part.shape[1], np.longdouble) if part.L is None else (part.L**2).sum(axis=0)
    own = own & (squares + beneath > 0)
    a, l = np.where(own, squares, 0).sum(axis=1), np.where(own, beneath, 0).sum(axis=1)
    return np.sqrt(np.where((a > 0) & (l > 0), a / np.where(l > 0, l, 1), 1))


def has_squares(unit: np.ndarray) -> np.ndarray:
    """Whether the squares of lambdas about a unit are numbers: where not, 0 is the end of their range."""
    return (unit > 1e-105) & (unit < 1e105)


def fit_with(
    answer: Answer, where: np.ndarray, part: Problem, lam: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The fit of the solution with a lambda, whether its optimality was certified, and the size of what is rounded."""
    full = np.zeros(answer.systems)
    full[where] = lam.astype(float)
    shaped: Any = full.reshape(answer.case.turned().shape[:-1])
    changed: dict[str, Any] = dict(lam=float(full[0]) if shaped.ndim == 0 else shaped, noise=None, chi2=1.02)
    changed |= dict(maxiter=None, tol=None, uncertainty=None, warm_start=None)
    result = answer.case.call(**changed)
    x = np.asarray(result.x)
    across = x.shape != (*answer.case.turned().shape[:-1], answer.n)
    x = (x.T if across else x).reshape(answer.systems, answer.n)[where].astype(float)
    used = full[where].astype(np.float32).astype(float) if part.single else full[where]
    finite = np.isfinite(x).all(axis=1)
    x = np.where(finite[:, None], x, 0)
    found = breach(part, x, exact(used))
    return (part.fit(exact(x)) ** 2).sum(axis=1), finite & (found.worst <= answer.room), found.size


def by_level(answer: Answer, where: np.ndarray, part: Problem, x: np.ndarray, lam: np.ndarray, found: Breach) -> None:
    fit = (part.fit(exact(x)) ** 2).sum(axis=1)
    unit = trace_ratio(part)
    least, sure, size = fit_with(answer, where, part, np.zeros(len(where), np.longdouble))
    if answer.rule == "chi2":
        level = exact(answer.case.options.get("chi2", 1.02)) * least
    else:
        from fuzzing.lsq.problem import rows_of

        noise = rows_of(answer.case.options["noise"], answer.systems, None, part.single)[where]
        level = part.rows * exact(noise) ** 2
    bottom, sure_of_bottom, _ = fit_with(answer, where, part, SMALL * unit)
    most, sure_of_most, _ = fit_with(answer, where, part, LARGE * unit)
    # The rounding of a squared residual: size of what is rounded, times the residual.
    eps = 1e-6 if part.single else 1e-12
    size = np.maximum(size, found.size)
    rounding = eps * size * (np.sqrt(least) + np.sqrt(level)) + (eps * size) ** 2
    wanted = level - least
    reachable = sure & sure_of_bottom & sure_of_most & (bottom < level - 0.01 * wanted) & (most > level + 0.01 * wanted)
    reachable &= (wanted > 1e4 * rounding) & has_squares(unit)
    finished = answer.status[where] == 0
    off = finished & reachable & (np.abs(fit - level) > 1e-4 * wanted + 10 * rounding)
    from fuzzing.lsq.judging import _at, _spread

    ends = answer.per_system("lam_at_end")
    answer.find_each(
        "level",
        _spread(off, where, answer.systems),
        lambda i: (
            f"{answer.rule}: the squared residual is {float(fit[_at(where, i)]):.6e}, level {float(level[_at(where, i)]):.6e}, between "
            f"{float(least[_at(where, i)]):.3e} and {float(most[_at(where, i)]):.3e}; lam {float(lam[_at(where, i)]):.3e}, lam_at_end {ends[i]}"
        ),
    )
    # Whatever was reached, it is at an end or at the level.
    unsaid = (
        finished
        & sure
        & ~reachable
        & (ends[where] == 0)
        & (np.abs(fit - level) > 1e-4 * np.abs(wanted) + 10 * rounding)
    )
    answer.find_each(
        "end",
        _spread(unsaid, where, answer.systems),
        lambda i: (
            f"{answer.rule}: the squared residual is {float(fit[_at(where, i)]):.6e}, level {float(level[_at(where, i)]):.6e}, and lam_at_end is 0"
        ),
    )


def on_grid(answer: Answer, where: np.ndarray, part: Problem, lam: np.ndarray) -> None:
    """Lambda of the rules by a grid lies in its range."""
    from fuzzing.lsq.judging import _at, _spread

    unit = trace_ratio(part)
    over = (lam / unit).astype(float)
    finished = answer.status[where] == 0
    off = finished & ~((over > np.exp(-8) * 0.99) & (over < np.exp(2) * 1.01))
    off &= has_squares(unit) | (lam != 0) | (answer.per_system("lam_at_end")[where] != -1)
    answer.find_each(
        "grid",
        _spread(off, where, answer.systems),
        lambda i: (
            f"{answer.rule}: lam is {float(lam[_at(where, i)]):.3e}, {over[_at(where, i)]:.3e} of sqrt(tr A'A / tr L'L); its range is e^-8 to e^2"
        ),
    )
