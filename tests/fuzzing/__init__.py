"""Kinds of cases for tests/fuzz.py: a function each, of a random generator, that raises where something is wrong."""

from __future__ import annotations

import collections
import warnings
import zlib
from collections.abc import Callable

import numpy as np

from fuzzing import arguments, files, linear, minimizing, systems, tessellating
from fuzzing.lsq import describe, kept, kept_cases, least_squares
from fuzzing.lsq.problem import HAS_ORACLE

KINDS: dict[str, Callable[[np.random.Generator], collections.Counter[str] | None]] = {
    "minimize": minimizing.minimize,
    "batch": minimizing.batch,
    "resume": minimizing.resume,
    "trouble": minimizing.trouble,
    "nnls": systems.nnls,
    "convolution": systems.convolution,
    "lsq": least_squares,
    "tikhonov": linear.tikhonov,
    "projected": linear.projected,
    "cg": linear.cg,
    "arguments": arguments.arguments,
    "files": files.files,
    "voronoi": tessellating.voronoi,
}


if not HAS_ORACLE:
    del KINDS["lsq"]


def kept_numbers() -> range:
    """The numbers of the kind "kept": calls of least squares that failed once."""
    return range(len(kept_cases()))


def run_case(kind: str, number: int) -> collections.Counter[str]:
    """Run one case; everything in it follows from its kind and number. Returns what it counted, if anything."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind == "kept":
            kept(number)
            return collections.Counter()
        return KINDS[kind](generator(kind, number)) or collections.Counter()


def describe_case(kind: str, number: int, smaller: bool = False) -> str:
    """Run one case and say what it is; of kinds that tell nothing, raise where something is wrong."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind == "lsq":
            return describe(generator(kind, number), smaller)
    run_case(kind, number)
    return "nothing wrong"


def generator(kind: str, number: int) -> np.random.Generator:
    """What a case draws from."""
    return np.random.default_rng([zlib.crc32(kind.encode()), number])
