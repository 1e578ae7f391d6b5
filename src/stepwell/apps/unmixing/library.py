"""Libraries of spectra: read from the files that people have, and brought to the bands of an image."""

from __future__ import annotations

import csv
import dataclasses
import io
import os
from pathlib import Path

import numpy as np

from stepwell.apps.files import envi
from stepwell.arrays.checks import read_array, require_finite
from stepwell.common.array_files import open_arrays
from stepwell.common.checks import read_texts, require, require_shape
from stepwell.common.files import Unreadable, read_text, replacing

#: Columns of a CSV file that hold classes and names, unless one is named.
CLASS_COLUMNS = ("class", "level_1", "material", "category", "type")
NAME_COLUMNS = ("name", "spectra", "spectrum", "sample", "id", "endmember")
#: Bytes that a library as text may have.
LARGEST = 2**28
#: Nanometres by which a wavelength that was printed may be beyond the ends of a library.
ROUNDED = 0.01


@dataclasses.dataclass(frozen=True)
class SpectralLibrary:
    """Spectra of materials.

    Attributes
    ----------
    spectra : array, (spectra, bands)
        Reflectances.
    names : list of str
        One a spectrum.
    classes : list of str
        The material of each; spectra of one class are counted together.
    wavelengths : array, (bands,), optional
        Centres of the bands in nanometres, rising.

    Examples
    --------
    >>> library = SpectralLibrary(np.array([[0.1, 0.3], [0.5, 0.5]]), ["a", "b"], ["x", "y"], np.array([500.0, 600.0]))
    >>> library.at(np.array([550.0])).spectra
    array([[0.2],
           [0.5]])
    """

    spectra: np.ndarray
    names: list[str]
    classes: list[str]
    wavelengths: np.ndarray | None = None

    def __post_init__(self) -> None:
        spectra = read_array("spectra", self.spectra)
        require_shape(spectra.ndim == 2 and 0 not in spectra.shape, "spectra", spectra, "(spectra, bands)")
        for argument, texts in (("names", self.names), ("classes", self.classes)):
            read_texts(argument, texts, len(spectra), "one a spectrum")
        if self.wavelengths is not None:
            given = read_array("wavelengths", self.wavelengths)
            require_shape(given.shape == spectra.shape[1:], "wavelengths", given, spectra.shape[1:])
            require_finite("wavelengths", given)
            require(bool(np.all(np.diff(given) > 0)), "wavelengths", given, "rising numbers")

    def at(self, wavelengths: np.ndarray) -> SpectralLibrary:
        """Return the library at other wavelengths, between its own by straight lines, NaN beyond them."""
        require(self.wavelengths is not None, "the library's wavelengths", None, "wavelengths, as the image has some")
        assert self.wavelengths is not None
        wavelengths, own = np.asarray(read_array("wavelengths", wavelengths)), self.wavelengths
        require_shape(wavelengths.ndim == 1 and wavelengths.size > 0, "wavelengths", wavelengths, "(bands,)")
        within = np.clip(wavelengths, own[0], own[-1])
        wavelengths = np.where(np.abs(within - wavelengths) <= ROUNDED, within, wavelengths)
        spectra = np.array([np.interp(wavelengths, own, one, np.nan, np.nan) for one in self.spectra])
        return dataclasses.replace(self, spectra=spectra, wavelengths=np.asarray(wavelengths, dtype=float))

    @property
    def class_names(self) -> list[str]:
        """The classes, each once, in the order of the library."""
        return list(dict.fromkeys(self.classes))


