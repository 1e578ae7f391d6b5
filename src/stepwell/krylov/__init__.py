"""Conjugate gradients for many right-hand sides: Tikhonov regularisation, recycled directions, blocks."""

from __future__ import annotations

from stepwell.krylov.api import cg, tikhonov
from stepwell.krylov.projected import ProjectedCG
from stepwell.krylov.results import LinearResult, LinearStatus, Progress

__all__ = ["LinearResult", "LinearStatus", "Progress", "ProjectedCG", "cg", "tikhonov"]
