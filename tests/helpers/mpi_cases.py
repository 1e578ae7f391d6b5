"""Runs over ranks of MPI, several for each start of mpiexec; the first rank prints one line of JSON for each."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI
from rank_problems import PAIRS, rosenbrock, solve_rosenbrock, torsion

import stepwell
from stepwell.distributed import ranks, split

comm = MPI.COMM_WORLD


def say(name, found):
    if comm.rank == 0:
        sys.stdout.write(json.dumps({"case": name, "found": found}) + "\n")


def say_result(name, result):
    pieces = comm.gather(np.asarray(result.x).ravel())
    if pieces is not None:
        bits = hashlib.sha256(np.concatenate(pieces).tobytes()).hexdigest()[:16]
        say(name, f"{bits} {result.fun!r} {result.nit} {result.nfev}")


def say_raised(name, call):
    """Tell what a call raises on every rank, and that ranks still understand each other."""
    try:
        call()
        said = "nothing"
    except (Exception, KeyboardInterrupt) as error:
        said = f"{type(error).__name__}: {error}"
        if isinstance(error, stepwell.Interrupted):
            said += f" after {error.result.nit} iterations"
    say(name, comm.gather(said))


def at_call(number, action):
    """Return a wrapper of the function that does something on the last rank before one of its evaluations."""

    def wrap(value, layout):
        calls = 0

        def fun(x):
            nonlocal calls
            calls += 1
            if calls == number and comm.rank == comm.size - 1:
                action()
            return value(x)

        return fun

    return wrap


def fail():
    raise ValueError("no gradient here")


def bits(folder):
    """Runs whose bits do not depend on the number of ranks; an example; a run in a folder."""
    for cauchy in ("exact", "first-interval"):
        say_result(cauchy, solve_rosenbrock(comm, cauchy=cauchy))
    least, ranks.HOPS_FROM = ranks.HOPS_FROM, 2
    say_result("hops", solve_rosenbrock(comm, cauchy="exact"))
    ranks.HOPS_FROM = least
    nx = 150
    layout = split(nx * nx, comm, align=nx)
    fun, start, bounds = torsion(layout, nx, comm)
    options = {"maxiter": 30, "ftol": 0, "gtol": 0}
    say_result("torsion", stepwell.minimize(fun, start, jac=True, bounds=bounds, comm=layout, options=options))
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
    import waveform_inversion

    line, _ = waveform_inversion.invert(comm, 3, shots=1)
    say("example", line)
    layout = split(PAIRS, comm, align=2)
    value, start, bounds, _ = rosenbrock(layout)
    if comm.size == 3:  # others go on from here
        opt = stepwell.LBFGSB(start, bounds, comm=layout, ftol=0)
        for _ in range(7):
            opt.tell(*value(opt.x))
        opt.save(folder)
    opt = stepwell.LBFGSB.load(folder, comm)
    for _ in range(5):
        opt.tell(*value(opt.x))
    say_result("folder", opt.result())


def faults(folder):
    """Trouble on the last rank."""
    say_raised("raises", lambda: solve_rosenbrock(comm, fun=at_call(8, fail)))
    least, ranks.HOPS_FROM = ranks.HOPS_FROM, 2
    say_raised("raises on the way", lambda: solve_rosenbrock(comm, fun=at_call(8, fail)))
    ranks.HOPS_FROM = least
    say_raised("raises before an allgather", lambda: solve_rosenbrock(comm, fun=with_allgather(fail, at=5)))
    ranks.RESCUE_AFTER = 0.2
    say_raised("raises early, others are slow", lambda: solve_rosenbrock(comm, fun=slow_others()))
    interrupt = at_call(6, lambda: os.kill(os.getpid(), signal.SIGINT))
    say_raised("interrupted", lambda: solve_rosenbrock(comm, fun=interrupt))
    say_raised("interrupted while telling", interrupted_while_telling)
    comm.Barrier()


def interrupted_while_telling():
    """Ctrl-C inside a turn of the last rank: raised on all, there or at the next turn."""
    layout = split(PAIRS, comm, align=2)
    value, start, bounds, _ = rosenbrock(layout)
    opt = stepwell.LBFGSB(start, bounds, comm=layout, threads=1)
    communicator = opt._run.share.ranks.communicator
    real = communicator.allgather

    def interrupted(*arguments):
        communicator.allgather = real  # the second one would not wait
        os.kill(os.getpid(), signal.SIGINT)
        return real(*arguments)

    for turn in range(9):
        f, g = value(opt.x)
        if turn == 5 and comm.rank == comm.size - 1:
            communicator.allgather = interrupted
        opt.tell(f, g)


def with_allgather(action, at):
    def wrap(value, layout):
        calls = 0

        def fun(x):
            nonlocal calls
            calls += 1
            f, g = value(x)
            if calls == at and comm.rank == comm.size - 1:
                action()
            return float(np.concatenate(comm.allgather(f)).sum()), g

        return fun

    return wrap


def slow_others():
    """The last rank fails at once where the others take their time: its attempt to free them is in vain."""

    def wrap(value, layout):
        calls = 0

        def fun(x):
            nonlocal calls
            calls += 1
            if calls == 4:
                if comm.rank == comm.size - 1:
                    raise ValueError("early")
                time.sleep(1)
            return value(x)

        return fun

    return wrap


def stuck(folder):
    """The last rank fails before a communication of the objective's own that nobody can end."""
    ranks.RESCUE_AFTER, ranks.PATIENCE, ranks.PATIENCE_FACTOR = 0.1, 0.5, 1.0

    def wrap(value, layout):
        def fun(x):
            if comm.rank == comm.size - 1:
                raise ValueError("before the barrier")
            comm.Barrier()
            return value(x)

        return fun

    solve_rosenbrock(comm, fun=wrap)


if __name__ == "__main__":
    {"bits": bits, "faults": faults, "stuck": stuck}[sys.argv[1]](sys.argv[2])
