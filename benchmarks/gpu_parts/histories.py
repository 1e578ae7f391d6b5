"""Less traffic: histories in a narrower type, bounds that are numbers, and a billion variables."""

from __future__ import annotations

import dataclasses
import runpy
from pathlib import Path
from typing import Any

import torch

from gpu_parts.tools import BYTES, M, copy_bandwidth, say, summarise, torsion_problem
from gpu_parts.torsion import turn_times

#: Goals in milliseconds, torsion as torsion.py has it (its own start, bounds as arrays), x in float64: by n and the
#: type of the history.
GOALS = {
    (4 * 10**6, "float32"): 0.26,
    (4 * 10**6, "bfloat16"): 0.22,
    (4 * 10**6, None): 0.39,
    (10**6, "float32"): 0.105,
}
#: Words of x that an iteration moves besides the history: with arrays of bounds, with numbers, without.
OTHER_WORDS = {"own start": 14, "arrays": 14, "numbers": 10, "none": 10}
EXAMPLE = Path(__file__).parents[2] / "examples" / "billion_variables.py"


def histories(quick: bool) -> dict[str, Any]:
    bandwidth = copy_bandwidth()
    figures: dict[str, Any] = {"copy bandwidth": bandwidth, "m": M}
    for side in (1000, 2000):
        for dtype in ("float64", "float32"):
            torsion, n = torsion_problem(side, side, dtype), side * side
            # As tight as numbers can be on average, so that both runs have free and held variables.
            level = float(torsion.bounds[1].mean())
            inside = dataclasses.replace(torsion, x0=torsion.x0.clamp(-level, level))
            bounds = {"own start": "arrays", "arrays": "arrays", "numbers": (-level, level), "none": None}
            for history in (None, "float32", "bfloat16") if dtype == "float64" else (None, "bfloat16"):
                for kind, given in bounds.items():
                    problem = torsion if kind == "own start" else inside
                    found = turn_times(problem, 60 if quick else 90, given, history)
                    moved = 4 * M * BYTES[history or dtype] + OTHER_WORDS[kind] * BYTES[dtype]
                    found |= {"floor": moved * n / bandwidth}
                    found["fraction"] = found["floor"] / found["median"]
                    del found["seconds"], found["accepted"], found["walked"]
                    how = "bounds arrays, torsion's own start" if kind == "own start" else f"bounds {kind}"
                    name = f"n = {n:,} {dtype}, history {history or dtype}, {how}"
                    figures[name] = found
                    say(
                        f"{name}: {1e3 * found['median']:.4f} ms, {found['fraction']:.2f} of the floor, "
                        f"{found['free']:.0%} free"
                    )
                    goal = GOALS.get((n, history)) if dtype == "float64" and kind == "own start" else None
                    met = None if goal is None else 1e3 * found["median"] <= goal
                    text = "-" if goal is None else f"{goal} ms"
                    summarise(name, found["median"], text, fraction=found["fraction"], met=met)
            torch.cuda.empty_cache()
    example = runpy.run_path(str(EXAMPLE))
    smooth = example["smooth"]
    smooth(10**6, 3)  # compiles
    n = 10**8 if quick else 10**9
    # The first run of a process takes longer: memory is mapped, its result's among it.
    first, result = smooth(n, 40)[1], None
    again = []
    for _ in range(3):
        result = None  # its memory serves the next
        result, seconds = smooth(n, 40)
        again.append(seconds)
    seconds = sorted(again, key=lambda run: run["turn"])[1] | {"first run": first, "runs": again}
    # Two sweeps over the history, where variables are free, and over the vectors; the evaluation reads x and writes the
    # gradient.
    free = float((result.x != 0).mean())
    history, other = 4 * example["M"] * BYTES["bfloat16"], (OTHER_WORDS["numbers"] + 2) * BYTES["float32"]
    seconds |= {"floor": (free * history + other) * n / bandwidth, "free": free}
    seconds |= {"floor, all rows": (history + other) * n / bandwidth}
    seconds |= {"iterations": int(result.nit), "evaluations": int(result.nfev)}
    figures[f"{n:,} variables"] = seconds
    summarise("the same, first run of a process", first["turn"])
    met = seconds["turn"] < 35e-3 and first["set-up"] < 2
    text = f"n = {n:,} float32, history bfloat16, x >= 0, with its evaluation; first set-up {first['set-up']:.2f} s"
    fraction = seconds["floor"] / seconds["turn"]
    summarise(text, seconds["turn"], "35 ms, set-up 2 s", fraction=fraction, met=met)
    say(f"{n:,} variables: {seconds}")
    return figures
