"""HDF5 files: only what lies in the file itself is read, as others that it points to may be anything."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from stepwell.apps.files.foreign import made_elsewhere
from stepwell.common.array_files import require_room
from stepwell.common.files import Unreadable, damage_told, require_regular


def require_h5py(extra: str = "hdf5") -> None:
    """Raise ImportError with the command that installs h5py, where it is missing."""
    if importlib.util.find_spec("h5py") is None:
        raise ImportError(f"HDF5 files need h5py: pip install 'stepwell[{extra}]'")


def open_hdf5(path: str | os.PathLike[str], otherwise: str = "is no HDF5 file") -> Any:
    """Open a file to read; of what is no HDF5 file the error says so, or `otherwise`."""
    import h5py

    require_regular(path)
    if not h5py.is_hdf5(path):
        raise Unreadable(f"{os.fspath(path)}: {otherwise}")
    with damage_told(path):
        return h5py.File(path, "r")


def own_groups(file: Any) -> dict[str, Any]:
    """Return the groups of a file by name; links to other files are left out."""
    import h5py

    return {name: held for name, held in _own(file).items() if isinstance(held, h5py.Group)}


def own_datasets(group: Any) -> dict[str, Any]:
    """Return the arrays of numbers of a group by name; links to other files, and arrays kept in such, are left out."""
    import h5py

    return {
        name: held
        for name, held in _own(group).items()
        if isinstance(held, h5py.Dataset) and held.dtype.kind in "biufc" and not held.external and not held.is_virtual
    }


def _own(group: Any) -> dict[str, Any]:
    import h5py

    return {name: group[name] for name in group if isinstance(group.get(name, getlink=True), h5py.HardLink)}


def read_dataset(path: str | os.PathLike[str], held: Any) -> np.ndarray:
    """Return an array as a whole, if there is room for it: a file of a few bytes may tell of any size."""
    require_room(path, held.size * held.dtype.itemsize)
    with damage_told(path):
        return np.asarray(held[()])


def write_hdf5(
    path: str | os.PathLike[str], name: str, slices: Iterable[np.ndarray], count: int, about: dict[str, Any]
) -> None:
    """Write a stack of `count` arrays of one shape as float32, one after the other, and what is told beside it."""
    import h5py

    with made_elsewhere(path) as made, h5py.File(made, "w") as file:
        stack = None
        for place, one in enumerate(slices):
            if stack is None:
                stack = file.create_dataset(name, (count, *one.shape), "f4", chunks=(1, *one.shape), compression=4)
                stack.attrs.update({key: value for key, value in about.items() if value is not None})
            stack[place] = one
