"""T2 distributions of many voxels: first the flip angle of each, then its distribution, then what is read off it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stepwell.apps.t2.maps import MAPS, fraction_errors, read_off
from stepwell.apps.t2.model import T2Model
from stepwell.checks import read_array, require_function, require_shape
from stepwell.nnls import lsq_linear, nnls

#: Steps between the angles that are tried first; then halved until all neighbours of the best one were tried.
FIRST_STRIDE = 8
#: Of a voxel that was not fitted.
NOT_FITTED = -1


def fit_voxels(
    model: T2Model,
    signals: np.ndarray,
    angles: np.ndarray | None = None,
    *,
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
    require_function("progress", progress)
    signals = np.asarray(read_array("signals", signals), dtype=np.float64)
    good_shape = signals.ndim == 2 and signals.shape[1] == model.echoes
    require_shape(good_shape, "signals", signals, f"(voxels, {model.echoes}), an echo a column")
    count = len(signals)
    if angles is not None:
        angles = np.asarray(read_array("angles", angles), dtype=np.float64)
        require_shape(angles.shape == (count,), "angles", angles, (count,))
    fitted = np.isfinite(signals).all(axis=1) & (signals.max(axis=1, initial=-np.inf) > 0)
    if angles is not None:
        fitted &= np.isfinite(angles)
    maps = {
        name: np.full((count, model.bins) if name == "t2dist" else count, np.nan, dtype=np.float32)
        for name in MAPS
        if name != "status"
    }
    maps["status"] = np.full(count, NOT_FITTED, dtype=np.int16)
    if not fitted.any():
        return maps
    found = _fit(model, signals[fitted], None if angles is None else angles[fitted], threads, progress)
    for name, values in found.items():
        maps[name][fitted] = values
    return maps


def _fit(
    model: T2Model,
    signals: np.ndarray,
    angles: np.ndarray | None,
    threads: int | None,
    progress: Callable[[str], object] | None,
) -> dict[str, np.ndarray]:
    tell = progress or (lambda stage: None)
    if angles is not None:
        which = np.abs(model.flip_angles - angles[:, None]).argmin(axis=1)
        least = _residuals(model, signals, which, threads)
    else:
        tell("flip angles")
        which, least = find_angles(model, signals, threads)
    tell("distributions")
    options: dict[str, Any] = {"L": model.penalty, "threads": threads}
    if isinstance(model.lam, str):
        options |= {"lam": model.lam, "chi2": model.chi2}
        if model.lam == "discrepancy":
            options["noise"] = model.noise
    else:
        options["lam"] = model.lam
    single = len(model.dictionary) == 1
    matrix = model.dictionary[0] if single else model.dictionary
    result = lsq_linear(matrix, signals, (0, np.inf), which=None if single else which, **options)
    tell("maps")
    x = np.asarray(result.x)
    lam = np.broadcast_to(np.asarray(result.lam, dtype=float), len(x))
    maps = read_off(model, x, signals, which)
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = (maps["resnorm"] / least) ** 2
    maps["sfr_se"] = fraction_errors(model, x, which, lam, maps["sfr"], maps["resnorm"])
    status = np.asarray(result.status)
    return maps | {
        "t2dist": x,
        "alpha": model.flip_angles[which],
        "mu": lam,
        "chi2factor": factor,
        "status": status,
    }


def find_angles(model: T2Model, signals: np.ndarray, threads: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return, for every voxel, the angle of the dictionary whose plain NNLS leaves the least, and what it leaves."""
    count = len(model.flip_angles)
    stride = 1
    while 2 * stride <= min(FIRST_STRIDE, max(1, count // 4)):
        stride *= 2
    best = np.zeros(len(signals), dtype=np.int64)
    least = np.full(len(signals), np.inf)
    for which in sorted({*range(0, count, stride), count - 1}):
        found = np.asarray(nnls(model.dictionary[which], signals, threads=threads).residual)
        better = found < least
        best[better], least[better] = which, found[better]
    while stride > 1:
        stride //= 2
        centre = best.copy()
        for side in (-stride, stride):
            candidate = np.clip(centre + side, 0, count - 1)
            found = _residuals(model, signals, candidate, threads)
            better = found < least
            best[better], least[better] = candidate[better], found[better]
    return best, least


def _residuals(model: T2Model, signals: np.ndarray, which: np.ndarray, threads: int | None) -> np.ndarray:
    """What plain NNLS with the named angle leaves of each voxel."""
    if len(model.dictionary) == 1:
        return np.asarray(nnls(model.dictionary[0], signals, threads=threads).residual)
    return np.asarray(lsq_linear(model.dictionary, signals, (0, np.inf), which=which, threads=threads).residual)
