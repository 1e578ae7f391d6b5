"""Arrays by name, from whatever file they come, and the one of them that is meant."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from stepwell.apps.files.hdf5 import open_hdf5, own_datasets, own_groups, read_dataset, require_h5py
from stepwell.apps.files.matlab import MatlabFile
from stepwell.apps.files.packages import ending_of
from stepwell.apps.files.tables import read_table
from stepwell.common.array_files import NamedArrays, map_array_file, open_arrays
from stepwell.common.checks import meant
from stepwell.common.files import Unreadable, damage_told

#: Endings of HDF5 files.
HDF5 = (".h5", ".hdf5", ".hdf", ".he5", ".nxs")
#: By how much an array must exceed the next one to be taken for what is meant, where no name says so.
FAR_LARGER = 4
#: The name of the array of a file that has only one, without a name.
ONLY = ""


class Named:
    """Arrays by name: their shapes at once, their numbers when asked for."""

    def __init__(
        self,
        path: str,
        shapes: Mapping[str, tuple[int, ...]],
        get: Callable[[str], np.ndarray],
        units: Mapping[str, str],
    ) -> None:
        self.path, self.shapes, self._get, self.units = path, dict(shapes), get, dict(units)

    def __contains__(self, name: str) -> bool:
        return name in self.shapes

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.shapes:
            raise Unreadable(f"{self.path}: has no array {name!r}; it holds {listed(self.shapes)}")
        return self._get(name)

    def first(self, names: Sequence[str]) -> str | None:
        """Return which array has the first one of some names, in any case of letters; None if none has."""
        folded = {name.lower(): name for name in self.shapes}
        return next((folded[name] for name in names if name in folded), None)


@contextlib.contextmanager
def open_named(path: str | os.PathLike[str]) -> Iterator[Named]:
    """Open npz, npy, MATLAB, HDF5 or text; a file with one array without a name has it as ``""``.

    Of an HDF5 file the arrays are those of its group ``exchange``, if it has one, or of the file itself.
    """
    name, ending = os.fspath(path), ending_of(path)
    if ending in HDF5:
        require_h5py()
        with open_hdf5(path) as file:
            with damage_told(path):
                held = own_datasets(own_groups(file).get("exchange", file))
                shapes = {key: tuple(map(int, one.shape)) for key, one in held.items()}
                units = {key: _text(one.attrs.get("units")) for key, one in held.items() if "units" in one.attrs}
            yield Named(name, shapes, lambda key: read_dataset(path, held[key]), units)
    elif ending == ".mat":
        matlab = MatlabFile(path)
        yield Named(name, matlab.shapes, matlab.__getitem__, {})
    elif ending == ".npy":
        array = map_array_file(path)
        yield Named(name, {ONLY: array.shape}, lambda key: np.asarray(array), {})
    elif ending in (".csv", ".txt", ".tsv", ".dat"):
        numbers = read_table(path).numbers()
        yield Named(name, {ONLY: numbers.shape}, lambda key: numbers, {})
    else:
        with open_arrays(path) as arrays:
            yield Named(name, shapes_of(arrays), arrays.__getitem__, {})


def shapes_of(arrays: NamedArrays) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the arrays of an npz file; what cannot be read is left out beside what can."""
    shapes: dict[str, tuple[int, ...]] = {}
    trouble = None
    for key in sorted(arrays.names):
        try:
            shapes[key] = arrays.shape(key)
        except Unreadable as error:
            trouble = error
    if trouble is not None and not shapes:
        raise trouble
    return shapes


def choose_array(
    path: str | os.PathLike[str],
    shapes: Mapping[str, tuple[int, ...]],
    name: str | None,
    *,
    axes: Sequence[int],
    usual: Sequence[str],
    what: str = "image",
) -> str:
    """Return the array that was asked for, or the one that must be meant.

    Parameters
    ----------
    path : path
        For errors.
    shapes : dict
        Shapes by name.
    name : str or None
        What was asked for.
    axes : sequence of int
        Numbers of axes that it may have.
    usual : sequence of str
        Names in small letters that say what is meant, the surest first.
    what : str
        What is looked for, in a word.

    Examples
    --------
    >>> choose_array("a.npz", {"Y": (9, 9, 4), "mask": (9, 9)}, None, axes=(3,), usual=())
    'Y'
    """
    if name is not None:
        if name not in shapes:
            close = meant(name, shapes)
            raise Unreadable(f"{os.fspath(path)}: has no array {name!r}; it holds {listed(shapes)}{close}")
        return name
    sizes = {key: math.prod(shape) for key, shape in shapes.items() if len(shape) in axes}
    fit = {key: size for key, size in sizes.items() if size > 1}
    folded = {key.lower(): key for key in fit or sizes}  # one that is empty is told so by whoever wants it
    for word in usual:
        if word in folded:
            return folded[word]
    ordered = sorted(fit, key=lambda key: -fit[key])
    if len(ordered) == 1 or (ordered and fit[ordered[0]] >= FAR_LARGER * fit[ordered[1]]):
        return ordered[0]
    raise Unreadable(f"{os.fspath(path)}: holds {listed(shapes)}; say which one is the {what}")


def listed(shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Return names and shapes in words."""
    return ", ".join(f"{name} {shape}" for name, shape in sorted(shapes.items())) or "no array of numbers"


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
