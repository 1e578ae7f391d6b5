"""What PyTorch's graphs get of each solver."""

from __future__ import annotations

import torch

from stepwell.arrays import namespace_of
from stepwell.derivatives.torch_argmin import argmin
from stepwell.derivatives.torch_linear import cg, tikhonov
from stepwell.derivatives.torch_lsq import lsq
from stepwell.derivatives.torch_nnls import nnls

__all__ = ["argmin", "cg", "lsq", "nnls", "tikhonov"]

# Found before `torch.compile` traces a first call: it warns of the cache in the look for it.
namespace_of(torch.empty(0))
