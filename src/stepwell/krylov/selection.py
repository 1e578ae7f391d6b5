"""Rules that choose λ: generalised cross-validation, the discrepancy principle, the L-curve.

Every rule needs, as functions of λ, the residual norm ‖b − A x_λ‖, the seminorm ‖L x_λ‖ and, for cross-validation,
the trace of A(AᵀA + λ²LᵀL)⁻¹Aᵀ. With a basis V of the unknowns and the pencil (VᵀAᵀAV, VᵀLᵀLV) made diagonal, all
three are sums over its eigenvalues: one factorisation, any λ.

- Small problems take V = I, which is exact.
- Large ones take for V the Krylov space of each column, grown until the choice stands still. The trace is Hutchinson's
  estimate, the mean of uᵀA x_λ(u) over random sign vectors u, each with a Krylov space of its own (Golub and von Matt
  1997).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np

from stepwell.arrays import Array, copy_to_device_of, take_columns, to_host
from stepwell.krylov.linear_problem import LinearProblem, bytes_per_number
from stepwell.krylov.results import NO_CORNER
from stepwell.krylov.rounds import SOUND_SIZES, OutOfRange
from stepwell.krylov.spectrum import KrylovSpace, Spectrum
from stepwell.operators.error_state import own_arithmetic

#: The rules that choose λ.
Rule: TypeAlias = Literal["gcv", "discrepancy", "lcurve"]
RULES: tuple[Rule, ...] = get_args(Rule)

#: Up to this many unknowns the pencil is made diagonal as a whole.
EXACT_SIZE = 1500
#: Directions in the Krylov space of one column at first, and at most; they double until the choice stands still.
FIRST_STEPS, MAX_STEPS = 32, 512
#: The choice stands still when λ changes by less than this factor, and a score that is to be least by its square: in a
#: space that is too small λ may rest for a while. The corner of an L-curve must do so twice running, as such a space
#: may have a corner of its own.
STILL = 1.1
LOOKS = {"gcv": 1, "discrepancy": 1, "lcurve": 2}
#: Bytes for the Krylov spaces that are held at a time.
SPACE_MEMORY = 2**32
#: The λ at which the Krylov spaces are grown, relative to ‖A‖/‖L‖.
KRYLOV_LAM = 1e-4
#: Most columns from whose Krylov spaces a joint λ is chosen; more are represented by evenly spaced ones.
JOINT_COLUMNS = 12
#: Random sign vectors in the estimate of the trace.
PROBES = 4
#: Steps of the power method by which ‖A‖/‖L‖ is estimated; a last product with A gives the norm.
POWER_STEPS = 8
#: λ is looked for in this range, relative to the largest generalised singular value that is finite.
RANGE = (1e-7, 1e1)
GRID = 241
#: Least curvature of a corner of the L-curve.
CORNER = 0.1
#: Where log-log slopes of both norms are below this, the L-curve stands still.
STANDSTILL = 1e-3


@dataclass
class Spectra:
    """The columns that choose one λ together, and the probes of the trace (none: the trace is exact).

    No λ below ``least`` is looked at.
    """

    columns: list[Spectrum]
    probes: list[Spectrum]
    rows: int
    least: float = 0.0

    def residual(self, lam: float) -> float:
        """Sum of ‖b − A x_λ‖² over the columns."""
        return sum(column.residual(lam) for column in self.columns)

    def seminorm(self, lam: float) -> float:
        """Sum of ‖L x_λ‖² over the columns."""
        return sum(column.seminorm(lam) for column in self.columns)

    def freedom(self, lam: float) -> float:
        """m less the trace of A(AᵀA + λ²LᵀL)⁻¹Aᵀ: what is left to the noise."""
        if self.probes:
            return float(np.mean([probe.unexplained(lam) for probe in self.probes]))
        first = self.columns[0]
        return self.rows - int(np.sum(first.known)) + float(np.sum(first.left(lam)[first.known]))

    def gcv(self, lam: float) -> float:
        """‖b − A x_λ‖² / (m − trace)²."""
        return self.residual(lam) / max(self.freedom(lam), 1e-12 * self.rows) ** 2

    def grid(self) -> np.ndarray:
        """Return values of λ, evenly spaced in the logarithm."""
        top = 0.0
        for column in self.columns:
            bounded = column.penalty > 1e-10 * column.penalty.max(initial=0.0)
            ratios = column.signal[bounded] / column.penalty[bounded]
            top = max(top, float(np.sqrt(ratios.max(initial=0.0))))
        low, high = ((top or 1.0) * end for end in RANGE)
        return np.geomspace(min(max(low, self.least), 0.1 * high), high, GRID)


@dataclass
class Choice:
    """One λ per column, the products per column that choosing took, and at which end of the range each λ lies.

    ``ends`` holds -1 for the lower end, 1 for the upper one, 0 between them, and `NO_CORNER` between them where the
    L-curve has no corner and λ is where it bends most.
    """

    lams: np.ndarray
    products: np.ndarray
    ends: np.ndarray


@own_arithmetic()  # an operator that is not finite shows in the sums
def choose(problem: LinearProblem, rule: str, noise: np.ndarray | None, joint: bool) -> Choice:
    """Choose one λ per column by a rule.

    A column that is zero or not finite takes no part; it gets the mean λ of the others (1 if there are none, or if the
    operators are not finite: the solver tells that).
    """
    norms = to_host(problem.sums.norms(problem.B))
    usable = np.flatnonzero(np.isfinite(norms) & (norms > 0))
    lams, products = np.ones(problem.columns), np.zeros(problem.columns)
    ends = np.zeros(problem.columns, dtype=np.int64)
    if not usable.size:
        return Choice(lams, products, ends)
    everyone, whole = usable, problem.size <= EXACT_SIZE and not problem.sums.spread
    if joint and not whole and usable.size > JOINT_COLUMNS:
        usable = usable[np.linspace(0, usable.size - 1, JOINT_COLUMNS).round().astype(int)]
    weights = np.ones(problem.columns)
    if joint:  # columns weigh by their own size, not as they were scaled for the solver
        weights = to_host(problem.scale).ravel()
        weights = weights / weights[usable].max()
    levels = np.zeros(problem.columns) if noise is None else noise * weights
    together = [usable] if joint else [np.array([column]) for column in usable]
    if whole:
        known = _exact(problem, usable)
        if known is None:
            return Choice(lams, products, ends)
        spectra = dict(zip(usable.tolist(), known))
        if problem.A.matrix is None:  # AᵀA was written out by products
            products[usable] += problem.size / usable.size
    else:
        grown = _Grown(problem, rule, len(together[0]))
        if not np.isfinite(grown.lam):
            return Choice(lams, products, ends)
    for members in together:
        level = float(np.sum(levels[members] ** 2))
        if whole:
            parts = [spectra[column].times(weights[column]) for column in members.tolist()]
            lams[members], ends[members] = _pick(Spectra(parts, [], int(problem.B.shape[0])), rule, level)
        else:
            lams[members], ends[members], products[members] = grown.pick(members, weights[members], level)
    if not whole:
        products[usable] += (grown.probe_products + POWER_STEPS + 1) / usable.size
    rest = np.setdiff1d(np.arange(problem.columns), usable)
    lams[rest] = float(np.mean(lams[usable]))
    if joint:  # to the last bit, which a mean of equal numbers may lose: only columns of one λ share a space
        lams[:], ends[:] = lams[usable[0]], ends[usable[0]]
    if usable.size < everyone.size:
        products[everyone] = products.sum() / everyone.size
    return Choice(lams, products, ends)


class _Grown:
    """Choices from Krylov spaces that grow until λ stands still; the probes' spaces serve all columns."""

    def __init__(self, problem: LinearProblem, rule: str, columns: int) -> None:
        self.problem, self.rule = problem, rule
        self.rows = problem.equations.whole
        self.lam = KRYLOV_LAM * _norm_ratio(problem)
        self.probes: list[KrylovSpace] = []
        count = PROBES if rule == "gcv" and np.isfinite(self.lam) else 0
        fitting = SPACE_MEMORY // (2 * problem.unknowns.whole * bytes_per_number(problem.B) * (columns + count))
        self.most = max(FIRST_STEPS, min(MAX_STEPS, fitting))
        if count:
            signs = copy_to_device_of(problem.sums.random_rows("signs", problem.equations, count), problem.B)
            self.probes = [self._space(signs, j) for j in range(count)]

    @property
    def probe_products(self) -> float:
        """Products that the probes took."""
        return float(sum(probe.products for probe in self.probes))

    def pick(self, members: np.ndarray, weights: np.ndarray, level: float) -> tuple[float, int, np.ndarray]:
        """Choose λ for columns together, and say at which end of the range it lies and what products each took."""
        spaces = [self._space(self.problem.B, int(column)) for column in members]
        steps, before, score_before, looks = min(FIRST_STEPS, self.most), np.nan, np.nan, 0
        while True:
            for space in (*spaces, *self.probes):
                space.grow_to(steps)
            parts = [space.spectrum().times(weight) for space, weight in zip(spaces, weights)]
            # Below the λ of the spaces their solutions lack what they do not hold, and the L-curve bends there.
            least = self.lam if self.rule == "lcurve" else 0.0
            spectra = Spectra(parts, [probe.spectrum() for probe in self.probes], self.rows, least)
            lam, end = _pick(spectra, self.rule, level)
            score = spectra.gcv(lam) if self.rule == "gcv" else 1.0
            still = 1 / STILL <= lam / before <= STILL and score_before <= STILL**2 * score and lam > spectra.grid()[0]
            looks = looks + 1 if still else 0
            if (
                looks == LOOKS[self.rule]
                or steps >= self.most
                or all(space.complete for space in (*spaces, *self.probes))
            ):
                return lam, end, np.array([space.products for space in spaces], dtype=float)
            steps, before, score_before = min(2 * steps, self.most), lam, score

    def _space(self, block: Array, column: int) -> KrylovSpace:
        return KrylovSpace(self.problem, take_columns(block, np.array([column])), self.lam, self.most)


