"""GeoTIFF and other rasters by rasterio: read in lines, written in lines, with their georeference."""

from __future__ import annotations

import dataclasses
import os
import re
import warnings
from typing import Any

import numpy as np

from stepwell.apps.files import envi
from stepwell.apps.files.foreign import made_elsewhere
from stepwell.apps.files.packages import ending_of, load_package
from stepwell.common.files import Unreadable, damage_told, require_regular

#: Drivers by the ending of a name, ENVI's for all others: each reads what lies in a file, none what it points to.
DRIVERS = {".tif": "GTiff", ".tiff": "GTiff", ".jp2": "JP2OpenJPEG", ".img": "HFA"}
#: Tags of a band that hold its wavelength.
_WAVELENGTH_TAGS = ("wavelength", "central_wavelength_nm", "central_wavelength_um", "centralwavelength")
_IN_WORDS = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(nm|nanomet\w+|um|µm|μm|micromet\w+)", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Georeference:
    """Where on the earth an image lies: its coordinate system as WKT, and the six numbers of its transform."""

    wkt: str
    transform: tuple[float, float, float, float, float, float]

    def envi_fields(self) -> dict[str, Any]:
        """Return what an ENVI header says of it; a turned grid, which it cannot say, is left out."""
        across, turn, left, tilt, down, top = self.transform
        if turn or tilt:
            return {}
        rasterio = load_package("rasterio", "geo", "a GeoTIFF")
        system = rasterio.crs.CRS.from_wkt(self.wkt) if self.wkt else None
        geographic = system is not None and system.is_geographic
        name = "Geographic Lat/Lon" if geographic else "Arbitrary"
        unit = "units=Degrees" if geographic else "units=Meters"
        numbers = [f"{value:.12g}" for value in (1, 1, left, top, across, -down)]
        fields: dict[str, Any] = {"map info": [name, *numbers, unit]}
        if system is not None:
            fields["coordinate system string"] = "{" + system.to_wkt(version="WKT1_ESRI") + "}"
        return fields


@dataclasses.dataclass(frozen=True)
class RasterInfo:
    """What a raster says beside its numbers."""

    place: Georeference | None
    wavelengths: np.ndarray | None
    scaled: bool


def open_raster(path: str | os.PathLike[str], driver: str | None = None) -> Any:
    """Open a raster, by default as its name says; whatever is wrong with it is `Unreadable`."""
    rasterio = load_package("rasterio", "geo", "a GeoTIFF")
    require_regular(path)
    with damage_told(path), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of an image that has no georeference
        try:
            return rasterio.open(os.fspath(path), driver=driver or DRIVERS.get(ending_of(path), "ENVI"))
        except rasterio.errors.RasterioError as error:
            raise Unreadable(f"{os.fspath(path)}: is no raster that rasterio reads: {error}") from error


def raster_info(opened: Any) -> RasterInfo:
    """Return georeference and wavelengths in nanometres."""
    place = georeference_of(opened)
    waves = [_wavelength(opened, band) for band in opened.indexes]
    found = None if any(wave is None for wave in waves) else np.array([float(wave or 0) for wave in waves])
    scaled = any(scale != 1 for scale in opened.scales) or any(offset != 0 for offset in opened.offsets)
    return RasterInfo(place, found, scaled)


def georeference_of(opened: Any) -> Georeference | None:
    """Return where an opened raster lies, None where it does not say."""
    if opened.crs is None and opened.transform.is_identity:
        return None
    wkt = "" if opened.crs is None else opened.crs.to_wkt()
    return Georeference(wkt, tuple(opened.transform)[:6])


def read_lines(opened: Any, where: tuple[slice, ...], path: str | os.PathLike[str]) -> np.ndarray:
    """Return a part (lines, samples, bands) in the units that scales and offsets say; NaN where there is no data."""
    from rasterio.windows import Window

    (top, bottom, _), (left, right, _) = (
        part.indices(size) for part, size in zip(where, (opened.height, opened.width), strict=False)
    )
    bands = list(opened.indexes)[where[2]] if len(where) > 2 else list(opened.indexes)
    with damage_told(path):
        block = opened.read(bands, window=Window(left, top, right - left, bottom - top), masked=True)
    values = np.ma.filled(block.astype(np.float64), np.nan)
    scales = np.array([opened.scales[band - 1] for band in bands])[:, None, None]
    offsets = np.array([opened.offsets[band - 1] for band in bands])[:, None, None]
    return np.asarray((values * scales + offsets).transpose(1, 2, 0))


def write_geotiff(path: str | os.PathLike[str], cube: np.ndarray, names: list[str], place: Georeference | None) -> None:
    """Write a cube (lines, bands, samples) of float32, a line at a time, NaN where there is no data."""
    rasterio = load_package("rasterio", "geo", "a GeoTIFF")
    lines, bands, samples = cube.shape
    profile: dict[str, Any] = {"driver": "GTiff", "height": lines, "width": samples, "count": bands, "dtype": "float32",
                               "nodata": float("nan"), "compress": "deflate", "interleave": "pixel",
                               "BIGTIFF": "IF_SAFER"}  # fmt: skip
    if place is not None:
        profile |= {"transform": rasterio.Affine(*place.transform)}
        profile |= {"crs": rasterio.crs.CRS.from_wkt(place.wkt)} if place.wkt else {}
    with made_elsewhere(path) as made, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of an image that has no georeference
        with rasterio.open(made, mode="w", **profile) as out:
            for line, values in enumerate(cube):
                out.write(values[:, None, :], window=rasterio.windows.Window(0, line, samples, 1))
            for band, name in enumerate(names, 1):
                out.set_band_description(band, name)


def _wavelength(opened: Any, band: int) -> float | None:
    """Return the wavelength of a band in nanometres, from its tags or its description."""
    tags = {name.lower(): text for name, text in {**opened.tags(band), **opened.tags(band, ns="IMAGERY")}.items()}
    for name in _WAVELENGTH_TAGS:
        if name in tags:
            try:
                value = float(tags[name])
            except ValueError:
                continue
            unit = "um" if name.endswith("_um") else tags.get("wavelength_units", tags.get("wavelength_unit", ""))
            return float(envi.in_nm(np.array([value]), unit)[0])
    words = _IN_WORDS.search(opened.descriptions[band - 1] or "")
    return None if words is None else float(envi.in_nm(np.array([float(words[1])]), words[2])[0])
