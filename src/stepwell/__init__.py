"""Stepwell: large-scale solvers for inverse problems that run where your arrays live.

Public names are imported on first use, so that ``import stepwell`` stays fast; type checkers and editors read
``__init__.pyi``.
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any

__version__ = "0.2.0.dev0"

#: Public name -> module that defines it ("" marks a subpackage of its own).
_HOMES: dict[str, str] = {
    "minimize": "stepwell.quasi_newton.api",
    "minimize_batch": "stepwell.quasi_newton.api",
    "scipy_method": "stepwell.quasi_newton.scipy_method",
    "check_grad": "stepwell.quasi_newton.gradient_check",
    "GradientCheck": "stepwell.quasi_newton.gradient_check",
    "LBFGSB": "stepwell.quasi_newton.optimizer",
    "Options": "stepwell.quasi_newton.options",
    "LineSearch": "stepwell.quasi_newton.settings",
    "Status": "stepwell.quasi_newton.status",
    "Result": "stepwell.quasi_newton.result_types",
    "BatchResult": "stepwell.quasi_newton.result_types",
    "Interrupted": "stepwell.quasi_newton.driver",
    "argmin": "stepwell.derivatives.argmin",
    "tikhonov": "stepwell.krylov",
    "ProjectedCG": "stepwell.krylov",
    "LinearResult": "stepwell.krylov",
    "LinearStatus": "stepwell.krylov",
    "Progress": "stepwell.krylov",
    "cg": "stepwell.krylov",
    "tv": "stepwell.tv",
    "tv_gap": "stepwell.tv",
    "TVResult": "stepwell.tv",
    "TVGap": "stepwell.tv",
    "TVStatus": "stepwell.tv",
    "TVProgress": "stepwell.tv",
    "adjoint_error": "stepwell.operators",
    "operators": "",
    "nnls": "stepwell.nnls",
    "lsq_linear": "stepwell.nnls",
    "lsq_gram": "stepwell.nnls",
    "LSQResult": "stepwell.nnls",
    "Convolution": "stepwell.nnls",
    "NNLSResult": "stepwell.nnls",
    "NNLSStatus": "stepwell.nnls",
    "SolverStatus": "stepwell.status",
    "distributed": "",
    "problems": "",
    "apps": "",
}

__all__ = ["__version__", *_HOMES]


class _Package(types.ModuleType):
    """This package, in which the functions `nnls` and `tv` hide the subpackages of the same names.

    The import system sets a subpackage as an attribute of its parent when it is first imported, from wherever.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("nnls", "tv") and isinstance(value, types.ModuleType):
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'stepwell' has no attribute {name!r}")
    value = importlib.import_module(f"stepwell.{name}") if not home else getattr(importlib.import_module(home), name)
    setattr(sys.modules[__name__], name, value)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
