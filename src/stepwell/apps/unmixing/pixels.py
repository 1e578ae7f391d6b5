"""Abundances of many pixels: least squares with x >= 0 and a bound sum, by a whole library or by random parts of it."""

from __future__ import annotations

import dataclasses
from typing import Literal, TypeAlias

import numpy as np

from stepwell.apps.errors import scatter_of_sums
from stepwell.apps.unmixing.library import SpectralLibrary
from stepwell.arrays import Array, copy_to_device_of, host_copy
from stepwell.checks import read_array, read_choice, read_real, read_whole, require, require_finite, require_shape
from stepwell.nnls import lsq_linear

#: Sums of the abundances: one; at most one, the rest being shade; any.
Total: TypeAlias = Literal["one", "most", "free"]
TOTALS: dict[str, tuple[float, float] | None] = {"one": (1.0, 1.0), "most": (-np.inf, 1.0), "free": None}
#: A sum that is so near to one is held there.
HELD = 1e-9
#: Of a pixel that was not unmixed.
NOT_SOLVED = -1


@dataclasses.dataclass(frozen=True)
class Unmixing:
    """How pixels are to be unmixed.

    Parameters
    ----------
    library : SpectralLibrary
        At the bands of the pixels; NaN in none of them.
    total : {"most", "one", "free"}
        ``"one"``: abundances sum to one (FCLS). ``"most"``: to at most one; the rest is shade, the part of a pixel that
        sends no light. ``"free"``: any sum.
    lower, upper : float, default 0 and infinity
        Bounds of every abundance.
    noise : array, (bands,), optional
        Standard deviation of the noise of each band: bands count by its inverse.
    by_class : bool, default True
        Whether abundances of spectra of one class are added up.
    draws : int, default 0
        So many times each pixel gets a random part of the library, and the mean of what comes out; 0: the whole
        library, once.
    subset : int, default 30
        Spectra in such a part; one of each class at least.
    best : bool, default False
        Of the draws, keep the one that fits best (as MESMA does) instead of the mean.
    seed : int, default 0
        Seed of the draws.
    """

    library: SpectralLibrary
    total: Total = "most"
    lower: float = 0.0
    upper: float = float("inf")
    noise: np.ndarray | None = None
    by_class: bool = True
    draws: int = 0
    subset: int = 30
    best: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        require_finite("library", self.library.spectra)
        read_choice("total", self.total, TOTALS)
        lower = read_real("lower", self.lower, infinite=True)
        upper = read_real("upper", self.upper, infinite=True)
        require(lower <= upper, "lower", self.lower, f"up to upper, {self.upper:g}")
        read_whole("draws", self.draws, 0)
        classes = len(self.library.class_names)
        if self.draws:
            read_whole("subset", self.subset, classes)  # one of each class
        read_whole("seed", self.seed, 0)
        require(self.draws > 0 or not self.best, "best", self.best, "False without draws")
        if self.noise is not None:
            noise = read_array("noise", self.noise)
            require_shape(noise.shape == self.library.spectra.shape[1:], "noise", noise, self.library.spectra.shape[1:])
            require(bool(np.all(np.isfinite(noise) & (noise > 0))), "noise", noise, "finite numbers above 0")

    @property
    def names(self) -> list[str]:
        """What the abundances are of."""
        return self.library.class_names if self.by_class else self.library.names


def unmix_pixels(
    plan: Unmixing,
    pixels: np.ndarray,
    *,
    like: Array | None = None,
    threads: int | None = None,
    line: int = 0,
    samples: int | None = None,
) -> dict[str, np.ndarray]:
    """Unmix many pixels.

    Parameters
    ----------
    plan : Unmixing
    pixels : array, (pixels, bands)
        Reflectances. Pixels with NaN, or of zeros alone, are left out: NaN, and status -1.
    like : array, optional
        An array on the CUDA device where the systems are to be solved; by default the host.
    threads : int, optional
        CPU threads; all by default.
    line : int, default 0
        The line of an image that these pixels begin with: with the seed it decides their random draws.
    samples : int, optional
        Pixels of a line; all by default.

    Returns
    -------
    dict of arrays
        ``abundances`` (pixels, names); ``error`` alike, their standard errors from what is left of the pixel, the set
        of spectra taken as known: with draws the standard deviation over these instead, and with ``best`` NaN;
        ``rmse``, ``sum`` and ``status``, one a pixel.

    Examples
    --------
    >>> library = SpectralLibrary(np.array([[0.1, 0.5, 0.3], [0.6, 0.2, 0.2]]), ["leaf", "soil"], ["leaf", "soil"])
    >>> pixel = 0.25 * library.spectra[:1] + 0.5 * library.spectra[1:]
    >>> unmix_pixels(Unmixing(library), pixel)["abundances"].round(3)
    array([[0.25, 0.5 ]], dtype=float32)
    """
    pixels = np.asarray(read_array("pixels", pixels), dtype=np.float64)
    bands = plan.library.spectra.shape[1]
    require_shape(
        pixels.ndim == 2 and pixels.shape[1] == bands, "pixels", pixels, f"(pixels, {bands}), a band a column"
    )
    count, names = len(pixels), plan.names
    found = {
        "abundances": np.full((count, len(names)), np.nan, dtype=np.float32),
        "error": np.full((count, len(names)), np.nan, dtype=np.float32),
        "rmse": np.full(count, np.nan, dtype=np.float32),
        "sum": np.full(count, np.nan, dtype=np.float32),
        "status": np.full(count, NOT_SOLVED, dtype=np.float32),
    }
    solved = np.isfinite(pixels).all(axis=1) & (pixels != 0).any(axis=1)
    if solved.any():
        places = (line, count if samples is None else samples)
        for name, values in _solve(plan, pixels[solved], solved, places, like, threads).items():
            found[name][solved] = values
    return found


