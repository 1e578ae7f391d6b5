"""Where fits of relaxation start: linear least squares of the curve that logarithms or quotients make straight."""

from __future__ import annotations

import numpy as np

from stepwell.apps.relaxation.model import RelaxationModel

#: b-values, s/mm², from which on blood has left the signal (IVIM's segmented fit).
SLOW_FROM = 200.0
#: Signals below this share of a voxel's largest do not enter logarithms.
FLOOR = 1e-3


def starts_of(model: RelaxationModel, x: np.ndarray, signals: np.ndarray) -> np.ndarray:
    """Return a start per voxel, in the order of the compiled model's parameters.

    `x` is (points,), or (voxels, points) where every voxel has its own.
    """
    low, high = model.limits()
    with np.errstate(all="ignore"):
        if model.quantity == "t1":
            found = _recovery(x, signals)
        elif model.quantity == "t1-vfa":
            found = _angles(model, np.broadcast_to(x, signals.shape), signals)
        elif model.quantity == "ivim":
            found = _two_speeds(x, signals)
        else:
            a, k = _straight(x, signals)
            found = np.stack([a, k, *([np.zeros_like(a)] if model.offset else [])], axis=-1)
    usual = np.array([high[j] if np.isfinite(high[j]) else low[j] for j in range(len(low))])
    found = np.where(np.isfinite(found), found, np.where(np.isfinite(usual), usual, 0.0))
    return np.asarray(np.clip(found, low, high))


def _straight(x: np.ndarray, signals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return amplitude and rate of a decay: log S = log a - k x, weighed by S² as noise of S asks for."""
    least = FLOOR * signals.max(axis=1, keepdims=True)
    weights = np.where(signals > least, signals**2, 0.0)
    logs = np.log(np.maximum(signals, np.maximum(least, np.finfo(float).tiny)))
    total = weights.sum(axis=1)
    middle = (weights @ x) / total
    level = (weights * logs).sum(axis=1) / total
    spread = x[None] - middle[:, None]
    k = -(weights * spread * logs).sum(axis=1) / (weights * spread**2).sum(axis=1)
    return np.exp(level + k * middle), k


def _recovery(x: np.ndarray, signals: np.ndarray) -> np.ndarray:
    """Return a, k, c of c + a exp(-k t): the sign changes at ln 2 of T1 where the inversion is whole."""
    c = signals.max(axis=1)
    crossing = np.where(signals < 0, x[None], 0.0).max(axis=1)
    after = np.where(signals >= 0, x[None], np.inf).min(axis=1)
    null = np.where(np.isfinite(after), 0.5 * (crossing + after), crossing)
    k = np.log(2) / np.maximum(null, 0.25 * np.min(x[x > 0], initial=np.inf))
    return np.stack([-2 * c, k, c], axis=-1)


def _angles(model: RelaxationModel, angles: np.ndarray, signals: np.ndarray) -> np.ndarray:
    """Return a and k by the straight line S/sin α = E S/tan α + a (1 - E), E = exp(-TR k)."""
    assert model.tr is not None
    across, up = signals / np.tan(angles), signals / np.sin(angles)
    spread = across - across.mean(axis=1, keepdims=True)
    slope = (spread * up).sum(axis=1) / (spread**2).sum(axis=1)
    e = np.clip(slope, 1e-6, 1 - 1e-9)
    level = up.mean(axis=1) - slope * across.mean(axis=1)
    return np.stack([level / (1 - e), -np.log(e) / model.tr], axis=-1)


def _two_speeds(x: np.ndarray, signals: np.ndarray) -> np.ndarray:
    """Return S0, f, Dstar, D: the slow decay from large b, what it leaves of the whole signal is f."""
    late = x >= SLOW_FROM
    if len(np.unique(x[late])) < 2:
        late = x >= np.median(x)
    level, slow = _straight(x[late], signals[:, late])
    whole = np.maximum(signals[:, x == x.min()].mean(axis=1), level)
    share = np.clip(1 - level / whole, 0.02, 0.5)
    return np.stack([whole, share, np.full_like(whole, 0.03), np.clip(slow, 1e-4, None)], axis=-1)
