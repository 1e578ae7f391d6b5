"""Arrays that a solve has filled, as a result of the caller's kind: of a batch arrays, of a lone system numbers."""

from __future__ import annotations

import types
from typing import Any

import numpy as np

from stepwell import arrays
from stepwell.arrays import Array
from stepwell.lsq.batch import COUNTS, LAM_COUNTS, MORE, Batch
from stepwell.lsq.constraints import RULES
from stepwell.lsq.covariance import deviations_of_gram
from stepwell.lsq.job import Answers
from stepwell.lsq.result import KeptFactor, LSQResult, NNLSStatus


def wrap(batch: Batch, answers: Answers) -> LSQResult:
    """Return the result of a batch."""
    fields: dict[str, Any] = {name: vectors(batch, getattr(answers, name)) for name in ("x", "dual")}
    sigma = None if answers.deviation is None else _sigma(batch, answers)
    fields |= _numbers(batch, answers, sigma)
    fields |= {"method": batch.method, "choice": batch.choice}
    if batch.constraints is None:
        # States follow from what is in the factor, when somebody asks: in a small batch each array takes its time.
        result: LSQResult = LSQResult.deferred(lambda: _states_and_lam(batch, answers), **fields)
        return result
    fields["state"] = vectors(batch, answers.state)
    multiplier = fields.pop("multiplier")
    if batch.constraints.sum_low is not None:
        fields["multipliers"] = [multiplier] if batch.lone else multiplier[..., None]
    if sigma is not None:
        variance = (sigma[:, None] * _deviation(batch, answers)) ** 2
        fields["variance"] = vectors(batch, arrays.namespace_of(variance).astype(variance, answers.x.dtype, copy=False))
        fields["_problem"] = batch
    if answers.factor is not None and answers.factor_order is not None:
        fields["_factor"] = KeptFactor(answers.factor, answers.factor_order)
    return LSQResult(**fields)


def _states_and_lam(batch: Batch, answers: Answers) -> types.SimpleNamespace:
    """Return the states where x ≥ 0 is all that is asked: −1 (at zero) unless a variable is in the factor; and λ."""
    xp, lam = arrays.namespace_of(answers.in_factor), batch.options.damping
    if not batch.lone:
        each = arrays.namespace_of(answers.reals).zeros_like(answers.reals[0]) + lam
        lam = _deliver(batch, xp.astype(each, answers.x.dtype, copy=False).reshape(batch.lead))
    return types.SimpleNamespace(state=vectors(batch, xp.astype(answers.in_factor, xp.int8) - 1), lam=lam)


def _fit_of_gram(batch: Batch, x: Array) -> Array:
    """bᵀb − 2cᵀx + xᵀGx; NaN where bᵀb is not known."""
    xp = arrays.namespace_of(x)
    assert batch.constraints is not None
    bb = batch.constraints.squared_b
    if bb is None:
        return xp.sum(arrays.as_float(x, "float64"), axis=-1) * float("nan")
    gram, c = arrays.without_graph(batch.matrix), batch.b
    if not arrays.is_cuda(batch.b):
        gram, c = (np.asarray(arrays.host_view(array), float) for array in (gram, c))
    image = xp.matmul(x, gram) if gram.ndim == 2 else xp.matmul(gram, x[..., None])[..., 0]
    return xp.sum(x * (image - 2 * c), axis=-1) + bb


def _sigma(batch: Batch, answers: Answers) -> Array:
    """The standard deviation of b's entries: as given, or what the residual says."""
    constraints = batch.constraints
    assert constraints is not None
    assert answers.lam_counts is not None
    residual = answers.reals[0]
    xp = arrays.namespace_of(residual)
    if constraints.noise is not None:
        return xp.broadcast_to(constraints.noise, residual.shape)
    if constraints.gram is not None:
        fit = _fit_of_gram(batch, answers.x)
        residual = xp.sqrt(xp.where(fit >= 0, fit, float("nan")))
    rows = batch.equations
    if constraints.weights is not None:
        rows = xp.sum(xp.astype(constraints.weights > 0, xp.float64), axis=-1)
    free = rows - xp.astype(answers.lam_counts[LAM_COUNTS.index("passive")], xp.float64)
    return xp.where(free > 0, residual, float("nan")) / xp.sqrt(xp.where(free > 0, free, 1.0))


def _deviation(batch: Batch, answers: Answers) -> Array:
    """What the core found; of penalized normal equations it knows the sum with the penalty alone."""
    if batch.constraints is None or batch.constraints.penalty_in_gram is None:
        return answers.deviation
    found = deviations_of_gram(batch, arrays.to_host(answers.x), arrays.host_copy(answers.state))
    return arrays.copy_to_device_of(found, answers.deviation) if arrays.is_cuda(batch.b) else found


