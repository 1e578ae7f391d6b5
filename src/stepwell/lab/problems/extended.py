"""Five functions of small blocks, extended to any number of variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import array_api_compat.numpy as numpy_namespace
import numpy as np

from stepwell.arrays import Array
from stepwell.common.checks import read_real, read_whole
from stepwell.lab.problems.problem import PIECE, Evaluate, Problem

MORE_GARBOW_HILLSTROM = (
    "J. J. Moré, B. S. Garbow and K. E. Hillstrom, Testing unconstrained optimization software, "
    "ACM Trans. Math. Softw. 7 (1981) 17-41"
)
CUTE = (
    "I. Bongartz, A. R. Conn, N. Gould and Ph. L. Toint, CUTE: constrained and unconstrained testing "
    "environment, ACM Trans. Math. Softw. 21 (1995) 123-160"
)

#: Columns x[..., 0::k], x[..., 1::k], ... of blocks of k in; their terms of f and the gradient's columns out.
Blocks = Callable[..., tuple[Array, tuple[Array, ...]]]


def _separable(blocks: Blocks, width: int) -> Evaluate:
    """Evaluate a sum of blocks of `width` neighbouring variables."""

    def evaluate(xp: Any, x: Array, tables: Mapping[str, Array]) -> tuple[Array, Array]:
        if xp is numpy_namespace:
            return by_pieces(x)
        terms, columns = blocks(*(x[..., i::width] for i in range(width)))
        return xp.sum(terms, axis=-1), xp.reshape(xp.stack(columns, axis=-1), x.shape)

    def by_pieces(x: np.ndarray) -> tuple[Any, np.ndarray]:
        sums = []
        g = np.empty(x.shape, x.dtype)
        for first in range(0, x.shape[-1], PIECE):
            here, out = x[..., first : first + PIECE], g[..., first : first + PIECE]
            terms, columns = blocks(*(here[..., i::width] for i in range(width)))
            sums.append(terms.sum(-1))
            for i, column in enumerate(columns):
                out[..., i::width] = column
        return sum(sums[1:], sums[0]), g

    return evaluate


def _extended(
    name: str,
    n: Any,
    block: list[float],
    blocks: Blocks,
    description: str,
    reference: str,
    **parameters: float,
) -> Problem:
    width = len(block)
    n = read_whole("n", n, width, multiple=width)
    return Problem(
        name=name,
        n=n,
        x0=np.tile(np.asarray(block), n // width),
        bounds=None,
        parameters={"n": n, **parameters},
        reference=reference,
        description=description,
        minimum=0.0,
        _evaluate=_separable(blocks, width),
    )


def rosenbrock(n: int = 1000, c: float = 100.0) -> Problem:
    """Build the extended Rosenbrock function: sum of c (x2 - x1^2)^2 + (1 - x1)^2 over pairs."""
    c = read_real("c", c, above=0)

    def blocks(x1: Array, x2: Array) -> tuple[Array, tuple[Array, ...]]:
        valley = x2 - x1 * x1
        along = 1.0 - x1
        g1 = ((-4.0 * c) * x1) * valley - 2.0 * along
        return c * (valley * valley) + along * along, (g1, (2.0 * c) * valley)

    return _extended(
        "rosenbrock",
        n,
        [-1.2, 1.0],
        blocks,
        "extended Rosenbrock: curved valleys",
        MORE_GARBOW_HILLSTROM,
        c=c,
    )


def beale(n: int = 1000) -> Problem:
    """Build the extended Beale function: sum of squares of y_k - x1 (1 - x2^k), k = 1, 2, 3, over pairs."""

    def blocks(x1: Array, x2: Array) -> tuple[Array, tuple[Array, ...]]:
        square = x2 * x2
        p1, p2, p3 = 1.0 - x2, 1.0 - square, 1.0 - square * x2
        r1, r2, r3 = 1.5 - x1 * p1, 2.25 - x1 * p2, 2.625 - x1 * p3
        g1 = -2.0 * (r1 * p1 + r2 * p2 + r3 * p3)
        g2 = (2.0 * x1) * (r1 + (2.0 * x2) * r2 + (3.0 * square) * r3)
        return r1 * r1 + r2 * r2 + r3 * r3, (g1, g2)

    return _extended("beale", n, [1.0, 0.8], blocks, "extended Beale: flat far from the solution", CUTE)


def powell(n: int = 1000) -> Problem:
    """Build the extended Powell singular function, over blocks of four."""

    def blocks(x1: Array, x2: Array, x3: Array, x4: Array) -> tuple[Array, tuple[Array, ...]]:
        p, q, r, s = x1 + 10.0 * x2, x3 - x4, x2 - 2.0 * x3, x1 - x4
        r2, s2 = r * r, s * s
        r3, s3 = 4.0 * r2 * r, 40.0 * s2 * s
        terms = p * p + 5.0 * (q * q) + r2 * r2 + 10.0 * (s2 * s2)
        return terms, (2.0 * p + s3, 20.0 * p + r3, 10.0 * q - 2.0 * r3, -10.0 * q - s3)

    return _extended(
        "powell",
        n,
        [3.0, -1.0, 0.0, 1.0],
        blocks,
        "extended Powell: singular Hessian at the solution",
        MORE_GARBOW_HILLSTROM,
    )


def wood(n: int = 1000) -> Problem:
    """Build the extended Wood function, over blocks of four.

    In the form of Moré, Garbow and Hillstrom; 10 (x2 + x4 - 2)^2 + (x2 - x4)^2 / 10 is the same as
    10.1 ((x2 - 1)^2 + (x4 - 1)^2) + 19.8 (x2 - 1)(x4 - 1).
    """

    def blocks(x1: Array, x2: Array, x3: Array, x4: Array) -> tuple[Array, tuple[Array, ...]]:
        p, q = x2 - x1 * x1, x4 - x3 * x3
        a, b = 1.0 - x1, 1.0 - x3
        both, apart = x2 + x4 - 2.0, x2 - x4
        g2, g4 = 200.0 * p, 180.0 * q
        terms = (0.5 * g2) * p + a * a + (0.5 * g4) * q + b * b + 10.0 * (both * both) + 0.1 * (apart * apart)
        both, apart = 20.0 * both, 0.2 * apart
        return terms, (-2.0 * (x1 * g2 + a), g2 + both + apart, -2.0 * (x3 * g4 + b), g4 + both - apart)

    return _extended(
        "wood",
        n,
        [-3.0, -1.0, -3.0, -1.0],
        blocks,
        "extended Wood: coupled curved valleys",
        MORE_GARBOW_HILLSTROM,
    )


def trigonometric(n: int = 100) -> Problem:
    """Build the trigonometric function: sum of squares of n - sum_j cos x_j + i (1 - cos x_i) - sin x_i."""
    n = read_whole("n", n, 1)

    def evaluate(xp: Any, x: Array, tables: Mapping[str, Array]) -> tuple[Array, Array]:
        # By half angles: 1 - cos x = 2 sin^2(x/2) keeps its digits near x = 0, where the minimum is.
        half = 0.5 * x
        sine, cosine = xp.sin(half), xp.cos(half)
        drop = 2.0 * (sine * sine)
        sine = 2.0 * (sine * cosine)
        index = tables["index"]
        r = xp.sum(drop, axis=-1, keepdims=True) + index * drop - sine
        g = 2.0 * (sine * xp.sum(r, axis=-1, keepdims=True) + r * (index * sine + drop - 1.0))
        return xp.sum(r * r, axis=-1), g

    return Problem(
        name="trigonometric",
        n=n,
        x0=np.full(n, 0.2),
        bounds=None,
        parameters={"n": n},
        reference=MORE_GARBOW_HILLSTROM,
        description="trigonometric: every variable coupled to all, many local minima",
        minimum=0.0,
        _evaluate=evaluate,
        _tables={"index": np.arange(1.0, n + 1.0)},
    )
