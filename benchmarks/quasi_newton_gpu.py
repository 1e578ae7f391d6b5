"""The quasi-Newton engine on one GPU: bandwidth floor, published tables, and its peers.

    python benchmarks/quasi_newton_gpu.py                # all parts, about a minute and a half on an H200
    python benchmarks/quasi_newton_gpu.py --quick        # fewer turns, no peers, no n = 40,000,000
    python benchmarks/quasi_newton_gpu.py --part torsion # one of: torsion, histories, rosenbrock, batch, peers, start

Solver time is the device's own, between CUDA events around each turn. For n = 10,000 in a graph, what a whole iteration
takes more than an evaluation in a graph is kept beside it. The floor of an iteration is the traffic of two
sweeps over the history and of the vectors, at the speed of a device copy measured in the same run:

    (4 m + 14) n words: S and Y are read twice, but for the new pair, which absorb writes (4 m); absorb reads the trial
    point, both gradients, d and the bounds (6); aim reads the trial point, g and the bounds (4) and writes x, g, d and
    the next trial point (4). A refused trial point, whose slope is then measured by itself, is not counted.

Needs torch with CUDA; CuPy, JAX and optimistix where they are compared. Raw figures go to
benchmarks/raw/quasi_newton_gpu.json, one table to the screen at the end.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import machine, table, torch_gpu
from gpu_parts.batch import batch
from gpu_parts.histories import histories
from gpu_parts.peers import peers
from gpu_parts.rosenbrock import rosenbrock
from gpu_parts.start import start
from gpu_parts.tools import SUMMARY, say
from gpu_parts.torsion import torsion

RAW = Path(__file__).parent / "raw" / "quasi_newton_gpu.json"
PARTS: dict[str, Callable[[bool], dict[str, Any]]] = {
    "torsion": torsion,
    "histories": histories,
    "rosenbrock": rosenbrock,
    "batch": batch,
    "peers": peers,
    "start": start,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--part", choices=[*PARTS, "all"], default="all")
    parser.add_argument("--quick", action="store_true", help="fewer turns, no peers on the GPU, no n = 40,000,000")
    parser.add_argument("--json", type=Path, default=RAW, metavar="FILE", help=f"default {RAW.name}")
    given = parser.parse_args()
    about = machine() | torch_gpu() | {"quick": given.quick}
    say(f"{about['gpu']}, {about['arrays']}, CUDA {about['cuda']}, stepwell {about['stepwell']}")
    kept = json.loads(given.json.read_text()) if given.json.exists() else {}
    given.json.parent.mkdir(parents=True, exist_ok=True)
    for name, part in PARTS.items():
        if given.part in (name, "all"):
            kept[name] = {"machine": about, "figures": part(given.quick)}
            given.json.write_text(json.dumps(kept, indent=1) + "\n")
    say(f"wrote {given.json}\n")
    table(["work", "ms", "of the floor", "goal", ""], SUMMARY)


if __name__ == "__main__":
    main()
