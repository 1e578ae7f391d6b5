"""
Checkpoint a long run, and resume it
====================================

A run that takes hours should survive a killed job. With ``checkpoint=`` the solver writes its whole state to a file as
it goes on. Called again with the same file, it goes on from there. The result has the same bits as that of a run
without a break.
"""

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import stepwell

problem = stepwell.problems.get("torsion", nx=60, ny=60)
file = Path(tempfile.mkdtemp()) / "run.checkpoint"
options = {"ftol": 0, "gtol": 1e-6}


class Killed(Exception):
    """What happens to a job whose time is up."""


# %%
# A job that is killed after 40 evaluations. The state is written after every tenth iteration.
values = []


def fun(x, limit=float("inf")):
    """The problem's function, which notes its values."""
    if len(values) >= limit:
        raise Killed
    f, g = problem.fun(x)
    values.append(float(f))
    return f, g


how = {"jac": True, "bounds": problem.bounds, "options": options}
try:
    stepwell.minimize(lambda x: fun(x, limit=40), problem.x0, checkpoint=file, checkpoint_every=10, **how)
except Killed:
    print(f"killed after {len(values)} evaluations; {file.name} has {file.stat().st_size / 1e6:.1f} MB")
before = values.copy()

# %%
# The same call again, in another job: it goes on from the file.
values.clear()
resumed = stepwell.minimize(fun, problem.x0, checkpoint=file, checkpoint_every=10, **how)
print(f"resumed: {len(values)} more evaluations, {resumed.nit} iterations in all; {resumed.message}")

# %%
# A run without a break ends at the same bits.
after = values.copy()
values.clear()
whole = stepwell.minimize(fun, problem.x0, **how)
print("same bits as without a break:", np.array_equal(resumed.x, whole.x))
assert np.array_equal(resumed.x, whole.x)
assert resumed.nfev == whole.nfev

# %%
lowest = min(values)
start = whole.nfev - len(after)
figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
axes.semilogy(np.array(values) - lowest + 1e-13, color="0.8", lw=5, label="without a break")
axes.semilogy(np.array(before) - lowest + 1e-13, "C0", label="until it was killed")
axes.semilogy(np.arange(start, whole.nfev), np.array(after) - lowest + 1e-13, "C3--", label="resumed")
axes.set(xlabel="evaluation", ylabel="f above its minimum")
axes.legend(frameon=False)
plt.show()
