"""Curve fits of many problems on a CUDA device: compiled models, and callables of PyTorch and JAX.

    python benchmarks/fits_gpu.py [--share 1.0] [--repeats 5]

Data, starts and bounds are those of fits.py, made on the host and moved once. Floors stand beside each line: a copy of
the data with the result written once; the model with its derivatives evaluated as often as the fits did on average and
nothing else, by the same code or library; and of compiled models as many fits of which all threads of a warp have the
same, so that none waits for another. Raw figures: benchmarks/raw/fits_gpu.json.
"""

from __future__ import annotations

import argparse
import pathlib
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from common import machine, medians, save, table, torch_gpu
from fits import LINES

import stepwell
from stepwell.arrays import wait_for_values
from stepwell.arrays.forward_mode import programs_for
from stepwell.fit.functions import Curve

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
    alone = evaluations_alone(model, on, found, repeats)
    times = -(-len(y) // 32)
    same = {key: on[key][:times].repeat_interleave(32, 0)[: len(y)] for key in ("y", "p") if on[key].ndim > 1}
    in_step, _, _ = timed(
        lambda: stepwell.curve_fit(model, on["x"], same["y"], same.get("p", on["p"]), bounds=box),
        torch.cuda.synchronize, repeats,
    )  # fmt: skip
    there = torch.empty_like(on["y"])
    result = torch.empty((len(y), model.n * (model.n + 2) + 10), dtype=torch.float64, device="cuda")
    floor, _, _ = timed(lambda: (there.copy_(on["y"]), result.zero_()), torch.cuda.synchronize, repeats)
    return {
        "line": name, "who": "compiled", "problems": len(y), "points": int(y.shape[1]), "dtype": str(y.dtype),
        "first": first, "seconds": seen, "floor": floor, "alone": alone, "in_step": in_step, "goal": goal * share,
        "success": float(found.success.to(torch.float64).mean()),
        "evaluations": float(found.nfev.to(torch.float64).mean()),
    }  # fmt: skip


def evaluations_alone(model: Any, on: dict[str, Any], found: Any, repeats: int) -> list[float]:
    """Seconds of as many evaluations as the fits took on average."""
    import torch

    from stepwell.cuda import runtime
    from stepwell.fit.models import cuda
    from stepwell.fit.models.job import across_of

    problems, points = (int(side) for side in on["y"].shape)
    single, mean = on["y"].dtype == torch.float32, float(found.nfev.to(torch.float64).mean())
    x = np.atleast_2d(on["x"].cpu().numpy())
    defines = cuda.kernel_defines(model, single, points, across=across_of(model, x))
    source = pathlib.Path(__file__).with_name("fit_evaluations.cu")
    kernel = runtime.load_kernel("fit_model", "fit_evaluations", defines, 0, source)
    shared = cuda.staged_bytes(single, points, False) * cuda.THREADS // 32
    kernel.allow_shared_memory(shared, 0)
    held = runtime.Device(0).attribute("MULTIPROCESSOR_COUNT") * kernel.resident_blocks(cuda.THREADS, shared)
    sums, times = torch.empty(problems, dtype=torch.float64, device="cuda"), round(mean)
    pointers = [one.data_ptr() for one in (on["x"].to(on["y"].dtype).contiguous(), on["y"], found.x)]
    stream = torch.cuda.current_stream().cuda_stream
    seen, _, _ = timed(
        lambda: runtime.launch(
            kernel, held, cuda.THREADS, stream, *pointers, problems, points, times, sums.data_ptr(), shared_bytes=shared
        ),
        torch.cuda.synchronize, repeats,
    )  # fmt: skip
    return [one * mean / times for one in seen]


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

    def fit() -> tuple[Any, Any]:
        found = stepwell.curve_fit(model, *data, start, bounds=box)
        return found, found.success.sum().item()

    seen, first, (found, successes) = timed(fit, wait, repeats)
    mean = float(np.asarray(found.nfev.tolist() if library == "torch" else found.nfev).mean())
    curve = Curve(model, data[0], False)
    both, rows = programs_for(curve, found.x, int(y.shape[1])).both, None
    alone, _, _ = timed(lambda: wait_for_values(both(data[0], found.x, rows)[1]), wait, repeats)
    return {
        "line": "decays", "who": library, "problems": len(y), "points": int(y.shape[1]), "dtype": str(y.dtype),
        "first": first, "seconds": seen, "floor": None, "alone": [one * mean for one in alone], "in_step": None,
        "goal": goal * share, "success": successes / len(y), "evaluations": mean,
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
        typical = medians({key: row[key] or [np.nan] for key in ("seconds", "floor", "alone", "in_step")})
        rows.append([
            row["line"], row["who"], f"{row['problems']:,}", f"{1e3 * typical['seconds']:.1f}",
            f"{1e3 * row['goal']:.0f}", *(f"{1e3 * typical[key]:.1f}" for key in ("floor", "alone", "in_step")),
            f"{row['evaluations']:.2f}", f"{row['first']:.1f}", f"{row['success']:.4f}",
        ])  # fmt: skip
    save("fits_gpu", "fits", {"lines": kept, "machine": machine()})
    head = ["line", "who", "problems", "ms", "goal", "bytes alone, ms", "evaluations alone, ms", "fits in step, ms"]
    table([*head, "evaluations", "first call, s", "success"], rows)


if __name__ == "__main__":
    main()
