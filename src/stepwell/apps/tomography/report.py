"""What `stepwell reconstruct` says and writes of a volume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from stepwell.apps.files.hdf5 import require_h5py, write_hdf5
from stepwell.apps.files.packages import load_package
from stepwell.apps.files.tiff import write_pages
from stepwell.apps.tomography.ranks import World, write_stack
from stepwell.cli.console import make_table
from stepwell.common.array_files import map_array_file
from stepwell.common.files import replacing
from stepwell.common.temporary import scratch_folder
from stepwell.krylov import LinearResult
from stepwell.krylov.results import ends_in_words

#: Formats of a volume.
FORMATS = ("npy", "tif", "h5")


def require_format(kind: str) -> None:
    """Raise, with the command that installs it, where the package that writes a format is missing."""
    if kind == "tif":
        load_package("tifffile", "tiff", "a TIFF stack")
    elif kind == "h5":
        require_h5py()


def write_volume(
    output: Path, kind: str, count: int, world: World, piece: np.ndarray, about: dict[str, Any]
) -> tuple[np.ndarray, Path]:
    """Write the slices of all ranks as one file; return the volume, mapped where it came over ranks, and the file."""
    path = output / f"volume.{kind}"
    if kind == "npy":
        with replacing(path) as file:
            write_stack(file, count, world.pieces(piece))
        return (map_array_file(path) if world.spread else piece), path
    with scratch_folder(output) as scratch:
        volume = piece
        if world.spread:
            stacked = Path(scratch) / "volume.npy"
            with replacing(stacked) as file:
                write_stack(file, count, world.pieces(piece))
            volume = np.array(map_array_file(stacked))
    if kind == "tif":
        write_pages(path, volume)
    else:
        write_hdf5(path, "volume", volume, count, about)
    return volume, path


def record(result: LinearResult, quality: list[float]) -> dict[str, Any]:
    """Return the account of a result, for JSON."""
    return {
        "method": result.method,
        "success": result.success,
        "message": result.message,
        "status": [status.name for status in result.status],
        "lam": result.lam,
        "residual": result.residual,
        "iterations": result.iterations,
        "products": result.products,
        "calls": result.calls,
        "signal_to_noise": quality or None,
    }


def summary(result: LinearResult) -> Table:
    """Return what the solver did as a table."""
    table = make_table("", "", header=False)
    table.add_row("method", result.method)
    table.add_row("", result.choice)
    if result.lam is not None:
        table.add_row("lam", ", ".join(f"{value:.4g}" for value in np.unique(result.lam)[:6]))
    ends = ends_in_words(result.lam_at_end)
    if ends:
        table.add_row("", f"{ends}; give --lam a number, or --relative-noise its level")
    converged = sum(status.name == "CONVERGED" for status in result.status)
    table.add_row("converged", f"{converged} of {len(result.status)} slices")
    table.add_row("worst true residual", f"{np.nanmax(result.residual, initial=0.0):.2e}")
    per_slice = result.products.sum() / max(1, len(result.status))
    table.add_row("products", f"{result.products.sum():.0f} ({per_slice:.1f} per slice), {result.calls} operator calls")
    table.add_row("seconds", f"{result.seconds:.2f}")
    return table
