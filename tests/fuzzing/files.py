"""Files that were changed: a clean error that names the file, or the same contents; never another run."""

from __future__ import annotations

import os
import tempfile

import numpy as np

import stepwell
from fuzzing.common import hold
from stepwell.apps import waveform

A = np.random.default_rng(0).standard_normal((12, 8))


def optimizer():
    opt = stepwell.LBFGSB(np.ones(3), (0.0, 2.0), m=2)
    opt.tell(3.0, np.array([1.0, -1.0, 0.5]))
    return opt


def solver():
    kept = stepwell.ProjectedCG(A, 0.1)
    kept.solve(A[:, 0])
    return kept


def shots(path):
    waveform.save_shots(path, waveform.Shots(np.ones((2, 9)), np.ones((2, 5)), 0, np.zeros(2)))


WRITERS = {
    "optimizer": (lambda path: optimizer().save(path), lambda path: np.array(stepwell.LBFGSB.load(path).x)),
    "solver": (
        lambda path: solver().save(path),
        lambda path: stepwell.ProjectedCG.load(path, A).solve(A[:, 1]).x,
    ),
    "shots": (shots, lambda path: waveform.load_shots(path).waveforms),
}


def files(rng):
    path = os.path.join(tempfile.gettempdir(), f"stepwell-fuzz-{os.getpid()}.file")
    try:
        for name, (write, read) in WRITERS.items():
            write(path)
            want = read(path)
            with open(path, "rb") as file:
                whole = file.read()
            for _ in range(8):
                content = bytearray(whole)
                for _ in range(int(rng.integers(1, 4))):
                    kind, place = rng.integers(5), int(rng.integers(len(content))) if content else 0
                    if kind == 0 and content:
                        content[place] ^= 1 << int(rng.integers(8))
                    elif kind == 1:
                        content = content[:place]
                    elif kind == 2:
                        content[place:place] = bytes(rng.integers(0, 256, int(rng.integers(1, 9)), dtype=np.uint8))
                    elif kind == 3 and content:
                        content[place] = int(rng.integers(256))
                    else:
                        del content[place : place + int(rng.integers(1, 9))]
                with open(path, "wb") as file:
                    file.write(content)
                try:
                    found = read(path)
                except (ValueError, OSError) as error:
                    hold(path in str(error), f"{name}: an error that does not name the file: {error}")
                    continue
                if name != "shots":  # npz files of data have the zip file's own checksums alone
                    hold(np.array_equal(found, want), f"{name}: a changed file was taken, and is another run")
    finally:
        if os.path.exists(path):
            os.unlink(path)
