"""How to solve, as callers ask for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from stepwell.common.checks import read_choice, read_real, read_whole, require_function
from stepwell.krylov.results import Progress

#: What callers ask for.
MethodChoice: TypeAlias = Literal["auto", "cgls", "pseudo-block", "block", "prcg", "aprcg", "direct"]
METHODS: tuple[MethodChoice, ...] = get_args(MethodChoice)
#: Default largest number of columns in one block.
DEFAULT_WIDTH = 256


@dataclass
class SolveOptions:
    """How to solve, checked."""

    method: MethodChoice
    tol: float
    maxiter: int
    preconditioner: Any
    callback: Callable[[Progress], object] | None
    memory: float | None
    width: float

    def __post_init__(self) -> None:
        self.tol = read_real("tol", self.tol, above=0)
        read_choice("method", self.method, METHODS)
        if self.memory is not None:
            self.memory = read_real("memory", self.memory, at_least=0)
        self.width = read_whole("width", self.width, 1, as_float=True, infinite=True)
        require_function("callback", self.callback)

    @property
    def by_argument(self) -> dict[str, Any]:
        """What must be the same on all ranks, by the names of the arguments."""
        same = {name: getattr(self, name) for name in ("method", "tol", "maxiter", "memory", "width")}
        return same | {"preconditioner": "None" if self.preconditioner is None else "given"}
