"""Curve fits of many problems on a CUDA device: compiled models, and callables of PyTorch and JAX.

    python benchmarks/fits_gpu.py [--share 1.0] [--repeats 5]

Data, starts and bounds are those of fits.py, made on the host and moved once. Two floors stand beside each line: a copy
of the data with the result written once, and the same fits on the host's cores where they fit into a few seconds.
Raw figures: benchmarks/raw/fits_gpu.json.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from common import machine, medians, save, table, torch_gpu
from fits import LINES

import stepwell

#: Problems of each line, and seconds aimed at.
COMPILED = {
    "spots": (10_000_000, 0.035),
    "decays": (1_000_000, 0.008),
    "ivim": (1_000_000, 0.008),
    "waveforms": (1_000_000, 0.040),
}
CALLABLES = {"torch": (1_000_000, 0.100), "jax": (1_000_000, 0.050)}
#: Problems made at once; larger lines repeat them, for drawing them takes longer than fitting.
DRAWN = 200_000


def drawn(name: str, problems: int) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, tuple[Any, Any]]:
    """Model, abscissae, data, starts and box of a line, repeated to as many problems."""
    model, x, y, start, box, _ = LINES[name][0](min(problems, DRAWN), np.random.default_rng(3))
    times = -(-problems // len(y))
    y = np.tile(y, (times, 1))[:problems]
    if start.ndim == 2:
        start = np.tile(start, (times, 1))[:problems]
    return model, x, y, start, box


def timed(run: Callable[[], Any], wait: Callable[[], None], repeats: int) -> tuple[list[float], float, Any]:
    """Seconds of each call but the first, those of the first, and what was found."""
    wait()
    begun = time.perf_counter()
    found = run()
    wait()
    first = time.perf_counter() - begun
    seen = []
    for _ in range(repeats):
        begun = time.perf_counter()
        found = run()
        wait()
        seen.append(time.perf_counter() - begun)
    return seen, first, found


def compiled(name: str, share: float, repeats: int) -> dict[str, Any]:
    """A compiled model's fits: one launch."""
    import torch

    problems, goal = COMPILED[name]
    model, x, y, start, box = drawn(name, int(share * problems))
    on = {
        key: torch.as_tensor(np.ascontiguousarray(value), device="cuda")
        for key, value in (("x", x), ("y", y), ("p", start))
    }
    seen, first, found = timed(
        lambda: stepwell.curve_fit(model, on["x"], on["y"], on["p"], bounds=box), torch.cuda.synchronize, repeats
    )
    there = torch.empty_like(on["y"])
    result = torch.empty((len(y), model.n * (model.n + 2) + 10), dtype=torch.float64, device="cuda")
    floor, _, _ = timed(lambda: (there.copy_(on["y"]), result.zero_()), torch.cuda.synchronize, repeats)
    return {
        "line": name, "who": "compiled", "problems": len(y), "points": int(y.shape[1]), "dtype": str(y.dtype),
        "first": first, "seconds": seen, "floor": floor, "goal": goal * share,
        "success": float(found.success.to(torch.float64).mean()),
        "evaluations": float(found.nfev.to(torch.float64).mean()),
    }  # fmt: skip


def by_callable(library: str, share: float, repeats: int) -> dict[str, Any]:
    """Decays by a function of PyTorch, or a jitted one of JAX."""
    problems, goal = CALLABLES[library]
    _, x, y, start, box = drawn("decays", int(share * problems))
    if library == "torch":
        import torch

        def model(t: Any, a: Any, b: Any, k: Any, slow: Any) -> Any:
            return a * torch.exp(-k * t) + b * torch.exp(-slow * t)

        data = [torch.as_tensor(value, device="cuda") for value in (x, y)]
        wait = torch.cuda.synchronize
    else:
        import jax
        import jax.numpy as jnp

        jax.config.update("jax_enable_x64", True)

        @jax.jit
        def model(t: Any, a: Any, b: Any, k: Any, slow: Any) -> Any:
            return a * jnp.exp(-k * t) + b * jnp.exp(-slow * t)

        data = [jax.device_put(value) for value in (x, y)]

        def wait() -> None:
            jnp.zeros(1).block_until_ready()

    seen, first, found = timed(
        lambda: np.asarray(stepwell.curve_fit(model, *data, start, bounds=box).success.sum().item()), wait, repeats
    )
    return {
        "line": "decays", "who": library, "problems": len(y), "points": int(y.shape[1]), "dtype": str(y.dtype),
        "first": first, "seconds": seen, "floor": None, "goal": goal * share, "success": float(found) / len(y),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--lines", nargs="*", default=[*COMPILED, *CALLABLES])
    options = parser.parse_args()
    torch_gpu()
    kept, rows = [], []
    for name in options.lines:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            make = compiled if name in COMPILED else by_callable
            row = make(name, options.share, options.repeats)
        kept.append(row)
        typical = medians({"ours": row["seconds"], "floor": row["floor"] or [np.nan]})
        rows.append([
            row["line"], row["who"], f"{row['problems']:,}", f"{1e3 * typical['ours']:.1f}", f"{1e3 * row['goal']:.0f}",
            f"{1e3 * typical['floor']:.1f}", f"{row['first']:.1f}", f"{row['success']:.4f}",
        ])  # fmt: skip
    save("fits_gpu", "fits", {"lines": kept, "machine": machine()})
    table(["line", "who", "problems", "ms", "goal", "bytes alone, ms", "first call, s", "success"], rows)


if __name__ == "__main__":
    main()
