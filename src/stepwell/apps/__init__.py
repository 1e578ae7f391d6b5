"""What the solvers are applied to: complete small applications built on the public API.

They are imported on first use: ``stepwell.apps.tomography`` works after a plain ``import stepwell``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepwell.apps import decomposition as decomposition
    from stepwell.apps import relaxation as relaxation
    from stepwell.apps import t2 as t2
    from stepwell.apps import tomography as tomography
    from stepwell.apps import unmixing as unmixing
    from stepwell.apps import voronoi as voronoi
    from stepwell.apps import waveform as waveform

__all__ = ["decomposition", "relaxation", "t2", "tomography", "unmixing", "voronoi", "waveform"]


if not TYPE_CHECKING:  # checkers would take any name for one that this function finds

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'stepwell.apps' has no attribute {name!r}")
        return importlib.import_module(f"stepwell.apps.{name}")


def __dir__() -> list[str]:
    return sorted(__all__)
