"""NNLS on a CUDA device, beside the GPU column of Tables 7.1 to 7.3 of Luo & Duraiswami (2011) and the CPU.

    python benchmarks/nnls_gpu.py [--data FOLDER] [--json FILE]

Times are of whole calls with device arrays in and out, synchronised, after one call that compiles the kernels; each is
the median of several. `host_seconds` is the part until the call returns, with the device still at work. The rows with a
goal are printed once more as a table. Needs torch with CUDA, cuda-core and NVRTC.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import sys
import time

import numpy as np
import torch
from common import machine, torch_gpu
from nnls import PAPER, SETS, decays

import stepwell
from stepwell.apps.waveform import load_shots


def synchronised(function, repeats):
    """Median seconds of a call with the device idle before and after, the least, and the median until it returns."""
    times, until_return = [], []
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        result = function()
        until_return.append(time.perf_counter() - start)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times), min(times), statistics.median(until_return), result


def device(array):
    return torch.as_tensor(np.ascontiguousarray(array), device="cuda")


def workload(name, A, b, goal, paper=None, cpu=True, matrix=None, check=None, repeats=9):
    """Time one batch on the device and, once, on the CPU; recompute the certificate on the device in float64."""
    target = device(A) if matrix is None else matrix
    right = device(b) if isinstance(b, np.ndarray) else b
    start = time.perf_counter()
    stepwell.nnls(target, right)
    torch.cuda.synchronize()
    first = time.perf_counter() - start
    seconds, least, host, result = synchronised(lambda: stepwell.nnls(target, right), repeats)
    dense = check if check is not None else (target if matrix is None else None)
    worst = certificate(dense, right, result.x) if dense is not None else float(result.violation.max())
    row = {
        "name": name,
        "systems": len(right),
        "seconds": seconds,
        "seconds_least": least,
        "host_seconds": host,
        "first_call_seconds": first,
        "goal_seconds": goal,
        "paper_gpu_seconds": paper,
        "violation": worst,
        "not_converged": int((result.status != 0).sum()),
        "insertions": float(result.insertions.double().mean()),
        "removals": float(result.removals.double().mean()),
        "passes": float(result.passes.double().mean()),
    }
    if cpu:
        host_A = A if matrix is None or isinstance(A, np.ndarray) else None
        if host_A is not None:
            begin = time.perf_counter()
            stepwell.nnls(host_A, np.asarray(b))
            row["cpu_seconds"] = time.perf_counter() - begin
    verdict = "" if goal is None else f"goal {goal * 1e3:.0f} ms {'met' if seconds <= goal else 'MISSED'}"
    print(
        f"  {name:46s} {len(right):8d} {seconds * 1e3:9.2f} ms (least {least * 1e3:.2f}) {verdict:22s}"
        f" CPU {row.get('cpu_seconds', float('nan')) * 1e3:9.1f} ms  paper GPU {paper or float('nan'):7.4f} s"
        f"  ins {row['insertions']:.1f} rem {row['removals']:.1f} passes {row['passes']:.1f}"
        f" host {host * 1e3:.2f} ms KKT {worst:.1e} failed {row['not_converged']}  first call {first:.1f} s",
        flush=True,
    )
    return row


def certificate(A, b, x):
    """The largest scaled violation, in float64 on the device."""
    A, b, x = A.double(), b.double(), x.double()
    if A.ndim == 2:
        w = (b - x @ A.T) @ A
        norms = A.norm(dim=0)
    else:
        w = torch.einsum("smn,sm->sn", A, b - torch.einsum("smn,sn->sm", A, x))
        norms = A.norm(dim=1)
    w = w / (norms * b.norm(dim=1, keepdim=True))
    return float(torch.maximum(w.max(), torch.where(x > 0, w.abs(), 0 * w).max()))


def table(rows):
    """The rows with a goal, in Markdown."""
    print("\n| work | ms | until the call returns | goal | violation |\n|---|---|---|---|---|")
    for row in rows:
        if row["goal_seconds"]:
            verdict = "" if row["seconds"] <= row["goal_seconds"] else ", missed"
            print(
                f"| {row['systems']} x {row['name']} | {row['seconds'] * 1e3:.2f} | {row['host_seconds'] * 1e3:.2f} |"
                f" {row['goal_seconds'] * 1e3:.0f} ms{verdict} | {row['violation']:.1e} |"
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    default = pathlib.Path(__file__).resolve().parents[2] / "shared" / "data"
    parser.add_argument("--data", type=pathlib.Path, default=os.environ.get("STEPWELL_DATA", default))
    parser.add_argument("--json", type=pathlib.Path, default=pathlib.Path(__file__).parent / "raw" / "nnls_gpu.json")
    parser.add_argument("--quick", action="store_true", help="no CPU times, no sets of other sizes")
    options = parser.parse_args()
    about = machine() | torch_gpu()
    print(", ".join(f"{key} {value}" for key, value in about.items()))
    rows = []
    cpu = not options.quick
    path = pathlib.Path(options.data) / "gedi_l1b_150shots.npz"
    if path.exists():
        shots = load_shots(path)
        b = shots.waveforms - shots.background[:, None]
        dense = shots.matrix().dense()
        rows.append(workload("real GEDI shots 512, dense", dense, b, 5e-3, cpu=cpu))
        wave = stepwell.Convolution(device(shots.pulses), 512, origin=shots.origin)
        rows.append(
            workload("real GEDI shots 512, Convolution", dense, b, 2e-3, cpu=False, matrix=wave, check=device(dense))
        )
    else:
        print(f"  real GEDI shots: skipped, {path} is not there")
    goals = {"7.2 mean-shifted Gaussians 512": 20e-3, "7.3 random 512": 3e-3}
    for title, make in SETS.items():
        for count in (192,) if options.quick else (1, 24, 48, 96, 192):
            goal = goals.get(title) if count == 192 else None
            A, b = make(count)
            rows.append(workload(f"{title}", A, b, goal, PAPER[title][count][2], cpu=cpu))
    A, b = decays(100_000)
    rows.append(workload("T2 decays 56 x 40, one A", A, b, None, cpu=cpu))
    rng = np.random.default_rng(6)
    A = rng.random((200, 8))
    truth = torch.clamp(torch.randn(1_000_000, 8, dtype=torch.float64, device="cuda"), min=0)
    noise = torch.randn(1_000_000, 200, dtype=torch.float64, device="cuda")
    right = truth @ device(A).T + 0.1 * noise
    rows.append(workload("200 x 8, one A", A, right, 0.1, cpu=False))
    n = 4000
    rows.append(workload(f"one system {n} x {n}", rng.random((1, n, n)), rng.random((1, n)), None, cpu=cpu, repeats=3))
    table(rows)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps({"about": about, "batches": rows}, indent=1) + "\n")
    print(f"wrote {options.json}")


if __name__ == "__main__":
    sys.exit(main())
