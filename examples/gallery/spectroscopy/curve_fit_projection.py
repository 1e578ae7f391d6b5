"""
Variable projection: amplitudes need no start
=============================================

Most models are sums of shapes times amplitudes. For given shapes the best amplitudes are a small linear problem, within
their bounds. ``linear=`` solves it inside every step: what is left to search are the parameters of the shapes. Those
have fewer dimensions, no narrow valleys, and amplitudes nobody has to guess.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np

import stepwell


def lifetimes(t: np.ndarray, a: float, b: float, c: float, k: float, m: float) -> np.ndarray:
    """Return two decays on a constant."""
    return a * np.exp(-k * t) + b * np.exp(-m * t) + c


t = np.linspace(0, 10, 100)
rng = np.random.default_rng(0)
pixels = 400
truth = np.column_stack(
    [
        rng.uniform(50, 900, (pixels, 2)),
        np.full(pixels, 5.0),
        rng.uniform(0.2, 0.4, pixels),
        rng.uniform(1.5, 3, pixels),
    ]
)
data = lifetimes(t, *(truth[:, j : j + 1] for j in range(5))) + 2 * rng.normal(size=(pixels, 100))

# %%
# The same start for all. Amplitudes of 1 are far off for the one call; for the other they do not count.
start, bounds = [1, 1, 0, 0.1, 5], ([0, 0, 0, 0.01, 0.01], [1e4, 1e4, 100, 20, 20])
whole = stepwell.curve_fit(lifetimes, t, data, start, bounds=bounds)
inner = stepwell.curve_fit(lifetimes, t, data, start, bounds=bounds, linear=["a", "b", "c"])
least = np.minimum(whole.cost, inner.cost)
for name, r in (("all parameters", whole), ("variable projection", inner)):
    reached = (r.cost <= least * (1 + 1e-6)).mean()
    print(f"{name:20s} {r.nfev.mean():5.1f} evaluations; {100 * reached:5.1f} % at the least cost found")
assert inner.nfev.mean() < 0.8 * whole.nfev.mean()

# %%
# The answers are judged as those of any other fit: promise, rank and standard errors are of all five parameters.
rates = np.sort(inner.x[:, 3:], axis=1)
error, stated = np.abs(rates[:, 0] - truth[:, 3]), inner.stderr[:, 3:].min(axis=1)
print(f"slow rate: median error {np.median(error):.4f}, median standard error {np.median(stated):.4f}")
print(f"largest promise {inner.promise.max():.1e}; {inner.message}")
assert inner.success.all()

# %%
figure, axes = plt.subplots(1, 2, figsize=(11, 3.6), layout="constrained")
axes[0].semilogy(t, data[0], ".", color="0.6")
axes[0].semilogy(t, lifetimes(t, *inner.x[0]), "C0")
axes[0].set(xlabel="ns", title="one pixel")
bins = np.arange(0, 80, 2)
axes[1].hist(whole.nfev, bins, alpha=0.7, label="all parameters")
axes[1].hist(inner.nfev, bins, alpha=0.7, label="variable projection")
axes[1].set(xlabel="evaluations of a fit")
axes[1].legend(frameon=False)
plt.show()
