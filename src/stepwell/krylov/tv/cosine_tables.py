"""Tables of the cosine transforms in ``src/core/tv/cosine.hpp``: radices, places, roots and turns of every side."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

#: Radices that kernels have, and how many stages they have room for.
RADICES, MAX_STAGES = (4, 2, 3, 5), 24
#: Longest side that kernels transform.
MAX_SIDE = 8192


@dataclass(frozen=True)
class CosineTables:
    """Tables of images with these ``sides``, those of length 1 left out; ``kept`` says which of the axes they are.

    ``numbers``: per side n the cosines and sines of -2πk/n, then those of πk/2n over √(2n), each pair by pair.
    ``places``: per side the number of stages, `MAX_STAGES` radices, and where the FFT wants entry k.
    """

    sides: tuple[int, ...]
    kept: tuple[int, ...]
    numbers: np.ndarray
    places: np.ndarray

    @functools.cached_property
    def single_numbers(self) -> np.ndarray:
        """``numbers`` in single precision."""
        return self.numbers.astype(np.float32)

    @property
    def pixels(self) -> int:
        """Pixels of an image."""
        return int(np.prod(self.sides))


def radices_of(n: int) -> list[int] | None:
    """Return the radices of the stages of an FFT of length n, in their order, or None where n has other factors.

    Examples
    --------
    >>> radices_of(96), radices_of(7)
    ([4, 4, 2, 3], None)
    """
    found = []
    for radix in RADICES:
        while n % radix == 0:
            found.append(radix)
            n //= radix
    return found if n == 1 else None


@functools.lru_cache(maxsize=32)
def tables_of(dims: tuple[int, ...], dtype: str) -> CosineTables | None:
    """Return the tables for images, or None where kernels have no transform for a side."""
    kept = tuple(axis for axis, side in enumerate(dims) if side > 1)
    sides = tuple(dims[axis] for axis in kept)
    if not 1 <= len(sides) <= 3 or max(sides) > MAX_SIDE:
        return None
    numbers, places = [], []
    for n in sides:
        radices = radices_of(n)
        if radices is None:
            return None
        k = np.arange(n)
        roots = np.stack([np.cos(2 * np.pi * k / n), -np.sin(2 * np.pi * k / n)], axis=1)
        turns = np.stack([np.cos(np.pi * k / (2 * n)), np.sin(np.pi * k / (2 * n))], axis=1) / np.sqrt(2 * n)
        turns[0] = 1 / np.sqrt(n), 0.0
        numbers += [roots.ravel(), turns.ravel()]
        stages = np.zeros(1 + MAX_STAGES, dtype=np.int32)
        stages[0], stages[1 : 1 + len(radices)] = len(radices), radices
        places += [stages, _places(n, radices)]
    joined = np.concatenate(numbers).astype(dtype)
    return CosineTables(sides, kept, joined, np.concatenate(places).astype(np.int32))


def _places(n: int, radices: list[int]) -> np.ndarray:
    """Where a decimation in time wants entry k: its digits in reverse, those of the last stage being the lowest."""
    rest, place, length = np.arange(n), np.zeros(n, dtype=np.int64), n
    for radix in reversed(radices):
        length //= radix
        place += rest % radix * length
        rest = rest // radix
    return place
