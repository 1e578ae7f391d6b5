"""Maps that grow on the disk, slab by slab: a run that was stopped goes on where it was, in any amount of memory."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stepwell.apps.images.sources import Image
from stepwell.common.array_files import map_array_file
from stepwell.common.files import Unreadable, read_text, replacing, write_text
from stepwell.common.logs import log

#: Bytes that the voxels of one step, with what is made of them, may take.
STEP_BYTES = 2**27
#: Bytes that the note of the settings may have.
LARGEST_NOTE = 2**28
#: Numbers that are held of a voxel beside its channels, per channel, while it is worked on.
PER_CHANNEL = 8
#: Steps in which an image is done, where someone watches, and voxels that a step has at the least.
STEPS, LEAST_VOXELS = 50, 256


class Work:
    """A folder with one array on the disk for each map, and a note of the slabs that are done.

    Parameters
    ----------
    folder : path
        Made where it is not there. One that a run with the same `settings` has left is gone on with.
    settings : dict
        Everything that the maps depend on, of what JSON can hold.
    maps : dict
        Shape and dtype of each map by its name. Float maps begin as NaN, others as -1.
    slabs : int
        Slabs along the axis in which the maps grow.
    restart : bool, default False
        Begin anew, whatever is in the folder.

    Attributes
    ----------
    arrays : dict of memmap
        The maps.
    resumed : int
        Slabs that were done when the folder was opened.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        settings: Mapping[str, Any],
        maps: Mapping[str, tuple[tuple[int, ...], str]],
        slabs: int,
        *,
        restart: bool = False,
    ) -> None:
        self.folder = Path(folder)
        note = self.folder / "settings.json"
        text = json.dumps(dict(settings), indent=1, sort_keys=True)
        if restart:
            shutil.rmtree(self.folder, ignore_errors=True)
        _require_own(self.folder)
        if note.exists() and read_text(note, LARGEST_NOTE, errors="replace") != text:
            raise ValueError(
                f"{self.folder}: holds an unfinished run with other settings or another input; allowed: the same "
                "again, or a restart, which discards it"
            )
        fresh = not note.exists()
        wanted = {**maps, "done": ((slabs,), "u1")}
        if fresh:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)
            _require_room(self.folder, wanted)
        self.arrays: dict[str, np.ndarray] = {
            name: self._open(name, shape, np.dtype(dtype), fresh) for name, (shape, dtype) in wanted.items()
        }
        self._done = self.arrays.pop("done")
        if fresh:
            self._done[:] = 0
            write_text(note, text)
        self.resumed = int(np.count_nonzero(self._done))
        self.slabs = slabs

    def _open(self, name: str, shape: tuple[int, ...], dtype: np.dtype, fresh: bool) -> np.ndarray:
        """Map a file, made or left by an earlier run, in which what is written stays."""
        path = self.folder / f"{name}.npy"
        if fresh:
            return np.lib.format.open_memmap(path, "w+", dtype, shape)
        found = map_array_file(path)
        if path.is_symlink() or (found.shape, found.dtype) != (shape, dtype):
            raise Unreadable(f"{path}: is not the map of the unfinished run; allowed: a restart, which discards it")
        return np.lib.format.open_memmap(path, "r+")

    def is_done(self, start: int, stop: int) -> bool:
        """Whether all of these slabs are done."""
        return bool(np.all(self._done[start:stop]))

    def put(self, axis: int, start: int, stop: int, values: Mapping[str, np.ndarray]) -> None:
        """Write slabs of all maps; only once they are on the disk they count as done."""
        for name, array in self.arrays.items():
            where = [slice(None)] * array.ndim
            where[axis] = slice(start, stop)
            array[tuple(where)] = np.asarray(values[name]).reshape(array[tuple(where)].shape)
            array.flush()  # type: ignore[attr-defined]
        self._done[start:stop] = 1
        self._done.flush()  # type: ignore[attr-defined]

    def discard(self) -> None:
        """Remove the folder: the maps are elsewhere now."""
        self.arrays.clear()
        del self._done
        shutil.rmtree(self.folder)


def _require_own(folder: Path) -> None:
    """Raise unless a folder, where it is there, is one of this user's: maps must not go where another points to."""
    if os.path.lexists(folder):
        found = os.lstat(folder)
        own = not hasattr(os, "geteuid") or found.st_uid == os.geteuid()
        if not stat.S_ISDIR(found.st_mode) or not own:
            raise Unreadable(f"{folder}: is not a folder of this user's; allowed: to remove it, and begin anew")


