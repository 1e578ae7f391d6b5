"""Small constrained least squares in large batches on a CUDA device, beside the floor of each line in the same run.

    python benchmarks/small_systems_gpu.py [--quick] [--json FILE]

Times are of whole calls with torch's arrays on the device, in and out, synchronised, after one call that compiles the
kernels: median and least of five. The floor is the larger of two: what has to be read and written once (A and b, or the
normal equations; all fields of the result), at the speed of a copy measured before; and the arithmetic of the steps
that were taken, counted from the result, at the speed of a float64 matrix product measured before. A sample of every
line is held against the CPU.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics

import numpy as np
import torch
from common import machine, torch_gpu
from gpu_parts.tools import synchronised

import stepwell

DOUBLE = {"dtype": torch.float64, "device": "cuda"}
BOX = {"bounds": (-0.1, 0.2)}


def ceilings():
    """Bytes a second of a copy, read and written, and flops a second of a product, both in float64."""
    source = torch.randn(2**27, **DOUBLE)
    target = torch.empty_like(source)
    copy = min(synchronised(lambda: target.copy_(source), 5)[0])
    left = torch.randn(4096, 4096, **DOUBLE)
    product = min(synchronised(lambda: left @ left, 5)[0])
    return {"copy": 2 * 8 * source.numel() / copy, "flops": 2 * 4096**3 / product}


def decays(systems):
    A = torch.as_tensor(np.exp(-7e-3 * np.arange(1, 57)[:, None] / np.geomspace(0.01, 2, 40)), device="cuda")
    c = torch.randint(5, 35, (systems, 2), device="cuda")
    return A, 0.7 * A.T[c[:, 0]] + 0.3 * A.T[c[:, 1]] + 5e-3 * torch.randn(systems, 56, **DOUBLE)


def workloads(scale):
    """Name, goal in seconds, function, A or G, b or c, and options."""
    A, b = decays(int(1e6 * scale))
    lam = 0.005 * float(torch.linalg.matrix_norm(A, 2))
    yield "T2 decays 56 x 40, one A", 0.04, stepwell.nnls, A, b, {}
    yield "T2 decays 56 x 40, one A, damped", 0.06, stepwell.nnls, A, b, {"lam": lam}
    b = b[: int(1e5 * scale)].contiguous()
    yield "T2 decays 56 x 40, λ by chi2", 0.1, stepwell.nnls, A, b, {"lam": "chi2"}
    A = torch.rand(200, 8, **DOUBLE)
    shares = torch.distributions.Dirichlet(torch.ones(8, **DOUBLE)).sample((int(1e6 * scale),))
    b = shares @ A.T + 0.01 * torch.randn(int(1e6 * scale), 200, **DOUBLE)
    del shares
    yield "pixels 200 x 8, one A", None, stepwell.nnls, A, b, {}
    one = {"bounds": (0, np.inf), "sum_bounds": (1, 1)}
    yield "pixels 200 x 8, one A, sum to one", 0.025, stepwell.lsq_linear, A, b, one
    A, b = torch.rand(int(1e6 * scale), 200, 8, **DOUBLE), torch.rand(int(1e6 * scale), 200, **DOUBLE) - 0.3
    yield "200 x 8, own A", 0.05, stepwell.nnls, A, b, {}
    A, b = torch.randn(int(1e4 * scale), 4000, 10, **DOUBLE), torch.randn(int(1e4 * scale), 4000, **DOUBLE)
    yield "4000 x 10, own A, bounds", 0.002, stepwell.lsq_linear, A, b, {"bounds": (-0.01, 0.01)}
    A = torch.randn(int(1e6 * scale), 12, 10, **DOUBLE)
    A, b = A.mT @ A, torch.randn(int(1e6 * scale), 10, **DOUBLE)
    yield "Gram 10 x 10, bounds", 0.015, stepwell.lsq_gram, A, b, BOX
    A = torch.randn(3, 1600, 1290, **DOUBLE)
    A, b = A.mT @ A, torch.randn(3, 1290, **DOUBLE)
    yield "Gram 1290 x 1290, x >= 0", 0.03, stepwell.lsq_gram, A, b, {"bounds": (0, np.inf)}


def result_bytes(result, systems):
    """Bytes of all arrays that a call filled."""
    arrays = [value for value in vars(result).values() if isinstance(value, torch.Tensor)]
    return sum(array.numel() * array.element_size() for array in arrays if array.shape[:1] == (systems,))


def flops_of(gram, A, result):
    """What the steps of a batch take: products with A, duals and solutions from tables, and the certificate."""
    m, n = A.shape[-2:]
    systems = len(result.x)
    passive = (result.state == 0).sum(-1).double()
    k = float(passive.mean())
    steps = float((result.insertions + result.removals).double().mean())
    each = steps * (2 * n * k + 3 * k * k)
    if not gram:
        each += 2 * m * n + (m * n * (n + 1) if A.ndim == 3 else 0) + 2 * m * (k + n)
    return systems * each


def sample_apart(function, A, b, options):
    """How far x of a sample is from the CPU's, relative to the largest of it, and whether all statuses agree."""
    count = min(len(b), 2000, max(3, 2**27 // (A.shape[-1] * A.shape[-2] * 8)))
    part = A[:count].contiguous() if A.ndim == 3 else A
    device = function(part, b[:count].contiguous(), **options)
    host = function(part.cpu().numpy(), b[:count].cpu().numpy(), **options)
    apart = np.abs(device.x.cpu().numpy() - host.x).max() / np.abs(host.x).max()
    return float(apart), bool((device.status.cpu().numpy() == host.status).all())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a fiftieth of the systems")
    default = pathlib.Path(__file__).parent / "raw" / "small_systems_gpu.json"
    parser.add_argument("--json", type=pathlib.Path, default=default)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    about, rates = machine() | torch_gpu(), ceilings()
    print(f"copy {rates['copy'] / 1e12:.2f} TB/s, float64 products {rates['flops'] / 1e12:.1f} TFLOP/s\n")
    print("| work | systems | ms | least | goal | floor: traffic | floor: flops | x apart from the CPU's |")
    print("|---|---|---|---|---|---|---|---|")
    rows = []
    for name, goal, function, A, b, options in workloads(0.02 if arguments.quick else 1.0):
        apart, agree = sample_apart(function, A, b, options)
        synchronised(lambda f=function, A=A, b=b, o=options: f(A, b, **o), 1)
        times, result = synchronised(lambda f=function, A=A, b=b, o=options: f(A, b, **o), 5)
        systems = len(b)
        traffic = 8 * (A.numel() + b.numel()) + result_bytes(result, systems)
        flops = flops_of(function is stepwell.lsq_gram, A, result)
        row = {
            "name": name,
            "systems": systems,
            "seconds": statistics.median(times),
            "seconds_least": min(times),
            "goal_seconds": goal,
            "floor_traffic_seconds": traffic / rates["copy"],
            "floor_flops_seconds": flops / rates["flops"],
            "traffic_bytes": traffic,
            "flops": flops,
            "not_converged": int((result.status != 0).sum()),
            "violation": float(result.violation.max()),
            "insertions": float(result.insertions.double().mean()),
            "removals": float(result.removals.double().mean()),
            "apart_from_cpu": apart,
            "statuses_agree": agree,
        }
        rows.append(row)
        missed = "" if goal is None or row["seconds"] <= goal else ", missed"
        wanted = "-" if goal is None else f"{goal * 1e3:.0f}{missed}"
        print(
            f"| {name} | {systems} | {row['seconds'] * 1e3:.2f} | {row['seconds_least'] * 1e3:.2f} | {wanted} |"
            f" {row['floor_traffic_seconds'] * 1e3:.2f} | {row['floor_flops_seconds'] * 1e3:.2f} | {apart:.0e} |",
            flush=True,
        )
        del A, b, result
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps({"about": about, "rates": rates, "rows": rows}, indent=1) + "\n")
    print(f"wrote {arguments.json}")


if __name__ == "__main__":
    main()
