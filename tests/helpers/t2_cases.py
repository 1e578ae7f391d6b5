"""Echo trains in a file, and settings that map them quickly."""

from __future__ import annotations

import numpy as np

from stepwell.apps import t2

TE = 0.010
TISSUE = (0.010, 0.040)  # the window of myelin in the phantom, whose lobe reaches to 28 ms


def phantom_file(folder, shape=(10, 9, 4), **options):
    phantom = t2.simulate(shape, **options)
    np.save(folder / "image.npy", phantom.signal)
    np.save(folder / "mask.npy", phantom.mask)
    return phantom


KNOWN = {"angles": (150.0, 150.0, 1), "lam": 0.02, "myelin": TISSUE}
