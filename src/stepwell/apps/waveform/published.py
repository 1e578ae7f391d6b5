"""What NASA publishes for the shots of GEDI: ground, highest return and relative heights of its level 2A product."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from stepwell.apps.files.hdf5 import open_hdf5, own_datasets, own_groups, read_dataset, require_h5py
from stepwell.apps.waveform.gedi import chosen_beams
from stepwell.common.files import Unreadable, damage_told

#: One number per shot, and 101 in ``rh``: heights above the ground below which 0, 1, ..., 100 % of the energy lie.
FIELDS = (
    "shot_number",
    "lat_lowestmode",
    "lon_lowestmode",
    "elev_lowestmode",
    "elev_highestreturn",
    "num_detectedmodes",
    "quality_flag",
    "rh",
)


def load_gedi_l2a(path: str | os.PathLike[str], beam: str | None = None) -> dict[str, np.ndarray]:
    """Read what a GEDI L2A granule says of each shot.

    Parameters
    ----------
    path : path
        An HDF5 file as NASA distributes it.
    beam : str, optional
        Such as ``"BEAM0101"``; by default all of them, one after the other.

    Returns
    -------
    dict of arrays
        By the product's names, with an entry per shot: ``shot_number``, by which a shot of level 1B is found,
        ``lat_lowestmode``, ``lon_lowestmode``, ``elev_lowestmode`` (the ground), ``elev_highestreturn``,
        ``num_detectedmodes``, ``quality_flag`` (1 is good) and ``rh`` (shots, 101); beside them ``beam``.

    Examples
    --------
    >>> published = load_gedi_l2a("GEDI02_A_2019.h5", "BEAM0101")  # doctest: +SKIP
    >>> published["rh"].shape  # doctest: +SKIP
    (62418, 101)
    """
    require_h5py()
    name = os.fspath(path)
    found: list[dict[str, np.ndarray]] = []
    with open_hdf5(path) as file, damage_told(path):
        groups = own_groups(file)
        for one in chosen_beams(path, groups, beam, "GEDI"):
            held = own_datasets(groups[one])
            _require_fields(name, one, held)
            columns = {field: np.asarray(read_dataset(path, held[field])) for field in FIELDS}
            found.append(columns | {"beam": np.full(len(columns["rh"]), one)})
    return {field: np.concatenate([columns[field] for columns in found]) for field in found[0]}


def _require_fields(path: str, beam: str, held: dict[str, Any]) -> None:
    """Raise where a beam lacks what is needed, or has it in another shape."""
    missing = [field for field in FIELDS if field not in held]
    if missing:
        raise Unreadable(f"{path}: {beam} has no {', '.join(missing)}; is it a GEDI L2A granule?")
    shots = held["shot_number"].shape
    for field in FIELDS:
        allowed = (*shots, 101) if field == "rh" else shots
        if len(shots) != 1 or held[field].shape != allowed:
            raise Unreadable(f"{path}: {beam}: {field} has shape {held[field].shape}; allowed: {allowed}")
