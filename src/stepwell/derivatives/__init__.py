"""Derivatives of solutions, each formula once for every array library.

======================  ===============================================================================================
`matrices`              a dense matrix and a pulse as linear maps that know the cotangent of their own entries
`bounded`               least squares: x as a function of all that the solvers are given
`least_squares`         rules of x ≥ 0 and of the solve, reverse and forward: what is written out for speed
`linear`                ``tikhonov`` and ``cg``: reverse and forward rules
`normal_equations`      the one solve that they all need, from a QR factor of the free columns
`systems`               least squares with any number of leading axes, as transformations of programs need it
`torch_...`             the plug for PyTorch: operations, autograd functions, re-attached minimisers
`jax_...`               the plug for JAX: calls with rules; handlers, buffers that programs lend, solves of their own
======================  ===============================================================================================

The rules take the solve as an argument, which the plugs give them in a form that their library can differentiate
again: they are closed under differentiation, so that second derivatives follow. A plug is imported where an array of
its library asks for it, never before.
"""

from __future__ import annotations

from typing import Any

from stepwell.arrays import differentiating_library, graph_library, recording_library


def plug(library: str) -> Any:
    """Return the module that puts the solvers into the graphs of a library."""
    return _PLUGS[library]()


def differentiating_plug(array: Any) -> Any:
    """Return the plug of an array's library, where that differentiates functions; else None."""
    library = differentiating_library(array)
    return None if library is None else plug(library)


def plug_for(operators: tuple[Any, ...], *values: Any, look: bool = True) -> Any:
    """Return the plug of the library in which a solution has to carry derivatives, or None where it has not.

    Of operators that are functions, or made of a pulse, it cannot be seen what they have captured: with tensors, while
    gradients are on, the plug has a look (unless told not to: it cannot do what else is asked for).
    """
    library = graph_library(*(getattr(one, "pulse", one) for one in operators), *values)
    if look and library is None and any(one is not None and not hasattr(one, "dtype") for one in operators):
        library = recording_library(*values)
    return None if library is None else plug(library)


def _torch() -> Any:
    from stepwell.derivatives import torch_plug

    return torch_plug


def _jax() -> Any:
    from stepwell.derivatives import jax_plug

    return jax_plug


_PLUGS = {"torch": _torch, "jax": _jax}
