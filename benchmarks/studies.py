"""Run the studies and write the tables of docs/studies/ from what they found.

    python benchmarks/studies.py                          # all studies at default size, then the pages
    python benchmarks/studies.py --full --study torsion   # some of them, at the papers' sizes
    python benchmarks/studies.py --device cuda --full     # with a GPU's rows beside the CPU's
    python benchmarks/studies.py --pages                  # the pages alone
    python benchmarks/studies.py --check                  # say which page differs from its results, and change nothing

JSON goes to benchmarks/raw/studies, one file for each study and kind of device, what pages show of it to
benchmarks/summaries/studies; CSV and pictures to --files.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from summarize import RAW, SUMMARIES, update

from stepwell.lab import studies
from stepwell.lab.studies.frame import RUN_SECONDS
from stepwell.lab.studies.pages import markdown_table, read_study, study_record, where, write_study

ROOT = Path(__file__).resolve().parents[1]
KEPT = SUMMARIES / "studies"
PAGES = ROOT / "docs" / "studies"
COUNTS_ONLY = ["nnls-updates"]
#: Has a page of its own, and takes too long to be run with the others.
OWN_PAGE = ["cutest"]
_MARKED = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
DEFAULTS = ("Stepwell CPU, default", "Stepwell GPU, default", "SciPy nnls, loop", "Stepwell CPU, default, Convolution")


class Shown(NamedTuple):
    """A part of a study's table that a page shows: the file, the table, its columns, and the rows by their values."""

    file: str
    table: str
    columns: str
    rows: dict[str, tuple[Any, ...]]


#: Name of a table on a page -> what it shows. The columns of the paper have ``_paper`` after their name.
SHOWN = {
    "cauchy": Shown(
        "cauchy-cuda",
        "differences",
        "problem n iterations same same_paper beyond_40 beyond_40_paper",
        {"n": (40_000, 400, 4_000, 120_000)},
    ),
    "voronoi": Shown(
        "voronoi-cuda",
        "tessellations",
        "sites resolution iterations iterations_paper evaluation_ms evaluation_paper solver_ms solver_paper over_bound",
        {"device": ("GPU",), "sites": (200, 2_000, 10_000, 20_000, 60_000)},
    ),
    "torsion": Shown(
        "torsion-cuda",
        "torsion",
        "size iterations iterations_paper solver_ms solver_ms_paper energy_difference energy_difference_paper",
        {"device": ("GPU",), "policy": ("first-interval",), "size": (400, 10_000, 160_000, 1_000_000, 4_000_000)},
    ),
    "panels": Shown(
        "panels-cuda",
        "panels",
        "length ours_us vendor_us ratio ratio_paper difference",
        {"device": ("GPU",), "length": (10, 100, 1_000, 10_000, 100_000, 1_000_000)},
    ),
    "driver": Shown("rosenbrock-cuda", "driver", "iteration nfn nfn_paper f f_paper gnorm gnorm_paper", {}),
    "speed": Shown(
        "rosenbrock-cuda", "speed", "n dtype iterations seconds speedup speedup_paper", {"device": ("GPU",)}
    ),
    "systems": Shown(
        "nnls-cuda",
        "systems",
        "set systems method seconds seconds_paper violation",
        {
            "systems": (24, 192),
            "method": tuple(f"Stepwell {device}, paper's (qr, single)" for device in ("CPU", "GPU")),
        },
    ),
    "defaults": Shown(
        "nnls-cuda", "systems", "set systems method seconds violation", {"systems": (192, 150), "method": DEFAULTS}
    ),
    "updates": Shown(
        "nnls-updates-cpu", "costs", "update l accesses_paper accesses flops_paper flops ratio", {"l": (50,)}
    ),
    "slices": Shown(
        "projected-cg-cpu",
        "summary",
        "slice cg_products aprcg_products ratio seconds_ratio ratio_paper cg_quality aprcg_quality quality_paper",
        {"tol": (0.0025,)},
    ),
    "tolerances": Shown(
        "projected-cg-cpu", "summary", "tol cg_products aprcg_products block_products ratio", {"slice": (65,)}
    ),
    "levels": Shown(
        "blas-levels-cuda", "kernels", "device dtype kernel level gflops below", {"n": (737,), "dtype": ("float64",)}
    ),
}


def run(names: list[str], device: str, size: str, run_seconds: float, files: Path | None) -> None:
    (RAW / "studies").mkdir(parents=True, exist_ok=True)
    for name in names:
        began = time.perf_counter()
        asked = {"run_seconds": run_seconds} if RUN_SECONDS in studies.settings_of(name) else {}
        study = studies.run(
            name, device=device, size=size, settings=asked, tell=lambda text: print(f"  {text}", file=sys.stderr)
        )
        path = RAW / "studies" / f"{name}-{device.split(':')[0]}.json"
        path.write_text(json.dumps(study_record(study), ensure_ascii=False, separators=(",", ":")) + "\n")
        update(path)
        if files is not None:
            write_study(study, files)
        print(f"{name}: {time.perf_counter() - began:.0f} s, {path.stat().st_size // 1024} KiB", flush=True)


def table_text(name: str) -> str:
    """Return a table of a page, and below it where and when it was measured."""
    shown = SHOWN[name]
    study = read_study(KEPT / f"{shown.file}.json")
    found = study.find_table(shown.table)
    columns = [next(one for one in found.columns if one.key == key) for key in shown.columns.split()]
    rows = [row for row in found.rows if all(row[key] in values for key, values in shown.rows.items())]
    if not rows:
        raise ValueError(f"{shown.file} has no row for the table {name}")
    cells = [[column.show(row[column.key]) for column in columns] for row in rows]
    return f"{markdown_table([column.heading for column in columns], cells)}\n\n{where(study)}\n"


def pages() -> dict[Path, str]:
    """Return the pages of docs/studies with their tables filled in."""
    made = {}
    for path in sorted(PAGES.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        made[path] = _MARKED.sub(lambda found: found[1] + table_text(found[2]) + found[3], text)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", choices=studies.STUDIES, action="append", help="this study only (repeatable)")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--full", dest="size", action="store_const", const="full", default="default")
    parser.add_argument("--toy", dest="size", action="store_const", const="toy")
    parser.add_argument("--run-seconds", type=float, default=0.0, help="stop a run after this; 0: as the size has it")
    parser.add_argument("--files", type=Path, help="folder for CSV, Markdown and pictures")
    parser.add_argument("--pages", action="store_true", help="only write the pages")
    parser.add_argument("--check", action="store_true", help="run and change nothing; end with 1 where a page differs")
    options = parser.parse_args()
    if not options.pages and not options.check:
        elsewhere = OWN_PAGE if options.device == "cpu" else [*OWN_PAGE, *COUNTS_ONLY]
        usual = [name for name in studies.STUDIES if name not in elsewhere]
        run(options.study or usual, options.device, options.size, options.run_seconds, options.files)
    other = {path: text for path, text in pages().items() if path.read_text(encoding="utf-8") != text}
    for path, text in other.items():
        print(f"{path.relative_to(ROOT)} {'differs from its results' if options.check else 'written'}")
        if not options.check:
            path.write_text(text, encoding="utf-8")
    raise SystemExit(1 if options.check and other else 0)


if __name__ == "__main__":
    main()
