"""Whether derivatives are those of their function: a comparison with central differences."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from stepwell.common.checks import read_real, require_function
from stepwell.common.keywords import keywords_told
from stepwell.fit.arguments import read_residual
from stepwell.fit.differences import JacobianByDifferences
from stepwell.fit.evaluation import evaluation_of, typical_sizes
from stepwell.fit.functions import Residual
from stepwell.fit.options import read_further


@dataclasses.dataclass(frozen=True)
class JacobianCheck:
    """What `check_jac` found.

    Attributes
    ----------
    ok : bool
        Whether no entry differs by more than the tolerance.
    error : float
        The largest difference, relative to the largest entry of its column.
    worst : tuple of int
        Where that is: (problem,) point, parameter.
    jac, differences : array
        Derivatives as given (or by forward mode), and by central differences.
    """

    ok: bool
    error: float
    worst: tuple[int, ...]
    jac: np.ndarray = dataclasses.field(repr=False)
    differences: np.ndarray = dataclasses.field(repr=False)

    def __bool__(self) -> bool:
        return self.ok


@keywords_told
def check_jac(
    fun: Callable[..., Any],
    x0: Any,
    jac: Callable[..., Any] | None = None,
    *,
    bounds: Any = (-np.inf, np.inf),
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    rtol: float = 1e-5,
) -> JacobianCheck:
    """Compare derivatives of residuals with central differences, at points inside the bounds.

    Parameters
    ----------
    fun, x0, jac, bounds, args, kwargs
        As in :func:`stepwell.least_squares`. Without `jac`, the derivatives that PyTorch or JAX find.
    rtol : float, default 1e-5
        Allowed difference, relative to the largest entry of a column; differences themselves are good to about 1e-9.

    Returns
    -------
    JacobianCheck
        True where all is well.

    Examples
    --------
    >>> import numpy as np, stepwell
    >>> fun = lambda x: np.array([x[0] ** 2 - x[1], x[1] * x[0]])
    >>> right = lambda x: np.array([[2 * x[0], -1], [x[1], x[0]]])
    >>> wrong = lambda x: np.array([[2 * x[0], 1], [x[1], x[0]]])
    >>> bool(stepwell.check_jac(fun, [1.0, 2.0], right)), stepwell.check_jac(fun, [1.0, 2.0], wrong).worst
    (True, (0, 1))
    """
    require_function("jac", jac)
    tolerance = read_real("rtol", rtol, above=0)
    options = dict(loss="linear", scale=1.0)
    args, kwargs = read_further(args, kwargs)
    problem = read_residual(fun, x0, bounds, None, options)
    function = Residual(fun, args, kwargs, problem.lone)
    given = evaluation_of(function, jac, problem)
    x = problem.x0.astype(np.float32) if problem.single else problem.x0
    rows = np.arange(problem.problems)
    values = given.values(x, rows)
    found = np.asarray(given.jacobian(x, rows, values), np.float64)
    dtype = values.dtype
    low, high, typical = (part.astype(dtype) for part in (problem.low, problem.high, typical_sizes(problem)))
    central = JacobianByDifferences("3-point", given.values, low, high, typical, None)
    expected = np.asarray(central(x, rows, values), np.float64)
    size = np.maximum(np.abs(expected).max(axis=1, keepdims=True), np.abs(found).max(axis=1, keepdims=True))
    with np.errstate(all="ignore"):
        apart = np.abs(found - expected) / np.where(size > 0, size, 1.0)
    apart = np.where(np.isnan(apart), np.inf, apart)
    place = np.unravel_index(int(apart.argmax()), apart.shape)
    error = float(apart[place])
    worst = tuple(int(i) for i in (place[1:] if problem.lone else place))
    shown = (found[0], expected[0]) if problem.lone else (found, expected)
    return JacobianCheck(error <= tolerance, error, worst, *shown)
