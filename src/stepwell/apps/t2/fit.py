"""T2 distributions of many voxels: first the flip angle of each, then its distribution, then what is read off it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stepwell.api.lsq import nnls
from stepwell.apps.images.mapping import NOT_FITTED
from stepwell.apps.t2.maps import MAPS, fraction_errors, read_off
from stepwell.apps.t2.model import T2Model
from stepwell.arrays import Array, copy_to_device_of, host_copy, namespace_of
from stepwell.arrays.checks import read_numpy, require_template
from stepwell.common.checks import read_switch, require_function, require_instance, require_shape

#: Steps between the angles that are tried first; then halved until all neighbours of the best one were tried.
FIRST_STRIDE = 8


def fit_voxels(
    model: T2Model,
    signals: np.ndarray,
    angles: np.ndarray | None = None,
    *,
    errors: bool = True,
    like: Array | None = None,
    threads: int | None = None,
    progress: Callable[[str], object] | None = None,
) -> dict[str, np.ndarray]:
    """Fit many voxels.

    Parameters
    ----------
    model : T2Model
    signals : array, (voxels, echoes)
        What was measured. Voxels with NaN, or with nothing above zero, are left out: NaN, and status -1.
    angles : array, (voxels,), optional
        Known refocusing angles in degrees; the nearest one of the model's is taken. Without, each voxel gets the one
        whose plain NNLS leaves the least.
    errors : bool, default True
        Whether the standard errors ``sfr_se`` are computed, which takes a few times as long as one fit.
    like : array, optional
        An array on the CUDA device where the systems are to be solved; by default the host.
    threads : int, optional
        CPU threads; all by default.
    progress : callable, optional
        Called with the name of each stage.

    Returns
    -------
    dict of arrays
        The maps by the names in :data:`MAPS`, one row a voxel.

    Examples
    --------
    >>> model = T2Model(echoes=32, te=0.010, angles=(180, 180, 1), lam=0.0)
    >>> signals = 700 * np.exp(-model.te * np.arange(1, 33) / model.t2_times[20])[None]
    >>> maps = fit_voxels(model, signals)
    >>> round(float(maps["gdn"][0]), 3), bool(np.isclose(maps["ggm"][0], model.t2_times[20]))
    (700.0, True)
    """
    require_instance("model", model, T2Model)
    require_function("progress", progress)
    require_template("like", like)
    errors = read_switch("errors", errors)
    signals = np.asarray(read_numpy("signals", signals), dtype=np.float64)
    good_shape = signals.ndim == 2 and signals.shape[1] == model.echoes
    require_shape(good_shape, "signals", signals, f"(voxels, {model.echoes}), an echo a column")
    count = len(signals)
    if angles is not None:
        angles = np.asarray(read_numpy("angles", angles), dtype=np.float64)
        require_shape(angles.shape == (count,), "angles", angles, (count,))
    fitted = np.isfinite(signals).all(axis=1) & (signals.max(axis=1, initial=-np.inf) > 0)
    if angles is not None:
        fitted &= np.isfinite(angles)
    maps = {
        name: np.full((count, model.bins) if name == "t2dist" else count, np.nan, dtype=np.float32)
        for name in MAPS
        if name != "status" and (errors or name != "sfr_se")
    }
    maps["status"] = np.full(count, NOT_FITTED, dtype=np.int16)
    if not fitted.any():
        return maps
    here = _Place(model, like, threads)
    chosen = slice(None) if fitted.all() else fitted  # (a whole image is not copied)
    found = _fit(here, signals[chosen], None if angles is None else angles[chosen], errors, progress)
    for name, values in found.items():
        maps[name][chosen] = values
    return maps


class _Place:
    """Where systems are solved: the host, or the device of an array."""

    def __init__(self, model: T2Model, like: Array | None, threads: int | None) -> None:
        self.model, self.like, self.threads = model, like, threads
        self.dictionary = self.put(model.dictionary)
        self.positive: Array | None = None

    def put(self, values: np.ndarray) -> Array:
        """Bring values there."""
        return values if self.like is None else copy_to_device_of(values, self.like)

    def solve(self, signals: Array, which: Array | int, **options: Any) -> Any:
        """Solve with one matrix of the dictionary, or with one for each signal."""
        if isinstance(which, int):
            return nnls(self.dictionary[which], signals, threads=self.threads, **options)
        if len(self.dictionary) == 1:
            return nnls(self.dictionary[0], signals, threads=self.threads, **options)
        return nnls(self.dictionary, signals, which=which, threads=self.threads, **options)

    def residuals(self, signals: Array, which: Array | int) -> Array:
        """What plain NNLS leaves of each signal; it starts from the positive bins of the last time."""
        result = self.solve(signals, which, warm_start=self.positive)
        self.positive = result.positive
        xp = namespace_of(signals)
        return xp.astype(result.residual, xp.float64)


def _fit(
    here: _Place,
    signals: np.ndarray,
    angles: np.ndarray | None,
    errors: bool,
    progress: Callable[[str], object] | None,
) -> dict[str, np.ndarray]:
    model, there = here.model, here.put(signals)
    tell = progress or (lambda stage: None)
    if angles is not None:
        which = here.put(np.abs(model.flip_angles - angles[:, None]).argmin(axis=1))
        least = here.residuals(there, which)
    else:
        tell("flip angles")
        which, least = _search(here, there)
    tell("distributions")
    options: dict[str, Any] = {"lam": model.lam, "L": None if model.penalty is None else here.put(model.penalty)}
    if isinstance(model.lam, str):
        options |= {"chi2": model.chi2, "noise": model.noise if model.lam == "discrepancy" else None}
    result = here.solve(there, which, warm_start=here.positive, **options)
    tell("maps")
    xp = namespace_of(there)
    x = xp.astype(result.x, xp.float64)
    lam = result.lam if isinstance(model.lam, str) else here.put(np.full(len(signals), float(model.lam)))
    resnorm = xp.astype(result.residual, xp.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        maps = read_off(model, x, there, which, resnorm, here.dictionary)
        error = {}
        if errors:
            known = (lam, maps["sfr"], resnorm, here.dictionary)
            error["sfr_se"] = fraction_errors(model, x, which, *known)
        factor = (resnorm / least) ** 2
    kept = {"t2dist": xp.astype(x, xp.float32), "mu": lam, "chi2factor": factor, "status": result.status}
    return {
        **{name: np.asarray(host_copy(values)) for name, values in (maps | kept).items()},
        **error,
        "alpha": model.flip_angles[np.asarray(host_copy(which))],
    }


def find_angles(model: T2Model, signals: np.ndarray, threads: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return, for every voxel, the angle of the dictionary whose plain NNLS leaves the least, and what it leaves."""
    return _search(_Place(model, None, threads), signals)


def _search(here: _Place, signals: Array) -> tuple[Array, Array]:
    """Try every few angles, then the neighbours of the best one, ever nearer."""
    count = len(here.model.flip_angles)
    stride = 1
    while 2 * stride <= min(FIRST_STRIDE, max(1, count // 4)):
        stride *= 2
    xp = namespace_of(signals)
    least = here.put(np.full(len(signals), np.inf))
    best = here.put(np.zeros(len(signals), dtype=np.int64))

    def keep_better(candidate: Array | int) -> None:
        nonlocal best, least
        found = here.residuals(signals, candidate)
        better = found < least
        best, least = xp.where(better, candidate, best), xp.where(better, found, least)

    for which in sorted({*range(0, count, stride), count - 1}):
        keep_better(which)
    while stride > 1:
        stride //= 2
        centre = best
        for side in (-stride, stride):
            keep_better(xp.clip(centre + side, 0, count - 1))
    return best, least
