"""Sparse matrix times a block of columns on a CUDA device: the rows in groups, and the launch of ``cuda/spmm.cu``.

Rows go in groups of eight, with one slot for every column that any row of the group touches. Where neighbouring rows
share columns, as in projection and difference matrices, a row of the block is loaded once for several entries.
"""

from __future__ import annotations

import functools
import importlib.util
from dataclasses import dataclass

from stepwell.arrays import (
    Array,
    add_at,
    as_contiguous,
    current_stream,
    device_address,
    device_index,
    empty_block,
    namespace_of,
    on_device_of,
)
from stepwell.cuda.driver import import_cuda
from stepwell.cuda.runtime import Device, Kernel, launch, load_kernel

GROUP_ROWS, STEP_SLOTS, WARPS_IN_BLOCK = 8, 4, 4
#: Columns of a tile and tiles of a panel, in double and in single precision.
TILE_COLUMNS, MAX_TILES = {8: 8, 4: 32}, {8: 8, 4: 4}
#: Fewer columns than this, in double and in single precision, are left to the library's own product.
MIN_COLUMNS = {8: 2, 4: 16}
#: Entries per slot below which the zeros cost more than sharing saves.
MIN_SHARING = 1.25


@dataclass(frozen=True)
class GroupedRows:
    """A sparse matrix in groups of eight rows.

    Attributes
    ----------
    starts : array of int64, (groups + 1,)
        First step of every group.
    slots : array of int32, (steps, 4)
        Column of every slot; slots that fill up a group's last step repeat its last column.
    values : array, (steps, 32)
        The values of every step: 8 x 4, a row of the group after the other, in float64; 4 x 8, a slot after the other,
        in float32.
    shape : (int, int)
    """

    starts: Array
    slots: Array
    values: Array
    shape: tuple[int, int]

    @property
    def memory(self) -> int:
        """Bytes held."""
        word = _word(self.values)
        return 8 * int(self.starts.shape[0]) + (4 * STEP_SLOTS + 32 * word) * int(self.slots.shape[0])


def group_rows(indptr: Array, indices: Array, data: Array, shape: tuple[int, int]) -> GroupedRows | None:
    """Arrange a CSR matrix in groups of rows, on the device that it lives on; None where rows share too few columns.

    Entries that occur twice are added up.
    """
    xp, here = namespace_of(data), on_device_of(data)
    rows, columns = shape
    entries = int(data.shape[0])
    groups = -(-rows // GROUP_ROWS)
    if not entries or columns >= 2**31:
        return None

    def count(stop: int) -> Array:
        return xp.arange(stop, dtype=xp.int64, **here)

    row = xp.searchsorted(xp.astype(indptr, xp.int64), count(entries), side="right") - 1
    keys, slot_of_entry = xp.unique_inverse((row // GROUP_ROWS) * columns + xp.astype(indices, xp.int64))
    if entries < MIN_SHARING * int(keys.shape[0]):
        return None
    first_slot = xp.searchsorted(keys, count(groups + 1) * columns)
    steps_of_group = (first_slot[1:] - first_slot[:-1] + STEP_SLOTS - 1) // STEP_SLOTS
    steps_before = xp.cumulative_sum(steps_of_group, include_initial=True)
    steps = int(steps_before[-1])

    # Every place, those that fill up a last step included, takes the column of its slot.
    place = count(steps * STEP_SLOTS)
    group = xp.searchsorted(steps_before * STEP_SLOTS, place, side="right") - 1
    slot = first_slot[group] + place - steps_before[group] * STEP_SLOTS
    slot = xp.minimum(slot, first_slot[group + 1] - 1)
    slots = xp.astype(keys[slot] % columns, xp.int32)

    group = row // GROUP_ROWS
    place = slot_of_entry - first_slot[group] + steps_before[group] * STEP_SLOTS
    line = row % GROUP_ROWS
    if _word(data) == 8:
        at = place // STEP_SLOTS * 32 + line * STEP_SLOTS + place % STEP_SLOTS
    else:
        at = place * GROUP_ROWS + line
    values = add_at(xp.zeros(steps * 32, dtype=data.dtype, **here), at, data)
    return GroupedRows(steps_before, xp.reshape(slots, (steps, STEP_SLOTS)), xp.reshape(values, (steps, 32)), shape)


def tiling(width: int, word: int) -> tuple[int, int]:
    """Panels that a block of columns is cut into, and tiles in each, for numbers of so many bytes.

    Examples
    --------
    >>> tiling(102, 8)  # 13 tiles of 8 columns
    (2, 7)
    """
    tiles = -(-width // TILE_COLUMNS[word])
    panels = -(-tiles // MAX_TILES[word])
    return panels, -(-tiles // panels)


@functools.cache
def is_available() -> bool:
    """Whether kernels can be compiled and launched: cuda-core and NVRTC are there."""
    try:
        import_cuda("cuda.bindings", "nvrtc").nvrtcVersion()
    except (ImportError, RuntimeError):  # a package or the library is missing
        return False
    return importlib.util.find_spec("cuda.core") is not None


class BlockProduct:
    """Multiplies by blocks of columns, on the stream that the block's library is using.

    A column of the block that is not finite gives a column that is not finite, in more rows than by definition.
    """

    def __init__(self, matrix: GroupedRows) -> None:
        self.matrix = matrix
        self._device_id = device_index(matrix.values)
        self._device = Device(self._device_id)
        self._word = _word(matrix.values)
        self.least_columns = MIN_COLUMNS[self._word]
        self._groups = int(matrix.starts.shape[0]) - 1
        self._parts = tuple(device_address(part) for part in (matrix.starts, matrix.slots, matrix.values))

    def __call__(self, block: Array) -> Array:
        """Return the product with a block of the matrix's dtype, on its device."""
        block = as_contiguous(block)
        rows, width = self.matrix.shape[0], int(block.shape[1])
        out = empty_block(rows, width, block)
        panels, tiles = tiling(width, self._word)
        kernel = _kernel(self._word, tiles, self._device_id)
        self._device.set_current()
        places = (*self._parts, device_address(block), device_address(out))
        grid, threads = self._groups * panels, 32 * WARPS_IN_BLOCK
        launch(kernel, grid, threads, current_stream(block), *places, rows, width, panels)
        return out


def kernel_defines(word: int) -> dict[str, str | int]:
    """Return the definitions that ``cuda/krylov/sparse_product.cu`` is compiled with."""
    return {
        "SW_SCALAR": "double" if word == 8 else "float",
        "SW_GROUP_ROWS": GROUP_ROWS,
        "SW_STEP_SLOTS": STEP_SLOTS,
        "SW_WARPS_IN_BLOCK": WARPS_IN_BLOCK,
        "SW_TILE_COLUMNS": TILE_COLUMNS[word],
        "SW_MAX_TILES": MAX_TILES[word],
    }


@functools.lru_cache(maxsize=64)
def _kernel(word: int, tiles: int, device_id: int) -> Kernel:
    return load_kernel("sparse_product", f"spmm_{tiles}", kernel_defines(word), device_id)


def _word(array: Array) -> int:
    return 4 if "float32" in str(array.dtype) else 8