def _on_a_simplex(batch: Batch) -> bool:
    """Whether all that is asked of x is x ≥ 0 and a sum."""
    constraints = batch.constraints
    if constraints is None or constraints.sum_low is None:
        return False
    return bool((constraints.lower == 0).all()) and bool((constraints.upper == float("inf")).all())


def _deliver(batch: Batch, array: Array) -> Array:
    """An array of the caller's library and in the shape of his systems."""
    if not arrays.is_cuda(batch.b):
        array = arrays.as_user_array(np.ascontiguousarray(array), batch.b)
    return array


def vectors(batch: Batch, array: Array) -> Array:
    """A row a system, in the caller's shape."""
    shape = (*batch.lead, int(array.shape[-1]), *((1,) if batch.column else ()))
    found = _deliver(batch, array.reshape(shape) if tuple(array.shape) != shape else array)
    return found.T if batch.across else found


def _numbers(batch: Batch, answers: Answers, sigma: Array | None) -> dict[str, Any]:
    """What each system has one of: of a lone system numbers of Python's, else arrays of x's precision."""
    reals, counts, more = answers.reals, answers.counts, answers.more
    names: dict[str, Array] = {"residual": reals[0], "violation": reals[1]}
    if more is not None:
        names |= {name: more[k] for k, name in enumerate(MORE)}
        constraints = batch.constraints
        fit: Array = None
        unpenalized: Array = None
        given: Array = None
        if constraints is not None:
            kept = constraints.given_lam, constraints.lam_in_gram, constraints.lam
            given = next((one for one in kept if one is not None), None)
        if answers.lam is None:
            # (Zeros of NumPy's, which takes them from the system, are memory only where they are read.)
            names["lam"] = np.zeros(batch.systems, answers.x.dtype)
        else:
            names["lam"], fit, names["seminorm"], unpenalized = answers.lam
            if constraints is not None and constraints.lam_unit != 1.0:
                names["lam"] = names["lam"] * constraints.lam_unit
                names["seminorm"] = names["seminorm"] / constraints.lam_unit
        if given is not None:
            names["lam"] = arrays.namespace_of(given).zeros_like(names["lam"]) + given
        if constraints is not None and constraints.gram is not None:
            fit = _fit_of_gram(batch, answers.x)
            xp = arrays.namespace_of(fit)
            names["residual"] = xp.sqrt(xp.where(fit < 0, 0.0, fit))
        if sigma is not None:
            names["sigma"] = sigma
        if constraints is None or not constraints.penalized:
            names.pop("seminorm", None)
        if constraints is not None and constraints.rule in (RULES["chi2"], RULES["discrepancy"]):
            xp = arrays.namespace_of(fit)
            names["chi2"] = xp.where(unpenalized > 0, fit / xp.where(unpenalized > 0, unpenalized, 1.0), 1.0)
        if not _on_a_simplex(batch):
            names.pop("gap")
    if batch.constraints is not None and batch.constraints.rule and answers.lam_counts is not None:
        whole = {name: answers.lam_counts[k] for k, name in enumerate(("lam_at_end", "evaluations"))}
    else:
        whole = {}
    if batch.lone:
        found: dict[str, Any] = {name: float(arrays.host_copy(array)[0]) for name, array in names.items()}
        numbers = arrays.host_copy(counts)[:, 0]
        found |= {name: int(numbers[k]) for k, name in enumerate(COUNTS)}
        found |= {name: int(arrays.host_copy(array)[0]) for name, array in whole.items()}
        found["status"] = NNLSStatus(found["status"])
        found["escalated"] = bool(found["escalated"])
        return found
    xp = arrays.namespace_of(answers.x)

    def shaped(array: Array) -> Array:
        return _deliver(batch, array.reshape(batch.lead) if len(batch.lead) != 1 else array)

    def rows(array: Array) -> list[Array]:
        if arrays.is_cuda(batch.b) or len(batch.lead) != 1:
            return [shaped(row) for row in array]
        return arrays.as_user_rows(array, batch.b)

    found = {name: shaped(xp.astype(array, answers.x.dtype, copy=False)) for name, array in names.items()}
    found |= dict(zip(COUNTS, rows(counts))) | {name: shaped(array) for name, array in whole.items()}
    found["escalated"] = shaped(xp.astype(counts[5], xp.bool))
    return found
