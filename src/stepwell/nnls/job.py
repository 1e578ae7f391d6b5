"""A batch as the compiled core reads it, on the host and on a device: one structure of sizes, options and addresses."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from stepwell.arrays import Array, strides_of
from stepwell.cuda.layouts import structure
from stepwell.nnls.batch import COUNTS, UPDATE_CODES, Batch


@dataclasses.dataclass(frozen=True)
class Answers:
    """What a solve fills: contiguous arrays, a row or an entry a system."""

    x: Array  # (systems, n)
    dual: Array  # (systems, n)
    active: Array  # (systems, n), bytes
    reals: Array  # (2, systems): residual, violation
    counts: Array  # (6, systems), in the order of COUNTS
    costs: Array  # (systems, 4)


def job_sizes(batch: Batch) -> Any:
    """Return a job without addresses, from which its workspace follows."""
    pulse_length = int(batch.matrix.shape[-1]) if batch.convolution else 0
    entries = pulse_length or batch.rows * batch.columns
    return structure("NnlsJob")(
        systems=batch.systems,
        whole=batch.whole,
        rows=batch.rows,
        columns=batch.columns,
        a_stride=0 if batch.shared else max(1, entries),
        pulse_length=pulse_length,
        pulse_origin=batch.origin,
        options=structure("NnlsOptions")(
            tolerance=batch.tolerance,
            rounding=batch.rounding,
            damping=batch.damping,
            max_solves=batch.max_iter,
            update=UPDATE_CODES[batch.update],
            guarded=batch.guarded,
            chain=batch.chain,
        ),
    )


def make_job(
    batch: Batch, address: Callable[[Array], int], matrix: Array, b: Array, warm: Array | None, answers: Answers
) -> Any:
    """Return the job of a batch, or of a part of one: rows of arrays are contiguous, and live until it is done."""
    job = job_sizes(batch)
    systems = job.systems = int(b.shape[0])
    strides = strides_of(matrix)
    job.a = address(matrix)
    job.a_stride = 0 if batch.shared else strides[0]
    job.row_stride = 0 if batch.convolution else strides[-2]
    job.b, job.b_stride = address(b), strides_of(b)[0]
    if warm is not None:
        name = "warm_values" if batch.warm_x is not None else "warm_marks"
        setattr(job, name, address(warm))
        job.warm_stride = 0 if warm.shape[0] == 1 else strides_of(warm)[0]
    job.x, job.dual, job.active = (address(array) for array in (answers.x, answers.dual, answers.active))
    reals, counts = address(answers.reals), address(answers.counts)
    job.residual, job.violation = reals, reals + 8 * systems
    for k, name in enumerate(COUNTS):
        setattr(job, name, counts + 4 * systems * k)
    job.costs = address(answers.costs)
    return job
