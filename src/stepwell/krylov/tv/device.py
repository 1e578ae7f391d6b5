"""The inner loop and the cosine transforms of arrays on a GPU, by the kernels of ``src/cuda/tv``.

Images of two axes that shared memory holds, small or many of them: one launch runs all sweeps of all problems, a block
for each. Others: a sweep is one launch per axis and direction, with the last axis there and back in one where the model
is diagonal, and one for differences and bounds. Nothing waits for the host.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from stepwell.arrays import (
    Array,
    as_contiguous,
    as_float,
    bytes_on_device,
    current_stream,
    device_address,
    device_index,
    dtype_name,
    namespace_of,
    shares_streams,
)
from stepwell.arrays.device import empty_on_device
from stepwell.cuda.layouts import structure
from stepwell.cuda.runtime import Device, Event, Graph, Kernel, launch, load_kernel
from stepwell.krylov.tv.cosine_tables import MAX_STAGES, CosineTables, tables_of
from stepwell.krylov.tv.differences import differences
from stepwell.krylov.tv.shrinking import Sweep, clipped, shrunk
from stepwell.operators.cuda_sparse import is_available

THREADS, RESIDENT_THREADS = 256, 1024
#: Bytes of shared memory for a panel: two panels on a multiprocessor, or one.
SHARED_BYTES, MOST_SHARED = 96 * 1024, 160 * 1024
#: Complex lines of a panel, and blocks of a launch below which panels are halved: a block waits most of its time, for
#: memory and for others of its threads, and a multiprocessor needs several of them.
MAX_LANES, LEAST_LANES, BLOCKS = 16, 2, 1536
#: Sweeps that are launched at a time, as a graph: one by one they take the host longer than the device.
IN_GRAPH = 8
#: Pixels of a problem below which kernels can count them.
MAX_PIXELS = 2**31 - 2**20
#: Pixels of a problem up to which a block runs its sweeps, however few problems there are; and from how many problems
#: on it does so with larger images (on an H200 with 128²: 76 µs a sweep, and 60 µs to 270 µs of launches for 1 to 102).
ALONE_PIXELS, MANY = 96**2, 16
#: Rows of the model for which kernels have room.
MAX_ROWS = 16
#: What values of lines are made of, and what becomes of them: core/tv/launch.hpp.
PLAIN, PULL, MODEL = 0, 1, 2
STORE, THROUGH, DOTS = 0, 1, 2


def kernel_defines(dtype: str, threads: int) -> dict[str, str | int]:
    """Return the definitions that the sources of ``cuda/tv`` are compiled with."""
    return {"SW_SCALAR": "double" if dtype == "float64" else "float", "SW_THREADS": threads}


def common_kernels(dtype: str) -> list[tuple[str, dict[str, str | int]]]:
    """Return the sources for images of a dtype, each with its definitions."""
    both = (("tv_sweeps", THREADS), ("tv_resident", RESIDENT_THREADS))
    return [(source, kernel_defines(dtype, threads)) for source, threads in both]


def is_fit(tables: CosineTables) -> bool:
    """Whether the kernels can take images with these tables."""
    return tables.pixels <= MAX_PIXELS and all(lanes_of(side, tables.numbers.itemsize) for side in tables.sides) and (
        is_available()
    )  # fmt: skip


def lanes_of(side: int, word: int) -> int:
    """Complex lines of a panel, a power of two; 0 where not even one fits into shared memory.

    Examples
    --------
    >>> lanes_of(128, 8), lanes_of(512, 4), lanes_of(1024, 8), lanes_of(8192, 8)
    (16, 16, 4, 1)
    """
    for lanes in (MAX_LANES, 8, 4, 2, 1):
        if shared_bytes(side, lanes, word) <= (SHARED_BYTES if lanes > 1 else MOST_SHARED):
            return lanes
    return 0


def shared_bytes(side: int, lanes: int, word: int) -> int:
    """Shared memory of a panel; its rows are one element apart from a power of two, for the sake of the banks."""
    return 2 * word * side * _apart(lanes)


def _apart(lanes: int) -> int:
    return lanes + 1 if lanes > 1 else 1


def resident_bytes(sides: tuple[int, ...], word: int) -> int:
    """Shared memory for two copies of an image as complex lines, along either axis, and its tables.

    Examples
    --------
    >>> resident_bytes((128, 128), 4)
    138448
    """
    height, width = sides
    tables = 4 * word * (height + width) + 4 * (2 * (1 + MAX_STAGES) + height + width)
    elements = max(height * _odd((width + 1) // 2), (height + 1) // 2 * _odd(width))
    return -(-tables // 16) * 16 + 2 * 2 * word * elements


def is_resident(tables: CosineTables, batch: int, rows: int, device: Device) -> bool:
    """Whether a block is to run all sweeps of a problem, and can."""
    if len(tables.sides) != 2 or rows > MAX_ROWS or (batch < MANY and tables.pixels > ALONE_PIXELS):
        return False
    static = 8 * MAX_ROWS * (RESIDENT_THREADS // 32 + 1)
    most = device.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
    return resident_bytes(tables.sides, tables.numbers.itemsize) + static <= most


def _odd(count: int) -> int:
    return count | 1


class _Launches:
    """What all launches for one block of images share: tables on the device, kernels, stream."""

    def __init__(self, tables: CosineTables, batch: int, like: Array) -> None:
        self.tables, self.batch, self.like = tables, batch, like
        self.word, self.dtype = tables.numbers.itemsize, dtype_name(like.dtype)
        self.device_id = device_index(like)
        self.numbers, self.places = _tables(tables, self.dtype, _Home(like))
        self.stream = current_stream(like)
        self.device = Device(self.device_id)
        self.device.set_current()

    def lanes(self, axis: int) -> int:
        """Complex lines of a panel along an axis."""
        side = self.tables.sides[axis]
        lanes = lanes_of(side, self.word)
        lines = self.batch * self.tables.pixels // side
        while lanes > LEAST_LANES and lines < 2 * lanes * BLOCKS:
            lanes //= 2
        return lanes

    def job(self, axis: int, image: Array, **fields: Any) -> Any:
        """Return the arguments of a launch along one axis."""
        sides = (*self.tables.sides, 1, 1)[:3]
        before = self.tables.sides[:axis]
        lanes = self.lanes(axis)
        lines = self.tables.pixels // self.tables.sides[axis]
        return structure("TvLaunch")(
            axes=len(self.tables.sides), axis=axis, lanes=lanes, row_lanes=_apart(lanes), batch=self.batch,
            side0=sides[0], side1=sides[1], side2=sides[2], panels=-(-lines // (2 * lanes)),
            numbers=device_address(self.numbers) + 4 * self.word * sum(before),
            places=device_address(self.places) + 4 * sum(1 + MAX_STAGES + side for side in before),
            image=device_address(image), **fields,
        )  # fmt: skip

    def lines(self, job: Any, stream: int) -> None:
        """Transform lines along an axis."""
        size = shared_bytes(self.tables.sides[job.axis], job.lanes, self.word)
        kernel = self.kernel("tv_lines")
        kernel.allow_shared_memory(size, self.device_id)
        launch(kernel, self.batch * job.panels, THREADS, stream, job, shared_bytes=size)

    def kernel(self, entry: str) -> Kernel:
        """Return a kernel for this block of images."""
        return _kernel(entry, self.dtype, self.device_id)

    def resident(self, job: Any) -> None:
        """Run all sweeps of all problems, a block for each."""
        size, kernel = resident_bytes(self.tables.sides, self.word), self.kernel("tv_resident")
        kernel.allow_shared_memory(size, self.device_id)
        launch(kernel, self.batch, RESIDENT_THREADS, self.stream, job, shared_bytes=size)

    def sweeps(self, steps: list[Any], stream: int, count: int) -> None:
        """Run so many sweeps of all problems that have some left."""
        update, after = (self.kernel(entry) for entry in ("tv_update", "tv_next"))
        for _ in range(count):
            for step in steps:
                self.lines(step, stream)
            launch(update, self.batch * -(-self.tables.pixels // THREADS), THREADS, stream, steps[0])
            launch(after, 1, 1, stream, steps[0])

    def end(self) -> None:
        """Wait where the library's own work does not follow ours on one stream."""
        if not shares_streams(self.like):
            Event(self.stream).sync()


