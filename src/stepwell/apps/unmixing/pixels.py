"""Abundances of many pixels: least squares with x >= 0 and a bound sum, by a whole library or by random parts of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal, TypeAlias

import numpy as np

from stepwell.api.lsq import lsq_linear
from stepwell.apps.errors import scatter_of_sums
from stepwell.apps.unmixing.library import SpectralLibrary
from stepwell.arrays import Array, copy_to_device_of, host_copy, namespace_of
from stepwell.arrays.checks import read_array, read_numpy, require_finite, require_template
from stepwell.common.checks import (
    read_choice,
    read_real,
    read_seed,
    read_switch,
    read_whole,
    require,
    require_instance,
    require_shape,
)

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
        require_instance("library", self.library, SpectralLibrary)
        require_finite("library", self.library.spectra)
        read_switch("by_class", self.by_class)
        read_switch("best", self.best)
        read_choice("total", self.total, TOTALS)
        lower = read_real("lower", self.lower, infinite=True)
        upper = read_real("upper", self.upper, infinite=True)
        require(lower <= upper, "lower", self.lower, f"up to upper, {self.upper:g}")
        read_whole("draws", self.draws, 0)
        classes = len(self.library.class_names)
        if self.draws:
            read_whole("subset", self.subset, classes)  # one of each class
        read_seed(self.seed)
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
    require_instance("plan", plan, Unmixing)
    require_template("like", like)
    line, samples = read_whole("line", line, 0), None if samples is None else read_whole("samples", samples, 1)
    pixels = np.asarray(read_numpy("pixels", pixels), dtype=np.float64)
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
        chosen = slice(None) if solved.all() else solved  # (a whole image is not copied)
        for name, values in _solve(plan, pixels[chosen], solved, places, like, threads).items():
            found[name][chosen] = values
    return found


def _solve(
    plan: Unmixing,
    pixels: np.ndarray,
    solved: np.ndarray,
    places: tuple[int, int],
    like: Array | None,
    threads: int | None,
) -> dict[str, np.ndarray]:
    def put(values: np.ndarray) -> Array:
        return values if like is None else copy_to_device_of(values, like)

    # Everything that is as long as the pixels stays where the systems are solved.
    there, members = put(pixels), put(_members(plan))
    xp = namespace_of(there)
    mean = put(np.zeros((len(pixels), len(plan.names))))
    square = xp.zeros_like(mean)
    total, rmse = put(np.zeros(len(pixels))), put(np.full(len(pixels), np.inf if plan.best else 0.0))
    status = put(np.zeros(len(pixels), dtype=np.int64))
    rounds = max(1, plan.draws)
    for draw in range(rounds):
        mask = None if not plan.draws else put(_drawn(plan, len(solved), draw, *places)[solved])
        x, left, ended = _once(plan, there, mask, put, threads)
        amounts = x @ members
        if plan.best:
            better = left < rmse
            mean = xp.where(better[:, None], amounts, mean)
            total, rmse = xp.where(better, xp.sum(x, axis=1), total), xp.where(better, left, rmse)
            status = xp.where(better, ended, status)
        else:
            # Welford's update: the spread of draws that nearly agree is not lost in the mean.
            change = amounts - mean
            mean = mean + change / (draw + 1)
            square = square + change * (amounts - mean)
            total = total + (xp.sum(x, axis=1) - total) / (draw + 1)
            rmse = rmse + (left - rmse) / (draw + 1)
            status = xp.where(ended > status, ended, status)
    if plan.best:
        error = np.full(mean.shape, np.nan)
    elif plan.draws:
        error = xp.sqrt(square / max(1, rounds - 1))
    else:
        error = _errors(plan, x, there, put)
    found = {"abundances": mean, "error": error, "rmse": rmse, "sum": total, "status": status}
    return {name: np.asarray(host_copy(values)) for name, values in found.items()}


def _once(
    plan: Unmixing, there: Array, mask: Array | None, put: Callable[[np.ndarray], Array], threads: int | None
) -> tuple[Array, Array, Array]:
    """Solve once; return abundances of the spectra, root mean squares of what is left, and statuses."""
    xp = namespace_of(there)
    A = put(plan.library.spectra.T)
    weights = None if plan.noise is None else put(1.0 / np.asarray(plan.noise, dtype=float))
    result = lsq_linear(
        A if weights is None else weights[:, None] * A,
        there if weights is None else weights * there,
        (plan.lower, plan.upper),
        sum_bounds=TOTALS[plan.total],
        mask=mask,
        threads=threads,
    )
    x = xp.astype(result.x, xp.float64)
    return x, xp.sqrt(xp.mean((there - x @ A.T) ** 2, axis=1)), xp.astype(result.status, xp.int64)


def _errors(plan: Unmixing, x: Array, there: Array, put: Callable[[np.ndarray], Array]) -> np.ndarray:
    """Return standard errors of the abundances; unknowns at a bound other than zero are taken as known, too."""
    xp, bands = namespace_of(x), there.shape[1]
    weights = np.ones(bands) if plan.noise is None else 1.0 / np.asarray(plan.noise, dtype=float)
    A = weights[:, None] * plan.library.spectra.T
    left = xp.sqrt(xp.sum((put(weights) * there - x @ put(A.T)) ** 2, axis=1))
    moving = xp.astype((x > plan.lower) & (x < plan.upper), xp.float64)
    bounds = TOTALS[plan.total]
    held = None if bounds is None else xp.abs(xp.sum(x, axis=1) - 1) <= HELD
    scatter, used = scatter_of_sums(put((A.T @ A)[None]), moving, put(_members(plan).T[None]), held=held)
    return np.asarray(scatter * (host_copy(left) / np.sqrt(np.maximum(bands - used, 1)))[:, None])


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
