"""
Logistic regression with bounded weights, in PyTorch
====================================================

Some weights of a classifier may have a known sign: a higher dose cannot lower the risk. ``stepwell.minimize`` takes a
torch function as it is, finds the gradient by autograd, and keeps every weight within its bounds. On a CUDA tensor the
whole run takes place on the GPU.
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

import stepwell

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

# %%
# Data: 5,000 patients, 60 features. The true weights of the first 40 are not negative, and only every third counts at
# all. Of 150 patients the outcome is known.
n = 60
features = torch.randn(5000, n, dtype=torch.float64, device=device)
truth = torch.randn(n, dtype=torch.float64, device=device)
truth[:40] = truth[:40].abs()
truth[torch.arange(n, device=device) % 3 > 0] = 0
labels = (torch.rand(5000, dtype=torch.float64, device=device) < torch.sigmoid(0.5 * features @ truth)).double()


def loss(w):
    """Mean cross-entropy of 150 of the patients, and a little ridge."""
    logits = features[:150] @ w
    return torch.nn.functional.binary_cross_entropy_with_logits(logits, labels[:150]) + 1e-3 * w @ w


# %%
# The same fit without and with what is known about the signs.
lower = torch.full((n,), -torch.inf, dtype=torch.float64, device=device)
lower[:40] = 0
upper = torch.full_like(lower, torch.inf)
start = torch.zeros_like(lower)
free = stepwell.minimize(loss, start)
signed = stepwell.minimize(loss, start, bounds=(lower, upper))
print(f"free:    {free.message}; {free.nit} iterations")
print(f"bounded: {signed.message}; {signed.nit} iterations, {(signed.x == lower).sum()} weights at their bound")
assert signed.success
assert bool((signed.x >= lower).all())


# %%
# On the patients that were not used, what is known about the signs pays.
def error(w):
    """Share of wrong predictions among the other patients."""
    return float(((features[150:] @ w > 0) != (labels[150:] > 0)).double().mean())


print(f"wrong predictions: free {error(free.x):.1%}, bounded {error(signed.x):.1%}")
figure, axes = plt.subplots(figsize=(8, 3.2), layout="constrained")
axes.axhline(0, color="0.7", lw=1)
axes.plot(0.5 * truth.cpu(), "k_", ms=8, label="truth")
axes.plot(free.x.cpu(), "C0.", label="free")
axes.plot(signed.x.cpu(), "C3.", label="bounded")
axes.axvspan(-0.5, 39.5, color="C3", alpha=0.08)
axes.set(xlabel="feature (shaded: weight at least 0)", ylabel="weight")
axes.legend(frameon=False, ncols=3)
plt.show()
