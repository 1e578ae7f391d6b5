"""Files that Stepwell writes and reads: an old one stays whole until the new one is, and damage is told in a line."""

from __future__ import annotations

import contextlib
import contextvars
import errno
import os
import shutil
import stat
import zipfile
from collections.abc import Iterator
from typing import IO, Any

from stepwell.common.checks import require_path
from stepwell.common.temporary import LOCKS, create, is_still

Path = str | os.PathLike[str]
#: A pipe without a writer is opened, and then refused, without waiting for one.
_AT_ONCE = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


#: Characters of a library's reason that are told: some repeat what a damaged file holds.
_LONGEST_REASON = 240
#: The folders in which every name is this library's own choice: see `own_names`.
_OWN: contextvars.ContextVar[frozenset[str]] = contextvars.ContextVar("own_names", default=frozenset())


class Unreadable(ValueError):
    """A file that is not what it should be; the text begins with its path."""


@contextlib.contextmanager
def own_names(folder: Path) -> Iterator[None]:
    """Within this, names in `folder` are the library's own choice: nobody asked for a link there to be followed.

    `replacing` then puts a new file in place of whatever has the name there, a link, a pipe, a file of somebody else's,
    and neither writes to that nor takes over anything of it.
    """
    token = _OWN.set(_OWN.get() | {os.path.realpath(folder)})
    try:
        yield
    finally:
        _OWN.reset(token)


@contextlib.contextmanager
def replacing(
    path: Path, *, encoding: str | None = None, newline: str | None = None, again: bool = False
) -> Iterator[IO[Any]]:
    """Open a file to write in place of `path`, which is replaced in one step once everything is on the disk.

    What is written goes to a temporary file in the same folder (see `temporary`). It is synced, renamed to
    `path`, and the folder is synced: at every moment, also after a crash or SIGKILL, `path` is the whole old file or
    the whole new one. After an exception, Ctrl-C included, the old file is there and the temporary one is not; what a
    killed process leaves is removed by the next writing in that folder.

    Parameters
    ----------
    path : path
        A symbolic link stays one: the file it points to is replaced. Mode and, where allowed, owner are kept. A pipe, a
        terminal or a device is written to as it is. Within `own_names` none of this holds: the entry is replaced.
    encoding : str, optional
        For text; without it the file is binary.
    newline : str, optional
        As for `open`.
    again : bool
        For what is written again and again, such as a checkpoint: only a regular file is replaced, and a second process
        that writes to `path` at the same time is an OSError.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "answer.txt"
    >>> with replacing(file, encoding="utf-8") as new:
    ...     _ = new.write("42")
    >>> file.read_text()
    '42'
    """
    require_path("path", path)
    kind = "b" if encoding is None else ""
    folder, base = os.path.split(os.path.abspath(path))
    own = os.path.realpath(folder) in _OWN.get()
    try:
        old = os.lstat(path) if own else os.stat(path)
    except FileNotFoundError:
        old = None
    if own and old is not None and not _is_ours(old):
        old = None
    if old is not None and again and not stat.S_ISREG(old.st_mode):
        raise OSError(errno.EINVAL, "is not a regular file", os.fspath(path))
    if old is not None and not own and (not stat.S_ISREG(old.st_mode) or _is_standard_stream(old)):
        with open(path, "w" + kind, encoding=encoding, newline=newline) as file:
            yield file
        return
    if old is not None and not os.access(path, os.W_OK):  # renaming would not ask
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path))
    target = os.path.join(os.path.realpath(folder), base) if own else os.path.realpath(path)
    # Nobody may read what is to have a mode of its own before it has it.
    temporary, descriptor = create(target, 0o666 if old is None else 0o600, alone=again)
    try:
        with open(descriptor, "w" + kind, encoding=encoding, newline=newline) as file:
            yield file
            file.flush()
            if old is not None:
                _take_over(descriptor, old)
            os.fsync(descriptor)
            if LOCKS:  # while it is locked
                if not is_still(temporary, descriptor):
                    raise FileNotFoundError(errno.ENOENT, "somebody has taken away the file being written", temporary)
                os.replace(temporary, target)
        if not LOCKS:  # some systems do not rename what is open
            os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_folder(os.path.dirname(target))


