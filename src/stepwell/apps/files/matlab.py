"""MATLAB files: version 5 (and 4) by SciPy, 7.3 by h5py; arrays of numbers only."""

from __future__ import annotations

import math
import os
import warnings
from typing import Any

import numpy as np

from stepwell.apps.files.hdf5 import open_hdf5, own_datasets, require_h5py
from stepwell.apps.files.packages import is_hdf5
from stepwell.common.array_files import require_room
from stepwell.common.files import Unreadable, damage_told, open_regular

#: MATLAB's classes of numbers, and the bytes of one.
_CLASSES = {
    "double": 8, "single": 4, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8,
    "uint64": 8, "logical": 1,
}  # fmt: skip


class MatlabFile:
    """The arrays of a file by name: their shapes at once, their numbers when asked for.

    Examples
    --------
    >>> import pathlib, tempfile, scipy.io
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "scene.mat"
    >>> scipy.io.savemat(file, {"Y": np.ones((3, 4)), "note": "text"})
    >>> MatlabFile(file).shapes
    {'Y': (3, 4)}
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._stored: dict[str, Any] | None = None  # datasets of HDF5
        if is_hdf5(path):
            require_h5py("matlab")
            file = open_hdf5(path)
            with damage_told(path):
                self._stored = own_datasets(file)
            # MATLAB's first axis runs fastest, that of HDF5 slowest.
            self.shapes = {name: tuple(map(int, held.shape[::-1])) for name, held in self._stored.items()}
            return
        import scipy.io

        with open_regular(path) as opened:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of names that stand twice
                    listed = scipy.io.whosmat(opened)
            except Exception as error:  # ValueError, NotImplementedError, struct.error, TypeError, zlib.error, ...
                said = " ".join(str(error).split())
                raise Unreadable(f"{self.path}: is no MATLAB file ({said or type(error).__name__})") from error
        self.shapes = {name: tuple(map(int, shape)) for name, shape, kind in listed if kind in _CLASSES}
        self._sizes = {name: _CLASSES[kind] for name, _, kind in listed if kind in _CLASSES}

    def stored(self, name: str) -> Any | None:
        """Return the dataset of an HDF5 file, with its axes reversed, of which parts can be read; else None."""
        return None if self._stored is None else self._stored[name]

    def __getitem__(self, name: str) -> np.ndarray:
        if self._stored is not None:
            held = self._stored[name]
            require_room(self.path, held.size * held.dtype.itemsize)
            with damage_told(self.path):
                return np.asarray(held[()]).T
        import scipy.io

        require_room(self.path, math.prod(self.shapes[name]) * self._sizes[name])
        with open_regular(self.path) as opened, damage_told(self.path), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return np.asarray(scipy.io.loadmat(opened, variable_names=[name])[name])
