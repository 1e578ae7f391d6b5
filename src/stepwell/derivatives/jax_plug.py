"""What JAX's programs get of each solver."""

from __future__ import annotations

from stepwell.derivatives.jax_nnls import nnls

__all__ = ["nnls"]