def _pick(spectra: Spectra, rule: str, noise: float) -> tuple[float, int]:
    """Choose λ, and say at which end of the range it lies."""
    grid = spectra.grid()
    if rule == "discrepancy":
        return _discrepancy(spectra, grid, noise)
    if rule == "gcv":
        values = np.array([spectra.gcv(lam) for lam in grid])
    else:
        values = -curvature(spectra, grid)
        middle = values[1:-1]
        peaks = np.flatnonzero((middle < values[:-2]) & (middle <= values[2:]) & (middle < -CORNER)) + 1
        peaks = peaks[np.isfinite(values[peaks - 1])]
        if peaks.size:  # a curve that bends ever more towards an end of the range has no corner there
            values = np.where(np.isin(np.arange(grid.size), peaks), values, np.inf)
    best = int(np.argmin(values))
    end = -1 if best == 0 else int(best == grid.size - 1)
    if rule == "lcurve" and not peaks.size:  # the outermost λ with a curvature are the third from either end
        end = -1 if best <= 2 else 1 if best >= grid.size - 3 else NO_CORNER
    if rule == "lcurve" or end:
        return float(grid[best]), end
    from scipy.optimize import minimize_scalar

    inner = np.log(grid[best - 1]), np.log(grid[best + 1])
    found = minimize_scalar(lambda t: spectra.gcv(float(np.exp(t))), bounds=inner, method="bounded")
    return float(np.exp(found.x)), 0


