"""Stepwell: large-scale solvers for inverse problems that run where your arrays live.

Public names are listed in ``_HOMES`` and imported on first use, so that ``import stepwell`` stays fast.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

#: Public name -> module that defines it ("" marks a subpackage of its own).
_HOMES: dict[str, str] = {
    "minimize": "stepwell.minimization",
    "minimize_batch": "stepwell.minimization",
    "scipy_method": "stepwell.minimization",
    "LBFGSB": "stepwell.optimizer",
    "LineSearch": "stepwell.settings",
    "Status": "stepwell.results",
    "tikhonov": "stepwell.krylov",
    "ProjectedCG": "stepwell.krylov",
    "cg": "stepwell.krylov",
    "adjoint_error": "stepwell.operators",
    "operators": "",
    "nnls": "stepwell.leastsq",
    "Convolution": "stepwell.leastsq",
    "NNLSResult": "stepwell.leastsq",
    "NNLSStatus": "stepwell.leastsq",
    "problems": "",
    "apps": "",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'stepwell' has no attribute {name!r}")
    value = importlib.import_module(f"stepwell.{name}") if not home else getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
