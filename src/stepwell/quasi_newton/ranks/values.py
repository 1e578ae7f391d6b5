"""Variables of which this rank has a piece, and the forms in which f may be given there."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

from stepwell.arrays import Array, as_contiguous, is_cuda, scalar_of, view_foreign
from stepwell.arrays.checks import read_host_array, require_one_home, require_real
from stepwell.distributed import Part, local_piece
from stepwell.quasi_newton.variables import Variables

#: How f was given: as it is, the same on all ranks; this rank's share; one number a chunk of this rank.
WHOLE_VALUE, SHARE, CHUNK_VALUES = 0.0, 1.0, 2.0
_WORDS = {WHOLE_VALUE: "a number", SHARE: "a part", CHUNK_VALUES: "one value a chunk"}


class Value(NamedTuple):
    """A value of f on one rank."""

    kind: float
    number: Any  # of a share or the whole; an array of one where it is still on a device
    chunks: Any = None  # one number a chunk, an array of the host or of the device


NO_VALUE = Value(WHOLE_VALUE, math.nan)


@dataclasses.dataclass(frozen=True)
class PieceVariables(Variables):
    """The variables of one rank."""

    chunks: int = 1  #: into which they are cut

    def read_values(self, f: Any) -> Value:
        """Check a value of f: a number, `stepwell.distributed.part` of one, or an array of one value a chunk."""
        if isinstance(f, Part):
            return Value(SHARE, self._number(f.value))
        if getattr(f, "ndim", 0) == 1 or isinstance(f, list | tuple):
            values = self._device_values(f) if self.on_device and is_cuda(f) else read_host_array("f", f)
            shape = tuple(values.shape)
            if shape != (self.chunks,):
                raise ValueError(
                    f"fun returned values of shape {shape}; allowed: a number, part(number), or one value for "
                    f"each of this rank's {self.chunks} chunks"
                )
            return Value(CHUNK_VALUES, math.nan, values)
        return Value(WHOLE_VALUE, self._number(f))

    def _number(self, f: Any) -> Any:
        """Check one number; on a device it stays there: the host fetches it with the first sums."""
        if self.on_device and is_cuda(f):
            return super().read_values(f)
        return f if type(f) is float else scalar_of(f)

    def _device_values(self, f: Any) -> Array:
        values = view_foreign(f, self.template)
        require_one_home("f", values, "x0", self.template)
        require_real("f", values)
        return as_contiguous(values)

    def read_gradient(self, g: Any, name: str = "the gradient") -> Array:
        """Check this rank's piece of a gradient."""
        return super().read_gradient(local_piece(g, None)[0], name)


def value_of_all(kinds: list[float], numbers: list[float]) -> float:
    """Return f from what each rank has told of it; NaN where it comes in values a chunk, which are summed elsewhere."""
    if kinds.count(kinds[0]) < len(kinds):
        other = next(rank for rank, kind in enumerate(kinds) if kind != kinds[0])
        raise ValueError(
            f"fun returned {_WORDS[kinds[0]]} on rank 0 and {_WORDS[kinds[other]]} on rank {other}; "
            "allowed: the same kind of value on all"
        )
    if kinds[0] == CHUNK_VALUES:
        return math.nan
    if kinds[0] == SHARE:
        return sum(numbers)
    if numbers.count(numbers[0]) == len(numbers):
        return numbers[0]
    strange = [number for number in numbers if not math.isfinite(number)]
    if strange:  # trouble on one rank is trouble on all: the step is too long
        return strange[0]
    other = next(rank for rank, number in enumerate(numbers) if number != numbers[0])
    raise ValueError(
        f"fun returned {numbers[0]!r} on rank 0 and {numbers[other]!r} on rank {other}; allowed: the "
        "same value of f on all ranks, or stepwell.distributed.part(f) where it is this rank's share"
    )
