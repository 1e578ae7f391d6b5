"""Problems whose variables are spread over ranks, for ranks of any kind; and what a run over them found."""

from __future__ import annotations

import hashlib

import numpy as np

import stepwell
from stepwell.arrays import namespace_of
from stepwell.distributed import Ranks, split

PAIRS = 22_000  # variables of the Rosenbrock problem: six chunks
#: Settings whose runs must have the same bits on any number of ranks.
CASES = [
    {"cauchy": cauchy, "dtype": dtype, "weighted": weighted}
    for cauchy in ("exact", "first-interval", "none")
    for dtype in (np.float64, np.float32)
    for weighted in (False, True)
]


class Fixed:
    """One of so many ranks, that never meet."""

    def __init__(self, size, rank=0):
        self.rank, self.size = rank, size

    def allgather(self, row, counts):
        raise AssertionError


def folded(tiles, of_a_chunk=1):
    """Return the sum of rows: in each chunk the largest power of two first, chunks by halves. By its definition."""
    count = len(tiles)
    if count == 1:
        return tiles[0]
    chunks = -(-count // of_a_chunk)
    middle = chunks // 2 * of_a_chunk if chunks > 1 else 1 << (count - 1).bit_length() - 1
    return folded(tiles[:middle], of_a_chunk) + folded(tiles[middle:], of_a_chunk)


def rosenbrock_terms(x):
    """Return the terms and the gradient of pairs (a, b), computed in double precision."""
    wide = x.astype(np.float64)
    a, b = wide[0::2], wide[1::2]
    rise = b - a * a
    each, gradient = np.zeros(x.size), np.empty(x.size)
    each[0::2] = 100 * rise**2 + (1 - a) ** 2
    gradient[1::2] = 200 * rise
    gradient[0::2] = -400 * rise * a - 2 * (1 - a)
    return each, gradient.astype(x.dtype)


def rosenbrock(layout, dtype=np.float64):
    """Return this rank's function (values a chunk, gradient), start, bounds and diagonal of pairs (a, b)."""
    begin, end = layout
    i = np.arange(begin, end)
    lower = np.full(i.size, -2.0, dtype)
    upper = np.where(i % 3 == 0, 0.4 + 0.1 * (i % 7), 2.0).astype(dtype)
    start = np.where(i % 2 == 0, -1.2, 0.3 + 0.1 * np.sin(i)).astype(dtype)
    diagonal = (1e-3 * (2 + np.cos(i))).astype(dtype)

    def fun(x):
        each, gradient = rosenbrock_terms(x)
        return layout.chunk_sums(each), gradient

    return fun, start, (lower, upper), diagonal


def torsion(layout, nx, comm):
    """Return this rank's function, start and bounds of the torsion problem on nx by nx points, with a halo of rows."""
    begin, end = layout
    rows, h = (end - begin) // nx, 1 / (nx + 1)
    i = np.arange(1, nx + 1.0)
    near = np.minimum(i, nx + 1 - i) * h
    upper = np.minimum(near[:, None], near[None]).ravel()[begin:end]
    neighbours = Ranks(comm)
    counts = [2 * nx * (b > a) for a, b in zip(layout.borders, layout.borders[1:])]

    def fun(x):
        v = np.zeros((rows + 2, nx + 2))
        v[1:-1, 1:-1] = x.reshape(rows, nx)
        edges = v[[1, -2], 1:-1].ravel() if rows else np.empty(0)
        found = neighbours.exchange(edges, counts)
        above = [row for row in found[: neighbours.rank] if row.size]
        below = [row for row in found[neighbours.rank + 1 :] if row.size]
        if rows and above:
            v[0, 1:-1] = above[-1][nx:]
        if rows and below:
            v[-1, 1:-1] = below[0][:nx]
        middle = v[1:-1, 1:-1]
        curved = 4 * middle - v[:-2, 1:-1] - v[2:, 1:-1] - v[1:-1, :-2] - v[1:-1, 2:]
        return layout.chunk_sums(0.5 * middle * curved - 5 * h * h * middle), (curved - 5 * h * h).ravel()

    return fun, upper.copy(), (-upper, upper)


def signs(layout, n, starts=None, place=np.array):
    """Return this rank's function, start and bounds of log(1 + exp(-y x)): one walk crosses most of n bounds.

    With `starts`, so many numbers alone are there to start from, and as many breakpoints. `place` puts an array where
    the variables are.
    """
    begin, end = layout
    rng = np.random.default_rng(0)
    y = place((rng.integers(0, 2, n) * 2 - 1.0)[begin:end])
    xp = namespace_of(y)
    start = 0.01 * (rng.normal(size=n) if starts is None else rng.normal(size=starts)[rng.integers(starts, size=n)])

    def fun(x):
        each = xp.logaddexp(0 * x, -y * x) + 0.005 * x * x
        return layout.chunk_sums(each), -y / (1 + xp.exp(y * x)) + 0.01 * x

    return fun, place(start[begin:end]), (-1.0, 1.0)


def solve_rosenbrock(
    comm, *, dtype=np.float64, weighted=False, bounded=True, fun=None, callback=None, cut=split, **options
):
    """Minimise the Rosenbrock problem over ranks; `fun` may stand between the solver and the function.

    `cut` deals out the variables, as `split` does.
    """
    layout = cut(PAIRS, comm, align=2)
    value, start, bounds, diagonal = rosenbrock(layout, dtype)
    options = {"ftol": 0, "gtol": 1e-6, "maxiter": 25, "threads": 1} | options
    if weighted:
        options["h0"] = diagonal
    return stepwell.minimize(
        value if fun is None else fun(value, layout),
        start,
        jac=True,
        bounds=bounds if bounded else None,
        callback=callback,
        comm=layout,
        options=options,
    )


def digest_of(results):
    """Return a text that tells apart what runs over ranks found, from the results of all ranks."""
    digest = hashlib.sha256()
    for name in ("x", "jac"):
        digest.update(np.concatenate([np.asarray(r[name]).ravel() for r in results]).tobytes())
    for r in results:
        assert (r.fun, r.nit, r.nfev, r.status) == tuple(results[0][key] for key in ("fun", "nit", "nfev", "status"))
        assert r.projected_gradient == results[0].projected_gradient
    first = results[0]
    return (
        f"{digest.hexdigest()[:16]} {first.fun!r} {first.projected_gradient!r} {first.nit} {first.nfev} {first.status}"
    )
