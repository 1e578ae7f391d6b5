"""Temporary files and folders beside the results they serve: names that nobody foresees, and no leftovers.

Whoever may write to the same folder must not be able to plant a link, a pipe or a file where one of these is to be. A
name therefore has 64 random bits, and is only ever created, never opened. While it is in use it is locked; what has
such a name, is ours and is not locked was left by a program that was killed, and the next one removes it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import platform
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

#: Whether a file can be renamed while it is open, and locked while it is.
LOCKS = fcntl is not None
#: Marks of the target and of this computer, eight digits each, and sixteen at random.
_NAME = re.compile(r"\.stepwell-([0-9a-f]{8})([0-9a-f]{8})[0-9a-f]{16}\.tmp")
#: Names that are tried before giving up: each has 64 random bits.
_TRIES = 100
#: Seconds without a change after which no writer on another computer, whose locks may not be seen here, still lives.
_LONG_AGO = 3600.0
_SAFE = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _SAFE


def create(target: str, mode: int, *, alone: bool = False) -> tuple[str, int]:
    """Create an empty file beside `target` that no one else has, and lock it; return its name and descriptor.

    What killed writers left in that folder is removed. `alone`: while another writer to `target` lives, that is a
    BlockingIOError.
    """
    folder, base = os.path.split(target)
    busy = remove_leftovers(folder)
    if alone and any(name.startswith(f".stepwell-{_mark(base)}") for name in busy):
        raise BlockingIOError(errno.EAGAIN, "another process is writing to it", target)
    for _ in range(_TRIES):
        name = _new_name(folder, base)
        try:
            descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | _SAFE, mode)
        except FileExistsError:
            continue
        if _lock(descriptor) is not False and is_still(name, descriptor):
            return name, descriptor
        os.close(descriptor)  # taken for a leftover in the moment before it was locked
    raise FileExistsError(errno.EEXIST, f"no name is free in {folder}", target)


@contextlib.contextmanager
def scratch_folder(parent: str | os.PathLike[str]) -> Iterator[str]:
    """Make a folder that only this user can enter, for files that are not kept; it is removed at the end."""
    remove_leftovers(os.fspath(parent))
    for _ in range(_TRIES):
        name = _new_name(os.fspath(parent), "")
        os.mkdir(name, 0o700)
        descriptor = os.open(name, _FOLDER) if LOCKS else None
        if descriptor is None or (_lock(descriptor) is not False and is_still(name, descriptor)):
            break
        os.close(descriptor)
    try:
        yield name
    finally:
        shutil.rmtree(name, ignore_errors=True)
        if descriptor is not None:
            os.close(descriptor)


def remove_leftovers(folder: str) -> list[str]:
    """Remove what killed programs of this user left in a folder; return the names that are in use."""
    busy: list[str] = []
    with contextlib.suppress(OSError), os.scandir(folder or ".") as found:
        busy += [entry.name for entry in found if _NAME.fullmatch(entry.name) and not _remove(entry.path)]
    return busy


def _remove(name: str) -> bool:
    """Remove one leftover; False for a file that is in use. What is not ours, or cannot be locked, is left alone."""
    try:
        kind = os.lstat(name)
        if not _is_ours(kind) or not (_is_of_here(name) or time.time() - kind.st_mtime > _LONG_AGO):
            return True
        folder = stat.S_ISDIR(kind.st_mode)
        # (O_NONBLOCK: were it exchanged for a pipe just now, one could wait for ever.)
        descriptor = os.open(name, _FOLDER if folder else os.O_RDWR | os.O_NONBLOCK | _SAFE)
    except (OSError, AttributeError):  # gone, or a system without such files
        return True
    try:
        locked = _lock(descriptor)
        if locked and _is_ours(os.fstat(descriptor)) and is_still(name, descriptor):
            shutil.rmtree(name) if folder else os.unlink(name)
        return locked is not False
    except OSError:
        return True
    finally:
        os.close(descriptor)


def _is_ours(found: os.stat_result) -> bool:
    """Whether this is a folder, or a file of one name, of this user's: a link, a pipe or another's file is not."""
    plain = stat.S_ISDIR(found.st_mode) or (stat.S_ISREG(found.st_mode) and found.st_nlink == 1)
    return plain and found.st_uid == os.geteuid()


def is_still(name: str, descriptor: int) -> bool:
    """Whether a name still is that of an open file."""
    try:
        return os.path.samestat(os.lstat(name), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _lock(descriptor: int) -> bool | None:
    """Lock a file; False where somebody has it locked, None where its file system has no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS, errno.EBADF):
            raise
        return None
    return True


def _new_name(folder: str, base: str) -> str:
    return os.path.join(folder, f".stepwell-{_mark(base)}{_mark(platform.node())}{secrets.token_hex(8)}.tmp")


def _is_of_here(name: str) -> bool:
    found = _NAME.fullmatch(os.path.basename(name))
    return found is not None and found[2] == _mark(platform.node())


def _mark(text: str) -> str:
    """Return a short mark by which writers to one target, or on one computer, know each other."""
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:8]
