"""
Fitting 10,000 spectra at once
==============================

Every pixel of a spectroscopic image has two peaks whose position, width and height are wanted: six parameters and
bounds, ten thousand times. ``stepwell.minimize_batch`` runs all fits together; each has its own history, line search
and status, and its result is the one it would have alone.
"""

# %%
import time

import matplotlib.pyplot as plt
import numpy as np

import stepwell

rng = np.random.default_rng(0)
count = 10_000
channel = np.linspace(-1, 1, 64)


# %%
# The model: two Gaussian peaks, each with centre, width and height; its derivatives come with it.
def peaks(parameters):
    """Return the spectra, (count, channels), and the derivatives, six of the same shape."""
    spectra, slopes = 0.0, []
    for first in (0, 3):
        centre, spread, height = (parameters[:, k, None] for k in range(first, first + 3))
        offset = (channel - centre) / spread
        shape = np.exp(-0.5 * offset * offset)
        spectra = spectra + height * shape
        slopes += [height * shape * offset / spread, height * shape * offset * offset / spread, shape]
    return spectra, slopes


truth = np.column_stack(
    [
        rng.uniform(low, high, count)
        for low, high in ((-0.6, -0.2), (0.06, 0.15), (0.5, 2.0), (0.2, 0.6), (0.06, 0.15), (0.5, 2.0))
    ]
)
measured = peaks(truth)[0] + 0.05 * rng.normal(size=(count, channel.size))


# %%
# The objective takes all problems at once, a row each.
def misfit(parameters):
    """Half the squared misfit of each spectrum, and its gradient."""
    spectra, slopes = peaks(parameters)
    residual = spectra - measured
    gradient = np.stack([np.einsum("ij,ij->i", residual, slope) for slope in slopes], axis=1)
    return 0.5 * np.einsum("ij,ij->i", residual, residual), gradient


lower = np.array([-1.0, 0.03, 0.0, 0.0, 0.03, 0.0])
upper = np.array([0.0, 0.40, 5.0, 1.0, 0.40, 5.0])
start = np.tile([-0.4, 0.1, 1.0, 0.4, 0.1, 1.0], (count, 1))
begin = time.perf_counter()
result = stepwell.minimize_batch(misfit, start, jac=True, bounds=(lower, upper))
seconds = time.perf_counter() - begin
print(f"{result.success.sum()} of {count} converged in {seconds:.1f} s; {result.nit.mean():.0f} iterations each")
error = np.abs(result.x - truth)
print("median error of centre, width, height:", np.round(np.median(error[:, :3], axis=0), 4))
assert result.success.mean() > 0.99

# %%
figure, axes = plt.subplots(1, 3, figsize=(12, 3.2), layout="constrained")
for axis, pixel in zip(axes, (0, 1)):
    axis.plot(channel, measured[pixel], ".", color="0.6")
    axis.plot(channel, peaks(result.x[pixel : pixel + 1])[0][0], "C3")
    axis.set(title=f"pixel {pixel}", xlabel="channel")
axes[2].plot(truth[:, 0], result.x[:, 0], ",", color="C0")
axes[2].set(title="centre of the first peak", xlabel="true", ylabel="fitted", xlim=(-0.65, -0.15), ylim=(-0.65, -0.15))
plt.show()
