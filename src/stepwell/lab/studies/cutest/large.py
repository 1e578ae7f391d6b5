"""Larger CUTEst problems, from the package `sif2jax`, which has them as functions of JAX: on the CPU or on a GPU.

JAX evaluates where it lives: on a GPU if it was installed for one. Values and gradients are handed to the solvers as
NumPy arrays, like those of the smaller problems, so that the harness sees every evaluation.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
import types
from typing import Any

import numpy as np

from stepwell.lab.studies.cutest.problems import UNUSABLE, CutestProblem, Listed

MISSING = "sif2jax is not installed, which has the larger problems (pip install sif2jax)"
#: The smaller ones are those of S2MPJ.
SMALLEST = 200
#: A problem with constraints, which has no place here: its matrix, filled entry by entry, takes 156 of the 175 seconds
#: of the package's import.
_SLOW = ("sif2jax.cutest._constrained_minimisation.cleuven7", "CLEUVEN7")


def installed() -> bool:
    """Whether the package with the larger problems is there."""
    return importlib.util.find_spec("sif2jax") is not None


def list_large(largest: int) -> list[Listed]:
    """Return the problems with more than `SMALLEST` and at most `largest` variables, by name.

    Their names end with the number of variables, since the smaller ones have the same names.
    """
    found = {}
    for source in _sources().values():
        if SMALLEST < (n := _size(source)) <= largest:
            name = _name(source)
            found[name] = Listed(name, n, hasattr(source, "bounds"))
    return sorted(found.values(), key=lambda problem: problem.name)


def load_large(name: str) -> CutestProblem:
    """Load a problem of `list_large`; f and its gradient are compiled at the first evaluation."""
    import jax
    from jax.flatten_util import ravel_pytree

    source = _sources()[name.rpartition("_")[0]]
    x0, shaped = ravel_pytree(source.y0)
    args = source.args
    compiled = jax.jit(jax.value_and_grad(lambda x: source.objective(shaped(x), args)))

    def function(x: np.ndarray) -> tuple[float, np.ndarray]:
        f, g = compiled(x)
        return float(f), np.array(g, dtype=float)

    start = np.array(x0, dtype=float)
    lower, upper = np.full(start.size, -np.inf), np.full(start.size, np.inf)
    if hasattr(source, "bounds"):
        for side, values in zip((lower, upper), source.bounds):
            side[:] = np.asarray(ravel_pytree(values)[0], dtype=float)
    lower[lower <= -1e20], upper[upper >= 1e20] = -np.inf, np.inf
    start = np.clip(start, lower, upper)
    function(start)  # what cannot be traced says so here: later, what fails counts as not a number
    return CutestProblem(name, start, lower, upper, function)


def _name(source: Any) -> str:
    return f"{type(source).__name__}_{_size(source)}"


def _size(source: Any) -> int:
    """Return the number of variables without making them."""
    import jax

    leaves = jax.tree_util.tree_leaves(jax.eval_shape(lambda: source.y0))
    return sum(int(np.prod(leaf.shape)) for leaf in leaves)


@functools.cache
def _sources() -> dict[str, Any]:
    """Return the unconstrained and bound-constrained problems by name. The import takes some 20 seconds."""
    if not installed():
        raise ValueError(MISSING)
    import jax

    jax.config.update("jax_enable_x64", True)  # before the import, which makes the problems' constants
    module, name = _SLOW
    sys.modules.setdefault(module, types.ModuleType(module)).__dict__.setdefault(name, type(name, (), {}))
    # It fills others entry by entry, too: on a GPU that alone takes minutes.
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        package = importlib.import_module("sif2jax")
    every = (*package.unconstrained_minimisation_problems, *package.bounded_minimisation_problems)
    return {type(source).__name__: source for source in every if type(source).__name__ not in UNUSABLE}
