"""
Robust fits: data with outliers, and counts
===========================================

Squares trust every point alike: one cosmic ray bends the curve. A robust loss lets residuals beyond `f_scale` count
less. SciPy's losses are here under their names. Counts of photons have a likelihood of their own, ``loss="poisson"``.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np

import stepwell


def peak(t: np.ndarray, a: float, mu: float, s: float, c: float) -> np.ndarray:
    """Return a Gaussian on a constant."""
    return a * np.exp(-0.5 * ((t - mu) / s) ** 2) + c


t = np.linspace(-5, 5, 80)
truth = np.array([3.0, 0.5, 1.1, 1.0])
rng = np.random.default_rng(0)

# %%
# Three hundred spectra; in each, eight points of a hundred are far too high.
spectra = peak(t, *truth) + 0.1 * rng.normal(size=(300, 80))
hit = rng.random(spectra.shape) < 0.08
spectra[hit] += rng.exponential(4, hit.sum())

found = {}
for loss in ("linear", "huber", "soft_l1", "cauchy"):
    r = stepwell.curve_fit(peak, t, spectra, [1, 0, 1, 0], bounds=([0, -5, 0.2, -5], 10), loss=loss, f_scale=0.2)
    found[loss] = r.x
    error = np.sqrt(((r.x - truth) ** 2).mean(axis=0))
    print(
        f"{loss:8s} {100 * r.success.mean():5.1f} % converged; error of a {error[0]:.3f}, of the centre {error[1]:.3f}"
    )
worst, best = (np.abs(found[loss][:, 0] - truth[0]).mean() for loss in ("linear", "cauchy"))
assert best < 0.4 * worst

# %%
# Few counts: squares believe an empty bin to be exact, or, weighted by the data, too much. The likelihood is right, and
# its standard errors need no estimate of the noise.
counts = rng.poisson(peak(t, 6, 0.5, 1.1, 0.5), (2000, 80))
likely = stepwell.curve_fit(peak, t, counts, [4, 0, 1, 1], bounds=([0, -5, 0.2, 1e-3], [50, 5, 5, 50]), loss="poisson")
score = (likely.x[:, 0] - 6) / likely.stderr[:, 0]
weighted = stepwell.curve_fit(
    peak, t, counts, [4, 0, 1, 1], sigma=np.sqrt(np.maximum(counts, 1)), bounds=([0, -5, 0.2, 1e-3], [50, 5, 5, 50])
)
heights = np.median(likely.x[:, 0]), np.median(weighted.x[:, 0])
print(f"height 6, median: likelihood {heights[0]:.2f}, squares over counts {heights[1]:.2f}")
print(f"errors over stated ones: {score.std():.2f}")
assert abs(heights[0] - 6) < 0.15 < 0.5 < abs(heights[1] - 6)

# %%
figure, axes = plt.subplots(1, 2, figsize=(11, 3.6), layout="constrained")
axes[0].plot(t, spectra[3], ".", color="0.6")
for loss, color in (("linear", "C3"), ("cauchy", "C0")):
    axes[0].plot(t, peak(t, *found[loss][3]), color, label=loss)
axes[0].plot(t, peak(t, *truth), "k--", linewidth=1, label="truth")
axes[0].legend(frameon=False)
axes[1].hist(likely.x[:, 0], 60, alpha=0.7, label="likelihood")
axes[1].hist(weighted.x[:, 0], 60, alpha=0.7, label="squares, weighted by counts")
axes[1].axvline(6, color="k", linestyle="--")
axes[1].set(title="height of the peak from counts")
axes[1].legend(frameon=False)
plt.show()
