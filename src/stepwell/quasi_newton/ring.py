"""The history of a saved run: targets differ in how many slots their rings of pairs have."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from stepwell.quasi_newton.host_target import STATE_DTYPE, pair_slots


def relaid(arrays: Mapping[str, np.ndarray], slots: int) -> dict[str, np.ndarray]:
    """Lay the pairs out in rings of so many slots, the oldest first; the rest of the arrays as it is.

    Where pairs lie does not enter any arithmetic: a run goes on from either layout with the same bits.
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
