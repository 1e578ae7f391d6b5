"""ENVI headers: a few lines of text that say what the binary file beside them holds."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stepwell.common.files import Unreadable, open_regular, read_text, require_regular

#: Codes of "data type".
DTYPES = {1: "u1", 2: "i2", 3: "i4", 4: "f4", 5: "f8", 12: "u2", 13: "u4", 14: "i8", 15: "u8"}
#: Bytes that a header may have.
LARGEST_HEADER = 2**24
#: Where the axes (line, sample, band) stand in the file, by interleave.
ORDERS = {"bsq": (2, 0, 1), "bil": (0, 2, 1), "bip": (0, 1, 2)}
#: Endings that the binary file beside NAME.hdr may have.
ENDINGS = ("", ".img", ".dat", ".raw", ".bsq", ".bil", ".bip", ".sli", ".bin")
#: What says where on the earth an image lies: copied from the input to the output.
GEOREFERENCE = ("map info", "coordinate system string", "projection info", "geo points", "x start", "y start")


@dataclasses.dataclass(frozen=True)
class Header:
    """The fields of a header by their names in small letters; lists are lists of texts."""

    path: str
    fields: dict[str, str | list[str]]

    def text(self, name: str, default: str = "") -> str:
        """Return one field as text."""
        value = self.fields.get(name, default)
        return ", ".join(value) if isinstance(value, list) else value

    def whole(self, name: str, default: int | None = None) -> int:
        """Return one field as an integer."""
        given = self.text(name, "" if default is None else str(default))
        try:
            return int(given)
        except ValueError:
            shown = f"is {given[:40]!r}" if given else "is missing"
            raise Unreadable(f"{self.path}: {name} {shown}; allowed: an integer") from None

    def numbers(self, name: str) -> np.ndarray | None:
        """Return one field as numbers, None where it is missing."""
        if name not in self.fields:
            return None
        value = self.fields[name]
        try:
            return np.array([float(one) for one in (value if isinstance(value, list) else [value])])
        except ValueError:
            raise Unreadable(f"{self.path}: {name} holds what is no number; allowed: numbers") from None

    def names(self, name: str) -> list[str]:
        """Return one field as a list of texts, empty where it is missing."""
        value = self.fields.get(name, [])
        return value if isinstance(value, list) else [value]


def read_header(path: str | os.PathLike[str]) -> Header:
    """Read a header.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "small.hdr"
    >>> _ = file.write_text("ENVI\\nsamples = 3\\nwavelength = { 400, 500,\\n 600 }\\n")
    >>> read_header(file).numbers("wavelength")
    array([400., 500., 600.])
    """
    name = os.fspath(path)
    text = read_text(path, LARGEST_HEADER, errors="replace")
    if not text.startswith("ENVI"):
        raise Unreadable(f"{name}: does not begin with ENVI; allowed: an ENVI header")
    fields: dict[str, str | list[str]] = {}
    lines = iter(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"))
    for line in lines:
        key, _, value = (part.strip() for part in line.partition("="))
        if not key or "=" not in line or set(key) & set(";{}"):  # a remark, or nothing
            continue
        if value.startswith("{"):
            parts = [value]
            while "}" not in parts[-1]:
                more = next(lines, None)
                if more is None:
                    raise Unreadable(f"{name}: the list {key!r} has no end; allowed: {{ ... }}")
                parts.append(more)
            listed = "\n".join(parts)[1:].partition("}")[0]
            fields[key.lower()] = [part.strip() for part in listed.split(",")]
        else:
            fields[key.lower()] = value
    return Header(name, fields)


def find_pair(path: str | os.PathLike[str]) -> tuple[Path, Path]:
    """Return header and binary file, given either of them."""
    given = Path(path)
    require_regular(given)
    if given.suffix.lower() == ".hdr":
        stem = given.with_suffix("")
        for ending in ENDINGS:
            beside = stem.with_name(stem.name + ending)
            if beside.is_file():
                return given, beside
        raise Unreadable(
            f"{given}: there is no binary file beside the header; looked for {stem}{{{','.join(ENDINGS)}}}"
        )
    for header in (given.with_name(given.name + ".hdr"), given.with_suffix(".hdr")):
        if header.is_file():
            return header, given
    raise Unreadable(f"{given}: there is no header beside it; looked for {given}.hdr and {given.with_suffix('.hdr')}")


def map_cube(path: str | os.PathLike[str]) -> tuple[np.ndarray, Header]:
    """Return an image as an array (lines, samples, bands) that reads from the disk what is asked for."""
    header_path, binary = find_pair(path)
    header = read_header(header_path)
    sizes = tuple(header.whole(name) for name in ("lines", "samples", "bands"))
    for name, size in zip(("lines", "samples", "bands"), sizes, strict=True):
        if size < 1:
            raise Unreadable(f"{header_path}: {name} is {size}; allowed: at least 1")
    code = header.whole("data type")
    if code not in DTYPES:
        raise Unreadable(f"{header_path}: data type is {code}; allowed: {', '.join(map(str, DTYPES))} (real numbers)")
    interleave = header.text("interleave", "bsq").lower()
    if interleave not in ORDERS:
        raise Unreadable(f"{header_path}: interleave is {interleave!r}; allowed: {', '.join(ORDERS)}")
    byte_order = header.whole("byte order", 0)
    if byte_order not in (0, 1):
        raise Unreadable(f"{header_path}: byte order is {byte_order}; allowed: 0 (small end first), 1")
    dtype = np.dtype("<>"[byte_order] + DTYPES[code])
    order = ORDERS[interleave]
    offset = header.whole("header offset", 0)
    if offset < 0:
        raise Unreadable(f"{header_path}: header offset is {offset}; allowed: at least 0")
    stored = tuple(sizes[axis] for axis in order)
    with open_regular(binary) as file:
        needed, there = offset + dtype.itemsize * math.prod(stored), os.fstat(file.fileno()).st_size
        if there < needed:
            raise Unreadable(f"{binary}: holds {there} bytes; the header asks for {needed}, {sizes} of {dtype}")
        stack = np.memmap(file, dtype, "r", offset, stored)
    return stack.transpose(tuple(order.index(axis) for axis in range(3))), header


def wavelengths_in_nm(header: Header) -> np.ndarray | None:
    """Return the centres of the bands in nanometres, None where the header has none."""
    values = header.numbers("wavelength")
    return None if values is None else in_nm(values, header.text("wavelength units"))


def in_nm(values: np.ndarray, units: str = "") -> np.ndarray:
    """Return wavelengths in nanometres; without units those below 100 are micrometres.

    Examples
    --------
    >>> in_nm(np.array([0.4, 2.5])), in_nm(np.array([400.0, 2500.0]))
    (array([ 400., 2500.]), array([ 400., 2500.]))
    """
    word = units.lower()
    micro = word.startswith(("micro", "um", "µm", "μm")) or (not word.startswith("nano") and word != "nm"
                                                             and bool(np.all(values < 100)))  # fmt: skip
    return values * 1000.0 if micro else values


def good_bands(header: Header, bands: int) -> np.ndarray:
    """Return which bands the header's bad-band list (``bbl``) leaves; all without one."""
    listed = header.numbers("bbl")
    if listed is None:
        return np.ones(bands, dtype=bool)
    if listed.size != bands:
        raise Unreadable(f"{header.path}: bbl has {listed.size} entries; allowed: {bands}, one a band")
    return listed > 0


def header_text(shape: tuple[int, int, int], names: Sequence[str], description: str, more: Mapping[str, Any]) -> str:
    """Return the header of a cube (lines, samples, bands) of float32, interleaved by line."""
    lines, samples, bands = shape
    fields: dict[str, Any] = {
        "description": f"{{ {description} }}",
        "samples": samples,
        "lines": lines,
        "bands": bands,
        "header offset": 0,
        "file type": "ENVI Standard",
        "data type": 4,
        "interleave": "bil",
        "byte order": 0,
        "band names": "{ " + ", ".join(re.sub(r"[{},=]", " ", name) for name in names) + " }",
    }
    fields |= {name: "{ " + ", ".join(v) + " }" if isinstance(v, list) else v for name, v in more.items()}
    return "ENVI\n" + "".join(f"{name} = {value}\n" for name, value in fields.items())
