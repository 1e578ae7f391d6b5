"""Discrete Voronoi diagrams on a CUDA device: memory, and kernels launched on the caller's stream without waiting."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from stepwell import _core
from stepwell.arrays import Array, as_contiguous, device_address, namespace_of, numpy_dtype
from stepwell.arrays.device_memory import DeviceMemory
from stepwell.cuda.devices import open_device
from stepwell.cuda.layouts import structure
from stepwell.cuda.runtime import launch, load_kernel

THREADS = 256
KERNEL_DEFINES: dict[str, str | int] = {"SW_THREADS": THREADS}
#: What `stepwell info --warm` compiles: sources and their definitions.
COMMON_KERNELS = [("voronoi", KERNEL_DEFINES)]
#: Entries of src/cuda/voronoi/voronoi.cu.
KERNELS = tuple(
    f"voronoi_{name}"
    for name in (
        "clear", "count", "totals", "firsts", "scatter", "owners", "moments", "finish",
        "flood_clear", "flood_seed", "flood_jump",
    )
)  # fmt: skip
_SPAN = 16 * THREADS  # buckets that one block sums
_FINISH_BLOCKS = 1024


@functools.lru_cache(maxsize=64)
def _kernel(name: str, device_id: int) -> Any:
    return load_kernel("voronoi", f"voronoi_{name}", KERNEL_DEFINES, device_id)


def jump_steps(shape: tuple[int, int]) -> list[int]:
    """Return the steps of jump flooding, as src/core/voronoi/jump.hpp has them: 1, half the image, ..., 1, 2, 1.

    Examples
    --------
    >>> jump_steps((5, 9))
    [1, 8, 4, 2, 1, 2, 1]
    """
    step = 1
    while 2 * step < max(shape):
        step *= 2
    halving = [step >> k for k in range(step.bit_length())]
    return [1, *halving, 2, 1]


class DeviceVoronoi:
    """Memory for the diagrams of one image and number of sites on one device.

    Parameters
    ----------
    template : array
        Of the library and device to work on.
    shape : (int, int)
        Height and width in pixels.
    count : int
        Number of sites.
    weights : array, optional
        (height, width) float32 whole densities on the device; without, only owners can be found.
    history : int
        Energies to keep.
    """

    def __init__(
        self, template: Array, shape: tuple[int, int], count: int, weights: Array | None = None, history: int = 0
    ) -> None:
        memory = self.memory = DeviceMemory(template)
        self.shape, self.count = shape, count
        self._device = open_device(memory.device_id)
        buckets = int(_core.voronoi_buckets(*shape, count))
        self._spans = -(-buckets // _SPAN)
        self.moments = None if weights is None else memory.zeros((count, 3), "int64")
        self.history = memory.zeros(max(history, 1), "float64")
        arrays = {
            "weights": weights,
            "first": memory.empty(buckets + 1, "int32"),
            "slot": memory.empty(count, "int32"),
            "totals": memory.empty(self._spans, "int32"),
            "sorted_x": memory.empty(count, "float64"),
            "sorted_y": memory.empty(count, "float64"),
            "sorted_site": memory.empty(count, "int32"),
            "moments": self.moments,
            "spread": memory.zeros(2, "int64"),
            "parts": memory.empty(_FINISH_BLOCKS, "float64"),
            "ticket": memory.zeros(1, "int32"),
            "history": self.history if history else None,
            "history_count": memory.zeros(1, "int64"),
        }
        sizes = dict(height=shape[0], width=shape[1], count=count, history_capacity=history)
        plan = structure("VoronoiPlan")(scale=float(max(shape)), **sizes)
        for name, array in arrays.items():
            setattr(plan, name, memory.address(array))
        self._kept = [arrays, memory.upload(bytes(plan))]
        self._plan = memory.address(self._kept[1])
        self._flooded: list[Array] = []
        self._most_blocks = 8 * self._device.attribute("MULTIPROCESSOR_COUNT")

    def _launch(self, name: str, blocks: int, *arguments: Any) -> None:
        kernel = _kernel(name, self.memory.device_id)
        launch(kernel, max(1, blocks), THREADS, self.memory.stream(), self._plan, *arguments)

    def _over(self, items: int) -> int:
        """Blocks for a loop over so many items."""
        return min(-(-items // THREADS), self._most_blocks)

    def _sort(self, xy: int) -> None:
        self._launch("clear", self._over(3 * self.count))
        self._launch("count", self._over(self.count), xy)
        self._launch("totals", self._spans)
        self._launch("firsts", self._spans)
        self._launch("scatter", self._over(self.count), xy)

    def _tile_blocks(self) -> int:
        tiles = -(-self.shape[0] // 8) * -(-self.shape[1] // 8)
        return self._over(32 * tiles)

    def _flood(self, xy: int) -> Array:
        """Flood; returns the array that holds the owners, which the next call overwrites."""
        pixels = self.shape[0] * self.shape[1]
        if not self._flooded:
            self._flooded = [self.memory.empty(self.shape, "int32") for _ in range(2)]
        known, following = self._flooded
        self._launch("flood_clear", self._over(pixels), device_address(known))
        self._launch("flood_seed", self._over(self.count), xy, device_address(known))
        for step in jump_steps(self.shape):
            blocks = -(-pixels // THREADS)
            self._launch("flood_jump", blocks, xy, device_address(known), device_address(following), np.int64(step))
            known, following = following, known
        return known

    def owners(self, sites: Array, flood: bool) -> Array:
        """Return the owner of each pixel for contiguous (n, 2) float64 sites."""
        self._device.set_current()
        xy = device_address(sites)
        if flood:
            found = self._flood(xy)
            self._flooded = []  # the answer is the caller's now
        else:
            found = self.memory.empty(self.shape, "int32")
            self._sort(xy)
            self._launch("owners", self._tile_blocks(), xy, device_address(found))
        self._done()
        return found

    def evaluate(self, sites: Array, flood: bool, energy_factor: float, gradient_factor: float) -> tuple[Array, Array]:
        """Return the energy, an array with one element, and its (n, 2) gradient."""
        self._device.set_current()
        xy = device_address(sites)
        energy, gradient = self.memory.empty((), "float64"), self.memory.empty((self.count, 2), "float64")
        known = 0
        if flood:
            self._launch("clear", self._over(3 * self.count))
            known = device_address(self._flood(xy))
        else:
            self._sort(xy)
        self._launch("moments", self._tile_blocks(), xy, known)
        self._launch(
            "finish",
            min(self._over(self.count), _FINISH_BLOCKS),
            xy,
            device_address(gradient),
            device_address(energy),
            np.float64(energy_factor),
            np.float64(gradient_factor),
        )
        self._done()
        return energy, gradient

    def _done(self) -> None:
        self.memory.done(self.memory.stream(), [])

    def masses(self, unit: float) -> Array:
        """Return the mass of each cell at the last evaluation."""
        xp = self.memory.xp
        assert self.moments is not None
        return xp.astype(self.moments[:, 0], xp.float64) * unit

    def wait(self) -> None:
        """Wait for everything launched."""
        self.memory.wait(self.memory.stream())


def uniform_weights(template: Array, shape: tuple[int, int]) -> Array:
    """Return weights of one on the template's device; float32, though seen as bytes."""
    return DeviceMemory(template).upload(np.ones(shape, np.float32).tobytes())


def flat_evaluation(x: Array, count: int, evaluate: Callable[[Array], tuple[Array, Array]]) -> tuple[Array, Array]:
    """Evaluate at flat sites of any float type; the gradient comes back in the shape and type of `x`."""
    xp = namespace_of(x)
    sites = as_contiguous(xp.astype(xp.reshape(x, (count, 2)), xp.float64, copy=False))
    energy, gradient = evaluate(sites)
    gradient = xp.reshape(gradient, tuple(x.shape))
    return energy, gradient if numpy_dtype(x) == np.float64 else xp.astype(gradient, x.dtype)
