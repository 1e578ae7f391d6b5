"""A batch as the compiled core reads it, on the host and on a device: one structure of sizes, options and addresses."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from stepwell.arrays import Array, strides_of
from stepwell.cuda.layouts import structure
from stepwell.lsq.batch import COUNTS, LAM, LAM_COUNTS, MORE, Batch
from stepwell.lsq.constraints import Constraints


@dataclasses.dataclass(frozen=True)
class Answers:
    """What a solve fills: contiguous arrays, a row or an entry a system."""

    x: Array  # (systems, n)
    dual: Array  # (systems, n)
    in_factor: Array | None  # (systems, n), bytes: 1 where a variable is between its bounds
    reals: Array  # (2, systems): residual, violation
    counts: Array  # (6, systems), in the order of COUNTS
    costs: Array  # (systems, 4): accesses and flops of updates, then of downdates, which studies count
    # Of problems with constraints.
    state: Array | None = None  # (systems, n), int8
    more: Array | None = None  # in the order of MORE, a row each
    lam: Array | None = None  # in the order of LAM, a row each
    lam_counts: Array | None = None  # in the order of LAM_COUNTS, a row each
    deviation: Array | None = None  # (systems, n)
    factor: Array | None = None  # (systems, n(n + 1)/2): see `stepwell.lsq.result.KeptFactor`
    factor_order: Array | None = None  # (systems, 1 + n), int32

    #: Fields that have a row a system, and those that have an entry a system in each row.
    ROWS = ("x", "dual", "in_factor", "costs", "state", "deviation", "factor", "factor_order")
    ENTRIES = ("reals", "counts", "more", "lam", "lam_counts")

    def part(self, chosen: slice) -> Answers:
        """Return where the answers of some systems go: views, and new arrays (`put` copies them) of ENTRIES."""
        own = {name: getattr(self, name) for name in (*self.ROWS, *self.ENTRIES)}
        own |= {name: own[name][chosen] for name in self.ROWS if own[name] is not None}
        cut = {name: own[name][:, chosen] for name in self.ENTRIES if own[name] is not None}
        return Answers(**own | {name: np.empty(array.shape, array.dtype) for name, array in cut.items()})

    def put(self, chosen: slice, answers: Answers) -> None:
        """Copy what a part has found into its place."""
        for name in self.ENTRIES:
            if getattr(self, name) is not None:
                getattr(self, name)[:, chosen] = getattr(answers, name)


def new_answers(batch: Batch, empty: Callable[[Any, str], Array], *, on_device: bool = False) -> Answers:
    """Return arrays for the answers of a batch; `empty` makes one of a shape and dtype.

    Kernels of a device write whatever their systems have, the host only what somebody reads.
    """
    systems, n, constraints = batch.systems, batch.columns, batch.constraints
    general = constraints is not None
    real = "float32" if batch.single else "float64"
    lam = general and (on_device or batch.reports_lam)
    return Answers(
        x=empty((systems, n), real),
        dual=empty((systems, n), real),
        in_factor=empty((systems, n), "uint8") if on_device or batch.reports_in_factor else None,
        reals=empty((2, systems), "float64"),
        counts=empty((len(COUNTS), systems), "int32"),
        costs=empty((systems, 4), "int64"),
        state=empty((systems, n), "int8") if general else None,
        more=empty((len(MORE), systems), "float64") if general else None,
        lam=empty((len(LAM), systems), "float64") if lam else None,
        lam_counts=empty((len(LAM_COUNTS), systems), "int32") if lam else None,
        deviation=empty((systems, n), "float64") if constraints is not None and constraints.variance else None,
        factor=empty((systems, n * (n + 1) // 2), "float64") if batch.keeps_factor else None,
        factor_order=empty((systems, n + 1), "int32") if batch.keeps_factor else None,
    )


def job_sizes(batch: Batch) -> Any:
    """Return a job without addresses, from which its workspace follows."""
    pulse_length = int(batch.matrix.shape[-1]) if batch.convolution else 0
    entries = pulse_length or batch.rows * batch.columns
    return structure("NnlsJob")(
        systems=batch.systems,
        systems_in_batch=batch.systems_in_batch,
        rows=batch.rows,
        columns=batch.columns,
        a_stride=0 if batch.shared and not batch.has_which else max(1, entries),
        pulse_length=pulse_length,
        pulse_origin=batch.origin,
        options=batch.options,
        constraints=_sizes(batch),
    )


def _sizes(batch: Batch) -> Any:
    """Return what a general problem has, without addresses but those that tell that something is there."""
    constraints = batch.constraints
    if constraints is None:
        return structure("NnlsConstraints")()
    return structure("NnlsConstraints")(
        general=1,
        nonnegative=constraints.nonnegative,
        weights=int(constraints.weights is not None),
        which=int(constraints.which is not None),
        matrices=batch.matrices,
        summed=constraints.sum_low is not None,
        slack=constraints.slack,
        penalized=constraints.penalized,
        penalty=int(constraints.penalty is not None),
        penalty_rows=constraints.penalty_rows,
        has_states=constraints.states,
        rule=constraints.rule,
        **constraints.numbers,
        gram=int(constraints.gram is not None),
    )


def fill_constraints(job: Any, constraints: Constraints, address: Callable[[Array], int], answers: Answers) -> None:
    """Write the addresses of a general problem's arrays, which live until the job is done, into its job."""
    into = job.constraints
    for name in ("lower", "upper", "mask", "weights"):
        rows = getattr(constraints, name)
        if rows is not None:
            setattr(into, name, address(rows))
            setattr(into, f"{name}_stride", 0 if rows.shape[0] == 1 else strides_of(rows)[0])
    for name in ("which", "sum_low", "sum_high", "coefficients", "penalty", "lam", "noise", "spectrum", "pencil"):
        array = getattr(constraints, name)
        if array is not None:
            setattr(into, name, address(array))
    for name in ("gram", "linear", "squared_b"):
        array = getattr(constraints, name)
        if array is not None:
            setattr(into, name, address(array))
            setattr(into, f"{name}_stride", 0 if array.shape[0] == 1 else strides_of(array)[0])
    into.deviation = 0 if answers.deviation is None else address(answers.deviation)
    if answers.factor is not None and answers.factor_order is not None:
        into.factor, into.factor_order = address(answers.factor), address(answers.factor_order)
    into.sum_stride = int(constraints.sum_low is not None and constraints.sum_low.shape[0] > 1)
    into.noise_stride = int(constraints.noise is not None and constraints.noise.shape[0] > 1)
    into.spectrum_stride = (
        strides_of(constraints.spectrum)[0]
        if constraints.spectrum is not None and constraints.spectrum.shape[0] > 1
        else 0
    )
    into.own_spectra = int(constraints.own_spectra)
    into.lam_stride = int(constraints.lam is not None and constraints.lam.shape[0] > 1)
    assert answers.state is not None
    assert answers.more is not None
    into.state = address(answers.state)
    for names, array, size in ((MORE, answers.more, 8), (LAM, answers.lam, 8), (LAM_COUNTS, answers.lam_counts, 4)):
        first = 0 if array is None else address(array)
        for k, name in enumerate(names if first else ()):
            setattr(into, name, first + size * job.systems * k)


