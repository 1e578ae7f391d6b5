"""Programs of ranks in which something goes wrong on one of them."""

from __future__ import annotations

from stepwell.distributed import run_threads

RANKS = 3
BAD = RANKS - 1


def outcomes(program):
    """Return, for each rank, what a program returns or raises."""

    def caught(comm):
        try:
            return program(comm)
        except Exception as error:
            return error

    return run_threads(RANKS, caught)


def spoiled(comm, spoil, at):
    """Return a wrapper of the function that spoils its values on one rank, at some evaluations."""

    def wrap(value, layout):
        calls = 0

        def fun(x):
            nonlocal calls
            calls += 1
            f, g = value(x)
            return spoil(f, g) if comm.rank == BAD and calls in at else (f, g)

        return fun

    return wrap
