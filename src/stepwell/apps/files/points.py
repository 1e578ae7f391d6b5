"""Points on the earth as a GeoPackage, which GIS programs open: by pyogrio, or by geopandas where that is there."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping

import numpy as np

from stepwell.apps.files.foreign import made_elsewhere
from stepwell.apps.files.packages import load_package


def write_points(path: str | os.PathLike[str], columns: Mapping[str, np.ndarray], layer: str = "returns") -> None:
    """Write columns with ``latitude`` and ``longitude`` (degrees, WGS 84), one point per row."""
    pyogrio = load_package("pyogrio", "geo", "a GeoPackage")
    from pyogrio.raw import write

    pairs = zip(np.asarray(columns["longitude"], dtype=float), np.asarray(columns["latitude"], dtype=float))
    geometry = np.array([struct.pack("<BIdd", 1, 1, east, north) for east, north in pairs] + [None], dtype=object)[:-1]
    fields = {name: _plain(values) for name, values in columns.items()}
    with made_elsewhere(path) as made:
        write(made, geometry, list(fields.values()), list(fields), layer=layer, driver="GPKG",
              geometry_type="Point", crs="EPSG:4326")  # fmt: skip
    del pyogrio


def _plain(values: np.ndarray) -> np.ndarray:
    """Return values of a kind that the format knows: text, whole numbers of 64 bits with a sign, float64."""
    array = np.asarray(values)
    if array.dtype.kind in "uib":
        return (
            array.astype(np.int64)
            if array.dtype != np.uint64 or array.max(initial=0) < 2**63
            else array.astype(str).astype(object)
        )
    return array.astype(np.float64) if array.dtype.kind == "f" else array.astype(object)
