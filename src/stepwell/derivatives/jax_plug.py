"""What JAX's programs get of each solver."""

from __future__ import annotations

from stepwell.derivatives.jax_argmin import argmin
from stepwell.derivatives.jax_fit import curve_fit
from stepwell.derivatives.jax_linear import cg, tikhonov
from stepwell.derivatives.jax_lsq import lsq

__all__ = ["argmin", "cg", "curve_fit", "lsq", "tikhonov"]
