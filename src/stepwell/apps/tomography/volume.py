"""A volume as one vector of unknowns, its slices side by side on one rank or spread over many.

Slices share one projection matrix and do not see each other in the data. What couples them is a penalty on differences
between neighbouring slices, for which a rank needs one slice of its neighbour.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stepwell.common.checks import read_sizes, read_whole, require_memory
from stepwell.distributed import Communicator, read_comm
from stepwell.operators import Operator, as_operator, from_functions, gradient


def slices_of_rank(slices: int, comm: Any) -> tuple[int, int]:
    """Return the first slice of this rank and the one after its last: as many on each rank as can be.

    Examples
    --------
    >>> slices_of_rank(10, "self")
    (0, 10)
    """
    slices, communicator = read_whole("slices", slices, 0), read_comm(comm)
    rank, size = (0, 1) if communicator is None else (communicator.rank, communicator.size)
    return slices * rank // size, slices * (rank + 1) // size


def project_slices(A: Any, slices: int) -> Operator:
    """Return the operator that projects each of so many slices by one matrix.

    Parameters
    ----------
    A : operator, (rays, pixels)
        The projection of one slice.
    slices : int
        Slices of the volume, or of this rank's piece of it.

    Returns
    -------
    Operator, (slices * rays, slices * pixels)
        Slice after slice, in unknowns and data alike.

    Examples
    --------
    >>> A = project_slices(np.array([[1.0, 1.0]]), 3)
    >>> A.forward(np.arange(6.0)[:, None])[:, 0]
    array([1., 5., 9.])
    """
    one, slices = as_operator(A), read_whole("slices", slices, 0)
    rays, pixels = one.shape
    assert rays is not None
    assert pixels is not None

    def by_slice(apply: Any, given: int, found: int, block: np.ndarray) -> np.ndarray:
        columns = int(block.shape[1])
        stacked = np.ascontiguousarray(block.reshape(slices, given, columns).transpose(1, 0, 2))
        image = np.asarray(apply(stacked.reshape(given, slices * columns)))
        whole = image.reshape(found, slices, columns).transpose(1, 0, 2)
        return np.ascontiguousarray(whole).reshape(slices * found, columns)

    return from_functions(
        lambda x: by_slice(one.forward, pixels, rays, x),
        lambda y: by_slice(one.adjoint, rays, pixels, y),
        (slices * rays, slices * pixels),
        blocks=True,
    )


def volume_gradient(shape: tuple[int, int, int], comm: Any = None) -> Operator:
    """Return the operator of differences between neighbouring voxels, within slices and between them.

    Parameters
    ----------
    shape : tuple of int
        Slices on this rank, and the pixels of a slice along both axes.
    comm : optional
        As in :func:`stepwell.tikhonov`; ranks hold consecutive slices. It is used for one slice a rank and product, by
        ``allgather``, beside the solver's own messages.

    Examples
    --------
    >>> L = volume_gradient((2, 1, 2))
    >>> L.forward(np.array([[1.0], [3.0], [10.0], [20.0]]))[:, 0]
    array([ 2., 10.,  9., 17.])
    """
    slices, height, width = read_sizes("shape", shape, 3, 0, meaning="slices and the sides of one in pixels")
    require_memory("shape", shape, 4 * height * width)
    pixels = height * width
    plane = gradient((height, width))
    within = project_slices(plane, slices)
    rows = int(within.shape[0] or 0)
    halo = _Halo(read_comm(comm), slices)

    def forward(x: np.ndarray) -> np.ndarray:
        stack = x.reshape(slices, pixels, x.shape[1])
        after = halo.from_next(stack)
        between = np.diff(stack if after is None else np.concatenate([stack, after[None]]), axis=0)
        links = between.reshape(len(between) * pixels, x.shape[1])
        return np.concatenate([within.forward(x), links])

    def adjoint(y: np.ndarray) -> np.ndarray:
        between = y[rows:].reshape(len(y[rows:]) // pixels, pixels, y.shape[1])
        before = halo.from_previous(between, pixels, int(y.shape[1]))
        image: np.ndarray = within.adjoint(y[:rows]).reshape(slices, pixels, y.shape[1])
        if slices:
            image[: len(between)] -= between
            image[1:] += between[: slices - 1]
            if before is not None:
                image[0] += before
        return image.reshape(slices * pixels, y.shape[1])

    links = max(0, slices - (not halo.has_next))
    return from_functions(forward, adjoint, (rows + links * pixels, slices * pixels), blocks=True)


class _Halo:
    """One slice from the rank before this one, or after it; ranks without slices are passed over."""

    def __init__(self, comm: Communicator | None, slices: int) -> None:
        self.comm, self.slices = comm, slices
        held = np.array([float(slices)]) if comm is None else comm.allgather(np.array([float(slices)]), [1] * comm.size)
        self.owners = np.flatnonzero(held)  # ranks that have slices
        rank = 0 if comm is None else comm.rank
        self.place = int(np.searchsorted(self.owners, rank))

    @property
    def has_next(self) -> bool:
        return bool(self.slices) and self.place + 1 < self.owners.size

    def from_next(self, stack: np.ndarray) -> np.ndarray | None:
        """Return the first slice of the next rank that has any."""
        return self._exchange(stack[:1], self.place + 1 if self.has_next else None, stack.shape[1:])

    def from_previous(self, links: np.ndarray, pixels: int, columns: int) -> np.ndarray | None:
        """Return the last differences of the rank before, which are those to the first slice of this one."""
        wanted = self.place - 1 if self.slices and self.place else None
        last = links[-1:] if len(links) else np.zeros((min(1, self.slices), pixels, columns))
        return self._exchange(last, wanted, (pixels, columns))

    def _exchange(self, edge: np.ndarray, wanted: int | None, shape: tuple[int, ...]) -> np.ndarray | None:
        if self.comm is None or self.comm.size == 1:
            return None
        size = int(np.prod(shape))
        counts = [size if rank in self.owners else 0 for rank in range(self.comm.size)]
        row = np.ascontiguousarray(edge, dtype=np.float64).reshape(-1)
        received = self.comm.allgather(row, counts)
        if wanted is None:
            return None
        return received[wanted * size : (wanted + 1) * size].reshape(shape).astype(edge.dtype, copy=False)
