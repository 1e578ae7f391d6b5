"""What the engine keeps of each problem, as NumPy sees it: the record of the state, and rings of pairs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from stepwell import _core
from stepwell.quasi_newton.settings import Settings


def _whole_record() -> np.dtype:
    """Return the record of a state with a field for every byte: a copy leaves bytes of no field as they were."""
    fields = dict(_core.STATE_FIELDS)
    ends = [0, *sorted(offset + np.dtype(form).itemsize for form, offset in fields.values())]
    starts = [*sorted(offset for _, offset in fields.values()), _core.STATE_SIZE]
    gaps = [(end, start - end) for end, start in zip(ends, starts, strict=True) if start > end]
    fields |= {f"unnamed_{k}": (f"V{size}", offset) for k, (offset, size) in enumerate(gaps)}
    forms, offsets = zip(*fields.values(), strict=True)
    return np.dtype({"names": [*fields], "formats": forms, "offsets": offsets, "itemsize": _core.STATE_SIZE})


#: The engine's state, one record per problem.
STATE_DTYPE = _whole_record()

#: Parts of a turn: all of it; up to where an accepted point needs its diagonal H0; the rest.
WHOLE, BEGIN, FINISH = 0, 1, 2

#: Turns on a device between two looks at the state that wait for it.
LOOK_EVERY = 8

#: The arrays that make up a complete run; ``s`` and ``y`` are rings of pairs, ``small`` holds their products.
#: Of bfloat16, which NumPy has not, ``s`` and ``y`` hold the bits.
ARRAYS = ("trial", "x", "g", "d", "s", "y", "states", "small")


def pair_slots(state: Any, slots: int) -> np.ndarray:
    """Return where the pairs of one problem's state lie in a ring of `slots` places, oldest first."""
    head, count = int(state["head"]), int(state["pairs"])
    return np.arange(head - count, head) % slots


def with_slots(arrays: Mapping[str, np.ndarray], slots: int) -> dict[str, np.ndarray]:
    """Lay the pairs of a saved run out in rings of `slots` places, oldest first; the rest of the arrays as it is.

    Targets differ in how many places their rings have. Where pairs lie enters no arithmetic: a run goes on from either
    layout with the same bits.
    """
    states = np.ascontiguousarray(arrays["states"]).copy()
    records = states.reshape(-1).view(STATE_DTYPE)
    batch, before = arrays["s"].shape[:2]
    small = np.zeros((batch, 3, slots, slots))
    products = arrays["small"].reshape(batch, 3, before, before)
    rings = {name: np.zeros((batch, slots, *arrays[name].shape[2:]), arrays[name].dtype) for name in "sy"}
    for problem, record in enumerate(records):
        order = pair_slots(record, before)
        count = order.size
        for name, ring in rings.items():
            ring[problem, :count] = arrays[name][problem, order]
        small[problem, :, :count, :count] = products[problem][:, order[:, None], order]
        record["head"] = count % slots
    return {**arrays, **rings, "states": states, "small": small.reshape(batch, -1)}


def widened(rows: np.ndarray) -> np.ndarray:
    """Return rows of the history as numbers: a copy where they are bits of bfloat16, the upper half of a float32."""
    return (rows.astype(np.uint32) << 16).view(np.float32) if rows.dtype == np.uint16 else rows


def history_array_dtype(history: str) -> np.dtype:
    """Return what NumPy has for a dtype of the history."""
    return np.dtype(np.uint16 if history == "bfloat16" else history)


def memory_words(n: int, m: int, *, bounded: bool = False, weighted: bool = False, history: float = 1) -> int:
    """Return the words of memory that one problem of n variables takes: (2m + 4) n, and 2n more with arrays of bounds.

    Bounds that are numbers take nothing. A diagonal H0 adds n; the products of pairs and the scalars add 3m² and a
    constant. Bounds and a diagonal that the problems of a batch share are counted once for the batch; what threads take
    is `thread_bytes`. `history`: the size of a number of the history in words, 1/2 for float32 beside float64.

    Examples
    --------
    >>> memory_words(1_000_000, 8, bounded=True) // 1_000_000
    22
    >>> memory_words(1_000_000, 8, bounded=True, history=1 / 2) // 1_000_000
    14
    """
    vectors = 2 * m * history + 4 + 2 * bounded + weighted
    return math.ceil(vectors * n) + 3 * m * m + int(_core.STATE_SIZE) // 8


def kept_bytes(n: int, m: int) -> int:
    """Return the bytes of products of pairs that a problem with bounds and without a diagonal keeps on the host.

    They save time while the free variables of a piece of 256 stay the same: (2m + 17) m numbers a piece, for 2048 to
    2²⁴ variables and up to 20 pairs.

    Examples
    --------
    >>> kept_bytes(1_000_000, 8) / 1_000_000 < 9
    True
    """
    options = Settings(m=m).engine_options(bounded=True, boxed=False, weighted=False, weights_vary=False)
    return int(_core.kept_bytes(options, n))


def thread_bytes(m: int) -> int:
    """Return the bytes that each thread at work takes besides: sums of products of all pairs, of up to five tiles.

    128 kB with ten pairs, 65 MB with 512; less than twice that where chunks have more than 4096 variables.

    Examples
    --------
    >>> 10 * thread_bytes(10) < thread_bytes(100)
    True
    """
    return int(_core.workspace_bytes(m))
