"""The numbers that are read off a T2 distribution, by the names that users of other programs know."""

from __future__ import annotations

import numpy as np

from stepwell.apps.errors import scatter_of_sums
from stepwell.apps.t2.model import T2Model
from stepwell.arrays import Array, copy_to_device_of, host_copy, namespace_of

#: Name -> what it is. One number a voxel, float32 but for the status; "t2dist" has one a bin.
MAPS = {
    "t2dist": "the distribution itself, a number a bin",
    "sfr": "myelin water fraction (MWF): share of the distribution in the myelin window",
    "sfr_se": "standard error of sfr from the noise, the set of bins taken as known",
    "mfr": "share in the middle window: water within and between cells",
    "ffr": "share above the middle window: free water",
    "ggm": "geometric mean T2 of all bins, seconds",
    "sgm": "geometric mean T2 of the myelin window, seconds",
    "mgm": "geometric mean T2 of the middle window, seconds",
    "gva": "variance of ln T2, exponentiated, less 1",
    "gdn": "sum of the distribution: total water, in units of the image",
    "fnr": "gdn over the standard deviation of the residual",
    "snr": "largest echo over the standard deviation of the residual",
    "alpha": "flip angle of the refocusing pulses, degrees",
    "mu": "λ",
    "chi2factor": "squared residual over the one of plain NNLS",
    "resnorm": "norm of the residual",
    "status": "0 where the fit converged; -1 where there was nothing to fit",
}


def read_off(
    model: T2Model, x: Array, signals: Array, angle: Array, resnorm: Array, dictionary: Array
) -> dict[str, Array]:
    """Return the maps of distributions (voxels, bins) of signals (voxels, echoes), in the library they are in.

    `angle` says which one of the dictionary each voxel has; `resnorm` are the norms of what is left.
    """
    xp = namespace_of(x)
    logs = np.log(model.t2_times)
    windows = np.stack(list(model.windows.values()), 1).astype(float)
    # All sums in one product: of x, of its windows, of x ln T2 there and in all, and of x (ln T2)².
    weights = np.concatenate(
        [np.ones((model.bins, 1)), windows, logs[:, None] * windows, logs[:, None] ** np.arange(1, 3)], 1
    )
    sums = x @ copy_to_device_of(weights, x)
    total, parts, firsts = sums[:, 0], sums[:, 1:4], sums[:, 4:7]
    mean = sums[:, 7] / total
    spread = sums[:, 8] / total - mean**2
    # What the residuals sum to, which their standard deviation is taken about: a row of sums of the dictionary each.
    totals = xp.sum(dictionary, axis=1)
    left = xp.sum(signals, axis=1) - xp.sum(totals[angle] * x, axis=1)
    deviation = resnorm / (model.echoes - 1) ** 0.5
    variance = (resnorm**2 - left**2 / model.echoes) / (model.echoes - 1)
    about_mean = xp.sqrt(xp.where(variance > 0, variance, xp.zeros_like(variance)))
    return {
        "sfr": parts[:, 0] / total,
        "mfr": parts[:, 1] / total,
        "ffr": parts[:, 2] / total,
        "ggm": xp.exp(mean),
        "sgm": xp.exp(firsts[:, 0] / parts[:, 0]),
        "mgm": xp.exp(firsts[:, 1] / parts[:, 1]),
        "gva": xp.expm1(xp.where(spread > 0, spread, xp.zeros_like(spread))),
        "gdn": total,
        "fnr": total / deviation,
        "snr": xp.max(signals, axis=1) / about_mean,
        "resnorm": resnorm,
    }


def fraction_errors(
    model: T2Model, x: Array, angle: Array, lam: Array, fraction: Array, resnorm: Array, dictionary: Array
) -> np.ndarray:
    """Return the standard error of the myelin water fraction that noise of the residual's size causes.

    The fraction's derivative is (1_myelin − fraction)/Σx; the variance of the noise is the squared residual over the
    echoes less the parameters that the distribution has used.
    """
    xp = namespace_of(x)
    grams = xp.matmul(xp.permute_dims(dictionary, (0, 2, 1)), dictionary)
    square = np.eye(model.bins) if model.penalty is None else model.penalty.T @ model.penalty
    penalty, myelin = (copy_to_device_of(values, x) for values in (square, model.windows["myelin"].astype(float)))
    slope = (myelin[None, :] - fraction[:, None]) / xp.sum(x, axis=1)[:, None]
    scatter, used = scatter_of_sums(grams, x, slope, which=angle, lam=lam, penalty=penalty)
    return np.asarray(scatter[:, 0] * host_copy(resnorm) / np.sqrt(np.maximum(model.echoes - used, 1)))
