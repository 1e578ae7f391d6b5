"""T2 mapping and unmixing as a whole: microseconds a voxel or pixel by stage, beside loops over SciPy.

    python benchmarks/applications.py                              # on the CPU
    python benchmarks/applications.py --device cuda --voxels 2764800    # 240 x 240 x 48 voxels on a GPU

SciPy's loops run on a part of the data, on one thread; their time for all is that of the part, enlarged.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from common import save, table
from scipy.optimize import brentq, nnls

from stepwell.apps import t2, unmixing

ECHOES, TE = 48, 0.008
#: Voxels and pixels that SciPy's loops get.
SOME = 100


def voxels(count: int) -> np.ndarray:
    """Signals of a phantom's tissue, as many as wanted."""
    phantom = t2.simulate((128, 128, 1), echoes=ECHOES, te=TE)
    signals = phantom.signal[phantom.mask].astype(float)
    random = np.random.default_rng(1)
    chosen = signals[random.integers(0, len(signals), count)]
    return chosen * random.uniform(0.9, 1.1, (count, 1))


def scipy_voxel(model: t2.T2Model, signal: np.ndarray) -> float:
    """The flip angle by the same angles as ours, then λ by bracketing and Brent's method; seconds."""
    start = time.perf_counter()
    count = len(model.flip_angles)
    tried: dict[int, float] = {}

    def left(which: int) -> float:
        if which not in tried:
            tried[which] = nnls(model.dictionary[which], signal)[1]
        return tried[which]

    best = min({*range(0, count, 8), count - 1}, key=left)
    for stride in (4, 2, 1):
        best = min((min(max(best + side, 0), count - 1) for side in (-stride, 0, stride)), key=left)
    A, bins = model.dictionary[best], model.bins
    target, zeros = 1.02 * tried[best] ** 2, np.zeros(bins)

    def excess(t: float) -> float:
        x = nnls(np.vstack([A, np.exp(t) * np.eye(bins)]), np.concatenate([signal, zeros]))[0]
        return float(np.sum((signal - A @ x) ** 2) - target)

    low, high = -4.0, -4.0
    while excess(low) > 0 and low > -20:
        low -= 1.5
    while excess(high) < 0 and high < 5:
        high += 1.5
    brentq(excess, low, high, xtol=1e-3)
    return time.perf_counter() - start


def t2_rows(count: int, like: Any, threads: int | None) -> list[dict[str, Any]]:
    model = t2.T2Model(ECHOES, TE, myelin=(0.010, 0.040))
    signals = voxels(count)
    t2.fit_voxels(model, signals[:1000], like=like, threads=threads)  # compiled, and in the caches
    stages: list[tuple[str, float]] = []

    def tell(stage: str) -> None:
        stages.append((stage, time.perf_counter()))

    start = time.perf_counter()
    maps = t2.fit_voxels(model, signals, like=like, threads=threads, progress=tell)
    end = time.perf_counter()
    times = {name: later - now for (name, now), later in zip(stages, [*(at for _, at in stages[1:]), end])}
    assert np.all(maps["status"] == 0)
    rows = [{"work": f"T2, {name}", "count": count, "seconds": spent} for name, spent in times.items()]
    rows.append({"work": "T2, all", "count": count, "seconds": end - start})
    scipy = np.mean([scipy_voxel(model, signal) for signal in signals[:SOME]])
    rows.append({"work": "T2 without maps, a loop over SciPy", "count": SOME, "seconds": float(scipy) * SOME})
    return rows


def unmixing_rows(count: int, like: Any, threads: int | None) -> list[dict[str, Any]]:
    scene = unmixing.simulate(100, 100, bands=200)
    pixels = np.tile(scene.image.reshape(-1, 200).astype(float), (-(-count // 10_000), 1))[:count]
    rows = []
    for total in ("one", "most", "free"):
        plan = unmixing.Unmixing(scene.library, total)
        unmixing.unmix_pixels(plan, pixels[:1000], like=like, threads=threads)
        start = time.perf_counter()
        unmixing.unmix_pixels(plan, pixels, like=like, threads=threads)
        rows.append({"work": f"unmixing 200 x 5, sum {total}", "count": count, "seconds": time.perf_counter() - start})
    A = scene.library.spectra.T
    start = time.perf_counter()
    for pixel in pixels[:SOME]:
        nnls(A, pixel)
    rows.append(
        {"work": "unmixing, sum free, a loop over SciPy", "count": SOME, "seconds": time.perf_counter() - start}
    )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--voxels", type=int, default=20_000)
    parser.add_argument("--pixels", type=int, default=100_000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int)
    given = parser.parse_args()
    like = None
    if given.device != "cpu":
        import torch

        like = torch.empty(0, dtype=torch.float64, device=given.device)
    rows = t2_rows(given.voxels, like, given.threads) + unmixing_rows(given.pixels, like, given.threads)
    shown = [[row["work"], row["count"], row["seconds"], 1e6 * row["seconds"] / row["count"]] for row in rows]
    table(["work", "voxels or pixels", "seconds", "µs each"], shown)
    save("applications", "cpu" if like is None else "gpu", rows)


if __name__ == "__main__":
    main()
