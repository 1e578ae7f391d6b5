"""Libraries of spectra: read from the files that people have, and brought to the bands of an image."""

from __future__ import annotations

import csv
import dataclasses
import os
from pathlib import Path

import numpy as np

from stepwell.apps.files import envi
from stepwell.apps.files.named import choose_array, open_named
from stepwell.apps.files.tables import TextTable, number_in, read_table, required_number
from stepwell.arrays.checks import read_array, read_numpy, require_finite
from stepwell.common.checks import read_texts, require, require_shape
from stepwell.common.files import Unreadable, replacing

#: Columns of a CSV file that hold classes and names, unless one is named.
CLASS_COLUMNS = ("class", "level_1", "material", "category", "type")
NAME_COLUMNS = ("name", "spectra", "spectrum", "sample", "id", "endmember")
#: Names, in small letters, of arrays with spectra and with wavelengths.
SPECTRA = ("spectra", "library", "endmembers", "m", "e", "a")
WAVELENGTHS = ("wavelengths", "wavelength", "waves", "bands_nm", "lambda")
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
        wavelengths, own = np.asarray(read_numpy("wavelengths", wavelengths)), self.wavelengths
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
        Text (CSV, or with semicolons, tabs or spaces) in either direction: one spectrum per row and wavelengths as the
        names of columns, with columns of text for names and classes; or one spectrum per column, wavelengths in the
        first. Without a header line, a first column or row that rises like wavelengths is taken for these; else there
        are none, and the longer side is that of the bands. Or an ENVI spectral library (``.hdr`` or ``.sli``); or
        npz or MATLAB with ``spectra`` (and ``wavelengths``, ``names``, ``classes``), or with one matrix, as ``.npy``
        is. Wavelengths below 100 are taken for micrometres.
    class_column : str, optional
        Column of a CSV file with the classes; by default one called class, level_1, material, category or type; without
        one each spectrum is a class of its own.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open(f"{folder}/library.csv", "w") as file:
    ...         _ = file.write("wavelength,soil,leaf\\n500,0.2,0.1\\n600,0.3,0.1\\n700,0.4,0.5\\n")
    ...     library = read_library(f"{folder}/library.csv")
    >>> library.names, library.spectra.shape
    (['soil', 'leaf'], (2, 3))
    """
    ending = Path(path).suffix.lower()
    if ending in (".hdr", ".sli"):
        return _from_envi(path)
    if ending in (".npz", ".npy", ".mat"):
        return _from_arrays(path)
    table = read_table(path)
    if table.header is None:
        return _from_numbers(path, table.numbers())
    if not table.rows:
        raise Unreadable(f"{os.fspath(path)}: has no table; allowed: a header line and rows of as many cells")
    if sum(number_in(cell) is not None for cell in table.header) >= 2:
        return _from_rows(path, [table.header, *table.rows], class_column)
    return _from_columns(path, table)


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
    bands = [place for place, cell in enumerate(head) if number_in(cell) is not None]
    text = {cell.lower(): place for place, cell in enumerate(head) if number_in(cell) is None}
    if class_column is not None and class_column.lower() not in text:
        raise Unreadable(f"{path}: has no column {class_column!r}; it has {', '.join(text) or 'none with text'}")
    kinds = [class_column.lower()] if class_column is not None else [one for one in CLASS_COLUMNS if one in text]
    labels = [one for one in NAME_COLUMNS if one in text] or [one for one in text if one not in kinds]
    body = rows[1:]
    names = [row[text[labels[0]]] for row in body] if labels else _numbered(len(body))
    classes = [row[text[kinds[0]]] for row in body] if kinds else names
    waves = np.array([float(head[place]) for place in bands])
    spectra = np.array([[required_number(path, row[place]) for place in bands] for row in body])
    return _sorted(spectra, names, classes, waves)


def _from_columns(path: object, table: TextTable) -> SpectralLibrary:
    """A spectrum a column, wavelengths in the first."""
    values = table.numbers()
    if values.shape[1] < 2:
        raise Unreadable(f"{path}: has one column; allowed: wavelengths and at least one spectrum")
    assert table.header is not None
    first = table.header[0].lower()
    named = not first or any(word in first for word in ("wave", "lambda", "nm", "um", "µm", "μm", "band"))
    if not named and not _like_wavelengths(values[:, 0]):  # a spectrum like the others
        return SpectralLibrary(np.ascontiguousarray(values.T), table.header, table.header)
    if len(np.unique(values[:, 0])) < len(values):
        raise Unreadable(f"{path}: its first column, {table.header[0]!r}, has a number twice; allowed: wavelengths")
    names = table.header[1:]
    return _sorted(values[:, 1:].T, names, names, values[:, 0])


def _from_numbers(path: object, values: np.ndarray) -> SpectralLibrary:
    """A matrix without any word: wavelengths are known by their looks."""
    if min(values.shape) < 2 and max(values.shape) < 2:
        raise Unreadable(f"{path}: has no table; allowed: at least two bands")
    column, row = _like_wavelengths(values[:, 0]), _like_wavelengths(values[0])
    if column and row:  # the longer side is that of the bands
        column = values.shape[0] >= values.shape[1]
    if column and values.shape[1] > 1:
        spectra, waves = values[:, 1:].T, values[:, 0]
    elif row and values.shape[0] > 1:
        spectra, waves = values[1:], values[0]
    else:
        spectra = values.T if values.shape[0] > values.shape[1] else values
        names = _numbered(len(spectra))
        return SpectralLibrary(np.ascontiguousarray(spectra), names, names)
    names = _numbered(len(spectra))
    return _sorted(spectra, names, names, waves)


def _like_wavelengths(values: np.ndarray) -> bool:
    """Whether numbers rise (or fall) as wavelengths of the sun's light or of heat do, in nanometres or micrometres."""
    steps = np.diff(values)
    monotone = values.size > 2 and bool((steps > 0).all() or (steps < 0).all())
    low, high = float(values.min()), float(values.max())
    return monotone and (150 <= low < high <= 30000 or 0.15 <= low < high <= 30)


def _from_arrays(path: str | os.PathLike[str]) -> SpectralLibrary:
    """Arrays by name, or a matrix alone."""
    with open_named(path) as held:
        chosen = choose_array(path, held.shapes, None, axes=(2,), usual=SPECTRA, what="library")
        spectra = held[chosen].astype(float)
        words = {name: held.first((name,)) for name in ("names", "classes")}
        texts = {name: None if key is None else [str(one) for one in held[key]] for name, key in words.items()}
        at = held.first(WAVELENGTHS)
        waves = None if at is None else envi.in_nm(held[at].astype(float).ravel())
    if chosen.lower() != "spectra":  # a matrix that is called otherwise may lie either way
        if waves is None:
            return _from_numbers(path, spectra)
        spectra = spectra if spectra.shape[1] == waves.size else spectra.T
    names = texts["names"] or _numbered(len(spectra))
    return SpectralLibrary(spectra, names, texts["classes"] or names, waves)


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
