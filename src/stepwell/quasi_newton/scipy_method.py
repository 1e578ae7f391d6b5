"""The solver as ``method=`` of `scipy.optimize.minimize`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from stepwell.quasi_newton.api import minimize

if TYPE_CHECKING:
    from stepwell.quasi_newton.result_types import Result


def scipy_method(
    fun: Callable[..., Any],
    x0: np.ndarray,
    args: tuple[Any, ...] = (),
    jac: Any = None,
    bounds: Any = None,
    callback: Callable[..., Any] | None = None,
    **options: Any,
) -> Result:
    """Work as ``scipy.optimize.minimize(..., method=stepwell.scipy_method)``.

    `fun` and `jac`, written for SciPy, get copies of the points as from SciPy's own methods: they may keep them.

    Examples
    --------
    >>> import numpy as np, scipy.optimize, stepwell
    >>> fun = lambda x: (x @ x, 2 * x)
    >>> r = scipy.optimize.minimize(fun, np.ones(3), jac=True, method=stepwell.scipy_method, bounds=[(0.5, None)] * 3)
    >>> r.x
    array([0.5, 0.5, 0.5])
    """
    # SciPy passes every argument of its own, most of them None, along with the options.
    for name in ("hess", "hessp", "constraints"):
        value = options.pop(name, None)
        if value is not None and not (name == "constraints" and len(value) == 0):
            raise ValueError(f"{name} was given; stepwell.scipy_method takes bounds only")
    tol = options.pop("tol", None)
    own = _on_copies(jac) if callable(jac) else jac
    return minimize(_on_copies(fun), x0, args, jac=own, bounds=bounds, tol=tol, callback=callback, options=options)


def _on_copies(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with its point copied in every call."""
    return lambda x, *args: function(np.array(x), *args)
