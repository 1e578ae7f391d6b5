"""Total variation with a proven gap: edges kept, many slices at once, no step size to set, λ from the noise."""

from __future__ import annotations

from stepwell.krylov.tv.api import tv, tv_gap
from stepwell.krylov.tv.preconditioning import cosine_preconditioner
from stepwell.krylov.tv.results import TVGap, TVProgress, TVResult, TVStatus

__all__ = ["TVGap", "TVProgress", "TVResult", "TVStatus", "cosine_preconditioner", "tv", "tv_gap"]
