"""A call of `lsq_linear`, `lsq_gram` or `nnls` as data: it can be made, kept as JSON, and written as a line of code."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np

import stepwell


@dataclasses.dataclass
class Pulse:
    """What makes a Convolution."""

    pulse: np.ndarray
    n: int
    m: int
    origin: int

    def operator(self) -> stepwell.Convolution:
        return stepwell.Convolution(self.pulse, self.n, m=self.m, origin=self.origin)


@dataclasses.dataclass
class Case:
    """One call; of `lsq_gram` A is G and b is c. `kinds` names what was drawn, for the table of counts."""

    function: str
    A: Any
    b: np.ndarray
    options: dict[str, Any]
    kinds: list[str] = dataclasses.field(default_factory=list)

    def call(self, **changed: Any) -> Any:
        """Make the call; `changed` are options in place of the case's."""
        A = self.A.operator() if isinstance(self.A, Pulse) else self.A
        return getattr(stepwell, self.function)(A, self.b, **(copy.deepcopy(self.options) | changed))

    def matrix(self) -> np.ndarray:
        """A (or G) as an array."""
        return self.A.operator().dense() if isinstance(self.A, Pulse) else self.A

    def across(self) -> bool:
        """Whether systems lie along the second axis, in the result as well."""
        return self.function == "nnls" and self.options.get("axis", 0) == 1 and self.b.ndim == 2

    def turned(self) -> np.ndarray:
        """b with systems along the first axes and one system's equations along the last."""
        b = self.b
        if self.across():
            return b.T
        return b[..., 0] if self.is_column() else b

    def is_column(self) -> bool:
        """Whether b is a column vector, as x is then."""
        b, rows = self.b, self.matrix().shape[-2]
        if self.function != "lsq_linear" or b.ndim < 2 or self.matrix().ndim > 2:
            return False
        return bool(b.shape[-1] == 1 and b.shape[-2] == rows != 1)

    def systems(self) -> int:
        """How many right-hand sides there are."""
        return int(np.prod(self.turned().shape[:-1]))

    def as_json(self) -> dict[str, Any]:
        """Everything of the call, the very numbers."""
        return {"function": self.function, "A": pack(self.A), "b": pack(self.b), "options": pack(self.options)}

    @classmethod
    def from_json(cls, kept: dict[str, Any]) -> Case:
        return cls(kept["function"], unpack(kept["A"]), unpack(kept["b"]), unpack(kept["options"]))

    def as_code(self) -> str:
        """The call as a line of Python, with `np` and `stepwell`."""
        given = [as_code(self.A), as_code(self.b)] + [f"{name}={as_code(v)}" for name, v in self.options.items()]
        return f"stepwell.{self.function}({', '.join(given)})"


def pack(value: Any) -> Any:
    """As what JSON holds; numbers keep their bits."""
    if isinstance(value, np.ndarray):
        return {"array": value.tolist(), "dtype": str(value.dtype), "shape": list(value.shape)}
    if isinstance(value, Pulse):
        return {"pulse": pack(value.pulse), "n": value.n, "m": value.m, "origin": value.origin}
    if isinstance(value, dict):
        return {name: pack(one) for name, one in value.items()}
    if isinstance(value, tuple):
        return {"tuple": [pack(one) for one in value]}
    return value.item() if isinstance(value, np.generic) else value


def unpack(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return np.array(value["array"], value["dtype"]).reshape(value["shape"])
    if "pulse" in value:
        return Pulse(unpack(value["pulse"]), value["n"], value["m"], value["origin"])
    if "tuple" in value:
        return tuple(unpack(one) for one in value["tuple"])
    return {name: unpack(one) for name, one in value.items()}


def as_code(value: Any) -> str:
    if isinstance(value, np.ndarray):
        numbers = str(value.tolist()).replace("nan", "np.nan").replace("inf", "np.inf")
        kind = "" if value.dtype == np.float64 else f", {value.dtype.name!r}"
        return f"np.array({numbers}{kind})"
    if isinstance(value, Pulse):
        return f"stepwell.Convolution({as_code(value.pulse)}, {value.n}, m={value.m}, origin={value.origin})"
    if isinstance(value, tuple):
        return f"({', '.join(as_code(one) for one in value)})"
    return repr(value).replace("inf", "np.inf").replace("nan", "np.nan")
