"""What a study leaves behind: JSON with everything, CSV and Markdown of its tables, PNG of its plots."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stepwell.common.files import read_text, replacing, write_text
from stepwell.common.pyplot import has_matplotlib, save_figure
from stepwell.lab.studies.frame import Column, Curve, Plot, Study, Table

#: Bytes that the JSON of a study may have.
LARGEST = 2**28
_COLOURS = ("#1f5a96", "#c8571b", "#2f7d4f", "#8a4fa3", "#b08900", "#3f8f96", "#6b7280", "#a83250")


def study_record(study: Study) -> dict[str, Any]:
    """Return a study as plain data that JSON can hold; numbers that it cannot write become None."""
    record: dict[str, Any] = _plain(dataclasses.asdict(study))
    return record


def read_study(path: str | Path) -> Study:
    """Read a study back from its JSON file."""
    record = json.loads(read_text(path, LARGEST))
    record["tables"] = [
        Table(**{**table, "columns": tuple(Column(**column) for column in table["columns"])})
        for table in record["tables"]
    ]
    record["plots"] = [
        Plot(**{**plot, "curves": [Curve(**curve) for curve in plot["curves"]]}) for plot in record["plots"]
    ]
    return Study(**record)


def write_study(study: Study, folder: str | Path) -> list[Path]:
    """Write JSON, Markdown, one CSV a table and, where matplotlib is installed, one PNG a plot; return the paths.

    Files are named by study and kind of device, so that runs on the CPU and on a GPU lie side by side.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{study.name}-{study.device.split(':')[0]}"
    written = [folder / f"{stem}.json", folder / f"{stem}.md"]
    write_text(written[0], _compact(json.dumps(study_record(study), indent=1, ensure_ascii=False)) + "\n")
    write_text(written[1], markdown(study))
    for table in study.tables:
        written.append(folder / f"{stem}-{table.name}.csv")
        with replacing(written[-1], newline="", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow([column.key for column in table.columns])
            rows.writerows([[row[column.key] for column in table.columns] for row in table.rows])
    if has_matplotlib():
        for plot in (plot for plot in study.plots if plot.curves):
            written.append(folder / f"{stem}-{plot.name}.png")
            draw(plot, written[-1])
    return written


def markdown(study: Study) -> str:
    """Return the whole study as Markdown, without the columns that are empty throughout."""
    about = ", ".join(f"{key} {value}" for key, value in study.machine.items() if not isinstance(value, dict))
    parts = [f"## {study.title} (`stepwell study {study.name}`)", f"Repeats {study.paper}."]
    parts += [f"Device {study.device}, size {study.size}, {study.seconds:.0f} s. {about}."]
    if study.settings:
        parts.append(f"Settings: {_settings(study)}.")
    for table in study.tables:
        if table.detail or not table.rows:
            continue
        parts.append(f"**{escaped(table.title)}**")
        parts.append(markdown_table([column.heading for column in table.filled], table.texts()))
    parts += _listed("Remarks", study.remarks) + _listed("What differs from the paper, and why", study.differs)
    return "\n\n".join(parts) + "\n"


def _settings(study: Study) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in study.settings.items())


def where(study: Study) -> str:
    """Machine, versions, size and settings in one paragraph."""
    m = study.machine
    library = m.get("arrays")
    used = (
        f"{library}, {m.get('cuda')}" if library else f"PyTorch {m.get('torch')}, CUDA {m.get('cuda')}"
    )  # older files
    hardware = f"{m['gpu']} ({used}) and " if "gpu" in m else ""
    load = m.get("load average at start")
    busy = f", load average {load:.1f}: taken on a busy machine, times are rough" if load and load > m["cores"] else ""
    versions = f"Python {m['python']}, NumPy {m['numpy']}, SciPy {m['scipy']}, Stepwell {m['stepwell']}"
    arrays = f", {library}" if library and not hardware else ""
    settings = _settings(study)
    return (
        f"{m['date']}, {hardware}{m['cores']} cores of {m['cpu']} ({m['instructions']}){busy}; {versions}{arrays}. "
        f"Size {study.size}, {study.seconds:.0f} s." + (f" {settings}." if settings else "")
    )


