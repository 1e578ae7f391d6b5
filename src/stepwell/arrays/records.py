"""Results in blocks that dask computes later: a task a block returns all arrays of it, and a field takes its own.

A result is itself a collection of dask's: ``dask.compute(result)`` has no task for a field, and joins them all in one.
Nothing of dask is imported before an array of it is met.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Sequence
from typing import Any

from stepwell.arrays.kinds import Array, namespace_of

#: Makes a result of its arrays. It travels with the graph.
Assemble = Callable[[Sequence[Array]], Any]


@dataclasses.dataclass(frozen=True)
class Records:
    """The blocks of a result, each a tuple of arrays that have the systems along their first axes.

    Attributes
    ----------
    graph : HighLevelGraph
        Of dask, with one key a block under `name`.
    name : str
        The first part of the keys.
    chunks : tuple of tuples of int
        How many systems the blocks have along each axis of systems.
    fields : tuple of (str, array)
        What each array of a record is called, and one like it without any systems.
    kept : bool
        Whether the graph holds the arrays themselves, so that what is handed out has to be a copy.
    """

    graph: Any
    name: str
    chunks: tuple[tuple[int, ...], ...]
    fields: tuple[tuple[str, Array], ...]
    kept: bool = False

    def keys(self, *block: int) -> Any:
        """Return the keys of all blocks, or of those whose numbers begin so, in nested lists."""
        if len(block) == len(self.chunks):
            return (self.name, *block) if block else [(self.name,)]
        return [self.keys(*block, k) for k in range(len(self.chunks[len(block)]))]

    def arrays(self) -> tuple[Array, ...]:
        """Return the fields as arrays of dask."""
        from dask.array import Array as Lazy
        from dask.blockwise import blockwise
        from dask.highlevelgraph import HighLevelGraph

        systems = tuple(f"system{axis}" for axis in range(len(self.chunks)))
        blocks = {self.name: tuple(map(len, self.chunks))}
        found = []
        for number, (called, sample) in enumerate(self.fields):
            name = f"{called}-{self.name}"
            core = {f"core{axis}": size for axis, size in enumerate(sample.shape[1:])}
            layer = blockwise(
                operator.itemgetter(number),
                name,
                (*systems, *core),
                self.name,
                systems,
                numblocks=blocks,
                new_axes=dict.fromkeys(core, 1),
            )
            graph = HighLevelGraph({**self.graph.layers, name: layer}, {**self.graph.dependencies, name: {self.name}})
            found.append(Lazy(graph, name, (*self.chunks, *((size,) for size in core.values())), meta=sample))
        return tuple(found)

    def rebuilt(self, graph: Any, rename: dict[str, str] | None) -> Records:
        """Return the same of a graph that holds what was computed, or other names."""
        from dask.highlevelgraph import HighLevelGraph

        name = (rename or {}).get(self.name, self.name)
        if not isinstance(graph, HighLevelGraph):
            graph = HighLevelGraph.from_collections(name, graph, dependencies=())
        return dataclasses.replace(self, graph=graph, name=name, kept=True)


def joined(blocks: Any, number: int, axis: int = 0) -> Array:
    """Return one array of records in nested lists, as the array of all systems."""
    if isinstance(blocks, tuple):
        return blocks[number]
    parts = [joined(part, number, axis + 1) for part in blocks]
    return parts[0] if len(parts) == 1 else namespace_of(parts[0]).concatenate(parts, axis=axis)


def _assembled(blocks: Any, assemble: Assemble, count: int, kept: bool) -> Any:
    arrays = [joined(blocks, number) for number in range(count)]
    return assemble([namespace_of(array).asarray(array, copy=True) for array in arrays] if kept else arrays)


@dataclasses.dataclass(frozen=True)
class _Later:
    records: Records
    assemble: Assemble


class ComputedLater:
    """A result that is a collection of dask's where :func:`computed_later` made it, and nothing to dask elsewhere."""

    def __dask_graph__(self) -> Any:
        later = vars(self).get("_later")
        return None if later is None else later.records.graph

    def __dask_keys__(self) -> Any:
        return vars(self)["_later"].records.keys()

    def __dask_tokenize__(self) -> Any:
        later = vars(self).get("_later")
        return type(self).__name__, self.__getstate__() if later is None else later.records.name

    def __dask_postcompute__(self) -> Any:
        later = vars(self)["_later"]
        return _assembled, (later.assemble, len(later.records.fields), later.records.kept)

    def __dask_postpersist__(self) -> Any:
        return self._rebuilt, ()

    def _rebuilt(self, graph: Any, *, rename: dict[str, str] | None = None) -> Any:
        later = vars(self)["_later"]
        return computed_later(later.records.rebuilt(graph, rename), later.assemble)

    # As arrays of dask have them, so that both can be computed together.

    @property
    def __dask_optimize__(self) -> Any:
        from dask.array import Array as Lazy

        return Lazy.__dask_optimize__

    @property
    def __dask_scheduler__(self) -> Any:
        from dask.array import Array as Lazy

        return Lazy.__dask_scheduler__


def computed_later(records: Records, assemble: Assemble) -> Any:
    """Return the result of arrays of dask, which can be computed as a whole where its class is a ComputedLater."""
    result = assemble(records.arrays())
    if isinstance(result, ComputedLater):
        vars(result)["_later"] = _Later(records, assemble)
    return result
