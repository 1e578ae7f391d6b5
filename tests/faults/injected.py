"""Every public call with each piece of memory, each thread and each step with files refused in turn.

Run under faults.cpp (see test_faults.py):

    LD_PRELOAD=faults.so python tests/faults/injected.py --kind module-memory [--all] [NAME ...]

What must hold: a clean MemoryError or OSError (threads: the right answer with fewer of them), an object that goes on or
refuses, old files whole and no leftovers, nothing leaked, and the next call right to the last bit.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import pathlib
import sys

import numpy as np
import scipy.optimize  # noqa: F401 - results are SciPy's, which an exception that has one imports: no leak
from public_calls import CALLS, FILES, FOLDER

from stepwell import _core

KINDS = {"module-memory": 1, "array-memory": 2, "threads": 3, "files": 4}
GROWTH = 1 << 20  # bytes: less than one array of what is solved here


class Memory(ctypes.Structure):
    """What glibc's mallinfo2 returns."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in [
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        ]
    ]


LIBC = ctypes.CDLL(None)
LIBC.mallinfo2.restype = Memory
LIBC.faults_disarm.restype = ctypes.c_long
LIBC.faults_arm.argtypes = [ctypes.c_int, ctypes.c_long, ctypes.c_int]
LIBC.faults_module.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
LIBC.faults_array_allocator.restype = ctypes.c_void_p


def held():
    gc.collect()
    memory = LIBC.mallinfo2()
    return memory.uordblks + memory.hblkhd


def prepare():
    """Tell the shim where the module lies whose memory it may refuse, and NumPy to take arrays from the shim."""
    lines = pathlib.Path("/proc/self/maps").read_text().splitlines()
    spans = [line.split()[0].split("-") for line in lines if line.endswith(os.path.basename(_core.__file__))]
    LIBC.faults_module(min(int(low, 16) for low, _ in spans), max(int(high, 16) for _, high in spans))
    python = ctypes.pythonapi
    python.PyCapsule_New.restype = ctypes.py_object
    python.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    python.PyCapsule_GetPointer.restype = ctypes.c_void_p
    python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    umath = sys.modules.get("numpy._core._multiarray_umath") or sys.modules["numpy.core._multiarray_umath"]
    table = ctypes.cast(python.PyCapsule_GetPointer(umath._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))
    set_handler = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(table[304])  # PyDataMem_SetHandler
    set_handler(python.PyCapsule_New(LIBC.faults_array_allocator(), b"mem_handler", None))


def same(one, two):
    if isinstance(one, tuple | list):
        return len(one) == len(two) and all(map(same, one, two))
    return np.array_equal(one, two, equal_nan=True)


def files():
    return {path.name: path.read_bytes() for path in FOLDER.iterdir()}


def try_call(name, call, kind, whole, every):
    """Refuse one after the other; return how many were refused and what was wrong."""
    for _ in range(3):
        want = call()
    LIBC.faults_arm(kind, 1 << 40, 0)
    call()
    count = LIBC.faults_disarm()
    places = list(range(1, count + 1))
    if not whole and count > every:
        places = sorted(set(places[: every // 3]) | set(np.linspace(1, count, every - every // 3, dtype=int).tolist()))
    wrong = []
    expected = OSError if kind == 4 else MemoryError
    before = held()
    for nth in places:
        old = files()
        LIBC.faults_arm(kind, nth, 0)
        try:
            got = call()
            LIBC.faults_disarm()
            if not same(got, want):
                wrong.append(f"{name}: with refusal {nth} of {count} another answer")
            del got
        except expected:
            LIBC.faults_disarm()
            new = files()
            if kind == 4:
                # Either the old file is there to the byte, or (the folder's sync failed last) a new one that loads.
                lost = [file for file in old if file not in new]
                left = [file for file in new if file.startswith(".")]
                if lost or left:
                    wrong.append(f"{name}: refusal {nth} of {count} lost {lost} and left {left}")
        except Exception as error:
            LIBC.faults_disarm()
            wrong.append(f"{name}: refusal {nth} of {count} is {type(error).__name__}: {error}")
        if not same(call(), want):
            wrong.append(f"{name}: after refusal {nth} of {count} another answer")
    grown = held() - before
    if grown > GROWTH:
        wrong.append(f"{name}: {grown} bytes more are held after {len(places)} refusals")
    return len(places), count, wrong


def try_with_few_threads(name, call):
    """Refuse threads in children, where none is there yet; the answer must be the right one, with its bits."""
    want, wrong = call(), []
    refusals = [(1, 0), (1, 1), (2, 0), (2, 1)]
    for nth, rest in refusals:
        child = os.fork()
        if not child:
            status = 3
            try:
                LIBC.faults_arm(3, nth, rest)
                got = call()
                asked = LIBC.faults_disarm()
                status = (0 if asked >= nth else 77) if same(got, want) and same(call(), want) else 4
            except Exception as error:
                sys.stderr.write(f"{name}: {type(error).__name__}: {error}\n")
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        if status not in (0, 77 << 8):  # 77: that many threads are not asked for
            wrong.append(f"{name}: without thread {nth} ({'and later ones' if rest else 'alone'}): status {status}")
    return len(refusals), len(refusals), wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--all", action="store_true", help="refuse each in turn, not a selection of 30")
    parser.add_argument("--every", type=int, default=30)
    given = parser.parse_args()
    prepare()
    calls = FILES if given.kind == "files" else CALLS
    wrong = []
    for name in given.names or calls:
        if name not in calls:
            continue
        if given.kind == "threads":
            tried, count, found = try_with_few_threads(name, calls[name])
        else:
            tried, count, found = try_call(name, calls[name], KINDS[given.kind], given.all, given.every)
        wrong += found
        sys.stdout.write(f"{name}: {tried} of {count} refused, {len(found)} wrong\n")
        sys.stdout.flush()
    sys.stdout.write("\n".join(wrong) + ("\n" if wrong else "") + ("all hold\n" if not wrong else ""))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
