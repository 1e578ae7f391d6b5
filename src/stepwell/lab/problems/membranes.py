"""Three problems with a quadratic energy on a grid: torsion, journal bearing and combustion.

On a border at zero the two triangles at an edge add up, and the sum over triangles is a sum over edges:

    f = 1/2 sum a_x (v[i+1,j] - v[i,j])^2 + 1/2 sum a_y (v[i,j+1] - v[i,j])^2 + sum over nodes.

It is evaluated by differences of neighbours, which keep the digits that the five-point formula cancels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from stepwell.arrays import Array
from stepwell.common.checks import read_real
from stepwell.lab.problems.grids import (
    MINPACK2,
    Grid,
    columns_with_neighbours,
    rows_with_neighbours,
    total,
    zero_border,
)
from stepwell.lab.problems.problem import Evaluate, Problem
from stepwell.lab.problems.sizes import grid_sides

#: (xp, v, tables) -> the terms of the nodes and their derivatives, added to the energy of the edges.
Nodes = Callable[[Any, Array, Mapping[str, Array]], tuple[Array, Array]]


def _membrane(grid: Grid, nodes: Nodes, constant: float = 0.0) -> Evaluate:
    """Evaluate the energy of edges and nodes; tables ``across`` (nx + 1) and ``along`` (nx) hold a_x, a_y."""

    def strip(xp: Any, v: Array, first: int, last: int, tables: Mapping[str, Array]) -> tuple[Array, Array]:
        inner = v[..., first:last, :]
        border = tables["column"][first:last, :]
        across = columns_with_neighbours(xp, inner, border, border)
        across = across[..., 1:] - across[..., :-1]
        along = rows_with_neighbours(xp, v, tables["row"], tables["row"], first, last)
        along = along[..., 1:, :] - along[..., :-1, :]
        pull_x, pull_y = tables["across"] * across, tables["along"] * along
        terms, slopes = nodes(xp, inner, tables)
        g = (pull_x[..., :-1] - pull_x[..., 1:]) + (pull_y[..., :-1, :] - pull_y[..., 1:, :]) + slopes
        # The edges above a strip belong to the next one.
        energy_x, energy_y = pull_x * across, pull_y * along
        if last < grid.ny:
            energy_y = energy_y[..., :-1, :]
        return 0.5 * (total(xp, energy_x) + total(xp, energy_y)) + total(xp, terms), g

    def evaluate(xp: Any, x: Array, tables: Mapping[str, Array]) -> tuple[Array, Array]:
        v = xp.reshape(x, (*x.shape[:-1], grid.ny, grid.nx))
        results = [strip(xp, v, first, last, tables) for first, last in grid.strips(xp)]
        f = sum((part for part, _ in results[1:]), results[0][0])
        g = xp.concat([part for _, part in results], axis=-2) if len(results) > 1 else results[0][1]
        return (f + constant if constant else f), xp.reshape(g, x.shape)

    return evaluate


def torsion(n: int | None = None, nx: int | None = None, ny: int | None = None, c: float = 5.0) -> Problem:
    """Build the elastic-plastic torsion problem: the stress in a cylinder under twist c per unit length."""
    grid = Grid(*grid_sides(n, nx, ny, default=50))
    c = read_real("c", c)
    area = grid.hx * grid.hy

    def nodes(xp: Any, v: Array, tables: Mapping[str, Array]) -> tuple[Array, Array]:
        return (-c * area) * v, tables["load"]

    distance = grid.distance()
    return Problem(
        name="torsion",
        n=grid.nx * grid.ny,
        x0=distance,
        bounds=(-distance, distance.copy()),
        parameters={"nx": grid.nx, "ny": grid.ny, "c": c},
        reference=MINPACK2,
        description="elastic-plastic torsion: convex quadratic, bounds on every variable",
        minimum=None,
        _evaluate=_membrane(grid, nodes),
        _tables={
            **zero_border(grid),
            "across": np.asarray(grid.hy / grid.hx),
            "along": np.asarray(grid.hx / grid.hy),
            "load": np.asarray(-c * area),
        },
    )


def journal_bearing(
    n: int | None = None, nx: int | None = None, ny: int | None = None, e: float = 0.1, b: float = 10.0
) -> Problem:
    """Build the journal bearing problem: the pressure of the film between two cylinders of eccentricity e.

    The domain is (0, 2 pi) by (0, 2 b).
    """
    grid = Grid(*grid_sides(n, nx, ny, default=50), 2.0 * math.pi, 2.0 * read_real("b", b, above=0))
    e = read_real("e", e, above=0, below=1)
    area = grid.hx * grid.hy
    angle = np.arange(grid.nx + 2) * grid.hx
    film = (1.0 + e * np.cos(angle)) ** 3
    # Lower triangle at i weighs (2 w[i] + w[i+1]) / 6, upper one at i + 1 weighs (2 w[i+1] + w[i]) / 6.
    across = 0.5 * area * (film[:-1] + film[1:]) / grid.hx**2
    along = area * (4.0 * film[1:-1] + film[:-2] + film[2:]) / (6.0 * grid.hy**2)
    load = -e * area * np.sin(angle[1:-1])

    def nodes(xp: Any, v: Array, tables: Mapping[str, Array]) -> tuple[Array, Array]:
        return tables["load"] * v, tables["load"]

    size = grid.nx * grid.ny
    return Problem(
        name="journal-bearing",
        n=size,
        x0=np.tile(np.maximum(np.sin(angle[1:-1]), 0.0), grid.ny),
        bounds=(np.zeros(size), np.full(size, np.inf)),
        parameters={"nx": grid.nx, "ny": grid.ny, "e": e, "b": grid.height / 2.0},
        reference=MINPACK2,
        description="pressure in a journal bearing: convex quadratic, x >= 0",
        minimum=None,
        _evaluate=_membrane(grid, nodes),
        _tables={**zero_border(grid), "across": across, "along": along, "load": load},
    )


def combustion(n: int | None = None, nx: int | None = None, ny: int | None = None, lam: float = 5.0) -> Problem:
    """Build the steady-state combustion (Bratu) problem: the temperature of a burning rod.

    Unbounded below; the start lies in the basin of the lower solution branch, which exists for lam < 6.81.
    """
    grid = Grid(*grid_sides(n, nx, ny, default=50))
    lam = read_real("lam", lam, at_least=0)
    heat = -lam * grid.hx * grid.hy

    def nodes(xp: Any, v: Array, tables: Mapping[str, Array]) -> tuple[Array, Array]:
        slopes = heat * xp.exp(v)
        return slopes, slopes

    return Problem(
        name="combustion",
        n=grid.nx * grid.ny,
        x0=lam / (lam + 1.0) * np.sqrt(grid.distance()),
        bounds=None,
        parameters={"nx": grid.nx, "ny": grid.ny, "lam": lam},
        reference=MINPACK2,
        description="steady-state combustion (Bratu): exponential source, local minimum",
        minimum=None,
        # A node inside is a vertex of six triangles; the border's vertices are counted too, with exp(0) = 1.
        _evaluate=_membrane(grid, nodes, constant=heat * (grid.nx + grid.ny + 1)),
        _tables={
            **zero_border(grid),
            "across": np.asarray(grid.hy / grid.hx),
            "along": np.asarray(grid.hx / grid.hy),
        },
    )
