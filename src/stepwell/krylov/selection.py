"""Rules that choose λ: generalised cross-validation, the discrepancy principle, the L-curve.

Every rule needs, as functions of λ, the residual norm ‖b − A x_λ‖, the seminorm ‖L x_λ‖ and, for cross-validation,
the trace of A(AᵀA + λ²LᵀL)⁻¹Aᵀ. With a basis V of the unknowns and the pencil (VᵀAᵀAV, VᵀLᵀLV) made diagonal, all
three are sums over its eigenvalues: one factorisation, any λ.

- Small problems take V = I, which is exact.
- Large ones take for V the Krylov space of each column. The trace is Hutchinson's estimate, the mean of uᵀA x_λ(u)
  over random sign vectors u, each with a Krylov space of its own (Golub and von Matt 1997).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import brentq, minimize_scalar

from stepwell.arrays import Array, namespace_of, take_columns, to_host, to_like
from stepwell.krylov.inputs import Problem, bytes_per_number
from stepwell.krylov.projected import DirectionSpace, Projected
from stepwell.krylov.rounds import Round
from stepwell.krylov.systems import TikhonovSystem, column_norms

RULES = ("gcv", "discrepancy", "lcurve")

#: Up to this many unknowns the pencil is made diagonal as a whole.
EXACT_SIZE = 1500
#: Most directions in the Krylov space of one column, and the relative residual at which it is large enough.
KRYLOV_STEPS, KRYLOV_TOLERANCE = 150, 1e-3
#: The λ at which the Krylov spaces are grown, relative to ‖A‖/‖L‖.
KRYLOV_LAM = 3e-3
#: Most columns from whose Krylov spaces a joint λ is chosen; more are represented by evenly spaced ones.
JOINT_COLUMNS = 12
#: Random sign vectors in the estimate of the trace.
PROBES = 4
#: λ is looked for in this range, relative to the largest generalised singular value that is finite.
RANGE = (1e-7, 1e1)
GRID = 241
#: Where log-log slopes of both norms are below this, the L-curve stands still.
STANDSTILL = 1e-3


@dataclass
class Spectrum:
    """One column's residual and seminorm as functions of λ, in a basis in which the pencil is diagonal.

    ``signal`` and ``penalty`` are the diagonals of AᵀA and LᵀL, ``rhs`` the coefficients of Aᵀb, ``data`` is ‖b‖².
    """

    signal: np.ndarray
    penalty: np.ndarray
    rhs: np.ndarray
    data: float

    def times(self, weight: float) -> Spectrum:
        """Return the spectrum of the right-hand side times a number."""
        return Spectrum(self.signal, self.penalty, weight * self.rhs, weight**2 * self.data)

    def filtered(self, lam: float) -> np.ndarray:
        """Coefficients of x_λ."""
        bottom = self.signal + lam**2 * self.penalty
        return self.rhs / np.where(bottom > 0, bottom, np.inf)

    def residual(self, lam: float) -> float:
        """‖b − A x_λ‖²."""
        x = self.filtered(lam)
        return max(0.0, self.data - float(np.sum(x * (2 * self.rhs - self.signal * x))))

    def seminorm(self, lam: float) -> float:
        """‖L x_λ‖²."""
        return float(np.sum(self.penalty * self.filtered(lam) ** 2))

    def explained(self, lam: float) -> float:
        """bᵀA x_λ."""
        return float(np.sum(self.rhs * self.filtered(lam)))


@dataclass
class Spectra:
    """The columns that choose one λ together, and the probes of the trace (none: the trace is exact)."""

    columns: list[Spectrum]
    probes: list[Spectrum]
    rows: int

    def residual(self, lam: float) -> float:
        """Sum of ‖b − A x_λ‖² over the columns."""
        return sum(column.residual(lam) for column in self.columns)

    def seminorm(self, lam: float) -> float:
        """Sum of ‖L x_λ‖² over the columns."""
        return sum(column.seminorm(lam) for column in self.columns)

    def trace(self, lam: float) -> float:
        """Trace of A(AᵀA + λ²LᵀL)⁻¹Aᵀ."""
        if self.probes:
            return float(np.mean([probe.explained(lam) for probe in self.probes]))
        first = self.columns[0]
        bottom = first.signal + lam**2 * first.penalty
        return float(np.sum(first.signal / np.where(bottom > 0, bottom, np.inf)))

    def gcv(self, lam: float) -> float:
        """‖b − A x_λ‖² / (m − trace)²."""
        return self.residual(lam) / max(self.rows - self.trace(lam), 1e-12 * self.rows) ** 2

    def grid(self) -> np.ndarray:
        """Return values of λ, evenly spaced in the logarithm."""
        top = 0.0
        for column in self.columns:
            bounded = column.penalty > 1e-10 * column.penalty.max(initial=0.0)
            ratios = column.signal[bounded] / column.penalty[bounded]
            top = max(top, float(np.sqrt(ratios.max(initial=0.0))))
        low, high = RANGE
        return (top or 1.0) * np.geomspace(low, high, GRID)


def choose(problem: Problem, rule: str, noise: np.ndarray | None, joint: bool) -> tuple[np.ndarray, np.ndarray]:
    """One λ per column by a rule, and the products per column that it took.

    A column that is zero or not finite takes no part; it gets the mean λ of the others (1 if there are none).
    """
    norms = to_host(column_norms(problem.B))
    usable = np.flatnonzero(np.isfinite(norms) & (norms > 0))
    lams, products = np.ones(problem.columns), np.zeros(problem.columns)
    if not usable.size:
        return lams, products
    size, rows = problem.size, int(problem.B.shape[0])
    everyone = usable
    if joint and size > EXACT_SIZE and usable.size > JOINT_COLUMNS:
        usable = usable[np.linspace(0, usable.size - 1, JOINT_COLUMNS).round().astype(int)]
    probes: list[Spectrum] = []
    if size <= EXACT_SIZE:
        columns = _exact(problem, usable)
    else:
        columns, spent = _by_krylov(problem, take_columns(problem.B, usable))
        products[usable] += spent
        if rule == "gcv":
            signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(rows, PROBES))
            probes, spent = _by_krylov(problem, to_like(signs, problem.B))
            products[usable] += spent.sum() / usable.size
    if joint:  # columns weigh by their own size, not as they were scaled for the solver
        weights = to_host(problem.scale).ravel()[usable]
        weights = weights / weights.max()
        columns = [column.times(weight) for column, weight in zip(columns, weights)]
        noise = None if noise is None else noise[usable] * weights
    elif noise is not None:
        noise = noise[usable]
    together = [np.arange(usable.size)] if joint else [np.array([i]) for i in range(usable.size)]
    for members in together:
        spectra = Spectra([columns[i] for i in members], probes, rows)
        level = 0.0 if noise is None else float(np.sum(noise[members] ** 2))
        lams[usable[members]] = _pick(spectra, rule, level)
    rest = np.setdiff1d(np.arange(problem.columns), usable)
    lams[rest] = float(np.mean(lams[usable]))
    if usable.size < everyone.size:
        products[everyone] = products.sum() / everyone.size
    return lams, products


def _pick(spectra: Spectra, rule: str, noise: float) -> float:
    grid = spectra.grid()
    if rule == "discrepancy":
        return _discrepancy(spectra, grid, noise)
    if rule == "gcv":
        values = np.array([spectra.gcv(lam) for lam in grid])
    else:
        values = -curvature(spectra, grid)
    best = int(np.argmin(values))
    if rule == "lcurve" or best in (0, grid.size - 1):
        return float(grid[best])
    inner = np.log(grid[best - 1]), np.log(grid[best + 1])
    found = minimize_scalar(lambda t: spectra.gcv(float(np.exp(t))), bounds=inner, method="bounded")
    return float(np.exp(found.x))


def _discrepancy(spectra: Spectra, grid: np.ndarray, noise: float) -> float:
    """The λ at which the residual equals the noise; the residual grows with λ."""

    def gap(t: float) -> float:
        return spectra.residual(float(np.exp(t))) - noise

    low, high = float(np.log(grid[0])), float(np.log(grid[-1]))
    if gap(low) >= 0:
        return float(grid[0])
    if gap(high) <= 0:
        return float(grid[-1])
    return float(np.exp(brentq(gap, low, high)))


def curvature(spectra: Spectra, grid: np.ndarray) -> np.ndarray:
    """Curvature of (log ‖b − A x_λ‖, log ‖L x_λ‖) at the interior of a grid of λ, −∞ at its ends (Hansen 1992)."""
    tiny = np.finfo(float).tiny
    rho = 0.5 * np.log(np.maximum([spectra.residual(lam) for lam in grid], tiny))
    eta = 0.5 * np.log(np.maximum([spectra.seminorm(lam) for lam in grid], tiny))
    t = np.log(grid)
    d_rho, d_eta = np.gradient(rho, t), np.gradient(eta, t)
    dd_rho, dd_eta = np.gradient(d_rho, t), np.gradient(d_eta, t)
    speed = (d_rho**2 + d_eta**2) ** 1.5
    moving = speed > STANDSTILL**3  # where neither norm changes any more the quotient is rounding noise
    bent = np.where(moving, (d_rho * dd_eta - dd_rho * d_eta) / np.where(moving, speed, 1.0), -np.inf)
    bent[:2] = bent[-2:] = -np.inf
    return np.asarray(bent)


def _exact(problem: Problem, usable: np.ndarray) -> list[Spectrum]:
    """Spectra in the whole space of unknowns."""
    template = problem.B
    A = to_host(problem.A.gram(template))
    L = np.eye(problem.size) if problem.L is None else to_host(problem.L.gram(template))
    block = take_columns(template, usable)
    rhs = to_host(problem.A.adjoint(block))
    data = to_host(column_norms(block)) ** 2
    signal, penalty, basis = diagonal_pencil(A, L)
    coefficients = basis.T @ rhs
    return [Spectrum(signal, penalty, coefficients[:, j], float(data[j])) for j in range(usable.size)]


def diagonal_pencil(A: np.ndarray, L: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Make two symmetric positive semidefinite matrices diagonal in one basis.

    The eigenvectors Z of (A, A + cL) satisfy ZᵀAZ = diag(μ) and ZᵀcLZ = diag(1 − μ), with c chosen so that both terms
    weigh the same. Directions in the null space of both are left out.
    """
    c = float(np.trace(A) / max(np.trace(L), np.finfo(float).tiny)) or 1.0
    both = 0.5 * (A + A.T) + 0.5 * c * (L + L.T)
    values, vectors = eigh(both)
    keep = values > 1e-13 * values[-1]
    whiten = vectors[:, keep] / np.sqrt(values[keep])
    mu, turn = eigh(whiten.T @ A @ whiten)
    mu = np.clip(mu, 0.0, 1.0)
    return mu, (1 - mu) / c, whiten @ turn


