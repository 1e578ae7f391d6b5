"""Lennard-Jones clusters: the energy of atoms that attract and repel in pairs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import array_api_compat.numpy as numpy_namespace
import numpy as np

from stepwell.arrays import Array
from stepwell.common.checks import read_whole
from stepwell.lab.problems.grids import MINPACK2
from stepwell.lab.problems.problem import PIECE, Problem
from stepwell.lab.problems.sizes import require_agreement

#: Pairs that other libraries than NumPy work on at a time; a table of all would not fit for 10,000 atoms.
LARGE_PIECE = 1 << 22


def lennard_jones(n: int | None = None, natoms: int | None = None, ndim: int = 3) -> Problem:
    """Build the Lennard-Jones problem: sum of r^-12 - 2 r^-6 over pairs of atoms in ndim = 2 or 3 dimensions.

    The coordinates of an atom are neighbours in x. `n` alone is rounded to whole atoms.
    """
    ndim = read_whole("ndim", ndim, 2, 3, as_float=True)
    if natoms is None:
        natoms = 100 if n is None else max(2, round(read_whole("n", n, 1) / ndim))
    else:
        natoms = read_whole("natoms", natoms, 2)
        require_agreement(n, natoms * ndim, f"natoms * ndim for natoms = {natoms} and ndim = {ndim}")

    def evaluate(xp: Any, x: Array, tables: Mapping[str, Array]) -> tuple[Array, Array]:
        atoms = xp.reshape(x, (*x.shape[:-1], natoms, ndim))
        batch = math.prod(x.shape[:-1])
        limit = PIECE if xp is numpy_namespace else LARGE_PIECE
        step = max(1, limit // (natoms * max(1, batch)))
        energies, forces = [], []
        for first in range(0, natoms, step):
            some = atoms[..., first : first + step, :]
            apart = [some[..., :, None, k] - atoms[..., None, :, k] for k in range(ndim)]
            r2 = sum((d * d for d in apart[1:]), apart[0] * apart[0])
            # An atom is infinitely far from itself: no energy and no force.
            inverse = 1.0 / (r2 + tables["itself"][first : first + step, :])
            sixth = inverse * inverse * inverse
            energies.append(xp.sum(sixth * (sixth - 2.0), axis=-1))
            push = (1.0 - sixth) * sixth * inverse
            forces.append(xp.stack([xp.sum(push * d, axis=-1) for d in apart], axis=-1))
        energy = xp.concat(energies, axis=-1) if len(energies) > 1 else energies[0]
        g = xp.concat(forces, axis=-2) if len(forces) > 1 else forces[0]
        return 0.5 * xp.sum(energy, axis=-1), 12.0 * xp.reshape(g, x.shape)

    return Problem(
        name="lennard-jones",
        n=natoms * ndim,
        x0=_lattice(natoms, ndim).reshape(-1),
        bounds=None,
        parameters={"natoms": natoms, "ndim": ndim},
        reference=MINPACK2,
        description="Lennard-Jones cluster: very many local minima",
        # Up to ndim + 1 atoms can all be at distance 1 of each other, the minimum of every pair.
        minimum=-natoms * (natoms - 1) / 2.0 if natoms <= ndim + 1 else None,
        _evaluate=evaluate,
        _tables={"itself": np.diag(np.full(natoms, np.inf))},
    )


def _lattice(natoms: int, ndim: int) -> np.ndarray:
    """Place the atoms on a unit lattice, as square or cubic as their number allows."""
    k = np.arange(natoms)
    if ndim == 2:
        side = math.isqrt(natoms)
        return np.stack([k % side, k // side], axis=-1).astype(np.float64)
    side = int((natoms + 0.5) ** (1.0 / 3.0))
    return np.stack([k % side, k // side % side, k // side**2], axis=-1).astype(np.float64)