def transform(tables: CosineTables, block: Array, back: bool) -> Array:
    """Return the cosine coefficients of every image of a block, or the images of coefficients."""
    xp = namespace_of(block)
    found = xp.asarray(as_contiguous(block), copy=True)
    batch = math.prod(found.shape) // tables.pixels
    launches = _Launches(tables, batch, found)
    for axis in range(len(tables.sides)):
        launches.lines(launches.job(axis, found, back=int(back)), launches.stream)
    launches.end()
    return found


def run_sweeps(tables: CosineTables, sweep: Sweep) -> tuple[Array, ...]:
    """Run the sweeps of all problems, of which all or none are in single precision; return x, z, u, s and v."""
    kept = tables.kept
    whole = len(kept) == sweep.z.shape[0]
    w, weights = _kept(sweep.z + sweep.u, tables), tuple(sweep.weights[axis] for axis in kept)
    sides = sweep.lower, sweep.upper
    h = None if sweep.s is None or sweep.v is None else sweep.s + sweep.v
    if sweep.single is not None and sweep.single.any():
        assert sweep.x0 is not None
        x0, origin = sweep.x0, _kept(differences(sweep.x0, sweep.weights), tables)
        h, lower, upper = (None if part is None else part - x0 for part in (h, *sides))
        x, w, h = _run(_single_tables(tables.sides), sweep, weights, w - origin, h, lower, upper, origin)
        x, w, h = (
            None if part is None else as_float(part, "float64") + to
            for part, to in ((x, x0), (w, origin), (h, x0))
        )  # fmt: skip
    else:
        x, w, h = _run(tables, sweep, weights, w, h, *sides, None)
    z = shrunk(w, sweep.threshold, sweep.least, sweep.anisotropic)
    u = w - z
    if not whole:
        z, u = (_with_axes(field, tables, sweep.z) for field in (z, u))
    if h is None:
        return x, z, u, None, None
    s = clipped(h, *sides)
    return s, z, u, s, h - s


