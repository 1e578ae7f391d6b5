"""Solvers of many small systems, over arrays of dask and xarray: lazy, block by block, with the bits of a direct call.

A function of a batch becomes one of such arrays by a call of :func:`over_systems` at its head, which says which axes of
each argument belong to one system and which of each field of the result.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from stepwell.arrays import Array, is_array, namespace_of
from stepwell.arrays.checks import read_array
from stepwell.arrays.lazy import (
    apply_to_blocks,
    apply_to_labelled,
    blocks_of,
    chunks_in_words,
    has_unknown_sizes,
    is_container,
    is_labelled,
    labels_of,
    sample_of,
    split_axes,
    tasks_at_once,
    without_labels,
)
from stepwell.arrays.records import Records, computed_later
from stepwell.common.checks import read_whole, require
from stepwell.common.threads import default_threads, threads_at_most

#: What dimensions of a result are called that no argument names.
NAMES = {"n": "unknown"}

Path = tuple[str, ...]

_whole: ContextVar[int] = ContextVar("systems_of_the_whole_batch", default=0)


def systems_of_whole(systems: int) -> int:
    """Return how many systems the batch has that these are a block of; these, where they are a batch of their own.

    What a solver decides by the number of systems, it decides by this number, or a block would be solved in another way
    than the batch.
    """
    return max(systems, _whole.get())


@contextlib.contextmanager
def block_of(systems: int) -> Iterator[None]:
    """Let solvers treat the systems that they are given as a block of a batch of so many: with the bits of the whole.

    `nnls`, `lsq_linear`, `lsq_gram` and `curve_fit` choose their ways by the number of systems. Within this context
    they choose as for the whole batch, so that blocks can be solved anywhere, in any order.

    Parameters
    ----------
    systems : int
        How many systems the whole batch has.

    Examples
    --------
    >>> import numpy as np, stepwell
    >>> random = np.random.default_rng(0)
    >>> A, B = random.random((6, 3)), random.random((1000, 6))
    >>> with stepwell.distributed.block_of(1000):
    ...     block = stepwell.nnls(A, B[300:310])
    >>> np.array_equal(block.x, stepwell.nnls(A, B).x[300:310])
    True
    """
    systems = read_whole("systems", systems, 1)
    before = _whole.set(systems)
    try:
        yield
    finally:
        _whole.reset(before)


def over_systems(
    solve: Callable[..., Any],
    arguments: Mapping[str, tuple[Any, str]],
    fields: Mapping[str, str],
    *,
    dim: str | None = None,
    axis: int = 0,
    names: Mapping[str, str] = NAMES,
) -> Any:
    """Solve a batch given as arrays of dask or xarray, and return its result with fields of the same kind.

    Nothing is computed of an array of dask. All that can be checked is checked before a graph is made, by solving a
    batch of no systems, whose result also shows the fields and their dtypes.

    Parameters
    ----------
    solve : callable
        Takes the arguments by name and returns a dataclass or dict, nested or not, of arrays with the systems along
        their first axis, and of anything else. For tasks in other processes it must be known by name (or a
        ``functools.partial`` of what is) and hold no large array.
    arguments : dict of str to (array, str)
        Each argument with a letter for each of its last axes, those of one system, such as ``"mn"`` for a matrix. Axes
        before them are systems. Equal letters are equal sizes. The first argument is what systems are counted by; any
        other may be without systems, and is then shared by all. What is None is left out.
    fields : dict of str to str
        The letters of the axes behind the systems' of each field of the result that has any.
    dim : str, optional
        The name of the first argument's dimension that belongs to one system, where it is a DataArray.
    axis : {0, 1}, default 0
        Along which axis of two the systems of vectors lie, in arguments and in the result.
    names : dict of str to str
        What the dimensions of other letters are called unless a DataArray among the arguments names them.

    Returns
    -------
    object
        As `solve` returns, with arrays of dask or DataArrays.
    """
    cores = {name: core for name, (value, core) in arguments.items() if value is not None}
    values = {name: _read(name, arguments[name][0]) for name in cores}
    first = next(iter(values))
    labelled = any(map(is_labelled, values.values()))
    if labelled:
        kind = type(values[first]).__name__
        require(is_labelled(values[first]), first, kind, "a DataArray of xarray, as another argument is one")
        require(axis == 0, "axis", axis, "0 with a DataArray, whose dimensions have names")
        called = _names_of_letters(values, cores, first, dim, names)
    else:
        require(dim is None, "dim", dim, f"None, unless {first} is a DataArray of xarray")
        called = {}
    columns = {name for name in values if axis == 1 and len(cores[name]) == 1 and values[name].ndim == 2}
    _require_whole_systems(values, cores, called, columns)
    values = {name: value.T if name in columns else value for name, value in values.items()}
    values = {name: _core_last(value, cores[name], called) for name, value in values.items()}
    systems, owners = _count_systems(values, cores, called)
    _require_equal_sizes(values, cores)
    samples = [sample_of(value, len(cores[name]), name in {first} | owners) for name, value in values.items()]
    kernel = _Kernel(solve, tuple(values), tuple(map(len, cores.values())), systems)
    result, leaves = kernel.of_no_systems(samples)
    blocks = blocks_of([without_labels(value) for value in values.values()])
    kernel = dataclasses.replace(kernel, blocks=blocks, paths=tuple(leaves))
    letters = [fields.get(path[-1], "") for path in leaves]

    turned = first in columns
    assemble = _Assembled(result, kernel.paths, tuple(bool(core) and turned for core in letters))
    named = [("-".join(path), sample) for path, sample in leaves.items()]

    def records_of(plain: Sequence[Array]) -> Records:
        return apply_to_blocks(kernel, plain, list(cores.values()), named)

    if not labelled:
        return computed_later(records_of(list(values.values())), assemble)

    def of_arrays(*plain: Array) -> tuple[Array, ...]:
        return records_of(plain).arrays() if is_container(*plain) else kernel(*plain)

    return assemble(
        apply_to_labelled(
            of_arrays,
            list(values.values()),
            [[called[letter] for letter in core] for core in cores.values()],
            [[called[letter] for letter in core] for core in letters],
            [path[-1] for path in leaves],
        )
    )


def _read(name: str, value: Any) -> Array:
    return value if is_container(value) else read_array(name, value)


@dataclasses.dataclass(frozen=True)
class _Kernel:
    """What is done with one block of each argument: axes of systems become one, and afterwards what they were."""

    solve: Callable[..., Any]
    names: tuple[str, ...]
    core_axes: tuple[int, ...]
    systems: int  # of the whole batch
    blocks: int = 1
    paths: tuple[Path, ...] = ()  # the fields that are returned

    def of_no_systems(self, samples: Sequence[Array]) -> tuple[Any, dict[Path, Array]]:
        """Solve a batch of none: return its result, and its fields that have the systems along their first axis."""
        with block_of(max(self.systems, 1)):
            result = self.solve(**dict(zip(self.names, samples)))
        return result, dict(_leaves(result))

    def __call__(self, *blocks: Array) -> tuple[Array, ...]:
        fronts = [tuple(block.shape[: block.ndim - core]) for block, core in zip(blocks, self.core_axes)]
        front = np.broadcast_shapes(*fronts)
        given = {}
        for k, (name, block) in enumerate(zip(self.names, blocks)):
            if k == 0 or fronts[k]:
                core = tuple(block.shape[block.ndim - self.core_axes[k] :])
                xp = namespace_of(block)
                whole = block if fronts[k] == front else xp.broadcast_to(block, front + core)
                block = xp.reshape(whole, (math.prod(front), *core))
            given[name] = block
        with block_of(max(self.systems, 1)), threads_at_most(default_threads() // tasks_at_once(self.blocks)):
            result = self.solve(**given)
        found = [_leaf(result, path) for path in self.paths]
        return tuple(namespace_of(leaf).reshape(leaf, front + tuple(leaf.shape[1:])) for leaf in found)


def _leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Array]]:
    """Yield the arrays of a result of no systems, with the way to them."""
    if is_array(value):
        yield path, value
    elif isinstance(value, Mapping):
        for name, entry in value.items():
            yield from _leaves(entry, (*path, name))
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _leaves(getattr(value, field.name), (*path, field.name))


@dataclasses.dataclass(frozen=True)
class _Assembled:
    """Makes a result of its arrays: those of the result of no systems are replaced."""

    of_no_systems: Any
    paths: tuple[Path, ...]
    turned: tuple[bool, ...]  # whose systems are columns

    def __call__(self, arrays: Sequence[Array]) -> Any:
        result = self.of_no_systems
        for path, array, turned in zip(self.paths, arrays, self.turned):
            result = _with_leaf(result, path, array.T if turned else array)
        return result


def _leaf(value: Any, path: Path) -> Array:
    for name in path:
        value = value[name] if isinstance(value, Mapping) else getattr(value, name)
    return value


def _with_leaf(value: Any, path: Path, leaf: Any) -> Any:
    """Return a copy of a result with one array replaced."""
    if not path:
        return leaf
    name, *rest = path
    if isinstance(value, Mapping):
        return {**value, name: _with_leaf(value[name], tuple(rest), leaf)}
    return dataclasses.replace(value, **{name: _with_leaf(getattr(value, name), tuple(rest), leaf)})


# ---- names of dimensions ----


def _names_of_letters(
    values: Mapping[str, Any], cores: Mapping[str, str], first: str, dim: str | None, names: Mapping[str, str]
) -> dict[str, str]:
    """Return what the dimension of each letter is called."""
    dims = labels_of(values[first])
    if dim is None and len(dims) == 1:
        (dim,) = dims
    require(dim in dims, "dim", dim, f"the dimension of {first} along which one system lies, of {dims}")
    called = {cores[first][0]: str(dim)}
    for name, value in values.items():
        if name == first or not is_labelled(value):
            continue
        others = [label for label in labels_of(value) if label not in (*dims, *called.values())]
        free = [letter for letter in cores[name] if letter not in called]
        known = [called[letter] for letter in cores[name] if letter in called]
        fits = len(others) == len(free) and all(label in labels_of(value) for label in known)
        wanted = " and ".join([*map(repr, known), *(f"one that {first} does not have" for _ in free)]) or "none"
        require(fits, f"{name}.dims", labels_of(value), f"{wanted}, and dimensions of {first}")
        called |= zip(free, others)
    return {**names, **called}


def _core_last(value: Array, core: str, called: Mapping[str, str]) -> Array:
    """Return a DataArray with the dimensions of one system last, and anything else as it is."""
    return value.transpose(..., *(called[letter] for letter in core)) if is_labelled(value) else value


# ---- sizes and blocks ----


def _count_systems(
    values: Mapping[str, Any], cores: Mapping[str, str], called: Mapping[str, str]
) -> tuple[int, set[str]]:
    """Return the number of systems, and the arguments that have some of their own."""
    fronts = {name: tuple(value.shape[: value.ndim - len(cores[name])]) for name, value in values.items()}
    owners = {name for name, front in fronts.items() if front}
    if called:
        sizes: dict[str, int] = {}
        for name in owners:
            sizes |= zip(labels_of(values[name]), fronts[name])
        return math.prod(sizes.values()), owners
    try:
        return math.prod(np.broadcast_shapes(*fronts.values())), owners
    except ValueError:
        said = ", ".join(f"{name} of shape {tuple(values[name].shape)}" for name in values if name in owners)
        raise ValueError(f"systems of {said} do not fit; allowed: as many in each") from None


def _require_equal_sizes(values: Mapping[str, Any], cores: Mapping[str, str]) -> None:
    """Raise where two arguments disagree about the size of a system."""
    sizes: dict[str, tuple[int, str]] = {}
    for name, value in values.items():
        for letter, size in zip(cores[name], value.shape[value.ndim - len(cores[name]) :]):
            wanted, other = sizes.setdefault(letter, (size, name))
            if size != wanted:
                raise ValueError(
                    f"{name} has shape {tuple(value.shape)}, with {size} where {other} of shape "
                    f"{tuple(values[other].shape)} has {wanted}; allowed: as many"
                )


def _require_whole_systems(
    values: Mapping[str, Any], cores: Mapping[str, str], called: Mapping[str, str], columns: set[str]
) -> None:
    """Raise where a block holds a part of a system, or where the number of systems is not known."""
    for name, value in values.items():
        core = cores[name]
        if value.ndim < len(core):
            raise ValueError(f"{name} has shape {tuple(value.shape)}; allowed: at least {len(core)} axes")
        if has_unknown_sizes(value):
            raise ValueError(f"{name} has a shape that dask does not know; allowed: {name}.compute_chunk_sizes()")
        ordered = value.T if name in columns else _core_last(value, core, called)
        split = [(0 if name in columns else axis, core[axis]) for axis in split_axes(ordered, len(core))]
        if split:
            cut = {axis: called.get(letter, f"axis {axis}") for axis, letter in split}
            raise ValueError(
                f"{name} is cut into blocks within systems, along {' and '.join(cut.values())}; allowed: whole systems "
                f"in every block, by {name}.{chunks_in_words(value, cut)}"
            )
