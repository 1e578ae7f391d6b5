"""Total variation in seconds, beside peers and floors in the same run; all answers judged by the same certificate.

    python benchmarks/tv.py [--slices N] [--quick]

Slices: the phantom's slices of 128 x 128, 90 angles, 1 % noise, x >= 0, λ from the noise, to a proven gap of 1e-3.
The floor is its products and the sweeps of its kernels, each alone.
PDHG with steps tuned by hand counts its iterations on four of the slices, judged against the lower bounds of `tv`;
its seconds are those of its products alone, with this package's kernels: what it does between them is not charged.
Denoising: 512 x 512, noise 0.1; the floor is the pair of cosine transforms of every sweep, by SciPy in the precision of
the sweeps, which is single, with as many threads. scikit-image's Chambolle gets the fewest iterations whose image has
the gap, and its stopping rule costs nothing. CIL is timed where it is installed (`import cil`). ``--quick``: 12 slices.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from common import machine, save, table
from tv_products import scan

import stepwell
from stepwell.apps import tomography
from stepwell.common.threads import default_threads
from stepwell.krylov.tv import host
from stepwell.operators import as_operator

TOL = 1e-3
#: Iterations after which PDHG has lost, and how often it is judged.
MOST, EVERY = 1500, 25
#: PDHG's primal step over the balanced one: the best of those tried.
STEPS = (0.3, 0.1)


def seconds(work: Callable[[], Any], repeats: int = 1) -> tuple[float, Any]:
    """Least seconds of a call, and what it returned."""
    best, found = np.inf, None
    for _ in range(repeats):
        start = time.perf_counter()
        found = work()
        best = min(best, time.perf_counter() - start)
    return best, found


def gradient(x: np.ndarray) -> np.ndarray:
    """Forward differences of images (k, n, n): (2, k, n, n)."""
    out = np.zeros((2, *x.shape))
    out[0, :, :-1], out[1, :, :, :-1] = np.diff(x, axis=1), np.diff(x, axis=2)
    return out


def back(p: np.ndarray) -> np.ndarray:
    """The adjoint of `gradient`."""
    out = -p[0] - p[1]
    out[:, 1:] += p[0, :, :-1]
    out[:, :, 1:] += p[1, :, :, :-1]
    return out


def objective(A: Any, B: np.ndarray, lam: np.ndarray, x: np.ndarray) -> np.ndarray:
    """½‖Ax − b‖² + λ TV(x) of every column."""
    data = A.forward(np.ascontiguousarray(x.reshape(x.shape[0], -1).T))
    size = np.sqrt((gradient(x) ** 2).sum(axis=0))
    return np.asarray(0.5 * ((data - B) ** 2).sum(axis=0) + lam * size.sum(axis=(1, 2)))


@contextlib.contextmanager
def sweeps_timed() -> Iterator[list[float]]:
    """Give the seconds of every call of the sweeps' kernels meanwhile, of all threads."""
    run, found = host.run_sweeps, []

    def timed(*given: Any) -> Any:
        start = time.perf_counter()
        try:
            return run(*given)
        finally:
            found.append(time.perf_counter() - start)

    host.run_sweeps = timed
    try:
        yield found
    finally:
        host.run_sweeps = run


def pdhg_iterations(A: Any, B: np.ndarray, lam: np.ndarray, lower: np.ndarray, side: int, share: float) -> np.ndarray:
    """Iterations of PDHG until f is within TOL of proven lower bounds, per column; ∇ is scaled to ‖A‖."""
    norm = largest(A, side)
    scale = norm / np.sqrt(8)
    root = np.sqrt(2) * norm
    tau, sigma = share / root, 1 / (share * root)
    k = B.shape[1]
    x = np.zeros((k, side, side))
    bar, y, p = x.copy(), np.zeros_like(B), np.zeros((2, *x.shape))
    radius = (lam / scale)[None, :, None, None]
    found = np.full(k, MOST)
    for iteration in range(1, MOST + 1):
        y = (y + sigma * (A.forward(np.ascontiguousarray(bar.reshape(k, -1).T)) - B)) / (1 + sigma)
        p = p + sigma * scale * gradient(bar)
        p = p / np.maximum(1, np.sqrt((p**2).sum(axis=0, keepdims=True)) / radius)
        step = A.adjoint(y).T.reshape(x.shape) + scale * back(p)
        new = np.maximum(x - tau * step, 0)
        bar, x = 2 * new - x, new
        if iteration % EVERY == 0:
            f = objective(A, B, lam, x)
            found = np.where((f - lower <= TOL * f) & (found == MOST), iteration, found)
            if (found < MOST).all():
                break
    return found


def largest(A: Any, side: int) -> float:
    """‖A‖ by twenty steps of the power method."""
    v = np.ones((side * side, 1))
    size = 1.0
    for _ in range(20):
        v = A.adjoint(A.forward(v))
        size = float(np.linalg.norm(v))
        v /= size
    return float(np.sqrt(size))


