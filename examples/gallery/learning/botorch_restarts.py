"""
BoTorch: many restarts of an acquisition function at once
=========================================================

Bayesian optimisation asks where to measure next: at the maximum of an acquisition function, which has many local
maxima. The usual way is to start from many points. ``stepwell.minimize_batch`` runs all of them side by side, each with
a history, a line search and an end of its own. It calls the acquisition function once for all points that still run.
"""

# %%
# PyTorch and BoTorch are optional; without them the example ends here.
import sys

try:
    import torch
except ImportError:
    print("this example needs PyTorch: pip install torch")
    sys.exit(0)
try:
    from botorch.acquisition import LogExpectedImprovement
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.optim import optimize_acqf
except ImportError:
    print("this example needs BoTorch: pip install botorch")
    sys.exit(0)

import time
import warnings

import matplotlib.pyplot as plt
from gpytorch.mlls import ExactMarginalLogLikelihood

import stepwell

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)

# %%
# Twelve measurements of a function of two variables on the unit square, in which it is to be largest.
measured = torch.quasirandom.SobolEngine(2, seed=1).draw(12).double()
outcome = torch.sin(6 * measured[:, :1]) + torch.cos(9 * measured[:, 1:]) - (measured - 0.6).square().sum(1, True)
model = SingleTaskGP(measured, outcome)
fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))

# %%
# The acquisition function takes points (B, 1, d) and returns B values: what ``minimize_batch`` needs, but for the sign.
# With the second argument ``rows`` only points that still run are evaluated.
acquisition = LogExpectedImprovement(model, best_f=outcome.max())
starts = torch.quasirandom.SobolEngine(2, seed=7).draw(256).double()


def negative(points, rows):
    """Return what is to be minimised at the points of the restarts that still run."""
    return -acquisition(points[:, None])


began = time.perf_counter()
result = stepwell.minimize_batch(negative, starts, bounds=(0.0, 1.0))
seconds = time.perf_counter() - began
best = int(result.fun.argmin())
print(f"{len(starts)} restarts in {seconds:.2f} s, {int(result.success.sum())} converged")
print(f"measure next at {result.x[best].numpy().round(4)}, log expected improvement {-float(result.fun[best]):.4f}")

# %%
# BoTorch's own way, by SciPy, from the same points: batches share one history and one line search.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    began = time.perf_counter()
    point, value = optimize_acqf(
        acquisition,
        torch.tensor([[0.0, 0.0], [1.0, 1.0]]),
        q=1,
        num_restarts=len(starts),
        batch_initial_conditions=starts[:, None],
        options={"batch_limit": 16},
    )
    theirs = time.perf_counter() - began
print(f"optimize_acqf: {point[0].numpy().round(4)}, log expected improvement {float(value):.4f}, {theirs:.2f} s")
assert -float(result.fun[best]) > float(value) - 1e-4
assert bool(((result.x >= 0) & (result.x <= 1)).all())

# %%
# The surface with the measurements, and where every restart went.
side = torch.linspace(0, 1, 120)
grid = torch.stack(torch.meshgrid(side, side, indexing="xy"), dim=-1).reshape(-1, 1, 2)
with torch.no_grad():
    surface = acquisition(grid).reshape(120, 120)
figure, axis = plt.subplots(figsize=(6.4, 5.2), layout="constrained")
drawn = axis.contourf(side, side, surface.clamp(min=float(surface.max()) - 8), levels=30, cmap="viridis")
ends = result.x.numpy()
for begin, end in zip(starts.numpy(), ends):
    axis.plot([begin[0], end[0]], [begin[1], end[1]], color="w", lw=0.4, alpha=0.5)
axis.plot(*ends.T, "wo", ms=5, mec="k", mew=0.5, label="ends of the restarts")
axis.plot(*measured.numpy().T, "kx", label="measured")
axis.plot(*ends[best], "r*", ms=14, label="measure next")
axis.set(xlabel="first variable", ylabel="second variable", xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
figure.legend(loc="outside upper center", ncols=3, fontsize="small")
figure.colorbar(drawn, label="log expected improvement")
plt.show()
