"""Arrays in npy and npz files: no pickle, and the sizes that a file tells of are held against what is there."""

from __future__ import annotations

import contextlib
import math
import os
import zipfile
from collections.abc import Iterator, Mapping
from typing import IO, Any

import numpy as np

from stepwell.common.checks import shown
from stepwell.common.files import Path, Unreadable, damage_told, open_regular, read_text, unpack
from stepwell.common.memory import available_memory

_ENDING = ".npy"
#: Bytes that a text with a number a line, or so, may have.
_TEXT_BYTES = 2**26


def write_arrays(file: IO[bytes], arrays: Mapping[str, np.ndarray], *, compressed: bool = False) -> None:
    """Write arrays by name as an npz file, without pickle; it is closed on trouble, where old `numpy.savez` is not."""
    how = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(file, "w", how, allowZip64=True) as archive:
        for name, array in arrays.items():
            with archive.open(name + _ENDING, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)


def read_array_file(path: Path) -> np.ndarray:
    """Return the array of an npy file; whatever is wrong with it is `Unreadable`."""
    with open_regular(path) as file, damage_told(path):
        require_room(path, _read_header(path, file, os.fstat(file.fileno()).st_size)[0])
        file.seek(0)
        array: np.ndarray = np.lib.format.read_array(file, allow_pickle=False)
        return array


def map_array_file(path: Path, origin: Path | None = None) -> np.ndarray:
    """Return the array of an npy file as a memory map, which reads from the disk what is asked for.

    `origin`: the file from which it was unpacked, which is the one that errors name.
    """
    told = path if origin is None else origin
    with open_regular(path) as file, damage_told(told):
        _, dtype, shape, fortran = _read_header(told, file, os.fstat(file.fileno()).st_size)
        if not math.prod(shape):
            return np.empty(shape, dtype)
        return np.memmap(file, dtype, "r", file.tell(), shape, "F" if fortran else "C")


def read_numbers(path: Path) -> np.ndarray:
    """Return the real numbers of an npy file, or of a text, with commas or spaces between, as one vector.

    What follows a # in a line of text is a remark; a first line without any number is a header.
    """
    if os.fspath(path).lower().endswith(_ENDING):
        found = read_array_file(path)
    else:
        lines = read_text(path, _TEXT_BYTES, encoding="utf-8-sig").splitlines()
        rows = [line.partition("#")[0].replace(",", " ").replace(";", " ").split() for line in lines]
        rows = [row for row in rows if row]
        if len(rows) > 1 and not any(_is_number(part) for part in rows[0]):
            rows = rows[1:]  # a header line
        with damage_told(path):
            found = np.array([float(part) for row in rows for part in row])
    if found.dtype.kind not in "biuf" or not found.size:
        raise Unreadable(f"{os.fspath(path)}: holds {found.size} of {found.dtype}; allowed: real numbers")
    return found.ravel().astype(np.float64)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


class NamedArrays:
    """The arrays of an npz file by name, each read when it is asked for."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self._path, self._archive = os.fspath(path), archive
        listed = archive.namelist()
        self.names: frozenset[str] = frozenset(name[: -len(_ENDING)] for name in listed if name.endswith(_ENDING))

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of one array, of which only the beginning is read."""
        with self._opened(name) as (member, size):
            return tuple(map(int, _read_header(self._path, member, size)[2]))

    def __getitem__(self, name: str) -> np.ndarray:
        with self._opened(name) as (member, size):
            require_room(self._path, _read_header(self._path, member, size)[0])
            member.seek(0)
            array: np.ndarray = np.lib.format.read_array(member, allow_pickle=False)
            return array

    def map(self, name: str, scratch: Path) -> np.ndarray:
        """Return one array as a memory map of a file in the folder `scratch`, to which it is unpacked."""
        with self._opened(name) as (member, size):
            return map_array_file(unpack(member, scratch, size, self._path, _ENDING), self._path)

    @contextlib.contextmanager
    def _opened(self, name: str) -> Iterator[tuple[IO[bytes], int]]:
        if name not in self.names:
            held = ", ".join(sorted(self.names)) or "no array"
            raise Unreadable(f"{self._path}: has no array {name!r}; it holds {held}")
        with damage_told(self._path):
            told = self._archive.getinfo(name + _ENDING)
            with self._archive.open(told) as member:
                yield member, told.file_size


@contextlib.contextmanager
def open_arrays(path: Path, *, stored: bool = False) -> Iterator[NamedArrays]:
    """Open an npz file; whatever is wrong with it is `Unreadable`, and an OSError where the system refuses.

    `stored`: its arrays must not be compressed, so that they never take more memory than the file takes of the disk.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "numbers.npz"
    >>> np.savez(file, a=np.arange(3))
    >>> with open_arrays(file) as arrays:
    ...     arrays["a"]
    array([0, 1, 2])
    """
    with open_regular(path) as file:
        if file.read(6) == b"\x93NUMPY":
            raise Unreadable(
                f"{os.fspath(path)}: the file holds a single array; allowed: an npz file with arrays by name"
            )
        file.seek(0)
        with damage_told(path, archive=True):
            archive = zipfile.ZipFile(file)
        with archive:
            if stored:
                _require_stored(path, archive, os.fstat(file.fileno()).st_size)
            yield NamedArrays(path, archive)


def _require_stored(path: Path, archive: zipfile.ZipFile, size: int) -> None:
    members = archive.infolist()
    told = sum(member.file_size for member in members)
    if told > size or any(member.compress_type != zipfile.ZIP_STORED for member in members):
        raise Unreadable(
            f"{os.fspath(path)}: unpacks to {told} bytes, and has {size} itself; allowed: no compressed arrays"
        )


def _read_header(path: Path, file: IO[bytes], size: int) -> tuple[int, np.dtype, tuple[int, ...], bool]:
    """Read up to an array's first byte and return its bytes, dtype, shape and order, held against the file's size."""
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise Unreadable(f"{os.fspath(path)}: is an npy file of version {version}; allowed: (1, 0), (2, 0)")
    reader: Any = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = reader(file)
    needed, there = dtype.itemsize * math.prod(shape), size - file.tell()
    if dtype.hasobject:
        raise Unreadable(
            f"{os.fspath(path)}: cannot be read: it holds objects of Python's; allowed: numbers, which need no pickle"
        )
    if min(shape, default=0) < 0:
        raise Unreadable(
            f"{os.fspath(path)}: cannot be read: it has shape {shown(shape)}; allowed: sizes of at least 0"
        )
    if needed > there:
        raise Unreadable(
            f"{os.fspath(path)}: cannot be read: an array {shown(shape)} of {dtype} takes {shown(needed)} bytes; "
            f"{there} are there"
        )
    return needed, dtype, shape, fortran


def require_room(path: Path, needed: int) -> None:
    """Raise where an array of so many bytes, as a file tells of it, is more than the memory can hold."""
    free = available_memory()
    if free is not None and needed > free:
        raise Unreadable(f"{os.fspath(path)}: an array takes {needed} bytes; {free} of memory are free")
