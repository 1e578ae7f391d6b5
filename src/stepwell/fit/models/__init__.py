"""Compiled models for `stepwell.curve_fit`: common curves, and expressions of your own.

A model is a function of NumPy arrays, ``model(x, *params)``, whose fits run without Python: on the CPU in vector
registers, on a CUDA device in one launch.

Examples
--------
>>> import numpy as np, stepwell
>>> model = stepwell.models.expression("a*exp(-k*t) + c", "t")
>>> model.parameters
('a', 'k', 'c')
>>> model(np.array([0.0, 1.0]), 2.0, 0.0, 1.0)
array([3., 3.])
"""

from __future__ import annotations

from stepwell.fit.models.makers import (
    exponentials,
    expression,
    gaussian2d,
    gaussians,
    ivim,
    lorentzians,
    polynomial_peak,
    pseudo_voigts,
    tofts,
)
from stepwell.fit.models.model import CompiledModel

__all__ = [
    "CompiledModel",
    "exponentials",
    "expression",
    "gaussian2d",
    "gaussians",
    "ivim",
    "lorentzians",
    "polynomial_peak",
    "pseudo_voigts",
    "tofts",
]
