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

#: Public name -> module that defines it, or package that it is a module of.
_HOMES: dict[str, str] = {
    "minimize": "stepwell.quasi_newton.api",
    "minimize_batch": "stepwell.quasi_newton.api",
    "scipy_method": "stepwell.quasi_newton.scipy.method",
    "check_grad": "stepwell.quasi_newton.gradient_check",
    "GradientCheck": "stepwell.quasi_newton.gradient_check",
    "LBFGSB": "stepwell.quasi_newton.optimizer",
    "Options": "stepwell.quasi_newton.options",
    "LineSearch": "stepwell.quasi_newton.settings",
    "Status": "stepwell.quasi_newton.status",
    "Result": "stepwell.quasi_newton.result_types",
    "BatchResult": "stepwell.quasi_newton.result_types",
    "Interrupted": "stepwell.quasi_newton.driver",
    "argmin": "stepwell.api.argmin",
    "tikhonov": "stepwell.api.krylov",
    "ProjectedCG": "stepwell.krylov",
    "LinearResult": "stepwell.krylov",
    "LinearStatus": "stepwell.krylov",
    "Progress": "stepwell.krylov",
    "cg": "stepwell.api.krylov",
    "lasso": "stepwell.krylov.lasso",
    "LassoResult": "stepwell.krylov.lasso",
    "LassoStatus": "stepwell.krylov.lasso",
    "LassoProgress": "stepwell.krylov.lasso",
    "tv": "stepwell.krylov.tv",
    "cosine_preconditioner": "stepwell.krylov.tv",
    "tv_gap": "stepwell.krylov.tv",
    "TVResult": "stepwell.krylov.tv",
    "TVGap": "stepwell.krylov.tv",
    "TVStatus": "stepwell.krylov.tv",
    "TVProgress": "stepwell.krylov.tv",
    "adjoint_error": "stepwell.operators",
    "operators": "stepwell",
    "nnls": "stepwell.api.lsq",
    "lsq_linear": "stepwell.api.lsq",
    "lsq_gram": "stepwell.api.lsq",
    "curve_fit": "stepwell.api.fit",
    "least_squares": "stepwell.api.fit",
    "check_jac": "stepwell.fit.jacobian_check",
    "JacobianCheck": "stepwell.fit.jacobian_check",
    "FitResult": "stepwell.fit",
    "FitStatus": "stepwell.fit",
    "LSQResult": "stepwell.lsq",
    "Convolution": "stepwell.lsq",
    "NNLSResult": "stepwell.lsq",
    "NNLSStatus": "stepwell.lsq",
    "SolverStatus": "stepwell.common.status",
    "distributed": "stepwell",
    "models": "stepwell.fit",
    "problems": "stepwell.lab",
    "apps": "stepwell",
    "torch": "stepwell",
    "plugs": "stepwell",
}

#: Those of them that are modules.
_MODULES = {"operators", "distributed", "models", "problems", "apps", "torch", "plugs"}
#: Modules that need a package, and its name for ``pip install``.
_NEEDS = {"torch": "torch"}

#: Modules about other packages: there on first use, but not in ``from stepwell import *``, which must need none.
_APART = ("torch", "plugs")

__all__ = ["__version__", *(name for name in _HOMES if name not in _APART)]


class _Elsewhere(types.ModuleType):
    """A public module whose home is another package: what is asked of it is asked of its home, imported then."""

    def __init__(self, name: str, home: str) -> None:
        super().__init__(name)
        self._home = home

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._home), name)

    def __dir__(self) -> list[str]:
        return dir(importlib.import_module(self._home))


# So that ``import stepwell.problems`` and ``from stepwell.problems import ...`` find them.
sys.modules["stepwell.problems"] = _Elsewhere("stepwell.problems", "stepwell.lab.problems")
sys.modules["stepwell.models"] = _Elsewhere("stepwell.models", "stepwell.fit.models")


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        # (Of the name and the module Python makes its "Did you mean".)
        raise AttributeError(f"module 'stepwell' has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    if name in _MODULES:
        try:
            value = importlib.import_module(f"{home}.{name}")
        except ModuleNotFoundError as error:
            if error.name != _NEEDS.get(name):
                raise
            raise ImportError(
                f"stepwell.{name} needs {error.name}: pip install {error.name}", name=error.name
            ) from None
    else:
        value = getattr(importlib.import_module(home), name)
    setattr(sys.modules[__name__], name, value)
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_APART])
