"""Run the studies and write docs/studies.md from what they found.

    python benchmarks/studies.py                          # all studies at default size, then the page
    python benchmarks/studies.py --full --study torsion   # some of them, at the papers' sizes
    python benchmarks/studies.py --device cuda --full     # with a GPU's rows beside the CPU's
    python benchmarks/studies.py --page                   # the page alone

JSON goes to benchmarks/raw/studies, one file for each study and kind of device, what the page shows of it to
benchmarks/summaries/studies; CSV and pictures to --files.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from summarize import RAW, SUMMARIES, update

from stepwell.lab import studies
from stepwell.lab.studies.frame import RUN_SECONDS
from stepwell.lab.studies.pages import escaped, markdown_table, read_study, study_record, where, write_study

ROOT = Path(__file__).resolve().parents[1]
KEPT = SUMMARIES / "studies"
PAGE = ROOT / "docs" / "studies.md"
COUNTS_ONLY = ["nnls-updates"]
#: Has a page of its own, and takes too long to be run with the others.
OWN_PAGE = ["cutest"]
MARK = "<!-- below: written by benchmarks/studies.py -->"


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


def _differences(kept: list[studies.Study]) -> list[str]:
    """Lines that all kept results share, and those that one has for itself."""
    lines = []
    for study in kept:
        device = "GPU" if study.device != "cpu" else "CPU"
        for line in study.differs:
            alone = len(kept) > 1 and any(line not in other.differs for other in kept)
            text = f"- {f'On the {device}: ' if alone else ''}{escaped(line)}"
            if text not in lines:
                lines.append(text)
    return lines


def page() -> None:
    """Put the tables of all kept results under the mark."""
    on_gpu = [name for name in studies.STUDIES if (KEPT / f"{name}-cuda.json").exists()]
    missing = [name for name in studies.STUDIES if name not in [*on_gpu, *COUNTS_ONLY, *OWN_PAGE]]
    parts = [
        f"Kept from a GPU: {', '.join(on_gpu) or 'none'}" + (f"; not yet: {', '.join(missing)}." if missing else ".")
    ]
    parts.append(f"{' and '.join(f'`{name}`' for name in COUNTS_ONLY)} counts operations, the same on every device.")
    for name, (title, paper) in studies.STUDIES.items():
        if name in OWN_PAGE:
            continue
        found = [path for path in (KEPT / f"{name}-cuda.json", KEPT / f"{name}-cpu.json") if path.exists()]
        if not found:
            continue
        parts += [f"## {title}", f"`stepwell study {name}` repeats {paper}."]
        kept = [read_study(path) for path in found]
        for study in kept:
            parts.append(f"### {name} on the {'GPU' if study.device != 'cpu' else 'CPU'}")
            parts.append(where(study))
            for table in study.tables:
                if table.rows and not table.detail:
                    parts.append(f"{escaped(table.title)}:")
                    parts.append(markdown_table([column.heading for column in table.filled], table.texts()))
            parts += map(escaped, study.remarks)
        parts.append("What differs from the paper, and why:\n\n" + "\n".join(_differences(kept)))
    head = PAGE.read_text().split(MARK)[0]
    PAGE.write_text(head + MARK + "\n\n" + "\n\n".join(parts) + "\n")
    print(f"wrote {PAGE}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", choices=studies.STUDIES, action="append", help="this study only (repeatable)")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--full", dest="size", action="store_const", const="full", default="default")
    parser.add_argument("--toy", dest="size", action="store_const", const="toy")
    parser.add_argument("--run-seconds", type=float, default=0.0, help="stop a run after this; 0: as the size has it")
    parser.add_argument("--files", type=Path, help="folder for CSV, Markdown and pictures")
    parser.add_argument("--page", action="store_true", help="only write the page")
    options = parser.parse_args()
    if not options.page:
        elsewhere = OWN_PAGE if options.device == "cpu" else [*OWN_PAGE, *COUNTS_ONLY]
        usual = [name for name in studies.STUDIES if name not in elsewhere]
        run(options.study or usual, options.device, options.size, options.run_seconds, options.files)
    page()


if __name__ == "__main__":
    main()
