"""Fits of many voxels at once: parameters within bounds, their standard errors, and how each fit ended."""

from __future__ import annotations

from typing import Any

import numpy as np

from stepwell.api.fit import curve_fit
from stepwell.apps.images.mapping import NOT_FITTED
from stepwell.apps.relaxation.model import RelaxationModel
from stepwell.apps.relaxation.starts import starts_of
from stepwell.arrays import Array, copy_to_device_of, host_copy
from stepwell.arrays.checks import read_numpy, require_template
from stepwell.common.checks import require, require_instance, require_shape

_WHOLE = {"status": np.int16, "bound": np.int16}


def fit_voxels(
    model: RelaxationModel,
    signals: np.ndarray,
    b1: np.ndarray | None = None,
    *,
    like: Array | None = None,
    threads: int | None = None,
) -> dict[str, np.ndarray]:
    """Fit many voxels.

    Parameters
    ----------
    model : RelaxationModel
    signals : array, (voxels, points)
        What was measured. Voxels with NaN, or with nothing above zero, are left out: NaN, and status -1.
    b1 : array, (voxels,), optional
        Relative flip angles (1: as they should be), for "t1-vfa".
    like : array, optional
        An array on the CUDA device where voxels are to be fitted, and of the type that they are fitted in; by default
        the host.
    threads : int, optional
        CPU threads; all by default.

    Returns
    -------
    dict of arrays
        The maps by the names in ``model.maps``, one row per voxel.

    Examples
    --------
    >>> model = RelaxationModel("t2", [0.01, 0.03, 0.06, 0.12])
    >>> maps = fit_voxels(model, model.signal(T2=[0.05, 0.08], S0=[300.0, 500.0]))
    >>> maps["T2"].round(4), maps["S0"].round(2), maps["status"] > 0
    (array([0.05, 0.08], dtype=float32), array([300., 500.], dtype=float32), array([ True,  True]))
    """
    require_instance("model", model, RelaxationModel)
    require_template("like", like)
    signals = np.asarray(read_numpy("signals", signals), dtype=np.float64)
    width = len(model.points)
    require_shape(signals.ndim == 2 and signals.shape[1] == width, "signals", signals, f"(voxels, {width})")
    fitted = np.isfinite(signals).all(axis=1) & (signals.max(axis=1, initial=-np.inf) > 0)
    if b1 is not None:
        require(model.quantity == "t1-vfa", "b1", "an array", "None, or quantity t1-vfa")
        b1 = np.asarray(read_numpy("b1", b1), dtype=np.float64)
        require_shape(b1.shape == (len(signals),), "b1", b1, (len(signals),))
        fitted &= np.isfinite(b1) & (b1 > 0)
    maps = {
        name: np.full(len(signals), NOT_FITTED if name in _WHOLE else np.nan, dtype=_WHOLE.get(name, np.float32))
        for name in model.maps
    }
    if fitted.any():
        chosen = slice(None) if fitted.all() else fitted
        found = _fit(model, signals[chosen], None if b1 is None else b1[chosen], like, threads)
        for name, values in found.items():
            maps[name][chosen] = values
    return maps


def _fit(
    model: RelaxationModel, signals: np.ndarray, b1: np.ndarray | None, like: Array | None, threads: int | None
) -> dict[str, np.ndarray]:
    x = model.abscissa if b1 is None else model.abscissa * b1[:, None]
    if model.quantity != "t1" or model.signed:
        ends = _ends(model, x, signals, like, threads)
        return _maps(model, ends)
    # Of magnitudes the sign of the points before the least one is lost, and of the least itself it is not known.
    order = np.argsort(x, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    least = place[np.abs(signals).argmin(axis=1)]
    tried = [
        _ends(model, x, np.where(place < (least + more)[:, None], -1.0, 1.0) * np.abs(signals), like, threads)
        for more in (0, 1)
    ]
    first = np.where(np.isnan(tried[1]["cost"]), True, ~(tried[1]["cost"] < tried[0]["cost"]))
    ends = {
        name: np.where(first.reshape(-1, *[1] * (values.ndim - 1)), values, tried[1][name])
        for name, values in tried[0].items()
    }
    return _maps(model, ends)


def _ends(
    model: RelaxationModel, x: np.ndarray, signals: np.ndarray, like: Array | None, threads: int | None
) -> dict[str, np.ndarray]:
    """Return the ends of the fits as arrays of NumPy."""
    start, bounds = starts_of(model, x, signals), model.limits()
    put: Any = (lambda values: values) if like is None else (lambda values: copy_to_device_of(values, like))
    found = curve_fit(
        model.curve,
        put(x) if x.ndim > 1 else x,
        put(signals),
        put(start),
        bounds=bounds,
        own_x=x.ndim > 1,
        uncertainty="covariance" if model.quantity == "t1" else "stderr",
        threads=threads,
    )
    names = ("x", "stderr", "pcov", "cost", "dof", "distance", "active_mask", "status")
    fields = {name: getattr(found, name) for name in names}
    return {name: np.asarray(host_copy(values)) for name, values in fields.items() if values is not None}


def _maps(model: RelaxationModel, ends: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the maps; a parameter at a bound has no standard error."""
    held = ends["active_mask"] != 0
    errors = np.where(held, np.nan, ends["stderr"])
    pcov = ends.get("pcov")
    if pcov is not None:
        pcov = np.where(held[:, :, None] | held[:, None, :], np.nan, pcov)
    with np.errstate(all="ignore"):
        residual = np.sqrt(2 * ends["cost"] / np.where(ends["dof"] > 0, ends["dof"], np.nan))
        found = model.read_off(ends["x"], errors, pcov)
    good = ends["status"] > NOT_A_START
    found = {name: np.where(good, values, np.nan) for name, values in found.items()}
    return found | {
        "residual": residual,
        "distance": ends["distance"],
        "bound": held.sum(axis=1),
        "status": ends["status"],
    }


#: Statuses down from here say that nothing was fitted.
NOT_A_START = -5
