"""What `stepwell voronoi` and `stepwell stipple` make from a tessellation: drawings, files, statistics, a summary."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

import stepwell
from stepwell.apps.voronoi import HEXAGONAL_BOUND, Tessellation, drawing, files
from stepwell.apps.voronoi.mesh import Mesh, delaunay_mesh, voronoi_cells
from stepwell.apps.voronoi.polygons import Cells
from stepwell.apps.voronoi.quality import MeshQuality, energy_limit, mesh_quality, uniform_energy
from stepwell.apps.voronoi.route import Route, plotting_route
from stepwell.arrays import host_copy
from stepwell.cli.console import make_table
from stepwell.common.files import write_text
from stepwell.common.pyplot import has_matplotlib

#: What a drawing can show.
DRAWINGS = ("stipples", "cells", "mesh", "route")
#: PNG pictures of cells and mesh show a part of the domain with so many sites if there are more: lines need room.
MAX_DRAWN = 40_000
#: The account of a run in its folder, and what else a folder holds beside drawings.
STATISTICS = "statistics.json"
DATA = ("points.csv", "points.npy", "mesh.obj", "mesh.ply", STATISTICS)
#: Kinds of files.
SUFFIXES = (".svg", ".png", ".csv", ".npy", ".obj", ".ply", ".json")


def is_folder(path: Path) -> bool:
    """Return whether a path given with -o means a folder: one that is there, or a name without an ending."""
    return path.is_dir() or not path.suffix


def may_be_in_folder() -> list[str]:
    """Names of all files that a folder may have, whatever was drawn."""
    drawn = [f"{name}.{kind}" for name in (*DRAWINGS, "quality") for kind in ("svg", "png")]
    return [*drawn, *DATA]


def folder_files(drawn: str, order: str) -> list[tuple[str, str]]:
    """Names of the files in a folder, and what those that are drawings show."""
    shown = list(dict.fromkeys([drawn, "cells", "mesh", *(["route"] if order != "given" else [])]))
    pictures = [(f"{name}.svg", name) for name in shown if name != "mesh"]
    pictures += [(f"{name}.png", name) for name in (*shown, "quality") if has_matplotlib()]
    return pictures + [(name, "") for name in DATA]


@dataclass
class Products:
    """Everything that is made from a tessellation, each made when first asked for.

    Attributes
    ----------
    tessellation : Tessellation
    density, darkness : arrays, (rows, columns)
        What the sites were spread by, and how much of each pixel stipples are to cover.
    drawn : str
        What SVG and PNG files show: an element of DRAWINGS.
    size, pixels : float, int
        Millimetres of SVG, pixels of PNG.
    settings : dict
        What the run was asked for.
    order : str
        How the sites are ordered for a pen.
    look : dict
        Further arguments of stipples: even, scale, marks, ink, background, and colours (rows, columns, 3).
    seconds : dict
        What took how long.
    """

    tessellation: Tessellation
    density: np.ndarray
    darkness: np.ndarray
    drawn: str
    size: float
    pixels: int
    settings: dict[str, Any]
    order: str = "given"
    look: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @cached_property
    def extent(self) -> tuple[float, float]:
        """Width and height of the domain."""
        rows, columns = self.density.shape
        return columns / max(rows, columns), rows / max(rows, columns)

    @cached_property
    def route(self) -> Route:
        """The plotting order."""
        began = time.perf_counter()
        route = plotting_route(host_copy(self.tessellation.sites), self.extent, method=self.order)
        self.seconds["route"] = time.perf_counter() - began
        return route

    @cached_property
    def sites(self) -> np.ndarray:
        """The sites in plotting order."""
        return np.take(host_copy(self.tessellation.sites), self.route.order, axis=0)

    @cached_property
    def owners(self) -> np.ndarray:
        """The owner of each pixel, by its number in plotting order."""
        place = np.empty(len(self.route.order), np.intp)
        place[self.route.order] = np.arange(len(place))
        owners: np.ndarray = place[host_copy(self.tessellation.owners)]
        return owners

    @cached_property
    def mass(self) -> np.ndarray:
        """The mass of each cell, in plotting order."""
        return np.take(host_copy(self.tessellation.mass), self.route.order)

    @cached_property
    def cells(self) -> Cells:
        """The cells as polygons."""
        return voronoi_cells(self.sites, self.extent)

    @cached_property
    def mesh(self) -> Mesh:
        """The dual mesh, where there is density."""
        return delaunay_mesh(self.sites, self.extent, density=self.density)

    @cached_property
    def quality(self) -> MeshQuality:
        """Measures of the mesh."""
        return mesh_quality(self.mesh)

    @cached_property
    def radii(self) -> np.ndarray:
        """Radii of the stipples."""
        even = bool(self.look.get("even", False))
        radii = drawing.dot_radii(self.darkness, self.owners, len(self.sites), even=even)
        return radii * float(self.look.get("scale", 1.0))

    @cached_property
    def colours(self) -> np.ndarray | None:
        """Colours of the stipples, if they have any of their own."""
        return self._inks(self.darkness)

    @cached_property
    def fills(self) -> np.ndarray | None:
        """Colours of the cells, if they have any of their own."""
        return self._inks(np.ones(self.density.shape))

    def _inks(self, coverage: np.ndarray) -> np.ndarray | None:
        picture = self.look.get("colours")
        if picture is None:
            return None
        paper = 0.0 if self.look.get("background") == "black" else 1.0
        return drawing.cell_inks(picture, coverage, self.owners, len(self.sites), paper=paper)

    def write_all(self, outputs: tuple[Path, ...]) -> list[Path]:
        """Write the files asked for; return what was written."""
        _ = self.quality  # and with it the mesh and the route: their time is not that of a file
        began = time.perf_counter()
        wanted: list[tuple[Path, str]] = []
        for path in outputs:
            if is_folder(path):
                path.mkdir(parents=True, exist_ok=True)
                wanted += [(path / name, drawn) for name, drawn in folder_files(self.drawn, self.order)]
            else:
                wanted.append((path, self.drawn))
        # Statistics come last: they hold the time that the other files took.
        for path, drawn in sorted(wanted, key=lambda pair: pair[0].suffix.lower() == ".json"):
            self.seconds["files"] = time.perf_counter() - began
            self._write(path, drawn)
        return [path for path, _ in wanted]

    def _write(self, path: Path, drawn: str) -> None:
        kind = path.suffix.lower()
        if kind == ".svg":
            write_text(path, self._svg(drawn))
        elif kind == ".png":
            self._png(path, drawn)
        elif kind == ".csv":
            files.write_points_csv(path, self.sites, radius=self.radii, mass=self.mass)
        elif kind == ".npy":
            files.write_points_npy(path, self.sites)
        elif kind == ".obj":
            files.write_obj(path, self.mesh, self.extent[1])
        elif kind == ".ply":
            files.write_ply(path, self.mesh, self.extent[1], radius=self.radii)
        else:
            files.write_json(path, self.record())

    def _svg(self, drawn: str) -> str:
        ink, paper = self.look.get("ink", "black"), self.look.get("background", "white")
        size = self.size
        if drawn == "cells":
            return drawing.cells_svg(self.cells, self.extent, size=size, ink=ink, fills=self.fills, background=paper)
        if drawn == "mesh":
            return drawing.mesh_svg(self.mesh, self.extent, size=size, ink=ink, background=paper)
        if drawn == "route":
            return drawing.route_svg(self.sites, self.extent, size=size, ink=ink, background=paper)
        return drawing.stipples_svg(
            self.sites,
            self.radii,
            self.extent,
            size=size,
            marks=self.look.get("marks", "dots"),
            colours=self.colours,
            ink=ink,
            background=paper,
            keep_order=self.order != "given",
        )

    def _png(self, path: Path, drawn: str) -> None:
        from stepwell.apps.voronoi import plots as pictures

        ink, paper = self.look.get("ink", "black"), self.look.get("background", "white")
        part = pictures.Window.around_most(self.sites, self.extent, MAX_DRAWN)
        if drawn == "quality":
            pictures.quality_png(self.mesh, path, history=self._energies_over_limit())
        elif drawn == "cells":
            pictures.cells_png(self.cells, path, self.extent, mesh=self.mesh, fills=self.fills, pixels=self.pixels,
                               window=part)  # fmt: skip
        elif drawn == "mesh":
            pictures.mesh_png(self.mesh, path, self.extent, pixels=self.pixels, window=part)
        elif drawn == "route":
            pictures.route_png(self.sites, path, self.extent, pixels=self.pixels, ink=ink, background=paper)
        else:
            pictures.stipples_png(self.sites, self.radii, path, self.extent, pixels=self.pixels, colours=self.colours,
                                  ink=ink, background=paper)  # fmt: skip

    def _energies_over_limit(self) -> np.ndarray:
        """The energy at each evaluation over that which the best tessellation by many sites approaches."""
        run, limit = self.tessellation, energy_limit(self.density, len(self.sites))
        # A sum over pixels lacks what the integral has within them, the same amount at every evaluation.
        within = run.normalized_energy / HEXAGONAL_BOUND * limit - run.energy
        over: np.ndarray = (np.asarray(run.history) + within) / limit
        return over

    def record(self) -> dict[str, Any]:
        """Return the statistics of the run as JSON holds them."""
        run, n = self.tessellation, len(self.sites)
        uniform = bool(np.ptp(self.density) == 0)
        result: dict[str, Any] = {
            "energy": run.energy,
            "normalized_energy": run.normalized_energy,
            "energy_over_limit": run.normalized_energy / HEXAGONAL_BOUND,
        }
        if uniform:
            result["exact_normalized_energy"] = uniform_energy(self.sites, self.extent, cells=self.cells)
        result |= {
            "iterations": run.iterations,
            "evaluations": run.evaluations,
            "status": int(run.status),
            "message": run.message,
            "success": bool(run.success),
            "empty_cells": len(run.empty),
            "sites_sharing_a_pixel": len(run.shared),
            "misassigned": run.misassigned,
            "displacement": run.displacement,
            "projected_gradient": run.projected_gradient,
        }
        route = {name: value for name, value in vars(self.route).items() if name != "order"}
        return {
            "stepwell": stepwell.__version__,
            "sites": n,
            "resolution": list(self.density.shape[::-1]),
            "extent": list(self.extent),
            "settings": self.settings,
            "result": result,
            "quality": self.quality.as_dict(),
            "route": route if self.order != "given" else None,
            "seconds": run.seconds | self.seconds,
            "history": run.history,
        }

    def summary(self) -> Table:
        """Return what a person wants to know."""
        run, quality, record = self.tessellation, self.quality, self.record()
        result = record["result"]
        table = make_table("", "", header=False)
        table.columns[0].style = "bold"
        table.columns[0].no_wrap = True
        rows, columns = self.density.shape
        table.add_row("sites", f"{len(self.sites):,} on {columns} x {rows} pixels")
        table.add_row("ended", f"{run.message}: {run.iterations} iterations, {run.evaluations} evaluations")
        limit = "hexagonal bound" if "exact_normalized_energy" in result else "limit for many sites"
        table.add_row("energy", f"{run.energy:.6g}, {result['energy_over_limit']:.4f} times the {limit}")
        trouble = [
            f"{count} {what}"
            for count, what in ((len(run.empty), "empty cells"), (len(run.shared), "sites share a pixel"))
            if count
        ]
        if trouble:
            table.add_row("note", ", ".join(trouble) + "; a higher --resolution tells them apart")
        if quality.triangles:
            table.add_row("mesh", f"{quality.triangles:,} triangles, smallest angle {quality.angle_min:.1f}°, "
                          f"{quality.angle_mean:.1f}° on average, {100 * quality.angles_below_30:.2g} % of angles "
                          "below 30°")  # fmt: skip
            regular = f"; {100 * quality.regular:.1f} % of interior sites have six neighbours"
            table.add_row("", f"Q {quality.q_min:.3f}, {quality.q_mean:.4f} on average"
                          + (regular if quality.interior else ""))  # fmt: skip
        if self.order != "given":
            route = self.route
            scale = self.size / max(self.extent) / 1000
            table.add_row("route", f"{route.length * scale:.4g} m of pen travel, {route.method}; "
                          f"{route.hilbert_length * scale:.4g} m along a Hilbert curve, "
                          f"{route.unordered_length * scale:.4g} m unordered")  # fmt: skip
        seconds = record["seconds"]
        parts = ", ".join(f"{name} {seconds[name]:.3g} s" for name in ("route", "files") if seconds.get(name, 0) > 0.05)
        table.add_row("time", f"{seconds['total']:.3g} s" + (f", {parts}" if parts else ""))
        return table
