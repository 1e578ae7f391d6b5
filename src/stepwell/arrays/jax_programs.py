"""Functions of which JAX makes one program each, compiled soon.

On a GPU the compiler tries many kernels for every product of matrices, half a second to three for each shape. Solvers
have some twenty shapes of products and need each a few hundred times at the most: trying takes longer than solving.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stepwell.arrays.kinds import Array

#: Of XLA: 0 takes the first kernel that will do; products are the vendor's, which are compiled already.
_NO_TRIALS = {"xla_gpu_autotune_level": 0, "xla_gpu_enable_triton_gemm": False}


def jax_program(function: Any) -> Callable[..., Array]:
    """Return the function as a program of its own; within a transformation of JAX it becomes a part of that."""
    import jax

    alone, within = jax.jit(function, compiler_options=_NO_TRIALS), jax.jit(function)
    leaves, traced = jax.tree.leaves, jax.core.Tracer

    def call(*arguments: Any) -> Array:
        return (within if any(isinstance(one, traced) for one in leaves(arguments)) else alone)(*arguments)

    return call
