"""
One image over the ranks of MPI
===============================

An image that is too large for one process is cut into bands of rows, one for each rank of MPI. Every rank evaluates its
own part of the objective, asks its neighbours for one row each, and calls ``stepwell.minimize`` with its own pixels.
Here noise is taken out of a picture, with a penalty on differences of neighbouring pixels that keeps edges.

Run it on four ranks, or, as this page does, on one:

.. code-block:: sh

    pip install "stepwell[mpi]" mpich
    mpiexec -n 4 python -m mpi4py ranks_of_mpi.py

The denoised image has the same bits on any number of ranks: sums are taken chunk by chunk, and chunks follow from the
number of pixels alone.
"""

# %%
# Without mpi4py, or a library of MPI for it, there is one rank.
import hashlib

import matplotlib.pyplot as plt
import numpy as np

import stepwell
from stepwell.apps import tomography

try:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
except (ImportError, RuntimeError):
    comm = None
rank, size = (comm.rank, comm.size) if comm is not None else (0, 1)

# %%
# ``split`` gives every rank a stretch of the pixels, here in whole rows. A real program would read only these rows.
side = 192
layout = stepwell.distributed.split(side * side, comm if comm is not None else "self", align=side)
first, last = layout.begin // side, layout.end // side
assert last > first, "there are more ranks than rows to deal out"
clean = tomography.shepp_logan_3d(side)[side // 2]
noisy = clean + 0.15 * np.random.default_rng(0).normal(size=clean.shape)
mine = noisy[first:last]


# %%
# The neighbours' rows next to ours; at the rims of the image, our own once more, so that the difference there is zero.
def with_halo(rows: np.ndarray) -> np.ndarray:
    """Return our rows between the last one of the rank above and the first one of the rank below."""
    above, below = rows[:1], rows[-1:]
    if comm is not None:
        up, down = (rank - 1 if rank else MPI.PROC_NULL), (rank + 1 if rank + 1 < size else MPI.PROC_NULL)
        from_above = comm.sendrecv(rows[-1:], dest=down, source=up)
        from_below = comm.sendrecv(rows[:1], dest=up, source=down)
        above = above if from_above is None else from_above
        below = below if from_below is None else from_below
    return np.concatenate([above, rows, below])


# %%
# Each pixel has a term of its own: its misfit, and the smoothed length of its slope to the right and downwards.
# ``chunk_sums`` adds them up chunk by chunk; this rank's piece of the gradient is all that is returned.
weight, rounding = 0.12, 0.02


def denoising(x):
    """Return the sums of this rank's terms and this rank's piece of the gradient."""
    halo = with_halo(x.reshape(-1, side))
    right = np.diff(halo, axis=1, append=halo[:, -1:])
    down = np.diff(halo, axis=0)  # from each row to the one below it
    length = np.sqrt(right[:-1] ** 2 + down**2 + rounding**2)
    misfit = halo[1:-1] - mine
    terms = 0.5 * misfit**2 + weight * length[1:]
    across, along = right[:-1] / length, down / length
    gradient = misfit - weight * (np.diff(across[1:], axis=1, prepend=0.0) + along[1:] - along[:-1])
    return layout.chunk_sums(terms.ravel()), gradient.ravel()


result = stepwell.minimize(denoising, mine.clip(0).ravel(), jac=True, bounds=(0.0, None), comm=layout)
assert result.success

# %%
# The first rank gathers the image to draw it.
pieces = [result.x] if comm is None else comm.gather(result.x)
if rank == 0:
    image = np.concatenate(pieces).reshape(side, side)
    digest = hashlib.sha256(image.tobytes()).hexdigest()[:16]
    print(f"{size} ranks: {result.nit} iterations, {result.message}; bits of the image {digest}")
    gain = np.linalg.norm(noisy - clean) / np.linalg.norm(image - clean)
    print(f"the noise is {gain:.1f} times smaller")
    assert gain > 2
    figure, axes = plt.subplots(1, 3, figsize=(10, 3.6), layout="constrained")
    for axis, (title, shown) in zip(axes, {"noisy": noisy, "denoised": image, "truth": clean}.items()):
        axis.imshow(shown, cmap="gray", vmin=0, vmax=1)
        axis.set(title=title, xticks=[], yticks=[])
    if last < side:
        axes[0].axhline(last, color="C1", lw=1)  # where the next rank begins
    plt.show()
