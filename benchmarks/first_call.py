"""What the first call of a solver costs on the CPU, in a process of its own, and where it goes.

    python benchmarks/first_call.py [--repeats 9]

The processor's seconds of whole processes, from the start of Python to the answer: of Python alone, with NumPy, with
what each solver imports, and with its first call, in turn. Raw figures: benchmarks/raw/first_call.json.
"""

from __future__ import annotations

import argparse
import functools
import os
import subprocess
import sys

from common import interleave, medians, save, table

PREPARE = "import numpy as np; random = np.random.default_rng(0); A = random.random((60, 20)); b = A @ np.ones(20)"
#: Solver -> its first call; SciPy's are beside ours.
CALLS = {
    "minimize": "stepwell.minimize(lambda x: ((x * x).sum(), 2 * x), A[:, 0], jac=True, bounds=(-1.0, 1.0))",
    "nnls": "stepwell.nnls(A, b)",
    "lsq_linear": "stepwell.lsq_linear(A, b, bounds=(0.0, 2.0))",
    "curve_fit": "t = np.arange(60.0); stepwell.curve_fit(stepwell.models.exponentials(1), t, np.exp(-t / 9), [1, 1])",
    "tikhonov": "stepwell.tikhonov(A, b, 0.1)",
    "cg": "stepwell.cg(A.T @ A + np.eye(20), A.T @ b)",
    "tv": "stepwell.tv(np.eye(64), np.ones(64), 0.1, shape=(8, 8))",
    "lasso": "stepwell.lasso(A, b, 0.1)",
    "scipy L-BFGS-B": "minimize(lambda x: ((x * x).sum(), 2 * x), A[:, 0], jac=True, method='L-BFGS-B')",
    "scipy nnls": "nnls(A, b)",
}
IMPORTS = {"scipy L-BFGS-B": "from scipy.optimize import minimize", "scipy nnls": "from scipy.optimize import nnls"}


def seconds(program: str) -> float:
    """Return the processor's seconds of a process that runs a program, and its children's."""
    before = os.times()
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    """Print one line per solver."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    repeats = parser.parse_args().repeats
    programs = {"python": "", "numpy": PREPARE}
    programs |= {name: f"{PREPARE}; {IMPORTS.get(name, 'import stepwell')}; {call}" for name, call in CALLS.items()}
    found = interleave(repeats, **{name: functools.partial(seconds, program) for name, program in programs.items()})
    middle = medians(found)
    save("first_call", "processor", {"seconds": found, "medians": middle})
    table(
        ["first call", "s", "beyond Python and NumPy, s"],
        [[name, f"{middle[name]:.3f}", f"{middle[name] - middle['numpy']:.3f}"] for name in programs],
    )


if __name__ == "__main__":
    main()
