"""What PyTorch's graphs get of each solver."""

from __future__ import annotations

from stepwell.derivatives.torch_nnls import nnls

__all__ = ["nnls"]
