"""The energy of tessellations: sums over pixels in whole numbers, the same bits on any number of threads."""

from __future__ import annotations

import numpy as np

from fuzzing.common import hold, pick
from stepwell.apps.voronoi import VoronoiEnergy


def voronoi(rng):
    height, width = int(rng.integers(2, 40)), int(rng.integers(2, 40))
    density = rng.integers(0, 256, (height, width), dtype=np.uint8)
    if not density.any():
        density[0, 0] = 1
    count = int(rng.integers(1, 1 + min(30, height * width)))
    energy = VoronoiEnergy(density, count, threads=int(pick(rng, 1, 2, 3)))
    pixel = energy.pixel
    sites = rng.random((count, 2)) * [width * pixel, height * pixel]
    f, g = energy.fun(sites.ravel())
    weights = density.ravel().astype(float)
    y, x = np.mgrid[0:height, 0:width]
    centres = np.stack([(x + 0.5) * pixel, (y + 0.5) * pixel], axis=-1).reshape(-1, 1, 2)
    squares = ((centres - sites[None]) ** 2).sum(-1)
    least = squares.min(1)
    want = float((weights * least).sum() * pixel**2)
    hold(abs(f - want) <= 1e-9 * max(want, 1e-300) + 1e-12, f"energy {f}, by pixels {want}")
    owners = energy.owners(sites).ravel()
    taken = squares[np.arange(squares.shape[0]), owners]
    hold(bool((taken <= least + 1e-12).all()), "a pixel belongs to a site that is not the nearest")
    mass = np.bincount(owners, weights, count) * pixel**2
    moments = [np.bincount(owners, weights * centres[:, 0, axis], count) * pixel**2 for axis in (0, 1)]
    gradient = 2 * (mass[:, None] * sites - np.stack(moments, 1))
    size = 2 * float((mass[:, None] * (np.abs(sites) + 1)).max())
    hold(float(np.abs(g.reshape(count, 2) - gradient).max()) <= 1e-10 * max(size, 1e-300), "gradient")
    again = VoronoiEnergy(density, count, threads=1).fun(sites.ravel())
    hold(again[0] == f and np.array_equal(again[1], g), "another number of threads, other bits")