def _solve(
    plan: Unmixing,
    pixels: np.ndarray,
    solved: np.ndarray,
    places: tuple[int, int],
    like: Array | None,
    threads: int | None,
) -> dict[str, np.ndarray]:
    members = _members(plan)
    mean = np.zeros((len(pixels), len(plan.names)))
    square = np.zeros_like(mean)
    total, rmse = np.zeros(len(pixels)), np.full(len(pixels), np.inf if plan.best else 0.0)
    status = np.zeros(len(pixels), dtype=np.int64)
    rounds = max(1, plan.draws)
    for draw in range(rounds):
        mask = None if not plan.draws else _drawn(plan, len(solved), draw, *places)[solved]
        x, left, ended = _once(plan, pixels, mask, like, threads)
        amounts = x @ members
        if plan.best:
            better = left < rmse
            mean[better], total[better], rmse[better] = amounts[better], x[better].sum(axis=1), left[better]
            status[better] = ended[better]
        else:
            # Welford's update: the spread of draws that nearly agree is not lost in the mean.
            change = amounts - mean
            mean += change / (draw + 1)
            square += change * (amounts - mean)
            total += (x.sum(axis=1) - total) / (draw + 1)
            rmse += (left - rmse) / (draw + 1)
            status = np.maximum(status, ended)
    if plan.best:
        error = np.full_like(mean, np.nan)
    elif plan.draws:
        error = np.sqrt(square / max(1, rounds - 1))
    else:
        error = _errors(plan, x, pixels)
    return {"abundances": mean, "error": error, "rmse": rmse, "sum": total, "status": status}


def _once(
    plan: Unmixing, pixels: np.ndarray, mask: np.ndarray | None, like: Array | None, threads: int | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Solve once; return abundances of the spectra, root mean squares of what is left, and statuses."""
    A = plan.library.spectra.T
    weights = None if plan.noise is None else 1.0 / np.asarray(plan.noise, dtype=float)

    def put(values: np.ndarray) -> Array:
        return values if like is None else copy_to_device_of(values, like)

    result = lsq_linear(
        put(A if weights is None else weights[:, None] * A),
        put(pixels if weights is None else weights * pixels),
        (plan.lower, plan.upper),
        sum_bounds=TOTALS[plan.total],
        mask=None if mask is None else put(mask),
        threads=threads,
    )
    x = np.asarray(host_copy(result.x), dtype=np.float64)
    left = np.sqrt(np.mean((pixels - x @ A.T) ** 2, axis=1))
    return x, left, np.asarray(host_copy(result.status))


def _errors(plan: Unmixing, x: np.ndarray, pixels: np.ndarray) -> np.ndarray:
    """Return standard errors of the abundances; unknowns at a bound other than zero are taken as known, too."""
    weights = np.ones(pixels.shape[1]) if plan.noise is None else 1.0 / np.asarray(plan.noise, dtype=float)
    A = weights[:, None] * plan.library.spectra.T
    left = np.linalg.norm(weights * pixels - x @ A.T, axis=1)
    moving = np.where((x > plan.lower) & (x < plan.upper), 1.0, 0.0)
    bounds = TOTALS[plan.total]
    held = None if bounds is None else np.abs(x.sum(axis=1) - 1) <= HELD
    scatter, used = scatter_of_sums((A.T @ A)[None], moving, _members(plan).T[None], held=held)
    return np.asarray(scatter * (left / np.sqrt(np.maximum(pixels.shape[1] - used, 1)))[:, None])


def _members(plan: Unmixing) -> np.ndarray:
    """Return the matrix that adds up spectra of one class, (spectra, names)."""
    if not plan.by_class:
        return np.eye(len(plan.library.names))
    names = plan.names
    return np.array([[float(kind == name) for name in names] for kind in plan.library.classes])


def _drawn(plan: Unmixing, pixels: int, draw: int, line: int, samples: int) -> np.ndarray:
    """Return random parts of the library, (pixels, spectra): one of each class at least.

    They depend on seed, draw, line and the pixel's place in it alone, not on how many lines are taken at a time.
    """
    count = len(plan.library.names)
    lines = range(line, line + -(-pixels // samples))
    drawn = [np.random.default_rng([plan.seed, draw, one]).random((samples, count)) for one in lines]
    keys = np.concatenate(drawn)[:pixels]
    for name in plan.library.class_names:
        members = np.flatnonzero([kind == name for kind in plan.library.classes])
        first = members[keys[:, members].argmin(axis=1)]
        keys[np.arange(len(keys)), first] -= 1.0
    chosen = np.argpartition(keys, min(plan.subset, count) - 1, axis=1)[:, : plan.subset]
    mask = np.zeros(keys.shape, dtype=bool)
    np.put_along_axis(mask, chosen, True, axis=1)
    return mask
