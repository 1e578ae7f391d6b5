r"""
Learning how much to regularise
===============================

How large should λ be? With examples of what signals look like it can be learnt.

.. math:: \min \lVert Ax - b \rVert^2 + \lambda^2 \lVert Lx \rVert^2

The solution of ``stepwell.tikhonov`` has a derivative in λ and in L. So the error over the examples is a function to be
minimised. Here first one λ is learnt, then a penalty for each frequency: L weighs every one on its own.
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

rng = np.random.default_rng(4)
n = 96

# %%
# Sums of bumps, a little blurred and very noisy: 24 to learn from, 24 to look at afterwards.
place = np.arange(n)
A = torch.tensor(np.exp(-0.5 * ((place[:, None] - place) / 1.2) ** 2) / 3.0)


def signals(count):
    """Sums of four bumps, (n, count)."""
    height, centre, width = (rng.uniform(*ends, (count, 4, 1)) for ends in ((-1, 1), (0, n), (4, 9)))
    return torch.tensor((height * np.exp(-0.5 * ((place - centre) / width) ** 2)).sum(1).T)


truth, unseen = signals(24), signals(24)
noise = 0.2
b, b_unseen = (A @ x + noise * torch.tensor(rng.normal(size=x.shape)) for x in (truth, unseen))

# %%
# What is penalised are coefficients of a cosine transform; their weights are a smooth curve with eight parameters, and
# λ is one more. L is a product of tensors: derivatives go through it.
cosines = np.cos(np.pi * (place + 0.5) * place[:, None] / n)
cosines = torch.tensor(cosines / np.linalg.norm(cosines, axis=1, keepdims=True))
knots = np.linspace(0, n - 1, 8)
hats = torch.tensor(np.maximum(0, 1 - abs(place[:, None] - knots) / (knots[1] - knots[0])))

log_lam = torch.tensor(-2.0, dtype=torch.float64, requires_grad=True)
log_weights = torch.zeros(8, dtype=torch.float64, requires_grad=True)


def solve(b):
    """Return the solutions with the parameters as they are."""
    L = (hats @ log_weights).exp()[:, None] * cosines
    return stepwell.tikhonov(A, b, log_lam.exp(), L, tol=1e-10).x


def error(b, truth):
    """Mean square of what is wrong."""
    return ((solve(b) - truth) ** 2).mean()


# %%
# The loss has nine parameters: L-BFGS-B, with bounds that keep them sensible. First λ alone, then all of them.
curve = [float(error(b, truth).detach())]
for parameters in ([log_lam], [log_lam, log_weights]):
    optimizer = stepwell.torch.LBFGSB(parameters, bounds=(-8.0, 8.0), max_iter=12)

    def closure(optimizer=optimizer):
        """Value and gradient for the optimizer."""
        optimizer.zero_grad()
        loss = error(b, truth)
        loss.backward()
        curve.append(float(loss.detach()))
        return loss

    optimizer.step(closure)
    with torch.no_grad():
        print(
            f"{len(parameters)} learnt: error {error(b, truth):.5f}, of signals not seen {error(b_unseen, unseen):.5f}"
        )
    if len(parameters) == 1:
        lam_alone, with_lam_alone = float(log_lam.detach().exp()), solve(b_unseen).detach()

# %%
# One λ for all is what cross-validation would look for; the learnt weights let the low frequencies through.
with torch.no_grad():
    with_all = solve(b_unseen)
    weights = ((hats @ log_weights) + log_lam).exp()
figure, axes = plt.subplots(1, 3, figsize=(12, 3.4), layout="constrained")
axes[0].semilogy(np.minimum.accumulate(curve))
axes[0].set(title="error while learning", xlabel="solution and gradient", ylabel="mean square error")
axes[1].semilogy(place, weights, label="learnt")
axes[1].axhline(lam_alone, color="0.6", label="one λ for all")
axes[1].set(title="penalty of each frequency", xlabel="frequency", ylabel="λ")
axes[1].legend()
axes[2].plot(unseen[:, 0], "k", lw=1, label="truth")
axes[2].plot(b_unseen[:, 0], color="0.75", lw=1, label="seen")
axes[2].plot(with_lam_alone[:, 0], lw=1, label="one λ")
axes[2].plot(with_all[:, 0], lw=1.5, label="learnt")
axes[2].set(title="a signal that was not learnt from")
axes[2].legend(fontsize=8)
plt.show()
