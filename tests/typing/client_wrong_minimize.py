"""Calls of the quasi-Newton solvers that mypy --strict refuses, on every line that ends with ``# wrong``.

It is read by a type checker, never run.
"""

from __future__ import annotations

import numpy as np

import stepwell


def fun(x: np.ndarray) -> tuple[float, np.ndarray]:
    return float(x @ x), 2 * x


stepwell.minimize("hi", np.zeros(3))  # wrong
stepwell.minimize(fun, np.zeros(3), boundz=3)  # wrong
stepwell.minimize(fun, np.zeros(3), method="BFGS")  # wrong
stepwell.minimize(fun, np.zeros(3), jac="4-point")  # wrong
stepwell.minimize(fun, np.zeros(3), tol="small")  # wrong
stepwell.minimize(fun, np.zeros(3), options={"maxitre": 3})  # wrong
stepwell.minimize(fun, np.zeros(3), options={"cauchy": "exat"})  # wrong
stepwell.minimize(fun, np.zeros(3), options={"gtol": "small"})  # wrong
stepwell.minimize(fun, np.zeros(3), callback=3)  # wrong
stepwell.minimize_batch(fun, np.zeros((2, 3)), method="L-BFGS-B")  # wrong
stepwell.LBFGSB(np.zeros(3), gtoll=3)  # wrong
stepwell.LBFGSB(np.zeros(3), cauchy="exat")  # wrong
stepwell.LBFGSB(np.zeros(3), line_search="va16")  # wrong
stepwell.LBFGSB(np.zeros(3)).tell(1.0)  # wrong
stepwell.LBFGSB(np.zeros(3)).stop("now")  # wrong
stepwell.LineSearch("va16")  # wrong
stepwell.minimize(fun, np.zeros(3)).nit.real_part  # wrong
