"""NumPy's warnings about overflow and NaN: silent in a solver's own arithmetic, as the caller has them in his own.

A run that diverges ends with a status; NumPy need not say it too. What the caller's functions compute is his affair,
and so are his ``np.seterr`` and ``np.errstate``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

_callers: ContextVar[dict[str, Any] | None] = ContextVar("stepwell_callers_error_state", default=None)


@contextmanager
def own_arithmetic() -> Iterator[None]:
    """Run without NumPy's warnings about overflow and invalid values.

    Examples
    --------
    >>> with own_arithmetic():
    ...     float(np.float64(1e300) * np.float64(1e300))
    inf
    """
    remembered = _callers.set(dict(np.geterr()))
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            yield
    finally:
        _callers.reset(remembered)


@contextmanager
def callers_arithmetic() -> Iterator[None]:
    """Run a function of the caller's within `own_arithmetic` as if outside of it."""
    state = _callers.get()
    if state is None:
        yield
        return
    remembered = _callers.set(None)
    try:
        with np.errstate(**state):
            yield
    finally:
        _callers.reset(remembered)
