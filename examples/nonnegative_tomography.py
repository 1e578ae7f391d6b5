"""Reconstruct slices from few projections, without and with x >= 0.

Run: python examples/nonnegative_tomography.py [picture.png]
"""

from __future__ import annotations

import sys

import numpy as np

import stepwell
from stepwell.apps import tomography

# A scan with few angles and much noise: 64 x 64 pixels, 20 angles, 3 %. Every slice is a column of B.
A = tomography.parallel_beam(64, angles=np.arange(0, 180, 9.0))
slices = tomography.shepp_logan_3d(64)[24:32]
B = tomography.add_noise(A @ slices.reshape(len(slices), -1).T, 0.03)
noise = 0.03 * np.sqrt(np.mean(B**2, axis=0))

# Attenuation is never negative. The bound is one argument; λ comes from the noise in both cases.
plain = stepwell.tikhonov(A, B, "discrepancy", noise=noise, joint=True, tol=1e-4)
bounded = stepwell.tikhonov(A, B, "discrepancy", noise=noise, joint=True, tol=1e-4, bounds=(0, None))
for name, result in (("any sign", plain), ("x >= 0", bounded)):
    images = np.asarray(result.x).T.reshape(slices.shape)
    print(f"{name}: lam {result.lam[0]:.3f}, least pixel {images.min():+.3f}, signal to noise "
          f"{tomography.signal_to_noise(images, slices):.2f} dB; {result.message}")  # fmt: skip
assert bounded.success
assert bounded.x.min() == 0

if len(sys.argv) > 1:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.3), layout="constrained")
    pictures = {
        "truth": slices[4],
        "any sign": np.asarray(plain.x)[:, 4].reshape(64, 64),
        "x ≥ 0": np.asarray(bounded.x)[:, 4].reshape(64, 64),
    }
    for axes, (title, image) in zip(figure.subplots(1, 3), pictures.items()):
        shown = axes.imshow(image, vmin=-0.2, vmax=0.6, cmap="gray")
        axes.set_title(title)
        axes.set_axis_off()
    figure.colorbar(shown, ax=figure.axes, shrink=0.85)
    figure.savefig(sys.argv[1], dpi=130)