def _listed(title: str, lines: Sequence[str]) -> list[str]:
    return [f"{title}:\n\n" + "\n".join(f"- {escaped(line)}" for line in lines)] if lines else []


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table.

    Examples
    --------
    >>> print(markdown_table(["n", "ms"], [["10", "0.5"]]))
    | n | ms |
    |---|---|
    | 10 | 0.5 |
    """
    lines = ["| " + " | ".join(map(escaped, head)) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(map(escaped, row)) + " |" for row in rows])


def escaped(text: str) -> str:
    """Return text that Markdown shows as it is, also in a table.

    Examples
    --------
    >>> escaped("|t^c − t*|")
    '\\\\|t^c − t\\\\*\\\\|'
    """
    return re.sub(r"([|*])", r"\\\1", text)


def draw(plot: Plot, path: str | Path) -> None:
    """Draw one plot; published points are hollow and dashed."""
    # The figure is made without pyplot: no window, no global state.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 6.6) if plot.drawing else (8, 4.8), layout="constrained")
    axes = figure.subplots()
    if plot.drawing:
        _draw_to_scale(axes, plot)
    elif plot.bars is not None:
        _draw_bars(axes, plot, plot.bars)
    else:
        for number, curve in enumerate(plot.curves):
            hidden = any(_covers(later, curve) for later in plot.curves[number + 1 :])
            _draw_curve(axes, curve, _COLOURS[number % len(_COLOURS)], plot.log_y, hidden)
        if plot.log_x:
            axes.set_xscale("log")
    if plot.log_y and any(y and y > 0 for curve in plot.curves for y in curve.y):
        axes.set_yscale("log")
    axes.set_xlabel(plot.x_label)
    axes.set_ylabel(plot.y_label)
    axes.set_title(plot.title, loc="left", fontsize=11, fontweight="bold")
    axes.grid(True, color="#d7dbe0", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        beside = dict(loc="upper left", bbox_to_anchor=(1.0, 1.0)) if plot.bars is not None else {}
        axes.legend(frameon=False, fontsize=8.5, **beside)
    save_figure(figure, path, dpi=130)


def _draw_to_scale(axes: Any, plot: Plot) -> None:
    for number, curve in enumerate(plot.curves):
        # matplotlib parts a line where a coordinate is not a number.
        x, y = ([math.nan if value is None else value for value in values] for values in (curve.x, curve.y))
        axes.plot(x, y, color=_COLOURS[number % len(_COLOURS)], linewidth=0.8)
    axes.set_aspect("equal")
    axes.set_axis_off()


def _covers(later: Curve, curve: Curve) -> bool:
    """Whether a curve would not be seen below a later one: equal to a few per cent wherever both are."""
    above = dict(zip(later.x, later.y))
    pairs = [(y, above[x]) for x, y in zip(curve.x, curve.y) if y and above.get(x)]
    return len(pairs) > 1 and all(math.isclose(one, other or 0.0, rel_tol=0.03) for one, other in pairs)


def _draw_curve(axes: Any, curve: Curve, colour: str, positive: bool, hidden: bool) -> None:
    points = [(x, y) for x, y in zip(curve.x, curve.y) if y is not None and math.isfinite(y)]
    label = curve.label
    if positive and points:
        # A logarithmic axis has no place for zeros; a curve of nothing else is drawn where it can be.
        above = [(x, y) for x, y in points if y > 0]
        points, label = (above, label) if above else (points, f"{label} (zero throughout)")
    if not points:
        return
    x, y = zip(*points)
    style: dict[str, Any] = dict(linewidth=1.5, marker="o", markersize=4 if len(x) <= 60 else 2)
    if curve.paper:
        style |= dict(linestyle=(0, (4, 3)), markerfacecolor="none")
    if hidden:  # a pale band shows on both sides of the curve above it
        style |= dict(linewidth=6, alpha=0.4, marker="")
    axes.plot(x, y, color=colour, label=label, **style)


def _draw_bars(axes: Any, plot: Plot, categories: Sequence[str]) -> None:
    width = 0.8 / max(1, len(plot.curves))
    for number, curve in enumerate(plot.curves):
        at = [place + (number - (len(plot.curves) - 1) / 2) * width for place in range(len(categories))]
        heights = [0.0 if y is None else y for y in curve.y]
        colour = _COLOURS[number % len(_COLOURS)]
        fill = dict(color="none", edgecolor=colour, hatch="//") if curve.paper else dict(color=colour)
        axes.bar(at, heights, width, label=curve.label, **fill)
    axes.set_xticks(
        range(len(categories)),
        categories,
        rotation=20 if max(map(len, categories)) > 10 else 0,
        ha="right" if max(map(len, categories)) > 10 else "center",
    )


def _compact(text: str) -> str:
    """Put lists of numbers, which json.dumps spreads over lines, on one line each."""
    return re.sub(
        r"\[\s*((?:-?[\d.eE+-]+|null)(?:,\s*(?:-?[\d.eE+-]+|null))*)\s*\]",
        lambda found: "[" + re.sub(r"\s+", " ", found[1]) + "]",
        text,
    )


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "item") and not isinstance(value, str):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
