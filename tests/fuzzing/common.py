"""What the kinds share: checks that raise, arrays in odd clothes."""

from __future__ import annotations

import collections

import numpy as np


class Wrong(AssertionError):
    """A case that failed: in a word, in a sentence, and what it counted nevertheless."""

    def __init__(self, kind: str, text: str, counts: collections.Counter[str]) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind, self.counts = kind, counts


def hold(condition: bool, text: str) -> None:
    """Raise unless it holds."""
    if not condition:
        raise AssertionError(text)


def clothed(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    """The same numbers with other strides, order or protection."""
    choice = rng.integers(6)
    if choice == 0:
        return np.asfortranarray(array)
    if choice == 1:
        wide = np.full((*array.shape[:-1], 2 * array.shape[-1]), np.nan, array.dtype)
        wide[..., ::2] = array
        return wide[..., ::2]
    if choice == 2:
        return np.ascontiguousarray(array[..., ::-1])[..., ::-1]
    if choice == 3:
        locked = array.copy()
        locked.flags.writeable = False
        return locked
    if choice == 4:  # not aligned
        raw = np.empty(array.nbytes + 1, np.uint8)
        shifted = raw[1:].view(array.dtype).reshape(array.shape) if array.size else array
        shifted[...] = array
        return shifted
    return array


def exact(array: np.ndarray) -> np.ndarray:
    """In the widest precision there is."""
    return np.asarray(array, np.longdouble)


def norm(array: np.ndarray, axis: int | None = None) -> np.ndarray:
    """Euclidean, in the widest precision, without over- or underflow of squares."""
    array = exact(array)
    largest = np.max(np.abs(array), axis=axis, keepdims=True, initial=0)
    largest = np.where((largest > 0) & np.isfinite(largest), largest, 1)
    return np.sqrt(np.sum((array / largest) ** 2, axis=axis)) * np.squeeze(largest, axis=axis)


def pick(rng: np.random.Generator, *options):
    """One of them."""
    return options[rng.integers(len(options))]