def _by_krylov(problem: Problem, block: Array) -> tuple[list[Spectrum], np.ndarray]:
    """Spectra in the Krylov space of each column of a block, grown at a small λ; and the products per column."""
    number = bytes_per_number(block)
    lam = KRYLOV_LAM * _norm_ratio(problem)
    spectra, products = [], np.zeros(int(block.shape[1]))
    for j in range(int(block.shape[1])):
        column = take_columns(block, np.array([j]))
        system = TikhonovSystem(problem.A, problem.L, np.array([lam]), column)
        rhs = system.rhs()
        norm = to_host(column_norms(rhs))
        space = DirectionSpace(problem.size, number, 2 * (KRYLOV_STEPS + 40) * 2 * problem.size * number)
        method = Projected(space, lambda residual: residual, augmented=True)
        method(Round(system, (), rhs, norm, KRYLOV_TOLERANCE, KRYLOV_STEPS, lambda *_: False))
        xp = namespace_of(rhs)
        basis = xp.concat([directions for directions, _ in space.groups()], axis=1)
        image = problem.A.forward(basis)
        seminorm = basis if problem.L is None else problem.L.forward(basis)
        products[j] = system.products + 0.5 * int(basis.shape[1])  # the images are half a product each
        signal, penalty, turn = diagonal_pencil(to_host(image.T @ image), to_host(seminorm.T @ seminorm))
        coefficients = turn.T @ to_host(basis.T @ rhs)[:, 0]
        spectra.append(Spectrum(signal, penalty, coefficients, float(to_host(column_norms(column))[0] ** 2)))
    return spectra, products


def _norm_ratio(problem: Problem) -> float:
    """‖A‖/‖L‖, by a few steps of the power method on a random vector."""
    start = np.random.default_rng(0).standard_normal((problem.size, 1))
    ratio = []
    for operator in (problem.A, problem.L):
        if operator is None:
            ratio.append(1.0)
            continue
        vector = to_like(start, problem.B)
        for _ in range(8):
            vector = operator.adjoint(operator.forward(vector))
            vector = vector / column_norms(vector)
        ratio.append(float(to_host(column_norms(operator.forward(vector)))[0]))
    return ratio[0] / ratio[1] if ratio[1] > 0 else 1.0
