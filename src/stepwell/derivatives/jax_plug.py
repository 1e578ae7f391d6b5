"""What JAX's programs get of each solver."""

from __future__ import annotations

from stepwell.derivatives.jax_argmin import argmin
from stepwell.derivatives.jax_linear import cg, tikhonov
from stepwell.derivatives.jax_lsq import lsq
from stepwell.derivatives.jax_nnls import nnls

__all__ = ["argmin", "cg", "lsq", "nnls", "tikhonov"]
