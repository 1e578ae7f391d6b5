"""Where abundances go: ENVI, GeoTIFF or npy, with the georeference of the image, and a table of means."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from stepwell.apps.files import envi, raster
from stepwell.apps.files.packages import require_package
from stepwell.apps.files.tables import write_table
from stepwell.apps.images import Image
from stepwell.apps.images.work import write_npy
from stepwell.apps.unmixing.library import SpectralLibrary
from stepwell.common.files import replacing, write_text

#: Endings of an output's name that say its format; without one it is ENVI.
ENDINGS = {".npy": "npy", ".hdr": "envi", ".img": "envi", ".tif": "tif", ".tiff": "tif"}


class Target:
    """The files of one answer, by the name that was given for it."""

    def __init__(self, output: str | os.PathLike[str]) -> None:
        given = Path(output)
        ending = given.suffix.lower()
        self.kind = ENDINGS.get(ending, "envi")
        self.stem = given.with_suffix("") if ending in ENDINGS else given
        self.folder = self.stem.parent
        self.unfinished = self._beside(".unfinished")
        self.account, self.means, self.picture = self._beside(".json"), self._beside("_means.csv"), self._beside(".png")
        self.endmembers = self._beside("_endmembers.csv")
        cubes = {"npy": (".npy",), "tif": (ending,), "envi": (".hdr", ".img")}
        self.cubes = [self._beside(end) for end in cubes[self.kind]]

    def _beside(self, ending: str) -> Path:
        return self.stem.with_name(f"{self.stem.name}{ending}")

    @property
    def files(self) -> list[Path]:
        """All that may be written."""
        return [*self.cubes, self.account, self.means, self.picture, self.endmembers]

    def require_packages(self) -> None:
        """Raise where the package that writes the cube is missing."""
        require_package(self.cubes[0])

    def write(self, cube: np.ndarray, bands: list[str], source: Image) -> list[Path]:
        """Write the cube (lines, bands, samples), a line at a time."""
        lines, _, samples = cube.shape
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.kind == "npy":
            write_npy(self.cubes[0], cube.transpose(0, 2, 1))
        elif self.kind == "tif":
            raster.write_geotiff(self.cubes[0], cube, bands, _place(source))
        else:
            title = f"abundances of {Path(source.path).name}, by stepwell unmix"
            text = envi.header_text((lines, samples, len(bands)), bands, title, _envi_place(source))
            with replacing(self.cubes[1]) as file:
                for line in cube:
                    file.write(np.ascontiguousarray(line).tobytes())
            write_text(self.cubes[0], text)
        return list(self.cubes)

    def keeps_place(self, source: Image) -> bool:
        """Whether the georeference of the image, if it has one, can be told: not in npy, nor a turned grid in ENVI."""
        told = _envi_place(source)
        if self.kind == "npy":
            return not told and not (isinstance(source.about, raster.RasterInfo) and source.about.place)
        raster_place = source.about.place if isinstance(source.about, raster.RasterInfo) else None
        return self.kind == "tif" or raster_place is None or bool(told)

    def write_means(self, names: list[str], means: dict[str, float], pixels: int) -> Path:
        """Write the mean abundance of each material as CSV."""
        columns: dict[str, Any] = {"name": names, "mean": [means[name] for name in names]}
        if f"{names[0]} error" in means:
            columns["mean_error"] = [means[f"{name} error"] for name in names]
        write_table(self.means, columns | {"pixels": [pixels] * len(names)})
        return self.means


def write_spectra(path: Path, library: SpectralLibrary) -> None:
    """Write a library as CSV, one spectrum per column; without wavelengths the first column counts bands."""
    count = library.spectra.shape[1]
    first = {"band": np.arange(1, count + 1)} if library.wavelengths is None else {"nm": library.wavelengths}
    write_table(path, {**first, **dict(zip(library.names, library.spectra))})


def _place(source: Image) -> raster.Georeference | None:
    """Return where the image lies, for a GeoTIFF."""
    if isinstance(source.about, raster.RasterInfo):
        return source.about.place
    if isinstance(source.about, envi.Header):
        with raster.open_raster(envi.find_pair(source.path)[1], "ENVI") as opened:
            return raster.georeference_of(opened)
    return None


def _envi_place(source: Image) -> dict[str, Any]:
    """Return what an ENVI header says of where the image lies."""
    if isinstance(source.about, raster.RasterInfo):
        return {} if source.about.place is None else source.about.place.envi_fields()
    if isinstance(source.about, envi.Header):
        fields = source.about.fields
        return {name: fields[name] for name in envi.GEOREFERENCE if name in fields}
    return {}