def _require_room(folder: Path, maps: Mapping[str, tuple[tuple[int, ...], str]]) -> None:
    """Raise where the disk cannot hold the maps, whose sizes are those that an input tells of."""
    needed = sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in maps.values())
    free = shutil.disk_usage(folder).free
    if needed > free:
        shutil.rmtree(folder)
        raise Unreadable(f"{folder}: the maps take {needed} bytes; allowed: {free}, what the disk has")


def fill(
    image: Image,
    work: Work,
    make: Callable[[np.ndarray, int, int], Mapping[str, np.ndarray]],
    *,
    progress: Callable[[int, int], object] | None = None,
    step_bytes: int = STEP_BYTES,
    small_steps: bool = True,
) -> None:
    """Make the maps of an image, a few slabs at a time.

    Parameters
    ----------
    make : callable
        ``make(block, start, stop)`` is given slabs of the image as float64 and returns those of every map.
    progress : callable, optional
        Called as ``progress(done, slabs)``.
    step_bytes : int
        Bytes that one step may take; a slab is the least.
    small_steps : bool, default True
        Whether an image that one step could do is done in several, so that progress moves; not worth it on a device.
    """
    slab = int(np.prod(image.shape)) // max(1, image.shape[image.axis])  # numbers, channels included
    step = max(1, step_bytes // max(1, 8 * PER_CHANNEL * slab))
    if small_steps and progress is not None:
        enough = -(-LEAST_VOXELS * image.shape[-1] // max(1, slab))
        step = min(step, max(enough, -(-work.slabs // STEPS)))
    for start in range(0, work.slabs, step):
        stop = min(work.slabs, start + step)
        if not work.is_done(start, stop):
            work.put(image.axis, start, stop, make(image.read(start, stop), start, stop))
            log.info("%s: %d of %d slabs are done", image.path, stop, work.slabs)
        if progress is not None:
            progress(stop, work.slabs)


@contextlib.contextmanager
def make_folder(folder: Path) -> Iterator[None]:
    """Make a folder for results; where nothing comes of it, it goes again."""
    new = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):  # something is in it
            for one in new:
                one.rmdir()
        raise


def refuse_other_settings(account: Path, settings: Mapping[str, Any], overwrite: bool) -> bool:
    """Raise where a finished run with other settings, or of another input, has left its account here.

    With `overwrite` return whether there is such a run, which `forget_finished` then removes.
    """
    if not account.exists():
        return False
    try:
        held = json.loads(read_text(account, LARGEST_NOTE))["settings"]
    except (ValueError, KeyError, TypeError):
        held = None
    now, before = (_deciding(one) for one in (plain(settings), held))
    if now == before:
        return False
    if overwrite:
        return True
    names = [name for name in now if not isinstance(before, dict) or before.get(name) != now[name]]
    raise Unreadable(
        f"{account}: is the account of a finished run with other settings or another input ({', '.join(names[:4])}); "
        "allowed: another place, or --overwrite (overwrite=True)"
    )


def forget_finished(account: Path, *others: str) -> None:
    """Remove a finished run with other settings: its account, the maps named there, and others of its folder.

    Nothing of it then stays beside the new answer, such as a map or a picture that this one does not make.
    """
    try:
        maps = [str(one["file"]) for one in json.loads(read_text(account, LARGEST_NOTE))["maps"].values()]
    except (ValueError, KeyError, TypeError, AttributeError):
        maps = []
    for name in (account.name, *(Path(one).name for one in maps), *others):
        with contextlib.suppress(OSError):
            (account.parent / name).unlink()


def _deciding(settings: Any) -> Any:
    """Return settings without threads, and without when files were changed: made anew they are the same input."""
    if isinstance(settings, dict):
        return {name: _deciding(value) for name, value in settings.items() if name not in ("changed", "threads")}
    return [_deciding(one) for one in settings] if isinstance(settings, list) else settings


def identity(path: str | os.PathLike[str] | None) -> dict[str, Any] | None:
    """Return what tells a file from another one, or from itself after a change."""
    if path is None:
        return None
    found = os.stat(path)
    return {"path": os.path.realpath(path), "bytes": found.st_size, "changed": found.st_mtime_ns}


def plain(value: Any) -> Any:
    """Return a record of what JSON can hold: numbers that are not finite become None, arrays and tuples lists."""
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def write_npy(path: str | os.PathLike[str], array: np.ndarray) -> None:
    """Write an array that may lie on the disk, a slab at a time."""
    head = {"descr": np.lib.format.dtype_to_descr(array.dtype), "fortran_order": False, "shape": array.shape}
    with replacing(path) as file:
        np.lib.format.write_array_header_2_0(file, head)
        for slab in array:
            file.write(np.ascontiguousarray(slab).tobytes())
