"""Operators of PyLops-MPI, whose products take and return arrays that lie over ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stepwell.arrays import Array


def takes_distributed_arrays(A: Any) -> bool:
    """Whether an operator is one of PyLops-MPI: it has a communicator beside products."""
    return hasattr(A, "base_comm") and hasattr(A, "matvec") and hasattr(A, "rmatvec")


def products_of_pieces(A: Any) -> tuple[Callable[[Array], Array], Callable[[Array], Array]]:
    """Return products with A and its adjoint that take and return this rank's piece of a vector."""

    def product(function: Callable[[Any], Any], length: int) -> Callable[[Array], Array]:
        def apply(piece: Array) -> Array:
            from pylops_mpi import DistributedArray

            pieces = A.base_comm.allgather((int(piece.shape[0]),))
            x = DistributedArray(length, base_comm=A.base_comm, local_shapes=pieces, dtype=piece.dtype)
            x[:] = piece
            return function(x).local_array

        return apply

    rows, columns = A.shape
    return product(A.matvec, int(columns)), product(A.rmatvec, int(rows))
