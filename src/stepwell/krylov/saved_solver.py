"""What `ProjectedCG.save` has written, read and held against itself."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from stepwell.common import checkpoints
from stepwell.common.checks import read_real, read_whole
from stepwell.common.files import Unreadable
from stepwell.krylov.space import PANEL

KIND, VERSION = "ProjectedCG", 1


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what a solver has saved, its fields held against each other."""
    held = checkpoints.read(path, KIND)
    name = os.fspath(path)
    if held.get("version") != VERSION:
        raise Unreadable(f"{name}: has version {held.get('version')!r}; allowed: {VERSION}")
    try:
        solved = read_whole("solved", held["solved"], 0)
        read_real("unit", held["unit"], above=0)
        parts = [held[key] for key in ("directions", "products", "images")] if "directions" in held else []
        rows = {part.shape[0] for part in parts if part.ndim == 2}
        good = solved >= 0 and (not parts or (len(rows) == 1 and all(part.ndim == 2 for part in parts)))
        if good and parts and parts[0].size:
            panels = held["panels"]
            good = parts[0].shape == parts[1].shape and held["scores"].ndim == 1 and panels.shape[1:] == (2,)
            good = good and bool((panels[:, 0] > 0).all() and (panels[:, 0] <= panels[:, 1]).all())
            good = good and int(panels[:, 0].sum()) == parts[0].shape[0]
            good = good and int(panels[:, 1].max()) <= max(PANEL, parts[0].shape[0])
            good = good and all(np.isfinite(part).all() for part in (*parts, held["scores"], held["longest"]))
    except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        raise Unreadable(f"{name}: holds no solver: {error!r}") from error
    if not good:
        raise Unreadable(f"{name}: holds no solver; allowed: what ProjectedCG.save wrote")
    return held
