"""Sparse solutions with a proven gap: ‖x‖₁, groups, orthonormal transforms, many columns at once, bounds."""

from __future__ import annotations

from stepwell.krylov.lasso.api import lasso
from stepwell.krylov.lasso.results import LassoProgress, LassoResult, LassoStatus

__all__ = ["LassoProgress", "LassoResult", "LassoStatus", "lasso"]
