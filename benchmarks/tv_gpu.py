"""Total variation on a CUDA device: the phantom's slices, and denoising of a volume.

    python benchmarks/tv_gpu.py [--repeats 3] [--side 512]

Slices: 102 of 128 x 128, 90 angles, 1 % noise, x >= 0, λ from the noise, to a proven gap of 1e-3; as float64, float32.
Volume: denoising of side³ float32 voxels to 1e-3. The floor beside each is its products alone (slices), or reading and
writing the volume once per sweep (volume). Raw figures: benchmarks/raw/tv_gpu.json.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from common import machine, save, table, torch_gpu
from tv_products import scan

import stepwell
from stepwell.apps import tomography
from stepwell.operators import as_operator

TOL = 1e-3


def timed(run: Callable[[], Any], repeats: int) -> tuple[float, float, Any]:
    """Median of the calls after the first, the first, and what was found."""
    seconds = []
    found = None
    for _ in range(repeats + 1):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        found = run()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begun)
    return float(np.median(seconds[1:])), seconds[0], found


def on_device(A: Any, dtype: torch.dtype) -> Any:
    """A sparse matrix of SciPy as one of PyTorch."""
    A = A.tocsr()
    parts = [torch.as_tensor(part, device="cuda") for part in (A.indptr.astype(np.int64), A.indices.astype(np.int64))]
    return torch.sparse_csr_tensor(*parts, torch.as_tensor(A.data, device="cuda", dtype=dtype), size=A.shape)


def slices(dtype: torch.dtype, repeats: int) -> dict[str, Any]:
    """All slices of the phantom at once."""
    full = np.flatnonzero(tomography.shepp_logan_3d(128).any(axis=(1, 2)))
    A, B, sigma = scan(128, np.arange(0, 180, 2.0), 0.01, full.tolist())
    there, data = on_device(A, dtype), torch.as_tensor(B, device="cuda", dtype=dtype)

    def solve() -> Any:
        return stepwell.tv(there, data, "noise", noise=sigma, shape=(128, 128), bounds=(0, None), tol=TOL)

    took, first, found = timed(solve, repeats)
    op = as_operator(there)
    pair, _, _ = timed(lambda: op.adjoint(op.forward(found.x)), 5)
    products = np.asarray(found.products, float)
    return row(f"{B.shape[1]} slices of 128², {dtype}", took, first, products.max() * pair, 0.3, found, products)


def volume(side: int, repeats: int) -> dict[str, Any]:
    """Denoising of one volume in float32."""
    generator = torch.Generator(device="cuda").manual_seed(0)
    clean = torch.zeros((side, side, side), device="cuda")
    clean[side // 8 : side // 2, side // 4 : -side // 4, side // 3 :] = 1
    noisy = clean + 0.1 * torch.randn(clean.shape, device="cuda", generator=generator)
    took, first, found = timed(lambda: stepwell.tv(None, noisy, 0.1, shape=noisy.shape, tol=TOL), repeats)
    copy, _, _ = timed(noisy.clone, 5)
    sweeps = np.asarray(found.sweeps, float)
    return row(f"denoising {side}³, float32", took, first, copy * sweeps.max(), 0.5, found, sweeps)


def row(
    work: str, took: float, first: float, floor: float, goal: float, found: Any, counts: np.ndarray
) -> dict[str, Any]:
    gap, proved = float(np.max(np.asarray(found.gap))), bool(np.all(np.asarray(found.success)))
    return {
        "work": work, "seconds": took, "first": first, "floor": floor, "goal": goal, "gap": gap, "proved": proved,
        "counts": float(counts.mean()),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--side", type=int, default=512)
    options = parser.parse_args()
    torch_gpu()
    kept = [slices(dtype, options.repeats) for dtype in (torch.float64, torch.float32)]
    kept.append(volume(options.side, options.repeats))
    save("tv_gpu", "seconds", {"lines": kept, "machine": machine()})
    table(
        ["work", "seconds", "goal", "floor", "first call", "gap", "proved", "products or sweeps"],
        [
            [
                line["work"], f"{line['seconds']:.3f}", line["goal"], f"{line['floor']:.3f}", f"{line['first']:.1f}",
                f"{line['gap']:.1e}", str(line["proved"]), line["counts"],
            ]
            for line in kept
        ],
    )  # fmt: skip


if __name__ == "__main__":
    main()