def write_text(path: Path, text: str) -> None:
    """Write a text in UTF-8 as :func:`replacing` does."""
    with replacing(path, encoding="utf-8") as file:
        file.write(text)


@contextlib.contextmanager
def open_regular(path: Path) -> Iterator[IO[bytes]]:
    """Open a regular file to read bytes; a folder, a device, a socket, or a pipe, on which one could wait for ever, is
    `Unreadable`."""  # fmt: skip
    require_path("path", path)
    refused = f"{os.fspath(path)}: is not a regular file; allowed: a file on a disk"

    def at_once(name: str, flags: int) -> int:
        return os.open(name, flags | _AT_ONCE)

    try:
        file = open(path, "rb", opener=at_once)  # noqa: SIM115
    except OSError as error:
        if error.errno in (errno.EISDIR, errno.ENXIO, errno.ENODEV):
            raise Unreadable(refused) from None
        raise
    with file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise Unreadable(refused)
        yield file


def require_regular(path: Path) -> None:
    """Raise as :func:`open_regular` does, before a library opens the file by its name."""
    with open_regular(path):
        pass


def read_text(path: Path, at_most: int, *, encoding: str = "utf-8", errors: str = "strict") -> str:
    """Return the text of a regular file of at most so many bytes.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "long.txt"
    >>> write_text(file, "a" * 2000)
    >>> read_text(file, 1000).removeprefix(str(file))
    Traceback (most recent call last):
    ...
    stepwell.common.files.Unreadable: ...long.txt: holds more than 1000 bytes; allowed: at most so many
    """
    with open_regular(path) as file:
        content = file.read(at_most + 1)
    if len(content) > at_most:
        raise Unreadable(f"{os.fspath(path)}: holds more than {at_most} bytes; allowed: at most so many")
    try:
        return content.decode(encoding, errors)
    except UnicodeDecodeError as error:
        raise Unreadable(f"{os.fspath(path)}: is no text: {error}") from error


def unpack(packed: Any, scratch: Path, size: int, path: Path, ending: str) -> str:
    """Copy `size` bytes of a stream to a new file in a folder that is not kept; return its name.

    `path` is the file that the stream is read from, for errors. Where the disk has no room, nothing is copied.
    """
    free = shutil.disk_usage(scratch).free
    if size > free:
        raise Unreadable(f"{os.fspath(path)}: unpacked it takes {size} bytes; allowed: {free}, what the disk has")
    name = os.path.join(scratch, f"{len(os.listdir(scratch))}{ending}")
    with open(name, "xb") as file:
        left = size
        while left and (part := packed.read(min(left, 2**20))):
            left -= file.write(part)
    return name


def append_line(path: Path, text: str) -> None:
    """Add a line to a regular file whose readers pass over a last line that was cut short."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | _AT_ONCE
    with open(os.open(path, flags, 0o666), "a", encoding="utf-8") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "is not a regular file", os.fspath(path))
        file.write(text + "\n")


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
        said = " ".join(str(error).split()) or type(error).__name__  # in one line
        said = said if len(said) <= _LONGEST_REASON else f"{said[: _LONGEST_REASON - 3]}..."
        why = "is not an npz file" if foreign else f"cannot be read: {said}"
        raise Unreadable(f"{os.fspath(path)}: {why}") from error


def _is_ours(found: os.stat_result) -> bool:
    """Whether an entry of a folder is a regular file of this user's, and no link or pipe."""
    return stat.S_ISREG(found.st_mode) and (not hasattr(os, "geteuid") or found.st_uid == os.geteuid())


def _is_standard_stream(found: os.stat_result) -> bool:
    """Whether standard output or error goes to this file: replaced, what else is printed there would be lost."""
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            if os.path.samestat(found, os.fstat(descriptor)):
                return True
    return False


def _take_over(descriptor: int, old: os.stat_result) -> None:
    """Give an open file the owner and the mode of the one it is to replace, as far as that is allowed."""
    with contextlib.suppress(OSError, AttributeError):  # not every system has them
        os.fchown(descriptor, old.st_uid, old.st_gid)
    with contextlib.suppress(OSError, AttributeError):
        os.fchmod(descriptor, stat.S_IMODE(old.st_mode) & 0o777)


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
