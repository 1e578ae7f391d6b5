"""nnls of an array of dask against the direct call: threads of one process.

    python benchmarks/dask_nnls.py [--systems 40000] [--repeats 21] [--wall]

Ratios of processor time, of all threads, to the direct call in turns with it, for each cut by itself (--wall: of time
by the clock). "all fields" computes the result as a whole, and the direct call's fields are all asked for, too. Beside
each stands a floor without anything of ours in dask's part: direct calls for the blocks one after the other, and what
dask takes for tasks that return ready arrays, a task for each block and array asked for (x and residual), or one for
each block, with the arrays joined (all fields). "graph" is the call itself, which computes nothing.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
from common import interleave, medians, save, table, wall

import stepwell


def processor(run: Callable[[], Any]) -> Callable[[], float]:
    """Return a function that runs it and returns the processor time of all threads of this process, in seconds."""

    def timed() -> float:
        began = time.process_time()
        run()
        return time.process_time() - began

    return timed


def arrays_of(result: Any) -> list[np.ndarray]:
    """Return the arrays of a result of a batch."""
    result.state  # noqa: B018  (a direct call makes some fields when one is first asked for)
    return [value for _, value in sorted(vars(result).items()) if isinstance(value, np.ndarray)]


def ready_tasks(b: Any, result: Any) -> dict[str, Any]:
    """Return functions that let dask do all but the work: its tasks return what is there already."""
    rows = b.chunks[0][0]
    arrays = [array[:rows] for array in arrays_of(result)]

    def two() -> Any:
        x = b.map_blocks(lambda _: result.x[:rows], chunks=(b.chunks[0], (result.x.shape[1],)), meta=result.x[:0])
        residual = b.map_blocks(lambda _: result.residual[:rows], drop_axis=1, meta=result.residual[:0])
        return lambda: dask.compute(x, residual, scheduler="threads")

    records = [dask.delayed(lambda _: arrays)(block) for block in b.to_delayed().ravel()]

    def joined() -> Any:
        found = dask.compute(*records, scheduler="threads")
        return found if len(found) == 1 else [np.concatenate(parts) for parts in zip(*found, strict=True)]

    return {"x and residual": two(), "all fields": joined}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--systems", type=int, default=40_000)
    parser.add_argument("--repeats", type=int, default=21)
    parser.add_argument("--wall", action="store_true", help="time by the clock in place of processor time")
    options = parser.parse_args()
    timed = wall if options.wall else processor
    random = np.random.default_rng(0)
    A, B = random.random((60, 30)), random.random((options.systems, 60))
    direct = stepwell.nnls(A, B)
    found, rows_of_table = {}, []
    for rows in ("auto", 10_000, 5_000, 1_000):  # "auto": as dask cuts them unless it is told
        b = da.from_array(B, chunks=rows if rows == "auto" else (rows, 60))
        lazy = stepwell.nnls(A, b)

        def computed(what: Any = lazy) -> Any:
            return dask.compute(what, scheduler="threads")[0]

        def in_turn(rows: int = b.chunks[0][0]) -> Any:
            return [stepwell.nnls(A, B[k : k + rows]) for k in range(0, options.systems, rows)]

        assert all(map(np.array_equal, arrays_of(computed()), arrays_of(direct)))
        assert all(map(np.array_equal, computed((lazy.x, lazy.residual)), direct))
        runs = {
            "direct": timed(lambda: stepwell.nnls(A, B)),
            "direct, all fields": timed(lambda: arrays_of(stepwell.nnls(A, B))),
            "x and residual": timed(lambda c=computed, r=lazy: c((r.x, r.residual))),
            "all fields": timed(computed),
        }
        ours = interleave(options.repeats, **runs)
        least = {"direct": runs["direct"], "calls": timed(in_turn), "graph": timed(lambda b=b: stepwell.nnls(A, b))}
        least |= {kind: timed(run) for kind, run in ready_tasks(b, direct).items()}
        floor = interleave(options.repeats, **least)
        found[str(rows)] = {"seconds": {"nnls": ours, "floor": floor}}
        ours, floor = medians(ours), medians(floor)
        row: list[Any] = [rows, ours["direct"]]
        for kind, direct_kind in (("x and residual", "direct"), ("all fields", "direct, all fields")):
            row += [ours[kind] / ours[direct_kind], (floor["calls"] + floor[kind]) / floor["direct"]]
        rows_of_table.append([*row, *(floor[kind] / floor["direct"] for kind in ("calls", "graph"))])
        found[str(rows)]["medians"] = {"nnls": ours, "floor": floor}
    head = ["blocks of", "direct, s", "x and residual", "floor", "all fields", "floor", "calls alone", "graph"]
    table(head, rows_of_table)
    save("dask_nnls", f"{options.systems} systems of 60 x 30", found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
