"""What PyTorch's graphs get of each solver."""

from __future__ import annotations

from stepwell.derivatives.torch_argmin import argmin
from stepwell.derivatives.torch_fit import curve_fit
from stepwell.derivatives.torch_linear import cg, tikhonov
from stepwell.derivatives.torch_lsq import lsq

__all__ = ["argmin", "cg", "curve_fit", "lsq", "tikhonov"]
