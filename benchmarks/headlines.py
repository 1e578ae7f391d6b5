"""Choose the figures that README, documentation and paper show, and write them into these pages.

    python benchmarks/headlines.py            # benchmarks/summaries/headlines.json, and the tables made from it
    python benchmarks/headlines.py --check    # say which page differs from its figures, and change nothing

Every row is one machine and one run, taken from the summary of a benchmark. A row whose summary is missing is left out.
Tables stand between `<!-- figures: NAME -->` and `<!-- end -->`; docs/pictures.py draws its charts from the same file.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from summarize import rounded, text_of

ROOT = Path(__file__).resolve().parents[1]
SUMMARIES = ROOT / "benchmarks" / "summaries"
FILE = SUMMARIES / "headlines.json"
#: Pages with tables of figures.
PAGES = ("README.md", "docs/performance.md", "docs/index.md", "docs/gpu.md", "docs/curve-fitting.md", "paper/paper.md")
_MARKED = re.compile(r"(<!-- figures: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def kept(name: str) -> Any:
    """Read the summary of a benchmark."""
    return json.loads((SUMMARIES / f"{name}.json").read_text(encoding="utf-8"))


def median(value: Any) -> float:
    """Return the median of a few numbers, or of a summary of many."""
    return float(value["median"] if isinstance(value, dict) else statistics.median(value))


def named(rows: list[dict[str, Any]], key: str, value: Any) -> dict[str, Any]:
    """Return the row in which a column has a value."""
    return next(row for row in rows if row[key] == value)


def machine_of(held: dict[str, Any]) -> str:
    """Name the machine of a run for a reader."""
    if held.get("gpu"):
        return str(held["gpu"]).removeprefix("NVIDIA ")
    cores = held.get("cores") or held["threads"]
    arm = "NEON" in (held.get("instructions"), held.get("instruction_set"))
    busy = ", busy" if held.get("load average at start", 0) > 2 * cores else ""
    return f"{cores} cores, {'ARM Neoverse N1' if arm else 'Xeon, AVX-512'}{busy}"


def versions_of(held: dict[str, Any]) -> dict[str, str]:
    """Return the versions that a run noted, and its day."""
    names = ("stepwell", "python", "numpy", "scipy", "torch", "arrays", "cuda", "date", "when")
    return {name: str(held[name]) for name in names if name in held}


def entry(
    key: str, work: str, held: dict[str, Any], seconds: float, peers: dict[str, float], command: str
) -> dict[str, Any]:
    """Make one row; the first peer is the one that is compared with."""
    return {
        "key": key,
        "work": work,
        "machine": machine_of(held),
        "seconds": rounded(seconds),
        "peers": {name: rounded(value) for name, value in peers.items()},
        "ratio": rounded(next(iter(peers.values())) / seconds),
        "command": command,
        "versions": versions_of(held),
    }


def iterations() -> Iterator[dict[str, Any]]:
    """L-BFGS-B iterations on two cores, by size."""
    part = kept("quasi_newton_cpu")["iteration"]
    for size, figures in part["figures"].items():
        lines = {name: median(value) for name, value in figures["seconds per iteration"].items()}
        scipy = min(lines["scipy, one BLAS thread"], lines["scipy, default"])
        work = f"one L-BFGS-B iteration, {int(size):,} bounded variables"
        peers = {"SciPy L-BFGS-B": scipy}
        command = "python benchmarks/quasi_newton.py --part iteration"
        yield entry(f"iteration-{size}", work, part["machine"], lines["all threads"], peers, command)


def batch() -> Iterator[dict[str, Any]]:
    """Many small bounded problems on two cores."""
    part = kept("batch_cpu")["all"]
    runs = part["figures"]["maxcor 10, all threads"]["runs"]
    seconds = {who: median([run[0] for run in found]) for who, found in runs.items()}
    work = "10,000 bounded minimisations of 20 variables, solver time"
    peers = {"a loop over SciPy L-BFGS-B": seconds["SciPy"]}
    yield entry("batch", work, part["machine"], seconds["stepwell"], peers, "python benchmarks/batch_cpu.py")


def shots() -> Iterator[dict[str, Any]]:
    """Non-negative least squares on two cores."""
    part = kept("nnls")
    works = {
        "real GEDI shots 512, dense": ("lidar", "150 measured lidar waveforms, NNLS of 512 × 512 each", ""),
        "T2 decays 56 x 40, one A": ("decays", "100,000 MRI decays, NNLS of 56 × 40 each", " (500 of them, scaled)"),
    }
    for name, (key, work, remark) in works.items():
        row = named(part["batches"], "name", name)
        peers = {f"a loop over `scipy.optimize.nnls`{remark}": row["seconds_scipy"]}
        yield entry(key, work, part["about"], row["seconds"], peers, "python benchmarks/nnls.py")


def slices() -> Iterator[dict[str, Any]]:
    """Many right-hand sides on two cores."""
    part = kept("many_rhs")["phantom"]
    rows = part["figures"]["rows"]
    peers = {"SciPy `cg`, slice by slice": named(rows, "run", "SciPy cg, 1 thread")["median"]}
    work = "102 tomographic slices of 16,384 unknowns, Tikhonov"
    seconds = named(rows, "run", "block, default")["median"]
    yield entry("slices", work, part["machine"], seconds, peers, "python benchmarks/many_rhs.py")


def cells() -> Iterator[dict[str, Any]]:
    """Voronoi energies on two cores."""
    part = kept("voronoi")
    row = named(part["evaluations"], "sites", 20_000)
    work = "energy and gradient of 20,000 Voronoi cells, 2048² pixels"
    peers = {"`cKDTree.query` of the pixels alone": 1e-3 * row["k-d tree ms"]}
    yield entry("cells", work, part["about"], 1e-3 * row["evaluation ms"], peers, "python benchmarks/voronoi.py")


def fits() -> Iterator[dict[str, Any]]:
    """Curve fits by compiled models; `benchmarks/fits.py` names its lines."""
    part = kept("fits")
    for name in FITTED:
        found = part[name]["figures"]
        lines, cpu = found["medians"], found["clock"] == "CPU"
        peers = {"a loop over `scipy.optimize.curve_fit` (a few of them, scaled)": lines["SciPy"]}
        work = f"{found['problems']:,} curve fits within bounds, {name}" + (", seconds of CPU" if cpu else "")
        command = "python benchmarks/fits.py" + (" --cpu" if cpu else "")
        yield entry(f"fits-{name}", work, part[name]["machine"], lines["compiled"], peers, command)


#: Lines of `benchmarks/fits.py`, as a page tells them.
FITTED = {
    "decays": "two exponentials",
    "ivim": "IVIM, many ends at a bound",
    "spots": "a spot, 5 × 5 pixels, float32",
    "waveforms": "three Gaussians, float32",
}


def gains() -> list[list[str]]:
    """Return what callables and compiled models gain over SciPy, apart: rows of a table."""
    part, rows = kept("fits"), []
    for name, told in FITTED.items():
        found = part[name]["figures"]
        lines = {who: seconds / found["problems"] for who, seconds in found["medians"].items()}
        size = f"{found['points']} × {found['parameters']}"
        row = [told, size, time_text(lines["SciPy"])]
        for who in ("callable", "jax", "compiled"):
            gain = f"{time_text(lines[who])}, {times_text(lines['SciPy'] / lines[who])}" if who in lines else "–"
            row.append(gain)
        rows.append(row)
    one = part["one"]["figures"]
    least, size = one["least"], f"{one['points']} × {one['parameters']}"
    gain = f"{time_text(least['callable'])}, {times_text(least['SciPy'] / least['callable'])}"
    rows.append(["one single fit, two exponentials", size, time_text(least["SciPy"]), gain, "–", "–"])
    return rows


def variation() -> Iterator[dict[str, Any]]:
    """Total variation on two cores; `benchmarks/tv.py` names its works, and its last row has the machine."""
    *rows, about = kept("tv")["seconds"]["figures"]
    for number, row in enumerate(rows):
        peers = {row["peer"]: row["peer_seconds"]}
        yield entry(f"tv-{number}", row["work"], about["machine"], row["seconds"], peers, "python benchmarks/tv.py")


def gpu_batch() -> Iterator[dict[str, Any]]:
    """Many bounded problems on one GPU."""
    part = kept("quasi_newton_gpu")["batch"]
    figures = part["figures"]
    peers = {
        "optimistix under `vmap`, without bounds": figures["optimistix"]["per step and problem"],
        "a loop over SciPy on the host": figures["scipy"]["per iteration and problem"],
    }
    work = "4,096 bounded problems of 256 variables, per iteration and problem"
    seconds = figures["stepwell, torch operations"]["per iteration and problem"]
    command = "python benchmarks/quasi_newton_gpu.py --part batch"
    yield entry("gpu-batch", work, part["machine"], seconds, peers, command)


def gpu_shots() -> Iterator[dict[str, Any]]:
    """Non-negative least squares on one GPU."""
    part = kept("nnls_gpu")
    row = named(part["batches"], "name", "real GEDI shots 512, dense")
    peers = {"Stepwell on the machine's 16 cores": row["cpu_seconds"]}
    work = "150 measured lidar waveforms, NNLS of 512 × 512 each"
    yield entry("gpu-lidar", work, part["about"], row["seconds"], peers, "python benchmarks/nnls_gpu.py")


def gpu_optimizer() -> Iterator[dict[str, Any]]:
    """PyTorch's optimizer and Stepwell's on one GPU."""
    part = kept("optimizer_gpu")
    figures = part["figures"]
    peers = {"`torch.optim.LBFGS`": 1e-3 * figures["torch"]["ms a step"]}
    work = "one step of a PyTorch optimizer as a CUDA graph, 1,000,000 variables, objective included"
    seconds = 1e-3 * figures["captured"]["ms a step"]
    yield entry("gpu-optimizer", work, part, seconds, peers, "python benchmarks/derivatives_peers.py")


def gpu_sizes() -> dict[str, Any]:
    """Curves of the time per iteration on one GPU; the other solvers were timed in a run of their own."""
    held = kept("quasi_newton_gpu")
    found, peers = held["torsion"]["figures"], held["peers"]["figures"]
    own = {"10000": "10,000 in a graph"} | {f"{n}": f"{n:,} float64" for n in (1_000_000, 4_000_000, 40_000_000)}
    return {
        "machine": machine_of(held["torsion"]["machine"]),
        "versions": versions_of(held["torsion"]["machine"]),
        "versions of the peers": versions_of(held["peers"]["machine"]),
        "command": "python benchmarks/quasi_newton_gpu.py",
        "Stepwell, bounds": {n: found[name]["median"] for n, name in own.items()},
        "torch.optim.LBFGS, no bounds": {
            f"{n}": peers[f"torch.optim.LBFGS {n:,}"]["solver"] for n in (10_000, 1_000_000, 4_000_000)
        },
        "SciPy L-BFGS-B, bounds, 16 cores of its host": {f"{n}": peers[f"SciPy {n:,}"] for n in (10_000, 1_000_000)},
    }


PARTS: tuple[Callable[[], Iterator[dict[str, Any]]], ...] = (
    iterations, batch, shots, slices, fits, variation, cells, gpu_batch, gpu_shots, gpu_optimizer,
)  # fmt: skip
#: What the README shows.
README_ROWS = ("iteration-1000000", "batch", "lidar", "decays", "slices", "gpu-batch", "gpu-lidar", "gpu-optimizer")


def collect() -> dict[str, Any]:
    """Return all figures that pages show."""
    rows = []
    for part in PARTS:
        try:
            rows += list(part())
        except FileNotFoundError:  # not measured: left out
            continue
    return {"rows": rows, "iterations on a GPU": gpu_sizes(), "gains of fits": gains()}


def time_text(seconds: float) -> str:
    """Write a time with the unit that suits it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)):
        if seconds >= size or unit == "ns":
            return f"{seconds / size:.3g} {unit}"
    raise AssertionError


