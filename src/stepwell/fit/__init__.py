"""Bounded nonlinear least squares, one problem or millions: the engine behind ``curve_fit`` and ``least_squares``."""

from __future__ import annotations

from stepwell.fit.result import FitResult
from stepwell.fit.status import FitStatus

__all__ = ["FitResult", "FitStatus"]
