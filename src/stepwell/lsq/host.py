"""Least squares on the CPU: hands a batch to the compiled core in parts, and wraps up what comes back."""

from __future__ import annotations

import numpy as np

from stepwell import _core, arrays
from stepwell.common.threads import default_threads
from stepwell.lsq.batch import CHAIN, Batch
from stepwell.lsq.job import Answers, make_job, new_answers
from stepwell.lsq.ranges import solve_sums
from stepwell.lsq.result import LSQResult
from stepwell.lsq.wrap import wrap

#: A part of a batch that has to be copied (another memory order or dtype) takes at most this many bytes, and this
#: share of what is free.
COPY_BYTES, COPY_SHARE = 1 << 28, 0.25
#: A part takes about a second by a rough estimate, which counts entries of A alone: an interrupt waits for its end.
ENTRIES_A_PART = 1 << 27  # for each thread


def solve(batch: Batch) -> LSQResult:
    """Solve a checked batch of host arrays."""
    return wrap(batch, solve_sums(batch, find_answers))


def find_answers(batch: Batch) -> Answers:
    """Solve a checked batch of host arrays, and return what its result is made of, as NumPy has it."""
    matrix, b = arrays.host_view(batch.matrix), arrays.host_view(batch.b)
    batch.refuse_non_finite(matrix, b)
    systems, n = batch.systems, batch.columns
    dtype = np.dtype(np.float32 if batch.single else np.float64)
    if batch.rows == 0 and batch.constraints is None:
        return new_answers(batch, np.zeros)
    whole = new_answers(batch, np.empty)
    if batch.shared:
        matrix = arrays.as_readable(matrix, dtype)
    done, threads = 0, batch.threads or default_threads()
    for start, stop in _parts(batch, matrix, b, dtype, threads):
        part, alone = slice(start, stop), stop - start == systems
        answers = whole if alone else whole.part(part)
        constraints = batch.constraints if alone or batch.constraints is None else batch.constraints.part(part)
        given = (
            matrix if batch.shared else _readable(matrix[part], dtype),
            _readable(b[part], dtype),
            _warm_part(batch, part, dtype),
        )
        job = make_job(batch, _address, *given, answers, constraints)
        try:
            _core.nnls_solve(bytes(job), batch.single, batch.form_gram, threads)
        except MemoryError:
            raise MemoryError(
                f"A: no memory to work on systems of {batch.rows} x {n} on {threads} threads; fewer threads need less"
            ) from None
        if not alone:
            whole.put(part, answers)
        done += stop - start
        if batch.progress:
            batch.progress(done, systems)
    return whole


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])  # (`ctypes` takes several times as long)


def _needs_copy(array: np.ndarray, dtype: np.dtype) -> bool:
    """Whether the core cannot read an array as it is: its dtype, rows contiguous, all strides positive."""
    item = array.itemsize
    fine = array.strides[-1] == item and all(s > 0 and s % item == 0 for s in array.strides)
    return not (fine and array.flags.aligned and array.dtype == dtype)


def _readable(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return arrays.as_readable(array, dtype) if _needs_copy(array, dtype) else array


def _parts(batch: Batch, matrix: np.ndarray, b: np.ndarray, dtype: np.dtype, threads: int) -> list[tuple[int, int]]:
    """Cut a batch so that copies stay small beside what is free, interrupts are heard, and progress can be told."""
    systems = batch.systems
    # What systems with one A share is made anew for every part: fewer of them, and a system costs less there.
    entries = (batch.rows + batch.columns**2) // 8 if batch.shared else batch.rows * batch.columns
    if batch.has_which:  # a dictionary is made once, for parts as large as may be
        entries = max(1, entries // 8)
    size = max(64 * threads, threads * ENTRIES_A_PART // max(1, entries))
    cut = (b,) if batch.shared else (b, matrix)
    copied = [array for array in cut if _needs_copy(array, dtype)]
    if systems and copied:
        free = arrays.available_bytes(b)
        limit = COPY_BYTES if free is None else min(COPY_BYTES, int(COPY_SHARE * free))
        size = min(size, max(1, limit // max(1, dtype.itemsize * sum(array[0].size for array in copied))))
    if batch.progress:
        size = min(size, max(64, -(-systems // 100)))
    size = max(CHAIN, size // CHAIN * CHAIN) if batch.chain else size  # a chain does not end where a part does
    return [(start, min(start + size, systems)) for start in range(0, systems, size or 1)]


def _warm_part(batch: Batch, part: slice, dtype: np.dtype) -> np.ndarray | None:
    """The starting points of a part: values, marks, or none."""
    warm = batch.warm_x if batch.warm_x is not None else batch.warm_set
    if warm is None:
        return None
    view = arrays.host_view(warm)
    with np.errstate(over="ignore"):  # infinity in float32 is positive all the same
        kind = dtype if batch.warm_x is not None else np.dtype(np.int8 if view.dtype == np.int8 else np.uint8)
        return arrays.as_readable(view if view.shape[0] == 1 else view[part], kind)
