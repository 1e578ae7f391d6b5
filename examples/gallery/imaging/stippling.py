"""
A picture from dots, and a mesh of good triangles
=================================================

Points that are the centroids of their own Voronoi cells are evenly spread; weighted by the darkness of a picture they
draw it. ``stepwell.apps.voronoi`` finds them by L-BFGS-B and puts them in an order for a pen plotter.
"""

# %%
# A picture that comes with the package; ``read_picture("photo.jpg").resized(512)`` takes one from a file.
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

from stepwell.apps import voronoi
from stepwell.apps.voronoi.drawing import dot_radii, stipples_svg
from stepwell.apps.voronoi.files import write_ply
from stepwell.apps.voronoi.shell import nautilus

folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp())
picture = nautilus(512)
darkness = picture.darkness()

# %%
# Sites become as dense as the square root of the density: 1.5 leaves some of the tones to the sizes of the dots.
found = voronoi.centroidal(3000, darkness**1.5)
extent = (picture.shape[1] / max(picture.shape), picture.shape[0] / max(picture.shape))
radii = dot_radii(darkness, found.owners, len(found.sites))
route = voronoi.plotting_route(found.sites, extent)
svg = stipples_svg(found.sites[route.order], radii[route.order], extent, size=150, keep_order=True)
(folder / "stipples.svg").write_text(svg)
print(f"stipples.svg: {len(radii)} dots, {len(svg) / 1e3:.0f} kB")
print(f"the pen travels {0.15 * route.length:.2f} m, along a Hilbert curve {0.15 * route.hilbert_length:.2f} m")

# %%
figure, axes = plt.subplots(1, 2, figsize=(10, 4.6), layout="constrained")
axes[0].imshow(1 - darkness, cmap="gray", vmin=0, vmax=1, extent=(0, extent[0], extent[1], 0))
points = 72 * axes[1].get_position().width * figure.get_figwidth()  # of the axes' width
axes[1].scatter(*found.sites.T, s=(1.9 * points * radii) ** 2, c="black", lw=0)
axes[1].set(xlim=(0, extent[0]), ylim=(extent[1], 0), aspect="equal")
for axis in axes:
    axis.set_axis_off()
plt.show()

# %%
# Uniform density: hexagons nearly everywhere, and triangles that are nearly equilateral.
even = voronoi.centroidal(1000, resolution=512)
mesh = voronoi.delaunay_mesh(even.sites)
quality = voronoi.mesh_quality(mesh)
write_ply(folder / "mesh.ply", mesh)
print(f"mesh.ply: {quality.triangles} triangles, smallest angle {quality.angle_min:.1f}°, mean Q {quality.q_mean:.3f}")
print(f"energy {even.normalized_energy / voronoi.HEXAGONAL_BOUND:.3f} times that of regular hexagons")

figure, axes = plt.subplots(figsize=(5, 5), layout="constrained")
axes.triplot(*even.sites.T, mesh.triangles, lw=0.6, color="C0")
axes.set_aspect("equal")
axes.set_axis_off()
plt.show()
