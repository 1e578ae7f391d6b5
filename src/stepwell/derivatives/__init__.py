"""Derivatives of solutions, each formula once for every array library.

======================  ===============================================================================================
`matrices`              a dense matrix and a pulse as linear maps that know the cotangent of their own entries
`least_squares`         NNLS and bounded least squares: reverse and forward rules
`linear`                ``tikhonov`` and ``cg``: reverse and forward rules
`normal_equations`      the one solve that they all need, from a QR factor of the free columns
`systems`               a solver called with any number of leading axes, as transformations of programs need it
`torch_...`             the plug for PyTorch: operations, autograd functions, re-attached minimisers
`jax_...`               the plug for JAX: callbacks with rules
`argmin`                minimisers of a caller's function as functions of its parameters
======================  ===============================================================================================

The rules take the solve as an argument, which the plugs give them in a form that their library can differentiate
again: they are closed under differentiation, so that second derivatives follow. A plug is imported where an array of
its library asks for it, never before.
"""

from __future__ import annotations

from typing import Any


def plug(library: str) -> Any:
    """Return the module that puts the solvers into the graphs of a library."""
    return _PLUGS[library]()


def _torch() -> Any:
    from stepwell.derivatives import torch_plug

    return torch_plug


def _jax() -> Any:
    from stepwell.derivatives import jax_plug

    return jax_plug


_PLUGS = {"torch": _torch, "jax": _jax}
