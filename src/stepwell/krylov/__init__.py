"""Conjugate gradients for many right-hand sides: Tikhonov regularisation, recycled directions, blocks."""

from __future__ import annotations

from stepwell.krylov.api import cg, tikhonov
from stepwell.krylov.projected import ProjectedCG
from stepwell.krylov.results import LinearResult, LinearStatus, Progress

#: The name of `LinearStatus` before there were statuses of other solvers beside it.
Status = LinearStatus

__all__ = ["LinearResult", "LinearStatus", "Progress", "ProjectedCG", "Status", "cg", "tikhonov"]