def _discrepancy(spectra: Spectra, grid: np.ndarray, noise: float) -> tuple[float, int]:
    """The λ at which the residual equals the noise; the residual grows with λ."""

    def gap(t: float) -> float:
        return spectra.residual(float(np.exp(t))) - noise

    low, high = float(np.log(grid[0])), float(np.log(grid[-1]))
    if gap(low) >= 0:
        return float(grid[0]), -1
    if gap(high) <= 0:
        return float(grid[-1]), 1
    from scipy.optimize import brentq

    return float(np.exp(brentq(gap, low, high))), 0


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


def _exact(problem: LinearProblem, usable: np.ndarray) -> list[Spectrum] | None:
    """Spectra in the whole space of unknowns; None where the operators are not finite."""
    template = problem.B
    block = take_columns(template, usable)
    rhs = to_host(problem.A.adjoint(block))
    _require_sound(problem, float(np.abs(rhs).max(initial=0.0)))
    A = to_host(problem.A.gram(template))
    L = np.eye(problem.size) if problem.L is None else to_host(problem.L.gram(template))
    if not (np.isfinite(A).all() and np.isfinite(L).all()):
        return None
    data = to_host(problem.sums.norms(block)) ** 2
    signal, penalty, basis = diagonal_pencil(A, L)
    coefficients = basis.T @ rhs
    return [Spectrum(signal, penalty, coefficients[:, j], float(data[j])) for j in range(usable.size)]


def diagonal_pencil(A: np.ndarray, L: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Make two symmetric positive semidefinite matrices diagonal in one basis.

    The eigenvectors Z of (A, A + cL) satisfy ZᵀAZ = diag(μ) and ZᵀcLZ = diag(1 − μ), with c chosen so that both terms
    weigh the same. Directions in the null space of both are left out.
    """
    from scipy.linalg import eigh

    c = float(np.trace(A) / max(np.trace(L), np.finfo(float).tiny)) or 1.0
    both = 0.5 * (A + A.T) + 0.5 * c * (L + L.T)
    values, vectors = eigh(both)
    keep = values > 1e-13 * values[-1]
    whiten = vectors[:, keep] / np.sqrt(values[keep])
    mu, turn = eigh(whiten.T @ A @ whiten)
    mu = np.clip(mu, 0.0, 1.0)
    return mu, (1 - mu) / c, whiten @ turn


def _require_sound(problem: LinearProblem, size: float) -> None:
    """Leave for another scale where the square of an operator of this size may over- or underflow."""
    least, most = SOUND_SIZES["float32" if bytes_per_number(problem.B) == 4 else "float64"]
    if problem.unit == 1 and 0 < size < np.inf and not least <= size <= most:
        raise OutOfRange(size)


def _norm_ratio(problem: LinearProblem) -> float:
    """‖A‖/‖L‖, by a few steps of the power method on a random vector."""
    sums = problem.sums
    start = sums.random_rows("normal", problem.unknowns, 1)
    ratio = []
    for operator in (problem.A, problem.L):
        if operator is None:
            ratio.append(1.0)
            continue
        vector = copy_to_device_of(start, problem.B)
        for step in range(POWER_STEPS):
            image = operator.forward(vector)
            if not step and operator is problem.A:
                _require_sound(problem, float(sums.largest(image)[0]))
            vector = operator.adjoint(image)
            vector = vector / sums.norms(vector)
        ratio.append(float(to_host(sums.norms(operator.forward(vector)))[0]))
    return ratio[0] / ratio[1] if ratio[1] != 0 else 1.0
