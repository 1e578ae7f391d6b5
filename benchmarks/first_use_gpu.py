"""What the first call of a solver costs on a GPU: in a fresh process, with an empty cache, and with the user's cache.

    python benchmarks/first_use_gpu.py

An installation that was built where there is a GPU has the kernels of usual calls; `STEPWELL_KERNELS=off pip install .`
has none. `installation` says how many the installation has: a call whose kernel is among them never compiles. Times are
seconds from the first call of Stepwell to its answer; the array library, its context and the imports come before.
Raw figures: benchmarks/raw/first_use_gpu.json.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from common import save, table, torch_gpu

from stepwell.cuda.nvrtc import shipped_folder

PREPARE = """
import sys, time
import torch
import stepwell, stepwell.api.lsq, stepwell.quasi_newton
torch.manual_seed(0)
real = torch.float32 if "float32" in sys.argv[1] else torch.float64
def array(*shape):
    return torch.rand(*shape, device="cuda", dtype=real)
x = array(1000)
(x * x).sum().item(); (array(64, 64) @ array(64, 64)).sum().item()
"""
CASES = {
    "minimize bounded float64, m = 10": """
def f(x):
    return ((x - 0.3) ** 4).sum() + (x[1:] * x[:-1]).sum(), 4 * (x - 0.3) ** 3 + torch.cat((x[1:], 0 * x[:1])) + \
        torch.cat((0 * x[:1], x[:-1]))
call = lambda: stepwell.minimize(f, x, jac=True, bounds=(0.1, 0.9)).x
""",
    "minimize free float32": """
def f(x):
    return ((x - 0.3) ** 2).sum(), 2 * (x - 0.3)
call = lambda: stepwell.minimize(f, x, jac=True).x
""",
    "nnls, one A": """
A, b = array(32, 12), array(10000, 32)
call = lambda: stepwell.nnls(A, b).x
""",
    "nnls, an A of each": """
A, b = array(2000, 24, 12), array(2000, 24)
call = lambda: stepwell.nnls(A, b).x
""",
    "lsq_linear, an A of each": """
A, b = array(2000, 24, 12), array(2000, 24)
call = lambda: stepwell.lsq_linear(A, b, bounds=(0.0, 0.5)).x
""",
}
MEASURE = """
torch.cuda.synchronize(); begun = time.perf_counter(); call(); torch.cuda.synchronize()
print(time.perf_counter() - begun)
"""


def seconds(name: str, cache: str) -> float:
    """Return what the first call takes in a process of its own."""
    program = PREPARE + CASES[name] + MEASURE
    environment = os.environ | {"STEPWELL_CACHE": cache, "CUDA_CACHE_DISABLE": "1"}
    done = subprocess.run([sys.executable, "-c", program, name], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return float(done.stdout)


def main() -> None:
    """Print one line per case."""
    folder = shipped_folder()
    held = sum(1 for _ in folder.iterdir()) if folder.is_dir() else 0
    lines = []
    for name in CASES:
        with tempfile.TemporaryDirectory() as cache:
            lines.append({"case": name, "first": seconds(name, cache), "second": seconds(name, cache)})
    part = "kernels of the build" if held else "compiled at first use"
    save("first_use_gpu", part, {"installation": held, "gpu": torch_gpu(), "lines": lines})
    print(f"{held} kernels in the installation\n")
    table(
        ["first call in a process", "empty cache, s", "user's cache, s"],
        [[line["case"], f"{line['first']:.2f}", f"{line['second']:.2f}"] for line in lines],
    )


if __name__ == "__main__":
    main()
