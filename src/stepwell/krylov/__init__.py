"""Conjugate gradients for many right-hand sides: Tikhonov regularisation, recycled directions, blocks.

``tikhonov`` and ``cg`` themselves are in `stepwell.api`.
"""

from __future__ import annotations

from stepwell.krylov.projected import ProjectedCG
from stepwell.krylov.results import LinearResult, LinearStatus, Progress

__all__ = ["LinearResult", "LinearStatus", "Progress", "ProjectedCG"]