def read_library(path: str | os.PathLike[str], class_column: str | None = None) -> SpectralLibrary:
    """Read a library.

    Parameters
    ----------
    path : path
        CSV with a header line, in either direction: a spectrum a row and wavelengths as the names of columns, with
        columns of text for names and classes; or a spectrum a column, wavelengths in the first. Or an ENVI spectral
        library (``.hdr`` or ``.sli``), or npz with ``spectra`` (and ``wavelengths``, ``names``, ``classes``).
        Wavelengths below 100 are taken for micrometres.
    class_column : str, optional
        Column of a CSV file with the classes; by default one called class, level_1, material, category or type; without
        one each spectrum is a class of its own.
    """
    ending = Path(path).suffix.lower()
    if ending in (".hdr", ".sli"):
        return _from_envi(path)
    if ending == ".npz":
        with open_arrays(path) as held:
            spectra = held["spectra"]
            names = [str(one) for one in held["names"]] if "names" in held else _numbered(len(spectra))
            classes = [str(one) for one in held["classes"]] if "classes" in held else names
            waves = envi.in_nm(held["wavelengths"]) if "wavelengths" in held else None
        return SpectralLibrary(spectra.astype(float), names, classes, waves)
    text = read_text(path, LARGEST, encoding="utf-8-sig")
    try:
        reader = csv.reader(io.StringIO(text, newline=""))
        rows = [[cell.strip() for cell in row] for row in reader if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise Unreadable(f"{os.fspath(path)}: is no CSV file: {error}") from error
    if len(rows) < 2 or any(len(row) != len(rows[0]) for row in rows):
        raise Unreadable(f"{os.fspath(path)}: has no table; allowed: a header line and rows of as many cells")
    if sum(_number(cell) is not None for cell in rows[0]) >= 2:
        return _from_rows(path, rows, class_column)
    return _from_columns(path, rows)


def write_library(path: str | os.PathLike[str], library: SpectralLibrary) -> None:
    """Write a CSV file that `read_library` reads, a spectrum a row."""
    require(library.wavelengths is not None, "wavelengths", None, "wavelengths, for the header line")
    assert library.wavelengths is not None
    with replacing(path, encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["name", "class", *(f"{wave:.10g}" for wave in library.wavelengths)])
        for name, kind, spectrum in zip(library.names, library.classes, library.spectra):
            writer.writerow([name, kind, *(f"{value:.10g}" for value in spectrum)])


def _from_rows(path: object, rows: list[list[str]], class_column: str | None) -> SpectralLibrary:
    """A spectrum a row; what is no wavelength in the header line is text."""
    head = rows[0]
    bands = [place for place, cell in enumerate(head) if _number(cell) is not None]
    text = {cell.lower(): place for place, cell in enumerate(head) if _number(cell) is None}
    if class_column is not None and class_column.lower() not in text:
        raise Unreadable(f"{path}: has no column {class_column!r}; it has {', '.join(text) or 'none with text'}")
    kinds = [class_column.lower()] if class_column is not None else [one for one in CLASS_COLUMNS if one in text]
    labels = [one for one in NAME_COLUMNS if one in text] or [one for one in text if one not in kinds]
    body = rows[1:]
    names = [row[text[labels[0]]] for row in body] if labels else _numbered(len(body))
    classes = [row[text[kinds[0]]] for row in body] if kinds else names
    waves = np.array([float(head[place]) for place in bands])
    spectra = np.array([[_required(path, row[place]) for place in bands] for row in body])
    return _sorted(spectra, names, classes, waves)


def _from_columns(path: object, rows: list[list[str]]) -> SpectralLibrary:
    """A spectrum a column, wavelengths in the first."""
    values = np.array([[_required(path, cell) for cell in row] for row in rows[1:]])
    if values.shape[1] < 2:
        raise Unreadable(f"{path}: has one column; allowed: wavelengths and at least one spectrum")
    names = rows[0][1:]
    return _sorted(values[:, 1:].T, names, names, values[:, 0])


def _from_envi(path: str | os.PathLike[str]) -> SpectralLibrary:
    cube, header = envi.map_cube(path)
    spectra = np.array(cube[:, :, 0], dtype=float)  # lines are spectra, samples bands
    names = header.names("spectra names")
    names = names if len(names) == len(spectra) else _numbered(len(spectra))
    waves = envi.wavelengths_in_nm(header)
    if waves is None:
        return SpectralLibrary(spectra, names, names)
    return _sorted(spectra, names, names, waves)


def _sorted(spectra: np.ndarray, names: list[str], classes: list[str], waves: np.ndarray) -> SpectralLibrary:
    order = np.argsort(waves, kind="stable")
    return SpectralLibrary(np.ascontiguousarray(spectra[:, order]), names, classes, envi.in_nm(waves[order]))


def _numbered(count: int) -> list[str]:
    return [f"spectrum {place + 1}" for place in range(count)]


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _required(path: object, cell: str) -> float:
    number = _number(cell) if cell else float("nan")
    if number is None:
        raise Unreadable(f"{path}: holds {cell!r} among the spectra; allowed: numbers")
    return number