def _run(
    tables: CosineTables, sweep: Sweep, weights: tuple[float, ...], w: Array, h: Array | None, lower: Array | None,
    upper: Array | None, origin: Array | None,
) -> tuple[Array, Array, Array | None]:  # fmt: skip
    """Launch the sweeps in the precision of the tables, from w = z + u and h = s + v; return x, w and h after them."""
    dtype = tables.numbers.dtype.name
    w, h, origin, linear, inverse, solved, small = (
        None if part is None else as_contiguous(as_float(part, dtype))
        for part in (w, h, origin, sweep.linear, sweep.inverse, sweep.solved, sweep.small)
    )
    x = empty_on_device(tuple(sweep.linear.shape), dtype, sweep.linear)
    batch, image = int(x.shape[0]), tuple(x.shape)
    launches = _Launches(tables, batch, x)
    rows = 0 if solved is None else int(solved.shape[1])
    threshold = np.maximum(sweep.threshold, np.finfo(dtype).smallest_normal)  # zero would divide zero by zero
    numbers = [
        bytes_on_device(np.ascontiguousarray(part), x)
        for part in (sweep.counts, threshold, sweep.least, np.zeros(1, dtype=np.int64))
    ]
    last = len(tables.sides) - 1
    panels = launches.job(last, x).panels
    partial = empty_on_device((max(1, batch * panels * rows),), "float64", x)
    weights = (*weights, 1.0, 1.0)
    shared: dict[str, Any] = {
        "rows": rows, "anisotropic": int(sweep.anisotropic), "bounded": int(h is not None), "rho": sweep.rho,
        "over": sweep.over, "weight0": weights[0], "weight1": weights[1], "weight2": weights[2],
        "partial": device_address(partial),
    }  # fmt: skip
    arrays = {"w": w, "h": h, "origin": origin, "linear": linear, "inverse": inverse, "solved": solved, "small": small}
    arrays |= dict(zip(("counts", "threshold", "least", "turn"), numbers))
    shared |= {name: None if part is None else device_address(part) for name, part in arrays.items()}
    for name, side in (("lower", lower), ("upper", upper)):
        if side is not None:
            arrays[name] = side = _bound(as_float(side, dtype), tables, image)
            shared |= {
                name: device_address(side), f"{name}_per_pixel": int(side.shape[1] > 1),
                f"{name}_stride": int(side.shape[1]) if side.shape[0] > 1 else 0,
            }  # fmt: skip
    if is_resident(tables, batch, rows, launches.device):
        reflected = empty_on_device((len(tables.sides) + 1, *image), dtype, x)
        launches.resident(launches.job(0, x, reflected=device_address(reflected), **shared))
        launches.end()
        return x, w, h
    steps = [launches.job(axis, x, source=PULL if axis == 0 else PLAIN, **shared) for axis in range(last)]
    first = PULL if last == 0 else PLAIN
    if rows:
        steps.append(launches.job(last, x, source=first, finish=DOTS, **shared))
        steps.append(launches.job(last, x, source=MODEL, back=1, **shared))
    else:
        steps.append(launches.job(last, x, source=first, finish=THROUGH, **shared))
    steps += [launches.job(axis, x, back=1, **shared) for axis in reversed(range(last))]
    rounds = int(sweep.counts.max())
    if rounds >= 2 * IN_GRAPH:
        graph = Graph(lambda stream: launches.sweeps(steps, stream, IN_GRAPH))
        for _ in range(rounds // IN_GRAPH):
            graph.launch(launches.stream)
        rounds %= IN_GRAPH
    launches.sweeps(steps, launches.stream, rounds)
    launches.end()
    return x, w, h


@functools.lru_cache(maxsize=16)
def _single_tables(sides: tuple[int, ...]) -> CosineTables:
    tables = tables_of(sides, "float32")
    assert tables is not None
    return tables


def _kept(field: Array, tables: CosineTables) -> Array:
    """Leave out axes of length 1."""
    if len(tables.kept) == field.shape[0]:
        return field
    return namespace_of(field).stack([field[axis] for axis in tables.kept])


def _with_axes(field: Array, tables: CosineTables, like: Array) -> Array:
    """Put back the axes of length 1, whose differences are zero."""
    xp = namespace_of(field)
    zero = xp.zeros_like(field[0])
    places = {axis: k for k, axis in enumerate(tables.kept)}
    return xp.stack([field[places[axis]] if axis in places else zero for axis in range(like.shape[0])])


def _bound(side: Array, tables: CosineTables, image: tuple[int, ...]) -> Array:
    """Return one side of the bounds as (1 or problems, 1 or pixels)."""
    xp, rows = namespace_of(side), int(side.shape[0])
    if math.prod(side.shape) == rows:
        return as_contiguous(xp.reshape(side, (rows, 1)))
    return as_contiguous(xp.reshape(xp.broadcast_to(side, (rows, *image[1:])), (rows, tables.pixels)))


class _Home:
    """Where tables are to be, as the key of a cache: library and device; the template itself is not kept alive."""

    def __init__(self, like: Array) -> None:
        self.like = like[:0]
        self.key = (namespace_of(like).__name__, device_index(like))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Home) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@functools.lru_cache(maxsize=16)
def _tables_of(sides: tuple[int, ...], dtype: str, home: _Home) -> tuple[Array, Array]:
    tables = tables_of(sides, dtype)
    assert tables is not None
    return bytes_on_device(tables.numbers, home.like), bytes_on_device(tables.places, home.like)


def _tables(tables: CosineTables, dtype: str, home: _Home) -> tuple[Array, Array]:
    return _tables_of(tables.sides, dtype, home)


@functools.lru_cache(maxsize=16)
def _kernel(entry: str, dtype: str, device_id: int) -> Kernel:
    sources = dict(common_kernels(dtype))
    source = entry if entry in sources else "tv_sweeps"
    return load_kernel(source, entry, sources[source], device_id)