def sizes_table(held: dict[str, Any]) -> str:
    """Make the Markdown table of milliseconds per iteration on a GPU, by size."""
    curves = {name: curve for name, curve in held.items() if "bounds" in name}
    sizes = sorted({int(n) for curve in curves.values() for n in curve})
    lines = [f"| variables | {' | '.join(curves)} |", "|" + "---|" * (1 + len(curves))]
    for n in sizes:
        cells = [f"{1e3 * curve[str(n)]:.3g}" if str(n) in curve else "–" for curve in curves.values()]
        lines.append(f"| {n:,} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def cutest_table() -> str:
    """Make the Markdown table of how often solvers arrive."""
    (held,) = (part for part in kept("studies/cutest-cpu")["tables"] if part["name"] == "summary")
    lines = [
        "| solver | problems | unsolved at 1e-3 | 1e-5 | 1e-8 | false successes | evaluations over SciPy's |",
        "|---|---|---|---|---|---|---|",
    ]
    names = ("solver", "problems", "unsolved_0", "unsolved_1", "unsolved_2", "false")
    for row in held["rows"]:
        lines.append(f"| {' | '.join(str(row[name]) for name in names)} | {row['ratio']:.3f} |")
    return "\n".join(lines) + "\n"


def nist_table() -> str:
    """Make the Markdown table of NIST's regressions."""
    names = ("solver", "runs", "four digits", "six digits", "claims success elsewhere", "evaluations")
    lines = [f"| {' | '.join(names)} |", "|" + "---|" * len(names)]
    for row in kept("nist")["all"]["figures"]["rows"]:
        lines.append(f"| {' | '.join(f'{row[name]:,}' if name != 'solver' else row[name] for name in names)} |")
    return "\n".join(lines) + "\n"


def times_text(ratio: float) -> str:
    """Write how many times as fast."""
    return f"{ratio:.2g}×" if ratio < 100 else f"{round(ratio, -1):.0f}×"


def table(rows: list[dict[str, Any]]) -> str:
    """Make a Markdown table of rows."""
    lines = ["| work | machine | Stepwell | beside it | ratio |", "|---|---|---|---|---|"]
    for row in rows:
        peers = "; ".join(f"{name} {time_text(value)}" for name, value in row["peers"].items())
        ratio = times_text(row["ratio"])
        lines.append(f"| {row['work']} | {row['machine']} | {time_text(row['seconds'])} | {peers} | {ratio} |")
    return "\n".join(lines) + "\n"


def commands(rows: list[dict[str, Any]]) -> str:
    """Make a Markdown table of the commands that repeat rows, with machine, versions and day."""
    lines = ["| command | machine | versions | day |", "|---|---|---|---|"]
    for row in rows:
        held = dict(row["versions"])
        day = (held.pop("date", None) or held.pop("when", "–")).split()[0]
        spelt = {"stepwell": "Stepwell", "python": "Python", "numpy": "NumPy", "scipy": "SciPy", "torch": "PyTorch"}
        held["torch"] = held.pop("arrays", held.get("torch", "")).removeprefix("torch ")
        told = ", ".join(f"{spelt[name]} {held[name]}" for name in spelt if held.get(name))
        line = f"| `{row['command']}` | {row['machine']} | {told} | {day} |"
        if line not in lines:
            lines.append(line)
    return "\n".join(lines) + "\n"


def tables(figures: dict[str, Any]) -> dict[str, str]:
    """Return the text of every marked table by its name."""
    rows = figures["rows"]
    chosen = [row for key in README_ROWS for row in rows if row["key"] == key]
    for key in ("tv-", "fits-"):
        chosen[5:5] = [row for row in rows if row["key"].startswith(key)][:1]
    cpu = [row for row in rows if not row["key"].startswith("gpu-")]
    gpu = [row for row in rows if row["key"].startswith("gpu-")]
    gained = ["| model | points × parameters | SciPy | NumPy function | `jax.jit` | compiled model |", "|" + 6 * "---|"]
    gained += ["| " + " | ".join(row) + " |" for row in figures["gains of fits"]]
    return {"readme": table(chosen), "cpu": table(cpu), "gpu": table(gpu), "commands": commands(rows)} | {
        "cutest": cutest_table(),
        "nist": nist_table(),
        "fits": "\n".join(gained) + "\n",
        "sizes": sizes_table(figures["iterations on a GPU"]),
    }


def filled(text: str, figures: dict[str, Any]) -> str:
    """Put the tables into a page."""
    made = tables(figures)
    return _MARKED.sub(lambda found: found[1] + made[found[2]] + found[3], text)


def main() -> None:
    """Write the file and the pages, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; end with 1 where something differs")
    options = parser.parse_args()
    figures = collect()
    texts = {FILE: text_of(figures) + "\n"}
    for page in PAGES:
        if (path := ROOT / page).exists():
            texts[path] = filled(path.read_text(encoding="utf-8"), figures)
    other = [path for path, text in texts.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in other:
        print(f"{path.relative_to(ROOT)} {'differs from its figures' if options.check else 'written'}")
        if not options.check:
            path.write_text(texts[path], encoding="utf-8")
    raise SystemExit(1 if options.check and other else 0)


if __name__ == "__main__":
    main()
