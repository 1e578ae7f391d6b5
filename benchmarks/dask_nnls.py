"""nnls of an array of dask against the direct call: threads of one process.

    python benchmarks/dask_nnls.py [--systems 40000] [--repeats 7]

Ratios are taken within one run, in turns. "all fields" computes all fifteen fields of the result in one go; a field
costs dask about 0.15 ms a block, whatever is in it.
"""

from __future__ import annotations

import argparse
import sys

import dask
import dask.array as da
import numpy as np
from common import interleave, medians, save, table, wall

import stepwell


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--systems", type=int, default=40_000)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    random = np.random.default_rng(0)
    A, B = random.random((60, 30)), random.random((options.systems, 60))
    ways = {"direct": wall(lambda: stepwell.nnls(A, B))}
    for rows in ("auto", 10_000, 5_000, 1_000):  # "auto": as dask cuts them unless it is told
        lazy = stepwell.nnls(A, da.from_array(B, chunks=rows if rows == "auto" else (rows, 60)))

        def computed(what=lazy):
            return dask.compute(what, scheduler="threads")

        ways[f"blocks of {rows}, x and residual"] = wall(lambda c=computed, r=lazy: c((r.x, r.residual)))
        ways[f"blocks of {rows}, all fields"] = wall(computed)
        assert np.array_equal(computed()[0].x, stepwell.nnls(A, B).x)
    seconds = interleave(options.repeats, **ways)
    middle = medians(seconds)
    table(
        ["way", "seconds", "of the direct call"],
        [[name, value, value / middle["direct"]] for name, value in middle.items()],
    )
    save("dask_nnls", f"{options.systems} systems of 60 x 30", {"seconds": seconds, "medians": middle})
    return 0


if __name__ == "__main__":
    sys.exit(main())
