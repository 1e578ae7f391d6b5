"""Test problems: five extended functions and the eight minimisation problems of MINPACK-2.

Each is written once for NumPy, PyTorch, CuPy and JAX arrays, with its value and gradient, start and bounds.
`docs/problems.md` has the formulas.

Examples
--------
>>> from stepwell.lab import problems
>>> problem = problems.get("torsion", nx=10, ny=10)
>>> f, g = problem.fun(problem.x0)
>>> round(float(f), 6)
-0.330579
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from stepwell.common.checks import meant, read_choice
from stepwell.lab.problems import clusters, extended, membranes, superconductors, surfaces
from stepwell.lab.problems.problem import Problem

__all__ = ["Listing", "Problem", "get", "listing", "names"]

_BUILDERS: dict[str, Callable[..., Problem]] = {
    "rosenbrock": extended.rosenbrock,
    "beale": extended.beale,
    "powell": extended.powell,
    "wood": extended.wood,
    "trigonometric": extended.trigonometric,
    "torsion": membranes.torsion,
    "journal-bearing": membranes.journal_bearing,
    "minimal-surface": surfaces.minimal_surface,
    "composites": surfaces.composites,
    "ginzburg-landau-1d": superconductors.ginzburg_landau_1d,
    "lennard-jones": clusters.lennard_jones,
    "combustion": membranes.combustion,
    "ginzburg-landau-2d": superconductors.ginzburg_landau_2d,
}

#: Second spellings of parameters.
_ALIASES = {"eccentricity": "e", "temperature": "T", "vortices": "nv"}


@dataclass(frozen=True)
class Listing:
    """One line of the list of problems: what `get(name)` gives without further arguments."""

    name: str
    n: int
    parameters: Mapping[str, int | float]
    bounded: bool
    description: str
    reference: str


def names() -> tuple[str, ...]:
    """Return the names of all problems.

    Examples
    --------
    >>> from stepwell.lab import problems
    >>> len(problems.names())
    13
    """
    return tuple(_BUILDERS)


def listing() -> tuple[Listing, ...]:
    """Return the name, default size and parameters, and description of every problem.

    Examples
    --------
    >>> from stepwell.lab import problems
    >>> line = problems.listing()[0]
    >>> line.name, line.n, dict(line.parameters), line.bounded
    ('rosenbrock', 1000, {'n': 1000, 'c': 100.0}, False)
    """
    return tuple(
        Listing(p.name, p.n, p.parameters, p.bounds is not None, p.description, p.reference) for p in map(get, names())
    )


def get(name: str, *, xp: Any = None, dtype: Any = None, device: Any = None, **sizes: Any) -> Problem:
    """Return a test problem by name.

    Parameters
    ----------
    name : str
        One of `names()`.
    xp : module, optional
        The array library of `x0` and `bounds`: ``numpy`` (default), ``torch``, ``cupy`` or ``jax.numpy``.
        Whatever it is, `fun` takes arrays of any of them.
    dtype : dtype or str, optional
        Type of `x0` and `bounds`; default float64 (for JAX without 64-bit mode, float32).
    device : optional
        Device of `x0` and `bounds`, as `xp` names devices.
    **sizes
        Sizes and parameters of the problem: `n`, or `nx` and `ny` on a grid, or `natoms` and `ndim`, and the
        parameters by their names, such as `c`, `e`, `lam`, `T`, `nv`. On a grid `n` alone means the nearest
        square grid, and for atoms the nearest whole number of atoms: see the `n` of the result.

    Returns
    -------
    Problem
        With `name`, `n`, `x0`, `bounds`, `fun`, `parameters`, `reference`, `description` and `minimum`.

    Raises
    ------
    ValueError
        The name is unknown, or a size or parameter is outside what the problem allows.
    TypeError
        The problem has no parameter of that name.

    Examples
    --------
    >>> from stepwell.lab import problems
    >>> problem = problems.get("journal-bearing", nx=8, ny=12, e=0.1)
    >>> problem.n, float(problem.bounds[0].min()), float(problem.bounds[1].max())
    (96, 0.0, inf)
    """
    builder = _BUILDERS[read_choice("name", name, _BUILDERS)]
    allowed = tuple(inspect.signature(builder).parameters)
    arguments: dict[str, Any] = {}
    for key, value in sizes.items():
        plain = _ALIASES.get(key, key)
        if plain not in allowed:
            raise TypeError(f"{name} got {key} = {value!r}; allowed: {', '.join(allowed)}{meant(key, allowed)}")
        if plain in arguments:
            raise TypeError(f"{name} got {plain} twice, once as {key}")
        arguments[plain] = value
    problem = builder(**arguments)
    if xp is None and dtype is None and device is None:
        return problem
    if xp is None:
        import numpy as xp
    return problem.to(xp, dtype, device)
