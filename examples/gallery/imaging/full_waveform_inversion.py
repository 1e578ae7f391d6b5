"""
Full-waveform inversion in two dimensions
=========================================

Sound is sent from one borehole and recorded in another; the velocity of the ground between them is what makes a
simulation match the records. The objective is an acoustic solver written with PyTorch, and autograd runs it backwards.
Here ``stepwell.minimize`` keeps the velocity of every cell between bounds that rock allows.
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

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"

# %%
# The model: 36 x 40 cells of 20 m, layers that get faster with depth, and a lens that is to be found.
depth, width, cell = 36, 40, 20.0
z, x = torch.meshgrid(torch.arange(depth), torch.arange(width), indexing="ij")
layers = (1800.0 + 18.0 * z).double().to(device)
lens = ((x - 20.0) / 8) ** 2 + ((z - 18.0) / 6) ** 2 < 1
truth = torch.where(lens.to(device), layers + 300, layers)

# %%
# The wave equation u_tt = v² (u_xx + u_zz) by second differences in space and time, with a margin of cells in which the
# waves are damped. All sources run at once, as a batch.
margin, steps, dt = 12, 150, 0.005
time = dt * torch.arange(steps, dtype=torch.float64, device=device)
phase = (torch.pi * 8.0 * (time - 0.15)) ** 2
pulse = (1 - 2 * phase) * torch.exp(-phase)  # a Ricker wavelet of 8 Hz
sources = torch.arange(3, depth, 6, device=device)  # rows of the left borehole
receivers = torch.arange(1, depth - 1, 2, device=device)  # rows of the right one
rows, columns = depth + 2 * margin, width + 2 * margin
inwards = torch.arange(rows, device=device).minimum(rows - 1 - torch.arange(rows, device=device)).clamp(max=margin)
across = (
    torch.arange(columns, device=device).minimum(columns - 1 - torch.arange(columns, device=device)).clamp(max=margin)
)
damping = torch.exp(-((0.012 * (margin - torch.minimum(inwards[:, None], across[None]))) ** 2)).double()


def simulate(velocity):
    """Return the records, (sources, steps, receivers), of a model."""
    padded = torch.nn.functional.pad(velocity[None, None], (margin,) * 4, mode="replicate")[0, 0]
    factor = (padded * dt / cell) ** 2
    before = now = torch.zeros((len(sources), rows, columns), dtype=torch.float64, device=device)
    kick = torch.zeros_like(now)
    kick[torch.arange(len(sources)), margin + sources, margin + 1] = 1.0
    records = []
    for step in range(steps):
        around = torch.nn.functional.pad(now, (1, 1, 1, 1))
        laplace = around[:, 2:, 1:-1] + around[:, :-2, 1:-1] + around[:, 1:-1, 2:] + around[:, 1:-1, :-2] - 4 * now
        after = damping * (2 * now - damping * before + factor * laplace + dt * pulse[step] * kick)
        before, now = now, after
        records.append(now[:, margin + receivers, margin + width - 2])
    return torch.stack(records, dim=1)


with torch.no_grad():
    observed = simulate(truth)
    scale = float((observed**2).sum())

# %%
# The misfit, in units of the energy of the records. Velocities in km/s keep the variables of size one.
passes = []


def misfit(velocity):
    """Half the squared difference of the records."""
    value = 0.5 * ((simulate(1000 * velocity) - observed) ** 2).sum() / scale
    passes.append(float(value.detach()))
    return value


start = (layers / 1000).contiguous()
result = stepwell.minimize(misfit, start, bounds=(1.5, 3.5), options={"maxiter": 15, "maxcor": 8, "ftol": 0, "gtol": 0})
print(f"{result.nit} iterations, {result.nfev} simulations; misfit {passes[0]:.2e} at the start, {result.fun:.2e} now")
error = [float((model - truth / 1000)[lens.to(device)].abs().mean()) for model in (start, result.x)]
print(f"mean error within the lens: {1000 * error[0]:.0f} m/s at the start, {1000 * error[1]:.0f} m/s now")
assert result.fun < 0.05 * passes[0]

# %%
figure, axes = plt.subplots(1, 3, figsize=(12, 3.2), layout="constrained")
for axis, model, title in zip(axes, (truth / 1000, start, result.x), ("truth", "start", "found")):
    drawn = axis.imshow(model.cpu(), vmin=1.7, vmax=2.8, cmap="viridis", extent=(0, width * cell, depth * cell, 0))
    axis.set(title=title, xlabel="m")
figure.colorbar(drawn, ax=axes, label="km/s")
plt.show()

# %%
figure, axes = plt.subplots(figsize=(6, 2.8), layout="constrained")
axes.semilogy(passes)
axes.set(xlabel="simulation", ylabel="misfit")
plt.show()
