"""Centroidal Voronoi tessellations of a density image, by L-BFGS-B or by Lloyd's iteration.

The domain is an image of (height, width) pixels whose longer side has length 1: a pixel is ``1 / max(height, width)``
wide, pixel (row, column) has its centre at ``((column + 0.5), (row + 0.5)) * pixel``, and y grows downwards. Sites are
(n, 2) arrays of x and y.
"""

from __future__ import annotations

from stepwell.apps.voronoi.assignment import Assignment, assign
from stepwell.apps.voronoi.centroidal import centroidal
from stepwell.apps.voronoi.energy import HEXAGONAL_BOUND, VoronoiEnergy, cvt_energy
from stepwell.apps.voronoi.mesh import Mesh, delaunay_mesh, voronoi_cells
from stepwell.apps.voronoi.polygons import Cells
from stepwell.apps.voronoi.quality import MeshQuality, mesh_quality
from stepwell.apps.voronoi.route import Route, plotting_route
from stepwell.apps.voronoi.starts import draw_sites
from stepwell.apps.voronoi.tessellation import Intermediate, Tessellation

__all__ = [
    "HEXAGONAL_BOUND",
    "Assignment",
    "Cells",
    "Intermediate",
    "Mesh",
    "MeshQuality",
    "Route",
    "Tessellation",
    "VoronoiEnergy",
    "assign",
    "centroidal",
    "cvt_energy",
    "delaunay_mesh",
    "draw_sites",
    "mesh_quality",
    "plotting_route",
    "voronoi_cells",
]