def slices(count: int | None) -> list[dict[str, Any]]:
    """The phantom's slices: this package, PDHG's products, the products of `tv` alone."""
    full = np.flatnonzero(tomography.shepp_logan_3d(128).any(axis=(1, 2)))
    chosen = full if count is None else full[np.linspace(0, full.size - 1, count).astype(int)]
    A, B, sigma = scan(128, np.arange(0, 180, 2.0), 0.01, chosen.tolist())
    with sweeps_timed() as in_sweeps:
        took, result = seconds(
            lambda: stepwell.tv(A, B, "noise", noise=sigma, shape=(128, 128), bounds=(0, None), tol=TOL)
        )
    alone = sum(in_sweeps) / default_threads()
    op = as_operator(A)
    X = np.ascontiguousarray(result.x)
    pair, _ = seconds(lambda: op.adjoint(op.forward(X)), 3)
    some = np.linspace(0, B.shape[1] - 1, 4).astype(int)
    tried = [pdhg_iterations(op, B[:, some], result.lam[some], result.lower[some], 128, share) for share in STEPS]
    each = np.min(tried, axis=0)
    peer = float(np.median(each)) * pair
    name = f"{B.shape[1]} slices of 128², 90 angles, 1 %"
    floor = float(np.mean(result.products)) * pair + alone
    print(f"{name}: PDHG needs {each.tolist()} iterations", file=sys.stderr, flush=True)
    return [
        {
            "work": name, "seconds": took, "floor": floor, "peer": "PDHG, tuned, its products alone",
            "peer_seconds": peer, "ratio": peer / took, "gap": float(result.gap.max()), "proved": bool(result.success),
            "sweeps": float(result.sweeps.mean()), "products": float(np.mean(result.products)),
            "seconds in sweeps": alone, "iterations": each.tolist(),
        }
    ]  # fmt: skip


def cil_seconds() -> str:
    """Say whether CIL can be timed here."""
    return "installed" if importlib.util.find_spec("cil") else "not installed: no comparison"


def denoising(side: int = 512) -> list[dict[str, Any]]:
    """An image with noise 0.1: this package, scikit-image's Chambolle, transforms in single precision."""
    from scipy.fft import dctn, idctn

    phantom = tomography.shepp_logan_3d(128)[60]
    clean = np.kron(phantom, np.ones((side // 128, side // 128)))
    noisy = clean + 0.1 * np.random.default_rng(0).standard_normal(clean.shape)
    short, given = noisy.astype(np.float32), {"norm": "ortho", "workers": default_threads()}
    rows = []
    for lam in (0.1, 0.2):
        took, result = seconds(lambda lam=lam: stepwell.tv(None, noisy, lam, shape=noisy.shape, tol=TOL), 3)
        lower = float(result.lower[0])
        transforms, _ = seconds(lambda: idctn(dctn(short, **given), **given), 5)
        peer, iterations = chambolle(noisy, lam, lower)
        rows.append({
            "work": f"denoising {side}², noise 0.1, λ = {lam:g}", "seconds": took,
            "floor": transforms * float(np.mean(result.sweeps)), "peer": f"scikit-image, {iterations} iterations",
            "peer_seconds": peer, "ratio": peer / took, "gap": float(np.max(result.gap)),
            "proved": bool(result.success), "sweeps": float(np.mean(result.sweeps)),
        })  # fmt: skip
    return rows


def chambolle(noisy: np.ndarray, lam: float, lower: float) -> tuple[float, int]:
    """Seconds of scikit-image with the fewest iterations (to a tenth) that come within TOL of the lower bound."""
    from skimage.restoration import denoise_tv_chambolle

    def run(count: int) -> np.ndarray:
        return np.asarray(denoise_tv_chambolle(noisy, weight=lam, eps=0, max_num_iter=count))

    def enough(count: int) -> bool:
        x = run(count)
        size = np.sqrt((gradient(x[None]) ** 2).sum(axis=0)).sum()
        f = 0.5 * ((x - noisy) ** 2).sum() + lam * size
        return bool(f - lower <= TOL * f)

    low, count = 50, 100
    while not enough(count) and count < 6000:
        low, count = count, 2 * count
    for _ in range(3):
        middle = round((low * count) ** 0.5)
        low, count = (low, middle) if enough(middle) else (middle, count)
    took, _ = seconds(lambda: run(count), 2)
    return took, count


def main() -> None:
    quick = "--quick" in sys.argv
    count = int(sys.argv[sys.argv.index("--slices") + 1]) if "--slices" in sys.argv else 12 if quick else None
    kept = denoising() + slices(count)
    table(
        ["work", "seconds", "floor", "peer", "seconds of the peer", "ratio", "gap", "proved"],
        [
            [
                row["work"], f"{row['seconds']:.2f}", f"{row['floor']:.2f}", row["peer"], f"{row['peer_seconds']:.2f}",
                f"{row['ratio']:.1f}", f"{row['gap']:.1e}", str(row["proved"]),
            ]
            for row in kept
        ],
    )  # fmt: skip
    print("CIL:", cil_seconds())
    if count is None:
        save("tv", "seconds", [*kept, {"machine": machine(), "cil": cil_seconds()}])


if __name__ == "__main__":
    main()
