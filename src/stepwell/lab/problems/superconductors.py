"""The Ginzburg-Landau energies of superconductors, in one and in two dimensions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import array_api_compat.numpy as numpy_namespace
import numpy as np

from stepwell.arrays import Array
from stepwell.common.checks import read_real, read_whole
from stepwell.lab.problems.grids import MINPACK2, total
from stepwell.lab.problems.problem import PIECE, Problem
from stepwell.lab.problems.sizes import grid_sides

# Physical constants and properties of lead (S) and tin (N), in cgs units, as the collection fixes them.
ELECTRON_MASS, LIGHT_SPEED, ELECTRON_CHARGE, PLANCK = 9.11e-28, 2.99e10, 4.80e-10, 1.05459e-27
CRITICAL_TEMPERATURE = {"S": 7.32, "N": 3.73}
CRITICAL_FIELD = {"S": 803.0, "N": 309.0}
PENETRATION = {"S": 3.7e-6, "N": 3.4e-6}
HALF_WIDTH = {"S": 1.0, "N": 2.2}


def _material(kind: str, temperature: float) -> tuple[float, float]:
    """Return the coefficients alpha and beta of one material."""
    coupling = (ELECTRON_CHARGE / LIGHT_SPEED) ** 2 / ELECTRON_MASS
    tau = (temperature / CRITICAL_TEMPERATURE[kind]) ** 2
    field = coupling * (CRITICAL_FIELD[kind] * PENETRATION[kind]) ** 2
    alpha = -2.0 * field * (1.0 - tau) / (1.0 + tau)
    beta = 16.0 * math.pi * coupling * field * PENETRATION[kind] ** 2 / (1.0 + tau) ** 2
    return alpha * 1e18, beta * 1e36


def ginzburg_landau_1d(n: int = 100, T: float = 5.0) -> Problem:
    """Build the one-dimensional problem: a layer of lead between two of tin, at temperature T in kelvin."""
    n = read_whole("n", n, 4)
    T = read_real("T", T, above=CRITICAL_TEMPERATURE["N"], below=CRITICAL_TEMPERATURE["S"])
    outer = n // 4
    inner = n - 2 * outer
    (alpha_s, beta_s), (alpha_n, beta_n) = _material("S", T), _material("N", T)
    gamma = PLANCK**2 / (4.0 * ELECTRON_MASS) * 1e30

    def layers(in_n: float, in_s: float) -> np.ndarray:
        return np.repeat([in_n, in_s, in_n], [outer, inner, outer])

    def closed(values: np.ndarray) -> np.ndarray:
        return np.concatenate([values[-1:], values])

    step = layers(HALF_WIDTH["N"] / outer, 2.0 * HALF_WIDTH["S"] / inner)

    def intervals(xp: Any, a: Array, b: Array, part: slice, tables: Mapping[str, Array]) -> tuple[Array, Array]:
        """Return the value of intervals but the first, and the gradient of the nodes between intervals."""
        quadratic, quartic = tables["quadratic"][part], tables["quartic"][part]
        a2, b2, ab, jump = a * a, b * b, a * b, b - a
        pull, both = tables["stiffness"][part] * jump, a2 + b2
        # a^4 + a^3 b + a^2 b^2 + a b^3 + b^4 = (a^2 + b^2)(a^2 + ab + b^2) - (ab)^2
        middle = both + ab
        terms = quadratic * middle + quartic * (both * middle - ab * ab) + pull * jump
        pull = 2.0 * pull
        left = quadratic * (b + 2.0 * a) + quartic * (a * (4.0 * a2 + 3.0 * ab + 2.0 * b2) + b2 * b) - pull
        right = quadratic * (a + 2.0 * b) + quartic * (b * (4.0 * b2 + 3.0 * ab + 2.0 * a2) + a2 * a) + pull
        return xp.sum(terms[..., 1:], axis=-1), left[..., 1:] + right[..., :-1]

    def evaluate(xp: Any, x: Array, tables: Mapping[str, Array]) -> tuple[Array, Array]:
        # Interval i joins a = v[i] and b = v[i+1]; the ring is closed at both ends.
        ring = xp.concat([x[..., -1:], x, x[..., :1]], axis=-1)
        step = PIECE if xp is numpy_namespace else n
        results = []
        for first in range(0, n, step):
            last = min(first + step, n)
            part = slice(first, last + 1)
            results.append(intervals(xp, ring[..., part], ring[..., first + 1 : last + 2], part, tables))
        f = sum((value for value, _ in results[1:]), results[0][0])
        return f, xp.concat([g for _, g in results], axis=-1) if len(results) > 1 else results[0][1]

    start = math.sqrt((beta_s + beta_n) / (2.0 * (abs(alpha_s) + abs(alpha_n))))
    return Problem(
        name="ginzburg-landau-1d",
        n=n,
        x0=np.full(n, start),
        bounds=None,
        parameters={"n": n, "T": T},
        reference=MINPACK2,
        description="1-D Ginzburg-Landau superconductor: quartic, badly scaled",
        minimum=None,
        _evaluate=evaluate,
        _tables={
            "quadratic": closed(step * layers(alpha_n, alpha_s) / 3.0),
            "quartic": closed(step * layers(beta_n, beta_s) / 10.0),
            "stiffness": closed(gamma / step),
        },
    )


def ginzburg_landau_2d(
    n: int | None = None, nx: int | None = None, ny: int | None = None, nv: int = 8, kappa: float = 5.0
) -> Problem:
    """Build the two-dimensional problem: a periodic lattice of nv vortices, Ginzburg-Landau parameter kappa.

    The variables are four fields of nx by ny values: the real and the imaginary part of the order parameter
    v, and the two components a, b of the vector potential.
    """
    nx, ny = grid_sides(n, nx, ny, default=20, fields=4, at_least=2)
    nv = read_whole("nv", nv, 1)
    kappa = read_real("kappa", kappa, above=0)
    scale = math.sqrt(nv / 2.0) * 3.0
    hx, hy = scale / nx, scale * math.sqrt(3.0) / ny
    nodes = nx * ny
    turn = 2.0 * math.pi * nv * np.arange(ny) / ny  # phase of v across the right edge, at each row
    gain = 2.0 * math.pi * nv / (ny * hy)  # growth of b across the right edge

    def right_of(xp: Any, u: Array) -> Array:
        return xp.concat([u[..., 1:], u[..., :1]], axis=-1)

    def left_of(xp: Any, u: Array) -> Array:
        return xp.concat([u[..., -1:], u[..., :-1]], axis=-1)

    def above(xp: Any, u: Array) -> Array:
        return xp.concat([u[..., 1:, :], u[..., :1, :]], axis=-2)

    def below(xp: Any, u: Array) -> Array:
        return xp.concat([u[..., -1:, :], u[..., :-1, :]], axis=-2)

    def evaluate(xp: Any, x: Array, tables: Mapping[str, Array]) -> tuple[Array, Array]:
        fields = xp.reshape(x, (*x.shape[:-1], 4, ny, nx))
        re, im, a, b = (fields[..., k, :, :] for k in range(4))
        turn_re, turn_im = tables["turn_re"], tables["turn_im"]  # 1 and 0 but in the last column
        density = re * re + im * im
        # Condensation: -|v|^2 + |v|^4 / 2
        terms = density * (0.5 * density - 1.0)
        common = 2.0 * density - 2.0
        g_re, g_im = common * re, common * im
        # Kinetic energy across: |v[i+1,j] - v e^{i hx a}|^2 / hx^2
        c, s = xp.cos(hx * a), xp.sin(hx * a)
        w_re, w_im = re * c - im * s, re * s + im * c
        r_re, r_im = right_of(xp, re), right_of(xp, im)
        d_re, d_im = turn_re * r_re - turn_im * r_im - w_re, turn_re * r_im + turn_im * r_re - w_im
        terms = terms + (d_re * d_re + d_im * d_im) * (1.0 / (hx * hx))
        p = 2.0 / (hx * hx)
        g_a = (p * hx) * (d_re * w_im - d_im * w_re)
        back_re, back_im = turn_re * d_re + turn_im * d_im, turn_re * d_im - turn_im * d_re
        g_re = g_re + p * (left_of(xp, back_re) - c * d_re - s * d_im)
        g_im = g_im + p * (left_of(xp, back_im) + s * d_re - c * d_im)
        # Kinetic energy along: |v[i,j+1] - v e^{i hy b}|^2 / hy^2, periodic
        c, s = xp.cos(hy * b), xp.sin(hy * b)
        w_re, w_im = re * c - im * s, re * s + im * c
        d_re, d_im = above(xp, re) - w_re, above(xp, im) - w_im
        terms = terms + (d_re * d_re + d_im * d_im) * (1.0 / (hy * hy))
        p = 2.0 / (hy * hy)
        g_b = (p * hy) * (d_re * w_im - d_im * w_re)
        g_re = g_re + p * (below(xp, d_re) - c * d_re - s * d_im)
        g_im = g_im + p * (below(xp, d_im) + s * d_re - c * d_im)
        # Field energy: kappa^2 curl^2
        curl = (right_of(xp, b) + tables["gain"] - b) * (1.0 / hx) - (above(xp, a) - a) * (1.0 / hy)
        flux = (2.0 * kappa * kappa) * curl
        terms = terms + (0.5 * flux) * curl
        g_a = g_a + (flux - below(xp, flux)) * (1.0 / hy)
        g_b = g_b + (left_of(xp, flux) - flux) * (1.0 / hx)
        g = xp.stack([g_re, g_im, g_a, g_b], axis=-3) * (1.0 / nodes)
        return total(xp, terms) * (1.0 / nodes), xp.reshape(g, x.shape)

    column, row = np.arange(nx) * hx, np.arange(ny)[:, None] * hy
    root = math.sqrt(nv)
    bump = np.sin(root * math.pi * column / 6.0) * np.sin(root * math.pi * row / (6.0 * math.sqrt(3.0)))
    potential = np.broadcast_to(2.0 * math.pi * nv / (nodes * hx * hy) * column, (ny, nx))
    zero = np.zeros((ny, nx))
    turn_re, turn_im, wrap = np.ones((ny, nx)), np.zeros((ny, nx)), np.zeros(nx)
    turn_re[:, -1], turn_im[:, -1], wrap[-1] = np.cos(turn), np.sin(turn), gain
    return Problem(
        name="ginzburg-landau-2d",
        n=4 * nodes,
        x0=np.stack([1.0 - bump**2, zero, zero, potential]).reshape(-1),
        bounds=None,
        parameters={"nx": nx, "ny": ny, "nv": nv, "kappa": kappa},
        reference=MINPACK2,
        description="2-D Ginzburg-Landau vortices: gauge invariant, singular Hessian at the solution",
        minimum=None,
        _evaluate=evaluate,
        _tables={"turn_re": turn_re, "turn_im": turn_im, "gain": wrap},
    )
