"""What puts the solvers into other packages, one module each, which needs that package and nothing else does.

============  =========================================================================================
`botorch`     fits of Gaussian processes and candidates of acquisition functions by our L-BFGS-B
`sklearn`     non-negative least squares as an estimator of scikit-learn
`cil`         L-BFGS-B with bounds as an ``Algorithm`` of the Core Imaging Library
============  =========================================================================================

Operators of PyLops, of ASTRA (``OpTomo``) and of SciPy need no plug: the solvers take them as they are. A module is
imported on first use: ``stepwell.plugs.botorch`` works after a plain ``import stepwell``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__all__ = ["botorch", "cil", "sklearn"]

#: What each module needs, and the command that installs it.
_NEEDS = {
    "botorch": "BoTorch: pip install 'stepwell[botorch]'",
    "sklearn": "scikit-learn: pip install 'stepwell[sklearn]'",
    "cil": "the Core Imaging Library, the conda package cil",
}

if not TYPE_CHECKING:  # checkers would take any name for one that this function finds

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'stepwell.plugs' has no attribute {name!r}")
        try:
            return importlib.import_module(f"stepwell.plugs.{name}")
        except ModuleNotFoundError as error:
            raise ImportError(f"stepwell.plugs.{name} needs {_NEEDS[name]}", name=error.name) from error


def __dir__() -> list[str]:
    return sorted(__all__)
