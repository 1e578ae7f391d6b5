"""Draw a picture with dots, in an order for a pen plotter, and mesh a square with good triangles.

Run: python examples/stippling.py [DIRECTORY]; files go there, by default to the working directory.
"""

from __future__ import annotations

import sys
from pathlib import Path

from stepwell.apps import voronoi
from stepwell.apps.voronoi.drawing import dot_radii, stipples_svg
from stepwell.apps.voronoi.files import write_ply
from stepwell.apps.voronoi.shell import nautilus

folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")

# A picture that comes with the package; read_picture("photo.jpg").resized(512) takes one from a file.
picture = nautilus(512)
darkness = picture.darkness()

# Sites become as dense as the square root of the density: 1.5 leaves some of the tones to the sizes of the dots.
found = voronoi.centroidal(3000, darkness**1.5)
extent = (picture.shape[1] / max(picture.shape), picture.shape[0] / max(picture.shape))
radii = dot_radii(darkness, found.owners, len(found.sites))
route = voronoi.plotting_route(found.sites, extent)
svg = stipples_svg(found.sites[route.order], radii[route.order], extent, size=150, keep_order=True)
(folder / "stipples.svg").write_text(svg)
print(f"stipples.svg: {len(radii)} dots, {len(svg) / 1e3:.0f} kB")
print(f"the pen travels {0.15 * route.length:.2f} m, along a Hilbert curve {0.15 * route.hilbert_length:.2f} m")

# Uniform density: hexagons nearly everywhere, and triangles that are nearly equilateral.
even = voronoi.centroidal(1000, resolution=512)
mesh = voronoi.delaunay_mesh(even.sites)
quality = voronoi.mesh_quality(mesh)
write_ply(folder / "mesh.ply", mesh)
print(f"mesh.ply: {quality.triangles} triangles, smallest angle {quality.angle_min:.1f}°, mean Q {quality.q_mean:.3f}")
print(f"energy {even.normalized_energy / voronoi.HEXAGONAL_BOUND:.3f} times that of regular hexagons")
