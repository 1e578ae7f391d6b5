"""Conjugate gradients for many right-hand sides: Tikhonov regularisation, recycled directions, blocks."""

from __future__ import annotations

from stepwell.krylov.api import cg, tikhonov
from stepwell.krylov.projected import ProjectedCG
from stepwell.krylov.results import LinearResult, Progress, Status

__all__ = ["LinearResult", "Progress", "ProjectedCG", "Status", "cg", "tikhonov"]
