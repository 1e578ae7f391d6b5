"""Short texts of results: what ended how first, arrays by shape, dtype and a few numbers; a screen for any batch."""

from __future__ import annotations

import enum
import math
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from stepwell.arrays import Array, device_name, is_cuda, is_lazy, to_host, without_labels

#: A text has at most so many lines, and a line so many characters.
MAX_LINES, MAX_WIDTH = 24, 100
#: Words, such as a message, may take so many lines, anything else one.
WRAPPED_LINES = 3
#: Numbers of an array that are shown: all of at most so many, else so many at its beginning, and the last.
SHOWN_WHOLE, SHOWN_FIRST = 6, 4


def summarise(name: str, fields: Mapping[str, Any], *, max_lines: int = MAX_LINES) -> str:
    """Return a short text of a result: its name, then a line a field in the order given.

    Parameters
    ----------
    name : str
        The name of the result's class.
    fields : mapping of str to object
        What to show: status and message first. Arrays are shown by shape, dtype and a few numbers, lists of statuses by
        how often each occurs.
    max_lines : int, default 24
        Fields beyond it are named in the last line without their values.

    Examples
    --------
    >>> import numpy as np
    >>> print(summarise("Result", {"message": "converged", "x": np.arange(1e6), "nit": 7}))
    Result
      message: converged
            x: float64 (1000000,): 0, 1, 2, 3, ..., 999999
          nit: 7
    """
    lines = [name]
    width = max((len(field) for field in fields), default=0) + 2
    names = list(fields)
    while names:
        value = fields[names[0]]
        texts = _wrapped(short(value), MAX_WIDTH - width - 2, WRAPPED_LINES if isinstance(value, str) else 1)
        free = max_lines - len(lines)
        if len(texts) > free - (len(names) > 1):  # a line is kept to name what is left
            lines += _wrapped(f"{'and':>{width}}: {', '.join(names)}", MAX_WIDTH, 1)
            break
        lines += [f"{names.pop(0):>{width}}: {texts[0]}", *(f"{'':{width + 2}}{text}" for text in texts[1:])]
    return "\n".join(lines)


def _wrapped(text: str, width: int, max_lines: int) -> list[str]:
    return textwrap.wrap(text, width, max_lines=max_lines, placeholder=" ...") or [""]


def short(value: Any) -> str:
    """Return one value in few words.

    Examples
    --------
    >>> short([1.5] * 1000), short(0.1 + 0.2)
    ('1000 x 1.5', '0.3')
    """
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, bool | str | int) or value is None:
        return str(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    value = without_labels(value)
    kind = _kind(value)
    if kind:
        return _array(value, kind)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_kind(entry) or short(entry)}" for key, entry in value.items()) or "empty"
    if isinstance(value, Sequence):
        return _sequence(value)
    return " ".join(repr(value).split())


def _kind(array: Array) -> str:
    """Name the dtype, shape and device of an array; nothing for what is none."""
    if not all(hasattr(array, name) for name in ("shape", "dtype", "reshape")):
        return ""
    shape = tuple(int(size) for size in array.shape)
    place = f" on {device_name(array)}" if is_cuda(array) else ""
    return f"{str(array.dtype).rpartition('.')[2]} {shape}{place}"


def _array(array: Array, kind: str) -> str:
    count = math.prod(array.shape)
    if not count:
        return kind
    if is_lazy(array):
        return f"{kind}, not computed"
    try:
        flat = array.reshape(-1)
        few = flat if count <= SHOWN_WHOLE else flat[:SHOWN_FIRST]
        numbers = [_number(array, one) for one in to_host(few).tolist()]
        if count > SHOWN_WHOLE:
            numbers += ["...", _number(array, to_host(flat[-1:]).tolist()[0])]
    except (TypeError, ValueError, RuntimeError):  # of no numbers, or on a device that does not answer
        return kind
    return f"{kind}: {', '.join(numbers)}"


def _number(array: Array, value: float) -> str:
    if "bool" in str(array.dtype):
        return str(bool(value))
    return f"{value:.6g}" if "float" in str(array.dtype) else f"{value:.0f}"


def _sequence(values: Sequence[Any]) -> str:
    if not values:
        return "empty"
    if all(hasattr(value, "shape") for value in values):
        sizes = [math.prod(value.shape) for value in values]
        span = f"{min(sizes)}" if min(sizes) == max(sizes) else f"{min(sizes)} to {max(sizes)}"
        return f"{len(values)} array{'s' * (len(values) > 1)} of {span} numbers"
    counts = Counter(map(short, values))
    parts = [text if len(values) == 1 else f"{count} x {text}" for text, count in counts.most_common(SHOWN_FIRST)]
    more = len(counts) - len(parts)
    return ", ".join(parts) + (f", and {more} others" if more else "")
