"""Make the small summaries in benchmarks/summaries, which the repository keeps, from raw results, which it does not.

    python benchmarks/summarize.py                   # of every file in benchmarks/raw
    python benchmarks/summarize.py nnls voronoi_gpu  # of these benchmarks alone

Benchmarks write all that they measured to benchmarks/raw, which git ignores. README, pictures and pages take their
figures from the summaries. In a summary five or more numbers in a row are their median, least and largest, floats have
five digits, and a study has the tables and pictures that the documentation shows. What nobody reads is not kept. Parts
of a benchmark that were not measured again stay as they are.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RAW, SUMMARIES = HERE / "raw", HERE / "summaries"
#: Numbers in a row that stay as they are: shapes, pairs of a median and a spread.
SHORT = 4
DIGITS = 5
#: A row of a table, with its names, on one line.
ROW = 600
#: Study -> its plots that docs/pictures.py draws.
DRAWN = {"torsion": ("iteration",), "cutest": ("evaluations-1e-08", "ends")}
#: Study -> its tables that no page, picture or headline shows.
UNSHOWN = {
    "cauchy": ("energies",),
    "rosenbrock": ("shares", "functions"),
    "nnls": ("baselines",),
    "cutest": ("unsolved",),
}
#: Beside which single runs say nothing more: means, and what choices lost.
IN_PLACE_OF_RUNS = {"seconds", "losses"}
#: Points of a curve beyond so many show nothing in a picture of 900 pixels.
POINTS = 300


def is_number(value: Any) -> bool:
    """Whether it can be averaged: bools cannot."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def rounded(value: float) -> float:
    """Five digits: the least of them is far below what a second run of the benchmark changes."""
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else value


def summary(value: Any) -> Any:
    """Reduce what a benchmark wrote; a summary is its own summary."""
    if isinstance(value, dict):
        left_out = "runs" if IN_PLACE_OF_RUNS & value.keys() else None
        return {key: summary(item) for key, item in value.items() if key != left_out}
    if isinstance(value, list):
        if len(value) > SHORT and all(map(is_number, value)):
            spread = {"median": statistics.median(value), "least": min(value), "largest": max(value)}
            return {"count": len(value), **summary(spread)}
        return [summary(item) for item in value]
    return rounded(value) if isinstance(value, float) else value


def study_summary(record: dict[str, Any]) -> dict[str, Any]:
    """Keep of a study's record the tables that its page shows, digit by digit, and the plots that are drawn from it."""
    if "tables" not in record:  # runs that are listed by hand
        return summary(record)
    drawn = DRAWN.get(record["name"], ())
    plots = [plot for plot in record["plots"] if plot["name"] in drawn]
    for curve in (curve for plot in plots for curve in plot["curves"]):
        every = -(-len(curve["x"]) // POINTS)
        for axis in "xy":
            curve[axis] = [rounded(v) if isinstance(v, float) else v for v in curve[axis][::every]]
    unshown = UNSHOWN.get(record["name"], ())
    tables = [table for table in record["tables"] if not table["detail"] and table["name"] not in unshown]
    return record | {"tables": tables, "plots": plots}


def text_of(value: Any, depth: int = 0) -> str:
    """JSON with a line for whatever fits in one: rows of tables are read and compared line by line."""
    line = json.dumps(value, ensure_ascii=False)
    if (depth and len(line) + depth <= ROW) or not isinstance(value, dict | list) or not value:
        return line
    pad = " " * (depth + 1)
    if isinstance(value, dict):
        items = [f"{json.dumps(key, ensure_ascii=False)}: {text_of(item, depth + 1)}" for key, item in value.items()]
        return "{\n" + ",\n".join(pad + item for item in items) + "\n" + pad[1:] + "}"
    return "[\n" + ",\n".join(pad + text_of(item, depth + 1) for item in value) + "\n" + pad[1:] + "]"


def update(raw: Path) -> Path:
    """Write the summary of one file of raw results; parts that it does not have stay."""
    path = SUMMARIES / raw.relative_to(RAW)
    found = json.loads(raw.read_text())
    if raw.parent == RAW:
        kept = json.loads(path.read_text()) if path.exists() else {}
        found = kept | summary(found)
    else:
        found = study_summary(found)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text_of(found) + "\n")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="benchmarks or studies/NAME; all by default")
    options = parser.parse_args()
    files = [RAW / f"{name}.json" for name in options.names] or sorted(RAW.rglob("*.json"))
    if not files:
        parser.error(f"{RAW} has no results: run a benchmark first")
    for raw in files:
        path = update(raw)
        print(f"{path.relative_to(HERE)}: {path.stat().st_size / 1024:.1f} KiB of {raw.stat().st_size / 1024:.1f}")


if __name__ == "__main__":
    main()
