"""Sums with a range, without the range first: where x has a sum that is allowed anyway, the sum has no part in it.

The core gives a sum with a range one more column, what is missing of an end; x then counts in units of the range. Where
the sum does not bind, x is exact without it: by convexity the minimum without the sum is the minimum with it as soon as
its sum is allowed. Where that is beyond an end, a minimum has its sum at this end, again by convexity: the system is
solved again with this sum alone, of which the other end, however far, has no part.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from stepwell import arrays
from stepwell.arrays import Array
from stepwell.lsq.batch import LAM, LAM_COUNTS, MORE, Batch
from stepwell.lsq.constraints import RULES, Constraints
from stepwell.lsq.job import Answers
from stepwell.lsq.result import NNLSStatus

#: Ways to choose λ that look at the solution with that λ alone.
_LOCAL = (0, RULES["discrepancy"])
#: Part of a level above the least fit by which that fit may be missed.
_LEVEL_ROOM = 1e-4
#: And of a λ that is another one: ten times that to which Brent's method finds ln λ², and far less than a grid's step.
_LAM_ROOM = 1e-4


def needs_more_than_one(batch: Batch) -> bool:
    """Whether a batch has sums that `solve_sums` finds by more than one solution."""
    constraints = batch.constraints
    if constraints is None or constraints.sum_low is None or batch.systems == 0:
        return False
    return constraints.slack or constraints.rule == RULES["chi2"]


def solve_sums(batch: Batch, find: Callable[[Batch], Answers]) -> Answers:
    """Return the answers of a batch with sums; `find` solves one without ranges, or one whose sums bind."""
    if not needs_more_than_one(batch):
        return find(batch)
    assert batch.constraints is not None
    return _solve_ranges(batch, find) if batch.constraints.slack else _with_true_level(batch, find)


def _solve_ranges(batch: Batch, find: Callable[[Batch], Answers]) -> Answers:
    """Return the answers of a batch with ranges of sums."""
    constraints = batch.constraints
    assert constraints is not None
    free = dataclasses.replace(constraints, sum_low=None, sum_high=None, slack=False, keep_factor=False)
    answers = find(dataclasses.replace(batch, constraints=free, progress=None))
    allowed = _allowed(batch, answers)
    if constraints.rule not in _LOCAL:  # the level of chi2 is that of λ = 0; other rules look at all λ
        plain = dataclasses.replace(free, penalized=False, rule=0, penalty=None, penalty_rows=0, lam_unit=1.0)
        allowed = allowed & _allowed(batch, find(dataclasses.replace(batch, constraints=plain, progress=None)))
        if constraints.rule != RULES["chi2"]:
            low, high = _ends(batch)
            nearest = _sum_nearest_to_zero(constraints)
            allowed = allowed & (low <= nearest) & (high >= nearest)
            allowed = allowed & ~_chosen_otherwise(batch, answers, allowed, find)
    xp, sums, (low, high) = arrays.namespace_of(answers.x), _sums(answers), _ends(batch)
    beyond = ~allowed & (constraints.rule in _LOCAL) & _converged(answers) & ((sums < low) | (sums > high))
    end = xp.where(sums > high, high, low)
    answers = _of_range(batch, answers, xp.zeros_like(sums))
    answers = _again(beyond, batch, answers, lambda part, places: _at_ends(part, end[places], find))
    # (Rounding may have it that a sum is pulled away from the end it is held at: the range has the last word.)
    assert answers.more is not None
    pulled = answers.more[MORE.index("multiplier")]
    beyond = beyond & ~xp.where(sums > high, pulled > 0, pulled < 0)
    answers = _again(~allowed & ~beyond, batch, answers, lambda part, places: _with_true_level(part, find))
    if batch.progress:
        batch.progress(batch.systems, batch.systems)
    return answers


def _chosen_otherwise(batch: Batch, answers: Answers, chosen: Array, find: Callable[[Batch], Answers]) -> Array:
    """Return which of the chosen systems have another λ by a rule that sees sums bind, between λ where they do not.

    Where they do not bind for that λ either, cross-validation has the same values with the range and without.
    """
    xp, constraints = arrays.namespace_of(answers.x), batch.constraints
    assert constraints is not None
    number = xp.cumulative_sum(xp.astype(chosen, xp.int64))
    if not int(number[-1]):
        return chosen
    places = xp.nonzero(chosen)[0]
    ranged = find(dataclasses.replace(batch.part(places), progress=None))
    assert answers.lam is not None
    assert ranged.lam is not None
    assert ranged.more is not None
    used = LAM.index("used_lam")
    lam = answers.lam[used][places]
    other = xp.abs(ranged.lam[used] - lam) > _LAM_ROOM * lam
    if constraints.rule == RULES["gcv"]:
        other = other & (ranged.more[MORE.index("multiplier")] != 0)
    return chosen & other[xp.where(chosen, number - 1, 0)]


def _again(chosen: Array, batch: Batch, answers: Answers, solve: Callable[[Batch, Array], Answers]) -> Answers:
    """Return the answers with those of the chosen systems found anew."""
    xp = arrays.namespace_of(answers.x)
    number = xp.cumulative_sum(xp.astype(chosen, xp.int64))
    if not int(number[-1]):
        return answers
    places = xp.nonzero(chosen)[0]
    # (A gather and a choice: not every library has arrays that can be written to.)
    return _merged(xp, ~chosen, xp.where(chosen, number - 1, 0), answers, solve(batch.part(places), places))


def _at_ends(batch: Batch, end: Array, find: Callable[[Batch], Answers]) -> Answers:
    """Return the answers of a batch whose sums are at an end of their range."""
    assert batch.constraints is not None
    held = dataclasses.replace(batch.constraints, sum_low=end, sum_high=end, slack=False)
    answers = find(dataclasses.replace(batch, constraints=held))
    assert answers.more is not None
    return _of_range(batch, answers, answers.more[MORE.index("multiplier")])


def _with_true_level(batch: Batch, find: Callable[[Batch], Answers]) -> Answers:
    """Return the answers of a batch whose sums bind; chi2 that began from a fit that is none has not converged.

    The least fit, by which λ is chosen, is found once more without λ, where the sum may be left out.
    """
    answers, constraints = find(batch), batch.constraints
    assert constraints is not None
    if constraints.rule != RULES["chi2"] or answers.lam is None or answers.lam_counts is None:
        return answers
    bare = dataclasses.replace(
        constraints, penalized=False, rule=0, penalty=None, penalty_rows=0, lam_unit=1.0, keep_factor=False
    )
    least = solve_sums(dataclasses.replace(batch, constraints=bare, progress=None), find)
    xp = arrays.namespace_of(answers.x)
    square, taken = least.reals[0] ** 2, answers.lam[LAM.index("unpenalized")]
    sure = (least.counts[0] == int(NNLSStatus.CONVERGED)) & (answers.lam_counts[LAM_COUNTS.index("at_end")] == 0)
    off = sure & (taken > square * (1 + _LEVEL_ROOM * (constraints.numbers["chi2"] - 1)))
    off = off & (answers.counts[0] == int(NNLSStatus.CONVERGED))
    status = xp.where(off, xp.full_like(answers.counts[0], int(NNLSStatus.STALLED)), answers.counts[0])
    return dataclasses.replace(answers, counts=xp.concat([status[None], answers.counts[1:]], axis=0))


def _ends(batch: Batch) -> tuple[Array, Array]:
    """The ends of the sums."""
    assert batch.constraints is not None
    return batch.constraints.sum_low, batch.constraints.sum_high


def _sum_nearest_to_zero(constraints: Constraints) -> Array:
    """The sum of the x within its bounds that is nearest to zero, where large λ take it."""
    low, high, mask = constraints.lower, constraints.upper, constraints.mask
    xp = arrays.namespace_of(low)
    nearest = xp.where(low > 0, low, xp.where(high < 0, high, 0.0))
    return xp.sum(nearest if mask is None else xp.where(mask != 0, nearest, 0.0), axis=-1)


def _sums(answers: Answers) -> Array:
    """The sum of each x."""
    xp = arrays.namespace_of(answers.x)
    return xp.sum(xp.astype(answers.x, xp.float64), axis=-1)


def _converged(answers: Answers) -> Array:
    """Where x is optimal."""
    return answers.counts[0] == int(NNLSStatus.CONVERGED)


def _allowed(batch: Batch, answers: Answers) -> Array:
    """Where x converged and its sum is within its range."""
    low, high = _ends(batch)
    sums = _sums(answers)
    return _converged(answers) & (sums >= low) & (sums <= high)


def _of_range(batch: Batch, answers: Answers, multiplier: Array) -> Answers:
    """Return answers with what MORE names as the core has it of a range: its gap of Frank and Wolfe."""
    constraints, w = batch.constraints, answers.dual
    assert constraints is not None
    xp = arrays.namespace_of(w)
    w, x = xp.astype(w, xp.float64) - multiplier[:, None], xp.astype(answers.x, xp.float64)
    inside = w if constraints.mask is None else xp.where(constraints.mask != 0, w, -float("inf"))
    top = xp.max(inside, axis=-1) if batch.columns else xp.zeros_like(multiplier)
    low, high = _ends(batch)
    end = xp.where(top > 0, high, xp.where(low > 0, low, 0.0))
    gap = 2 * (xp.where(top == 0, 0.0, top * xp.where(top == 0, 0.0, end)) - xp.sum(w * x, axis=-1))
    sums = xp.sum(x, axis=-1)
    missed = xp.where(sums < low, low - sums, xp.where(sums > high, sums - high, 0.0))
    missed = xp.where(xp.isnan(sums), sums, missed)
    rows = {"multiplier": multiplier, "equality_error": missed, "gap": xp.where(gap < 0, 0.0, gap)}
    return dataclasses.replace(answers, more=xp.stack([rows[name] for name in MORE]))


def _merged(xp: Any, allowed: Array, place: Array, old: Answers, new: Answers) -> Answers:
    """Return old answers where they are allowed, and else the new ones, which lie at `place`."""

    def chosen(name: str) -> Array | None:
        before, after = getattr(old, name), getattr(new, name)
        if before is None or after is None:
            return None
        if name in Answers.ENTRIES:
            return xp.where(allowed[None, :], before, after[:, place])
        return xp.where(allowed[:, None], before, after[place])

    return Answers(**{field.name: chosen(field.name) for field in dataclasses.fields(Answers)})
