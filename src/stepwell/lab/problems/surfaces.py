"""Two problems whose energy depends on the slope of each triangle: minimal surface and composites.

With s = |gradient|^2 on a triangle, f = (hx hy / 2) sum of energy(s) over the triangles + load hx hy sum v.
The derivative of an edge's energy is its difference times weight = 2 energy'(s) of its two triangles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from stepwell.arrays import Array
from stepwell.common.checks import read_real
from stepwell.lab.problems.grids import MINPACK2, Grid, columns_with_neighbours, rows_with_neighbours, total
from stepwell.lab.problems.problem import Evaluate, Problem
from stepwell.lab.problems.sizes import grid_sides

#: (xp, s, tables) -> energy(s) and weight(s) of triangles with squared slope s.
Density = Callable[[Any, Array, Mapping[str, Array]], tuple[Array, Array]]


def _surface(grid: Grid, density: Density, load: float) -> Evaluate:
    """Evaluate the energy; tables bottom, top (1, nx) and left, right (ny + 2, 1) hold v on the border."""
    hx, hy = grid.hx, grid.hy

    def strip(xp: Any, v: Array, first: int, last: int, tables: Mapping[str, Array]) -> tuple[Array, Array]:
        w = rows_with_neighbours(xp, v, tables["bottom"], tables["top"], first, last)
        rows = slice(first, last + 2)
        w = columns_with_neighbours(xp, w, tables["left"][rows, :], tables["right"][rows, :])
        across = w[..., 1:] - w[..., :-1]
        along = w[..., 1:, :] - w[..., :-1, :]
        slope_x = (across * across) * (1.0 / (hx * hx))
        slope_y = (along * along) * (1.0 / (hy * hy))
        lower_energy, lower = density(xp, slope_x[..., :-1, :] + slope_y[..., :-1], tables)
        upper_energy, upper = density(xp, slope_x[..., 1:, :] + slope_y[..., 1:], tables)
        energy = lower_energy + upper_energy
        # The cells above a strip belong to the next one.
        if last < grid.ny:
            energy = energy[..., :-1, :]
        pull_x = (lower[..., 1:, :] + upper[..., :-1, :]) * across[..., 1:-1, :]
        pull_y = (lower[..., 1:] + upper[..., :-1]) * along[..., 1:-1]
        g = (0.5 * hy / hx) * (pull_x[..., :-1] - pull_x[..., 1:])
        g = g + (0.5 * hx / hy) * (pull_y[..., :-1, :] - pull_y[..., 1:, :])
        f = (0.5 * hx * hy) * total(xp, energy)
        if load:
            f, g = f + (load * hx * hy) * total(xp, v[..., first:last, :]), g + load * hx * hy
        return f, g

    def evaluate(xp: Any, x: Array, tables: Mapping[str, Array]) -> tuple[Array, Array]:
        v = xp.reshape(x, (*x.shape[:-1], grid.ny, grid.nx))
        results = [strip(xp, v, first, last, tables) for first, last in grid.strips(xp)]
        f = sum((part for part, _ in results[1:]), results[0][0])
        g = xp.concat([part for _, part in results], axis=-2) if len(results) > 1 else results[0][1]
        return f, xp.reshape(g, x.shape)

    return evaluate


def _enneper(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Height u^2 - s^2 of Enneper's surface at x = u + u s^2 - u^3/3, y = -s - u^2 s + s^3/3."""
    u, s = x.copy(), -y
    for _ in range(8):  # Newton's method, quadratic from here: five steps reach 1e-10 and two more rounding
        residual_x = u + u * s**2 - u**3 / 3.0 - x
        residual_y = -s - u**2 * s + s**3 / 3.0 - y
        xu, xs = 1.0 + s**2 - u**2, 2.0 * u * s
        yu, ys = -2.0 * u * s, -1.0 - u**2 + s**2
        det = xu * ys - xs * yu
        u = u - (residual_x * ys - residual_y * xs) / det
        s = s - (xu * residual_y - yu * residual_x) / det
    height: np.ndarray = u**2 - s**2
    return height


def minimal_surface(n: int | None = None, nx: int | None = None, ny: int | None = None) -> Problem:
    """Build the minimal surface problem: the least area that spans the border of Enneper's surface."""
    grid = Grid(*grid_sides(n, nx, ny, default=50))
    x = -0.5 + np.arange(grid.nx + 2) * grid.hx
    y = -0.5 + np.arange(grid.ny + 2) * grid.hy
    bottom, top = _enneper(x, np.full_like(x, -0.5)), _enneper(x, np.full_like(x, 0.5))
    left, right = _enneper(np.full_like(y, -0.5), y), _enneper(np.full_like(y, 0.5), y)
    across, along = (x[1:-1] + 0.5)[None, :], (y[1:-1] + 0.5)[:, None]
    start = 0.5 * (
        (1.0 - along) * bottom[1:-1]
        + along * top[1:-1]
        + (1.0 - across) * left[1:-1, None]
        + across * right[1:-1, None]
    )

    def density(xp: Any, s: Array, tables: Mapping[str, Array]) -> tuple[Array, Array]:
        area = xp.sqrt(1.0 + s)
        return area, 1.0 / area

    return Problem(
        name="minimal-surface",
        n=grid.nx * grid.ny,
        x0=start.reshape(-1),
        bounds=None,
        parameters={"nx": grid.nx, "ny": grid.ny},
        reference=MINPACK2,
        description="minimal surface over Enneper's border: convex, not quadratic",
        minimum=None,
        _evaluate=_surface(grid, density, load=0.0),
        _tables={
            "bottom": bottom[None, 1:-1],
            "top": top[None, 1:-1],
            "left": left[:, None],
            "right": right[:, None],
        },
    )


def composites(n: int | None = None, nx: int | None = None, ny: int | None = None, lam: float = 0.008) -> Problem:
    """Build the optimal design with composites problem: a rod of two materials, lam their trade-off."""
    grid = Grid(*grid_sides(n, nx, ny, default=50))
    lam = read_real("lam", lam, above=0)
    mu1, mu2 = 1.0, 2.0
    t1, t2 = math.sqrt(2.0 * lam * mu1 / mu2), math.sqrt(2.0 * lam * mu2 / mu1)

    def density(xp: Any, s: Array, tables: Mapping[str, Array]) -> tuple[Array, Array]:
        # psi's three branches in one: psi'(t)/t = mu2 below t1, mu1 above t2 and mu2 t1/t = mu1 t2/t between,
        # and psi = (psi'/t) t^2/2 + mu2 t1 (t - t1)/2 with the last t kept in [t1, t2].
        t = xp.sqrt(xp.minimum(xp.maximum(s, tables["least"]), tables["most"]))
        weight = (mu2 * t1) / t
        return 0.5 * (weight * s + (mu2 * t1) * (t - t1)), weight

    tables = {side: np.zeros((1, grid.nx)) for side in ("bottom", "top")}
    tables |= {side: np.zeros((grid.ny + 2, 1)) for side in ("left", "right")}
    tables |= {"least": np.asarray(t1 * t1), "most": np.asarray(t2 * t2)}
    distance = grid.distance()
    return Problem(
        name="composites",
        n=grid.nx * grid.ny,
        x0=-distance * distance,
        bounds=None,
        parameters={"nx": grid.nx, "ny": grid.ny, "lam": lam},
        reference=MINPACK2,
        description="optimal design with composites: convex, second derivative jumps",
        minimum=None,
        _evaluate=_surface(grid, density, load=1.0),
        _tables=tables,
    )
