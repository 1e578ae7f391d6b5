"""A minimisation by SciPy and by Stepwell, as the benchmarks of the quasi-Newton engine call them."""

from __future__ import annotations

from typing import Any

from scipy.optimize import minimize as scipy_minimize
from threadpoolctl import threadpool_limits

import stepwell

NAME = "quasi_newton_cpu"


def scipy_solve(fun: Any, x0: Any, bounds: Any, blas: int | None = None, **options: Any) -> Any:
    with threadpool_limits(blas):
        return scipy_minimize(fun, x0, jac=True, method="L-BFGS-B", bounds=bounds, options=options)


def our_solve(fun: Any, x0: Any, bounds: Any, **options: Any) -> Any:
    return stepwell.minimize(fun, x0, jac=True, bounds=bounds, options=options)
