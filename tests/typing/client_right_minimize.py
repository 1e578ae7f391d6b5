"""A client of the quasi-Newton solvers that mypy --strict accepts.

It is read by a type checker, never run.
"""

from __future__ import annotations

from typing import assert_type

import numpy as np

import stepwell


def fun(x: np.ndarray) -> tuple[float, np.ndarray]:
    return float(x @ x), 2 * x


def value(x: np.ndarray) -> float:
    return float(x @ x)


r = stepwell.minimize(fun, np.zeros(3), jac=True, bounds=(0.0, None), options={"maxiter": 10, "cauchy": "exact"})
assert_type(r, stepwell.Result)
assert_type(r.fun, float)
assert_type(r.nit, int)
assert_type(r.success, bool)
assert_type(r.message, str)
assert_type(r.reason, stepwell.Status)
assert_type(r.seconds, dict[str, float])
stepwell.minimize(value, np.zeros(3), method="L-BFGS-B", jac="3-point", bounds=[(0, 1), (None, 2), (0, None)], tol=1e-9)

options: stepwell.Options = {"line_search": "va15", "relative_gtol": 1e-5, "h0": np.ones(3), "verbose": 1}
stepwell.minimize(fun, np.zeros(3), jac=True, options=options)

many = stepwell.minimize_batch(lambda x: ((x * x).sum(1), 2 * x), np.zeros((4, 3)), jac=True)
assert_type(many, stepwell.BatchResult)
assert_type(many.reason, list[stepwell.Status])

opt = stepwell.LBFGSB(np.zeros(3), (0.0, 1.0), m=5, gtol=1e-8, line_search=stepwell.LineSearch("va15"))
while not opt.done:
    opt.tell(*fun(opt.x))
assert_type(opt.status, stepwell.Status)
assert_type(opt.result(), stepwell.Result)
assert_type(stepwell.LBFGSB.from_state_dict(opt.state_dict()), stepwell.LBFGSB)

try:
    stepwell.minimize(fun, np.zeros(3), jac=True)
except stepwell.Interrupted as stop:
    print(stop.result.x)

assert_type(bool(stepwell.check_grad(value, np.zeros(3), jac=lambda x: 2 * x)), bool)