def job_of_matrices(batch: Batch, address: Callable[[Array], int], matrix: Array, b: Array) -> Any:
    """Return a job that reads A and b, and has no answers yet: rows of arrays are contiguous."""
    job = job_sizes(batch)
    job.systems = int(b.shape[0])
    strides = strides_of(matrix)
    job.a = address(matrix)
    job.a_stride = 0 if batch.shared and not batch.has_which else strides[0]
    job.row_stride = 0 if batch.convolution else strides[-2]
    job.b, job.b_stride = address(b), strides_of(b)[0]
    return job


def make_job(
    batch: Batch,
    address: Callable[[Array], int],
    matrix: Array,
    b: Array,
    warm: Array | None,
    answers: Answers,
    constraints: Constraints | None = None,
) -> Any:
    """Return the job of a batch, or of a part of one: rows of arrays are contiguous, and live until it is done."""
    job = job_of_matrices(batch, address, matrix, b)
    fill_job(job, batch, address, warm, answers, constraints)
    return job


def fill_job(
    job: Any,
    batch: Batch,
    address: Callable[[Array], int],
    warm: Array | None,
    answers: Answers,
    constraints: Constraints | None,
) -> None:
    """Write into a job what its systems start from and where their answers go."""
    systems = job.systems
    if warm is not None:
        name = "warm_values" if batch.warm_x is not None else "warm_marks"
        setattr(job, name, address(warm))
        job.warm_stride = 0 if warm.shape[0] == 1 else strides_of(warm)[0]
    job.x, job.dual = address(answers.x), address(answers.dual)
    job.in_factor = 0 if answers.in_factor is None else address(answers.in_factor)
    reals, counts = address(answers.reals), address(answers.counts)
    job.residual, job.violation = reals, reals + 8 * systems
    for k, name in enumerate(COUNTS):
        setattr(job, name, counts + 4 * systems * k)
    job.costs = address(answers.costs)
    if constraints is not None:
        fill_constraints(job, constraints, address, answers)
