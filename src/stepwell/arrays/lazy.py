"""Arrays of dask, computed later and block by block, and of xarray, whose dimensions have names.

Both are containers: what is solved in the end are arrays of NumPy or of a device's library. Neither library is imported
before an array of it is met. :mod:`stepwell.arrays.over_systems` makes a solver take them.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stepwell.arrays.kinds import Array
from stepwell.arrays.records import Records

#: A function of blocks that returns arrays, one for each field of a result.
BlockFunction = Callable[..., tuple[Array, ...]]

_containers: dict[type, str] = {}


def _container(value: Any) -> str:
    """Name the library of a container, ``"dask"`` or ``"xarray"``; nothing for anything else."""
    kind = _containers.get(type(value))
    if kind is None:
        dask, xarray = sys.modules.get("dask.array"), sys.modules.get("xarray")
        kind = "dask" if dask is not None and isinstance(value, dask.Array) else ""
        kind = "xarray" if xarray is not None and isinstance(value, xarray.DataArray) else kind
        _containers[type(value)] = kind
    return kind


def is_labelled(value: Any) -> bool:
    """Whether something is a DataArray of xarray."""
    return _container(value) == "xarray"


def is_lazy(value: Any) -> bool:
    """Whether something is an array that dask computes later, or a DataArray that holds one.

    Examples
    --------
    >>> import numpy as np
    >>> is_lazy(np.zeros(2))
    False
    """
    return _container(without_labels(value)) == "dask"


def is_container(*values: Any) -> bool:
    """Whether any of the values is an array of dask or a DataArray of xarray."""
    return any(map(_container, values))


def without_labels(value: Any) -> Any:
    """Return the array that a DataArray holds, and anything else as it is."""
    return value.data if is_labelled(value) else value


def sample_of(value: Array, core: int, systems: bool) -> Array:
    """Return an array in memory with the dtype, the library and the last `core` axes of another.

    With `systems` its first axis is that of no systems at all. Without, it is the array itself or, of one that is
    computed later, zeros of its shape.
    """
    value = without_labels(value)
    shape = tuple(value.shape[value.ndim - core :])
    if _container(value) == "dask":
        import numpy as np

        return np.zeros_like(value._meta, shape=(0, *shape) if systems else shape)
    if not systems:
        return value
    return value[None][:0] if value.ndim == core else value[(0,) * (value.ndim - core - 1)][:0]


def split_axes(value: Array, core: int) -> list[int]:
    """Return which of the last `core` axes of an array are cut into more than one block, counted from the end."""
    value = without_labels(value)
    if _container(value) != "dask":
        return []
    return [axis for axis in range(-core, 0) if len(value.chunks[axis]) > 1]


def has_unknown_sizes(value: Array) -> bool:
    """Whether dask does not know how many rows an array has before it is computed."""
    return any(math.isnan(size) for size in without_labels(value).shape)


def blocks_of(values: Sequence[Array]) -> int:
    """Return how many blocks the array that is cut into most of them has."""
    return max((int(math.prod(value.numblocks)) for value in values if _container(value) == "dask"), default=1)


def tasks_at_once(blocks: int) -> int:
    """Return by how many a task is to divide the cores that it sees, being one of so many.

    A worker of dask.distributed runs as many tasks side by side as it has threads. Tasks in threads of one process
    share one pool of threads with each other, and need not divide anything; those in processes on one machine do.
    """
    import multiprocessing

    distributed = sys.modules.get("distributed")
    if distributed is not None:
        try:
            return int(distributed.get_worker().state.nthreads)
        except ValueError:  # not in a worker
            pass
    if multiprocessing.parent_process() is None:
        return 1
    import dask.config
    from dask.system import CPU_COUNT

    return min(blocks, int(dask.config.get("num_workers", None) or CPU_COUNT))


def apply_to_blocks(
    function: BlockFunction,
    values: Sequence[Array],
    cores: Sequence[Sequence[str]],
    fields: Sequence[tuple[str, Array]],
) -> Records:
    """Apply a function to arrays of which one at least is dask's, block by block and later.

    Parameters
    ----------
    function : callable
        Takes as many arrays as there are values, returns as many as there are fields: leading axes are systems, in any
        number, which are broadcast.
    values : sequence of array
        What it is applied to. An array in memory travels with the graph once, as a key of its own.
    cores : sequence of sequences of str
        Names of the last axes of each value, which no block cuts.
    fields : sequence of (str, array)
        The name of each array that is returned, and one of its dtype and library with no systems along its first axis.
    """
    from dask.array import from_array
    from dask.array.core import unify_chunks
    from dask.base import tokenize
    from dask.blockwise import blockwise
    from dask.highlevelgraph import HighLevelGraph

    lazy = [v if _container(v) == "dask" else from_array(v, chunks=v.shape, asarray=False) for v in values]
    fronts = [value.ndim - len(core) for value, core in zip(lazy, cores)]
    axes = [
        (*(f"system{axis - front}" for axis in range(front)), *(f"{k}{name}" for name in core))
        for k, (front, core) in enumerate(zip(fronts, cores))
    ]
    chunks, cut = unify_chunks(*(entry for pair in zip(lazy, axes) for entry in pair))
    systems = tuple(f"system{axis}" for axis in range(-max(fronts), 0))
    name = f"systems-{tokenize(function, *(value.name for value in cut))}"
    layer = blockwise(
        _OfWholeSystems(function, tuple(map(len, cores))),
        name,
        systems,
        *(entry for value, own in zip(cut, axes) for entry in (value.name, own)),
        numblocks={value.name: value.numblocks for value in cut},
    )
    graph = HighLevelGraph.from_collections(name, layer, dependencies=cut)
    return Records(graph, name, tuple(chunks[axis] for axis in systems), tuple(fields))


@dataclasses.dataclass(frozen=True)
class _OfWholeSystems:
    """A function of blocks as dask calls it: with lists of blocks along axes that have no more than one."""

    function: BlockFunction
    core_axes: tuple[int, ...]

    def __call__(self, *lists: Any) -> tuple[Array, ...]:
        return self.function(*(_only(blocks, axes) for blocks, axes in zip(lists, self.core_axes)))


def _only(blocks: Any, depth: int) -> Array:
    for _ in range(depth):
        (blocks,) = blocks
    return blocks


def apply_to_labelled(
    function: BlockFunction,
    values: Sequence[Array],
    cores: Sequence[Sequence[str]],
    outputs: Sequence[Sequence[str]],
    names: Sequence[str],
) -> tuple[Array, ...]:
    """Apply a function of plain arrays to DataArrays, whose other dimensions are systems, by their names.

    Coordinates that fit are kept; those that do not agree between arrays are an error.

    Parameters
    ----------
    function : callable
        Takes the arrays with their core dimensions last and returns as many as there are outputs.
    values : sequence of DataArray or array
        Plain arrays have their core dimensions and no other.
    cores, outputs : sequence of sequences of str
        The core dimensions of each value and output, by their names in xarray.
    names : sequence of str
        The name of each output.
    """
    import xarray

    labelled = [
        value if is_labelled(value) else xarray.DataArray(value, dims=core) for value, core in zip(values, cores)
    ]
    found = xarray.apply_ufunc(
        function,
        *labelled,
        input_core_dims=[list(core) for core in cores],
        output_core_dims=[list(core) for core in outputs],
        dask="allowed",
        join="exact",
    )
    return tuple(array.rename(name) for array, name in zip(found, names))


def labels_of(value: Array) -> tuple[str, ...]:
    """Return the names of a DataArray's dimensions."""
    return tuple(map(str, value.dims))


def chunks_in_words(value: Array, names: Mapping[int, str]) -> str:
    """Say how an array is to be cut so that no block ends along some axes: the call that does it."""
    if is_labelled(value):
        return f"chunk({{{', '.join(f'{name!r}: -1' for name in names.values())}}})"
    return f"rechunk({{{', '.join(f'{axis}: -1' for axis in names)}}})"
