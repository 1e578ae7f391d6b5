"""Makes a case that fails smaller, as long as it fails in the same way: fewer systems, arguments, columns, rows, digits."""

from __future__ import annotations

import os
import pickle
import resource
from collections.abc import Iterator
from typing import Any

import numpy as np

from fuzzing.lsq.cases import Case, Pulse
from fuzzing.lsq.judging import judge

#: Options with a row per system, per column (last axis) and per row of A.
PER_SYSTEM = ("which", "mask", "weights", "lam", "noise", "bb", "warm_start")
#: Seconds of the processor that a small case may take.
LIMIT = 4


def kinds_of(case: Case) -> set[str]:
    """What is wrong with a case, found in a process of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            resource.setrlimit(
                resource.RLIMIT_CPU, (LIMIT + int(resource.getrusage(resource.RUSAGE_SELF).ru_utime), LIMIT + 60)
            )
            with np.errstate(all="ignore"):
                found = {finding.kind for finding in judge(case).findings}
        except Exception as error:
            found = {type(error).__name__}
        os.write(writing, pickle.dumps(found))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    _, code = os.waitpid(child, 0)
    return pickle.loads(said) if said else {"hang"} if os.WIFSIGNALED(code) and os.WTERMSIG(code) == 24 else {"crash"}


def shrink(case: Case, wanted: str) -> Case:
    """The smallest case found that fails as `wanted`."""
    case = first_alone(case, wanted)
    changed = True
    while changed:
        changed = False
        for smaller in candidates(case):
            if wanted in kinds_of(smaller):
                case, changed = smaller, True
                break
    return case


def first_alone(case: Case, wanted: str) -> Case:
    """One of its systems alone, if one fails alone."""
    systems = case.systems()
    if case.turned().ndim == 1:
        return case
    for i in range(systems):
        try:
            lone = alone(case, i)
        except (ValueError, IndexError):
            return case
        if wanted in kinds_of(lone):
            return lone
    return case


def alone(case: Case, i: int) -> Case:
    systems, options = case.systems(), dict(case.options)
    matrix = case.A
    b = case.turned().reshape(systems, -1)[i]
    if options.get("axis"):
        del options["axis"]
        if getattr(options.get("warm_start"), "ndim", 0) == 2:
            options["warm_start"] = options["warm_start"].T
    if not isinstance(matrix, Pulse):
        if options.get("which") is not None:
            matrix = matrix[np.asarray(options.pop("which")).reshape(-1)[i]]
        elif matrix.ndim > 2:
            matrix = matrix.reshape(-1, *matrix.shape[-2:])[i]

    def own(value: Any, last: bool) -> Any:
        array = np.asarray(value)
        if array.ndim >= (2 if last else 1) and array.shape[0] == systems:
            return array[i] if last else array[i].item()
        return value

    for name in ("mask", "weights", "warm_start"):
        if isinstance(options.get(name), np.ndarray):
            options[name] = own(options[name], True)
    for name in ("lam", "noise", "bb"):
        if isinstance(options.get(name), np.ndarray):
            options[name] = own(options[name], False)
    if "bounds" in options:
        options["bounds"] = tuple(own(end, True) for end in options["bounds"])
    if "sum_bounds" in options:
        options["sum_bounds"] = tuple(own(end, False) for end in options["sum_bounds"])
    if "equality" in options:
        options["equality"] = (options["equality"][0], own(options["equality"][1], True))
    if options.get("warm_start") is not None and isinstance(options["warm_start"], str):
        del options["warm_start"]
    return Case(
        case.function, np.array(matrix) if not isinstance(matrix, Pulse) else matrix, np.array(b), options, case.kinds
    )


def candidates(case: Case) -> Iterator[Case]:
    """Cases a little smaller, the boldest first."""
    for name in list(case.options):
        yield changed(case, drop=name)
    if isinstance(case.A, Pulse):
        yield Case(case.function, np.array(case.matrix(), float), case.b, case.options, case.kinds)
        return
    if case.turned().ndim > 1:
        yield from fewer_systems(case)
        if case.options.get("axis"):
            return
    m, n = case.A.shape[-2:]
    for width in (n // 2, n // 4, 1):
        if width >= 1 and n > width:
            for start in range(0, n, width):
                kept = np.ones(n, bool)
                kept[start : start + width] = False
                if kept.any():
                    yield columns(case, kept)
    if case.function != "lsq_gram":
        for width in (m // 2, m // 4, 1):
            if width >= 1 and m > width:
                for start in range(0, m, width):
                    kept = np.ones(m, bool)
                    kept[start : start + width] = False
                    if kept.any():
                        yield rows(case, kept)
    if case.A.dtype != np.float64:
        yield Case(case.function, case.A.astype(float), case.b.astype(float), case.options, case.kinds)
    for name in ("bounds", "sum_bounds", "equality", "lam", "L", "noise", "weights", "warm_start"):
        if name in case.options and not isinstance(case.options[name], str):
            for digits in (0, 1):
                fewer = rounded(case.options[name], digits)
                if not same(fewer, case.options[name]):
                    yield changed(case, **{name: fewer})
    for digits in (0, 1, 2):
        for A, b in ((rounded(case.A, digits), case.b), (case.A, rounded(case.b, digits))):
            if not (same(A, case.A) and same(b, case.b)):
                if case.function == "lsq_gram":
                    A = 0.5 * (A + np.swapaxes(A, -1, -2))
                yield Case(case.function, A, b, case.options, case.kinds)
    zero = np.zeros_like(case.b)
    if case.b.any():
        yield Case(case.function, case.A, zero, case.options, case.kinds)


def fewer_systems(case: Case) -> Iterator[Case]:
    """Some of the systems of a batch."""
    systems = case.systems()
    if case.options.get("axis") or case.b.ndim != 2:
        return
    for width in (systems // 2, systems // 4, 1):
        if width >= 1 and systems > width:
            for start in range(0, systems, width):
                kept = np.ones(systems, bool)
                kept[start : start + width] = False
                yield some(case, kept)


def some(case: Case, kept: np.ndarray) -> Case:
    systems = len(kept)

    def cut(value: Any, dimensions: int) -> Any:
        array = np.asarray(value)
        return array[kept] if array.ndim == dimensions and array.shape[0] == systems else value

    options = dict(case.options)
    for name, dimensions in (
        ("mask", 2),
        ("weights", 2),
        ("warm_start", 2),
        ("lam", 1),
        ("noise", 1),
        ("bb", 1),
        ("which", 1),
    ):
        if name in options and not isinstance(options[name], str):
            options[name] = cut(options[name], dimensions)
    for name, dimensions in (("bounds", 2), ("sum_bounds", 1)):
        if name in options:
            options[name] = tuple(cut(end, dimensions) for end in options[name])
    if "equality" in options:
        options["equality"] = (options["equality"][0], cut(options["equality"][1], 2))
    A = case.A[kept] if case.A.ndim == 3 and "which" not in options else case.A
    return Case(case.function, A, case.b[kept], options, case.kinds)


def changed(case: Case, drop: str = "", **options: Any) -> Case:
    kept = {name: value for name, value in (case.options | options).items() if name != drop}
    return Case(case.function, case.A, case.b, kept, case.kinds)


def columns(case: Case, kept: np.ndarray) -> Case:
    n = len(kept)

    def cut(value: Any) -> Any:
        array = np.asarray(value)
        return array[..., kept] if array.ndim and array.shape[-1] == n else value

    options = dict(case.options)
    for name in ("mask", "L", "warm_start"):
        if name in options:
            options[name] = cut(options[name])
    if "bounds" in options:
        options["bounds"] = tuple(cut(end) for end in options["bounds"])
    if "equality" in options:
        options["equality"] = (cut(options["equality"][0]), options["equality"][1])
    if case.function == "lsq_gram":
        return Case(case.function, case.A[..., kept, :][..., kept], case.b[..., kept], options, case.kinds)
    return Case(case.function, case.A[..., kept], case.b, options, case.kinds)


def rows(case: Case, kept: np.ndarray) -> Case:
    options = dict(case.options)
    if "weights" in options:
        options["weights"] = options["weights"][..., kept]
    return Case(case.function, case.A[..., kept, :], case.b[..., kept], options, case.kinds)


def rounded(value: Any, digits: int) -> Any:
    """Numbers with so many digits after the first."""
    if isinstance(value, tuple):
        return tuple(rounded(one, digits) for one in value)
    array = np.asarray(value)
    if array.dtype.kind != "f":
        return value
    fewer = np.array([float(f"{one:.{digits}e}") for one in array.ravel()], array.dtype).reshape(array.shape)
    if fewer.size and (fewer == fewer.ravel()[0]).all() and isinstance(value, np.ndarray):
        return fewer
    return fewer if isinstance(value, np.ndarray) else float(fewer)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, tuple):
        return all(same(p, q) for p, q in zip(a, b))
    return bool(np.array_equal(np.asarray(a), np.asarray(b)))
