"""Kinds of cases for tests/fuzz.py: a function each, of a random generator, that raises where something is wrong."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable

import numpy as np

from fuzzing import arguments, files, linear, minimizing, systems, tessellating

KINDS: dict[str, Callable[[np.random.Generator], None]] = {
    "minimize": minimizing.minimize,
    "batch": minimizing.batch,
    "resume": minimizing.resume,
    "trouble": minimizing.trouble,
    "nnls": systems.nnls,
    "convolution": systems.convolution,
    "tikhonov": linear.tikhonov,
    "projected": linear.projected,
    "cg": linear.cg,
    "arguments": arguments.arguments,
    "files": files.files,
    "voronoi": tessellating.voronoi,
}


def run_case(kind: str, number: int) -> None:
    """Run one case; everything in it follows from its kind and number."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        KINDS[kind](np.random.default_rng([zlib.crc32(kind.encode()), number]))
