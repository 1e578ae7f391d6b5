"""The numbers that are read off a T2 distribution, by the names that users of other programs know."""

from __future__ import annotations

import numpy as np

from stepwell.apps.t2.model import T2Model

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
#: Bytes for the matrices of standard errors at a time.
ERROR_BYTES = 2**24


def read_off(model: T2Model, x: np.ndarray, signals: np.ndarray, angle: np.ndarray) -> dict[str, np.ndarray]:
    """Return the maps of distributions (voxels, bins) of signals (voxels, echoes); `angle`: of the dictionary."""
    logs = np.log(model.t2_times)
    windows = model.windows
    with np.errstate(divide="ignore", invalid="ignore"):
        total = x.sum(axis=1)
        parts = {name: x[:, inside].sum(axis=1) for name, inside in windows.items()}
        means = {name: x[:, inside] @ logs[inside] / parts[name] for name, inside in windows.items()}
        mean = x @ logs / total
        spread = ((logs - mean[:, None]) ** 2 * x).sum(axis=1) / total
        left = residuals(model, x, signals, angle)
        deviation = np.sqrt((left**2).sum(axis=1) / (model.echoes - 1))
        return {
            "sfr": parts["myelin"] / total,
            "mfr": parts["middle"] / total,
            "ffr": parts["free"] / total,
            "ggm": np.exp(mean),
            "sgm": np.exp(means["myelin"]),
            "mgm": np.exp(means["middle"]),
            "gva": np.expm1(spread),
            "gdn": total,
            "fnr": total / deviation,
            "snr": signals.max(axis=1) / np.std(left, axis=1, ddof=1),
            "resnorm": np.linalg.norm(left, axis=1),
        }


def residuals(model: T2Model, x: np.ndarray, signals: np.ndarray, angle: np.ndarray) -> np.ndarray:
    """Return what the distributions leave of the signals; `angle`: which one of the dictionary, a voxel."""
    left = np.empty_like(signals)
    for which in np.unique(angle):
        chosen = angle == which
        left[chosen] = signals[chosen] - x[chosen] @ model.dictionary[which].T
    return left


def fraction_errors(
    model: T2Model, x: np.ndarray, angle: np.ndarray, lam: np.ndarray, fraction: np.ndarray, resnorm: np.ndarray
) -> np.ndarray:
    """Return the standard error of the myelin water fraction that noise of the residual's size causes.

    On the positive bins P the distribution is B⁻¹A_Pᵀb with B = A_PᵀA_P + λ²(LᵀL)_P, so its covariance is
    σ²B⁻¹A_PᵀA_PB⁻¹; the fraction's derivative is (1_myelin − fraction)/Σx. σ² is the squared residual over the echoes
    less the trace of A_PB⁻¹A_Pᵀ, which without a penalty is the number of positive bins. That noise may change the set
    P, and that the penalty pulls, is not in it.
    """
    grams = np.einsum("kij,kil->kjl", model.dictionary, model.dictionary)
    penalty = np.eye(model.bins) if model.penalty is None else model.penalty.T @ model.penalty
    positive = x > 0
    counts = positive.sum(axis=1)
    total = x.sum(axis=1)
    good = np.flatnonzero((counts > 0) & np.isfinite(total) & np.isfinite(lam) & np.isfinite(resnorm))
    good = good[np.argsort(counts[good], kind="stable")]  # voxels with as many positive bins go together
    errors = np.full(len(x), np.nan)
    while good.size:
        step = max(1, ERROR_BYTES // (40 * int(counts[good[-1]]) ** 2))
        part, good = good[-step:], good[:-step]
        size = int(counts[part[-1]])
        bins = np.argsort(~positive[part], axis=1, kind="stable")[:, :size]  # the positive ones first
        there = np.take_along_axis(positive[part], bins, axis=1)
        both = there[:, :, None] & there[:, None, :]
        rows, columns = bins[:, :, None], bins[:, None, :]
        gram = np.where(both, grams[angle[part, None, None], rows, columns], 0.0)
        matrix = gram + np.where(both, lam[part, None, None] ** 2 * penalty[rows, columns], 0.0)
        # (The columns of neighbouring bins are nearly parallel: without a penalty the matrix may be singular.)
        ridge = 1e-14 * np.trace(matrix, axis1=1, axis2=2)[:, None]
        matrix[:, np.arange(size), np.arange(size)] += np.where(there, ridge, 1.0)
        slope = np.where(there, (model.windows["myelin"][bins] - fraction[part, None]) / total[part, None], 0.0)
        solved = np.linalg.solve(matrix, np.concatenate([slope[:, :, None], gram], axis=2))
        used = np.trace(solved[:, :, 1:], axis1=1, axis2=2)
        solved = solved[:, :, :1]
        scatter = (solved * (gram @ solved)).sum(axis=(1, 2))
        freedom = np.maximum(model.echoes - used, 1)
        errors[part] = np.sqrt(np.maximum(scatter, 0) / freedom) * resnorm[part]
    return errors
