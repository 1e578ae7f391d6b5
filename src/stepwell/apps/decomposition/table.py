"""Returns of decomposed shots as one table: where on the earth each lies, and how certain that is."""

from __future__ import annotations

import numpy as np

from stepwell.apps.decomposition.fitting import Decomposition
from stepwell.apps.waveform.table import height_columns, metres_per_sample, positions, shot_columns
from stepwell.common.checks import read_whole, require_instance


def decomposition_table(done: Decomposition, offset: int = 0) -> dict[str, np.ndarray]:
    """Return one row per return, as columns by name.

    ``beam``, ``shot_number``, ``time`` (UTC), ``latitude``, ``longitude`` and ``elevation`` (metres above the
    ellipsoid) are there where the file has them. ``shot`` counts the shots that were done, ``number`` the returns of
    each, from the first; ``sample`` counts from the start of the record. ``width`` is the standard deviation of a
    return along time, in metres where elevations are known, else in samples; ``energy`` is the area of the Gaussian.
    ``..._se`` are standard errors. ``rh25`` to ``rh98`` are heights above the lowest return, in metres, below which so
    many percent of the shot's energy came back.

    Parameters
    ----------
    done : Decomposition
    offset : int, default 0
        Number of the first shot.

    Examples
    --------
    >>> from stepwell.apps import decomposition
    >>> done = decomposition.decompose(decomposition.simulate(3, samples=120, returns=2).shots)
    >>> len(decomposition_table(done)["amplitude"])
    6
    """
    require_instance("done", done, Decomposition)
    offset = read_whole("offset", offset, 0)
    shots = len(done.shots)
    row = np.repeat(np.arange(shots), done.count)
    number = np.arange(len(row)) - np.searchsorted(row, row)
    start = np.zeros(shots, dtype=np.int64) if done.shots.start is None else done.shots.start
    about = done.shots.about or {}
    sample = done.position[row, number] + start[row]
    columns = shot_columns(about, row) | {"shot": row + offset, "number": number, "sample": sample}
    columns["sample_se"] = done.position_se[row, number]
    for name in ("amplitude", "amplitude_se"):
        columns[name] = getattr(done, name)[row, number]
    columns["energy"] = done.energy[row, number]
    widths = {name: getattr(done, name)[row, number] for name in ("width", "width_se")}
    if "elevation_bin0" not in about:
        return columns | widths
    metres = metres_per_sample(about)[row]
    columns |= positions(about, row, sample) | {"elevation_se": columns["sample_se"] * metres}
    columns |= {name: values * metres for name, values in widths.items()}
    return columns | height_columns(row, shots, columns["elevation"], columns["energy"])
