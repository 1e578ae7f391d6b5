"""
Unmixing whose spectra are learnt: NNLS as a layer
==================================================

Pixels of a hyperspectral image are mixtures of a few materials, with amounts that cannot be negative. If the spectra
are known, ``stepwell.nnls`` finds the amounts. If they are not, the amounts are a *function* of the spectra, and the
misfit that is left can be differentiated through the solver. NNLS is a layer, and the spectra are its parameters. This
is a bilevel problem: the inner solutions are exact at every step.
"""

# %%
# PyTorch is optional; without it the example ends here.
import sys

try:
    import torch
except ImportError:
    print("this example needs PyTorch: pip install torch")
    sys.exit(0)

import matplotlib.pyplot as plt
import numpy as np

import stepwell
import stepwell.torch

rng = np.random.default_rng(7)
side, bands, materials = 40, 60, 3

# %%
# Three materials, smooth in space and with a peak or two in their spectra; noise of a fiftieth of the signal.
band = np.linspace(0, 1, bands)[:, None]
centres, widths = np.array([0.2, 0.45, 0.75]), np.array([0.08, 0.15, 0.1])
side_peaks = 0.4 * np.exp(-0.5 * ((band - centres[[2, 0, 1]]) / 0.06) ** 2)
spectra = np.exp(-0.5 * ((band - centres) / widths) ** 2) + side_peaks
y, x = np.mgrid[:side, :side] / side
amounts = np.stack(
    [np.maximum(0, np.sin(3 * x + 2)), np.maximum(0, 1 - 2 * np.hypot(x - 0.6, y - 0.4)), y**2 * (x < 0.7)], -1
)
pixels = amounts.reshape(-1, materials) @ spectra.T
pixels = torch.tensor(pixels + 0.02 * rng.normal(size=pixels.shape))


# %%
# The layer: amounts by NNLS, one matrix for all pixels, then what is left. A small weight on the roughness of the
# spectra stands for what is known of them.
class Unmixing(torch.nn.Module):
    """Spectra that are parameters, amounts that follow from them."""

    def __init__(self, start):
        super().__init__()
        self.spectra = torch.nn.Parameter(start.clone())

    def forward(self, pixels):
        """Return the amounts, and the pixels as they make them."""
        amounts = stepwell.nnls(self.spectra, pixels).x
        return amounts, amounts @ self.spectra.T


# The start: three pixels of the image that differ most from each other, as every such method begins.
chosen = [int(pixels.norm(dim=1).argmax())]
for _ in range(materials - 1):
    left = stepwell.nnls(pixels[chosen].T.contiguous(), pixels).residual
    chosen.append(int(left.argmax()))
layer = Unmixing(pixels[chosen].T.clamp(min=0.0))
start = layer.spectra.detach().clone()

# %%
# Spectra are not negative either, and at most as large as those of the brightest pixel: bounds of the optimizer.
optimizer = stepwell.torch.LBFGSB(layer.parameters(), bounds=(0.0, float(pixels.max())), max_iter=30)
curve = []


def closure():
    """Misfit and its gradient, through the solutions of all pixels."""
    optimizer.zero_grad()
    _, made = layer(pixels)
    loss = ((made - pixels) ** 2).mean() + 1e-4 * layer.spectra.diff(dim=0).square().mean()
    loss.backward()
    curve.append(float(loss.detach()))
    return loss


optimizer.step(closure)


def angles(found):
    """Angle between each true spectrum and the nearest found, in degrees."""
    unit, own = found / found.norm(dim=0), torch.tensor(spectra / np.linalg.norm(spectra, axis=0))
    return torch.rad2deg(torch.arccos((own.T @ unit).clamp(max=1.0))).min(1)


first, last = angles(start), angles(layer.spectra.detach())
print("angles to the true spectra:", *(f"{a:.1f}° -> {b:.1f}°" for a, b in zip(first.values, last.values)))
print(f"misfit {curve[0]:.2e} -> {min(curve):.2e} in {len(curve)} evaluations of {len(pixels)} pixels")

# %%
# Above the spectra, below the amounts, in the order of the truth. Scales are not known: each is shown on its own.
with torch.no_grad():
    found, _ = layer(pixels)
figure, axes = plt.subplots(2, 4, figsize=(12, 6), layout="constrained")
for k in range(materials):
    match = int(last.indices[k])
    own, learnt = spectra[:, k] / spectra[:, k].max(), layer.spectra.detach()[:, match]
    begun = start[:, int(first.indices[k])]
    axes[0, k].plot(band, own, "k", lw=1, label="truth")
    axes[0, k].plot(band, begun / begun.max(), color="0.7", lw=1, label="start")
    axes[0, k].plot(band, learnt / learnt.max(), label="learnt")
    axes[0, k].set(title=f"material {k + 1}", xlabel="band", yticks=[])
    axes[1, k].imshow(found[:, match].reshape(side, side), cmap="viridis")
    axes[1, k].set(xticks=[], yticks=[], title="amount found")
axes[0, 0].legend(fontsize=8)
axes[0, 3].semilogy(np.minimum.accumulate(curve))
axes[0, 3].set(title="misfit while learning", xlabel="evaluation")
axes[1, 3].imshow(amounts.max(-1), cmap="gray")
axes[1, 3].set(xticks=[], yticks=[], title="largest true amount")
plt.show()
