"""
Fitting with a PyTorch model, and differentiating the fit
=========================================================

A model can be a function of PyTorch: derivatives come by forward mode, the result is tensors, and on a CUDA device all
stays there. Where the data ask for gradients, so do the fitted parameters. Here an unknown baseline is learned from
curves of known rates, so that the rates of other curves come out right. This example needs PyTorch.
"""

# %%
import importlib.util
import sys

if importlib.util.find_spec("torch") is None:
    print("this example needs PyTorch")
    sys.exit()

import matplotlib.pyplot as plt
import torch

import stepwell

torch.manual_seed(0)
torch.set_num_threads(1)  # these tensors are small
torch.set_default_dtype(torch.float64)
t = torch.linspace(0, 3, 40)


def decay(t: torch.Tensor, a: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Return an exponential decay."""
    return a * torch.exp(-k * t)


# %%
# A batch: every row of the data is a curve. The function sees parameters as columns.
rates = 0.5 + 2 * torch.rand(200)
clean = decay(t, 1.0, rates[:, None]) + 0.01 * torch.randn(200, 40)
r = stepwell.curve_fit(decay, t, clean, [1.0, 1.0], bounds=(0, 20))
print(f"{r.message}; rates to {(r.x[:, 1] - rates).std():.4f}, stated {r.stderr[:, 1].mean():.4f}")
assert bool(r.success.all())

# %%
# Now each curve stands on a baseline whose shape nobody has told: the same bend, of a height that goes with the curve's
# last value. Fitted as they are, rates are wrong.
bend = torch.linspace(0, 1, 40) ** 2
measured = clean + bend * (0.1 + 0.1 * torch.rand(200, 1))
plain = stepwell.curve_fit(decay, t, measured, [1.0, 1.0], bounds=(0, 20)).x[:, 1]

# %%
# What is to be taken off is learned from curves with known rates. The loss is the error of the fitted rates. Its
# gradient passes through all fits by the implicit formula, with the whole Hessian.
shape = torch.zeros(40, requires_grad=True)
optimizer = torch.optim.Adam([shape], lr=0.3)
losses = []
for _ in range(20):
    optimizer.zero_grad()
    corrected = measured - torch.nn.functional.softplus(shape) * bend * measured[:, -1:]
    fitted = stepwell.curve_fit(decay, t, corrected, [1.0, 1.0], bounds=(0, 20))
    loss = ((fitted.x[:, 1] - rates) ** 2).mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
found = fitted.x[:, 1].detach()
before, after = (plain - rates).square().mean().sqrt(), (found - rates).square().mean().sqrt()
print(f"error of the rates: {before:.3f} as measured, {after:.3f} after learning")
assert after < 0.5 * before

# %%
figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
axes[0].plot(rates, plain, "C3.", label="as measured")
axes[0].plot(rates, found, "C0.", label="after learning")
axes[0].plot([0.5, 2.5], [0.5, 2.5], "k--", linewidth=1)
axes[0].set(xlabel="true rate", ylabel="fitted rate")
axes[0].legend(frameon=False)
axes[1].semilogy(losses)
axes[1].set(xlabel="step", title="mean squared error of the rates")
plt.show()
