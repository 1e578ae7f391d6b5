"""Files that Stepwell writes and reads: an old one stays whole until the new one is, and damage is told in a line."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
import zipfile
from collections.abc import Iterator, Mapping
from typing import IO, Any

import numpy as np

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

Path = str | os.PathLike[str]
_WRITE = os.O_WRONLY | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class Unreadable(ValueError):
    """A file that is not what it should be; the text begins with its path."""


@contextlib.contextmanager
def replacing(
    path: Path, *, encoding: str | None = None, newline: str | None = None, again: bool = False
) -> Iterator[IO[Any]]:
    """Open a file to write in place of `path`, which is replaced in one step once everything is on the disk.

    What is written goes to a temporary file in the same folder. It is synced, renamed to `path`, and the folder is
    synced: at every moment, also after a crash or SIGKILL, `path` is the whole old file or the whole new one. After an
    exception, Ctrl-C included, the old file is there and the temporary one is not.

    Parameters
    ----------
    path : path
        A symbolic link stays one: the file it points to is replaced. Mode and, where allowed, owner are kept. A pipe, a
        terminal or a device is written to as it is.
    encoding : str, optional
        For text; without it the file is binary.
    newline : str, optional
        As for `open`.
    again : bool
        For what is written again and again by programs that may be killed: the temporary file has one name, so that
        the next writing takes over what a killed one left. A second process that writes to `path` is an OSError.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "answer.txt"
    >>> with replacing(file, encoding="utf-8") as new:
    ...     _ = new.write("42")
    >>> file.read_text()
    '42'
    """
    kind = "b" if encoding is None else ""
    try:
        old = os.stat(path)
    except FileNotFoundError:
        old = None
    if old is not None and (not stat.S_ISREG(old.st_mode) or _is_standard_stream(old)):
        with open(path, "w" + kind, encoding=encoding, newline=newline) as file:
            yield file
        return
    if old is not None and not os.access(path, os.W_OK):  # renaming would not ask
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path))
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    again = again and fcntl is not None
    name = f".{os.path.basename(target)}.tmp" if again else f".stepwell-{secrets.token_hex(8)}.tmp"
    temporary = os.path.join(folder, name)
    # Nobody may read what is to have a mode of its own before it has it.
    mode = 0o666 if old is None else 0o600
    descriptor = _open_alone(temporary, mode) if again else os.open(temporary, _WRITE | os.O_EXCL, mode)
    try:
        with open(descriptor, "w" + kind, encoding=encoding, newline=newline) as file:
            yield file
            file.flush()
            if old is not None:
                _take_over(temporary, old)
            os.fsync(file.fileno())
            if again:  # while it is locked
                os.replace(temporary, target)
        if not again:  # some systems do not rename what is open
            os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_folder(folder)


def _open_alone(name: str, mode: int) -> int:
    """Open an empty file that no other process writes to; of one that was killed, what it left is taken over."""
    assert fcntl is not None
    while True:
        descriptor = os.open(name, _WRITE, mode)
        try:
            _lock(descriptor, name)
            # The one that was opened may have been renamed to its place before it could be locked.
            if os.path.samestat(os.fstat(descriptor), os.stat(name)):
                os.ftruncate(descriptor, 0)
                return descriptor
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _lock(descriptor: int, name: str) -> None:
    """Lock a file, where its file system has locks, or say that somebody else has."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BlockingIOError(errno.EAGAIN, "another process is writing to it", name) from None
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS):
            raise


def write_text(path: Path, text: str) -> None:
    """Write a text in UTF-8 as :func:`replacing` does."""
    with replacing(path, encoding="utf-8") as file:
        file.write(text)


@contextlib.contextmanager
def open_regular(path: Path) -> Iterator[IO[bytes]]:
    """Open a regular file to read bytes; a pipe, on which one could wait for ever, or a device is `Unreadable`."""

    def at_once(name: str, flags: int) -> int:
        return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))

    with open(path, "rb", opener=at_once) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise Unreadable(f"{os.fspath(path)}: is not a regular file; allowed: a file on a disk")
        yield file


def unpack(packed: IO[bytes], scratch: Path) -> None:
    """Copy a stream to a file of our own that is not kept, such as one that is then read by a memory map."""
    with open(scratch, "wb") as file:
        shutil.copyfileobj(packed, file, 2**20)


def append_line(path: Path, text: str) -> None:
    """Add a line to a file whose readers pass over a last line that was cut short."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(text + "\n")


def write_arrays(file: IO[bytes], arrays: Mapping[str, np.ndarray], *, compressed: bool = False) -> None:
    """Write arrays by name as an npz file, without pickle; it is closed on trouble, where old `numpy.savez` is not."""
    how = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(file, "w", how, allowZip64=True) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)


class NamedArrays:
    """The arrays of an npz file by name, each read when it is asked for."""

    def __init__(self, path: Path, held: Any) -> None:
        self._path, self._held = os.fspath(path), held
        self.names: frozenset[str] = frozenset(held.files)

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.names:
            raise Unreadable(f"{self._path}: has no array {name!r}; it holds {', '.join(sorted(self.names))}")
        with damage_told(self._path):
            found = self._held[name]
            if not isinstance(found, np.ndarray):  # a member that does not begin as an array does
                raise Unreadable(f"{self._path}: {name!r} is not an array")
        return found


@contextlib.contextmanager
def open_arrays(path: Path) -> Iterator[NamedArrays]:
    """Open an npz file; whatever is wrong with it is `Unreadable`, and an OSError where the system refuses.

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
        with damage_told(path, archive=True):
            held = np.load(file)
        if isinstance(held, np.ndarray):
            raise Unreadable(
                f"{os.fspath(path)}: the file holds a single array; allowed: an npz file with arrays by name"
            )
        with held:
            yield NamedArrays(path, held)


@contextlib.contextmanager
def damage_told(path: Path, *, archive: bool = False) -> Iterator[None]:
    """Turn whatever a damaged file makes NumPy, zipfile or Pillow raise into `Unreadable`."""
    try:
        yield
    except Unreadable:
        raise
    except Exception as error:  # zlib.error, RuntimeError (encrypted), MemoryError, SyntaxError, struct.error, ...
        # Of a damaged file come those of bz2, without a number, and of a place before the file's beginning.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        # Where an archive is opened, NumPy takes what is none for pickled objects.
        foreign = archive and (isinstance(error, zipfile.BadZipFile) or "pickle" in str(error))
        why = "is not an npz file" if foreign else f"cannot be read: {str(error) or type(error).__name__}"
        raise Unreadable(f"{os.fspath(path)}: {why}") from error


def _is_standard_stream(found: os.stat_result) -> bool:
    """Whether standard output or error goes to this file: replaced, what else is printed there would be lost."""
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            if os.path.samestat(found, os.fstat(descriptor)):
                return True
    return False


def _take_over(temporary: str, old: os.stat_result) -> None:
    """Give a file the owner and the mode of the one it is to replace, as far as that is allowed."""
    with contextlib.suppress(OSError, AttributeError):
        os.chown(temporary, old.st_uid, old.st_gid)
    with contextlib.suppress(OSError):
        os.chmod(temporary, stat.S_IMODE(old.st_mode) & 0o777)


def _sync_folder(folder: str) -> None:
    """Bring the renaming to the disk, where a folder can be opened and synced."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
