"""Records as JSON text, with arrays as lists and null for what is no finite number."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np


def json_text(record: dict[str, Any]) -> str:
    """Return a record as JSON text; arrays become lists.

    Examples
    --------
    >>> print(json_text({"mass": np.array([0.5, np.inf])}))
    {
      "mass": [0.5, null]
    }
    """
    lines = []
    for key, value in record.items():
        plain = _plain(value)
        flat = not isinstance(plain, dict)
        lines.append(f"  {json.dumps(key)}: " + json.dumps(plain, ensure_ascii=False, indent=None if flat else 2))
    return "{\n" + ",\n".join(line.replace("\n", "\n  ") for line in lines) + "\n}"


def _plain(value: Any) -> Any:
    """The same in the words of JSON."""
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
