"""
T2 mapping: one matrix, very many right-hand sides
==================================================

A multi-echo MRI sequence measures, in every voxel, a sum of decays exp(-t/T2). Water trapped between layers of myelin
decays within 40 ms, other water slower. The distribution of T2 in a voxel is the non-negative solution of a
least-squares problem. The matrix of decays is the same for all voxels, and there are hundreds of thousands of them. The
columns are nearly parallel, so a little damping keeps the distribution from breaking up into spikes.
"""

# %%
import time

import matplotlib.pyplot as plt
import numpy as np

import stepwell

echo_times = 7e-3 * np.arange(1, 57)  # seconds
t2 = np.logspace(np.log10(10e-3), np.log10(2.0), 40)
A = np.exp(-echo_times[:, None] / t2[None])

# %%
# A synthetic slice: a disc of tissue whose myelin water fraction rises from the rim to a ring and falls to the centre.
side = 96
y, x = np.mgrid[-1 : 1 : side * 1j, -1 : 1 : side * 1j]
radius = np.hypot(x, y)
tissue = radius < 0.95
fraction = np.where(tissue, 0.05 + 0.2 * np.exp(-0.5 * ((radius - 0.6) / 0.12) ** 2), 0.0)


def bump(centre: float, width: float) -> np.ndarray:
    """Return a log-normal distribution over the T2 grid."""
    shape = np.exp(-0.5 * ((np.log(t2) - np.log(centre)) / width) ** 2)
    return shape / shape.sum()


myelin, other = bump(20e-3, 0.15), bump(90e-3, 0.15)
density = fraction[..., None] * myelin + (tissue - fraction)[..., None] * other
rng = np.random.default_rng(0)
signal = density.reshape(-1, 40) @ A.T + 2e-3 * rng.normal(size=(side * side, 56))

# %%
# All voxels in one call. The result holds a certificate for each: the largest violation of the optimality conditions.
inside = tissue.ravel()
start = time.perf_counter()
result = stepwell.nnls(A, signal[inside], lam=0.01)
seconds = time.perf_counter() - start
print(f"{inside.sum()} voxels in {seconds:.2f} s; {result.message}")
print(f"largest violation {result.violation.max():.1e}; {result.choice}")

# %%
# The myelin water fraction is the share of the distribution below 40 ms.
found = np.zeros(side * side)
found[inside] = result.x[:, t2 < 40e-3].sum(axis=1) / result.x.sum(axis=1)
error = found.reshape(side, side)[tissue] - fraction[tissue]
print(f"myelin water fraction: mean error {error.mean():+.4f}, standard deviation {error.std():.4f}")
assert np.all(result.status == stepwell.NNLSStatus.CONVERGED)
assert abs(error.mean()) < 0.02

# %%
figure, (truth_axes, found_axes, voxel_axes) = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
truth_axes.imshow(fraction, vmin=0, vmax=0.3, cmap="magma")
truth_axes.set_title("myelin water fraction: truth")
picture = found_axes.imshow(found.reshape(side, side), vmin=0, vmax=0.3, cmap="magma")
found_axes.set_title("recovered")
figure.colorbar(picture, ax=[truth_axes, found_axes], shrink=0.85)
voxel = int(np.argmax(fraction.ravel()[inside]))
voxel_axes.semilogx(t2 * 1e3, density.reshape(-1, 40)[inside][voxel], "k--", label="truth")
voxel_axes.semilogx(t2 * 1e3, result.x[voxel], "C3.-", label="recovered")
voxel_axes.set(xlabel="T2 (ms)", title="one voxel")
voxel_axes.legend(frameon=False)
for axes in (truth_axes, found_axes):
    axes.set_axis_off()
plt.show()
