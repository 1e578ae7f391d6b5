"""Every `nnls` of these tests is held against its optimality conditions, whatever else a test looks at."""

from __future__ import annotations

import pytest
from nnls_cases import certify_optimum

import stepwell


@pytest.fixture(autouse=True)
def every_solve_is_certified(monkeypatch):
    solve = stepwell.nnls

    def nnls(A, b, **options):
        result = solve(A, b, **options)
        if "L" not in options and not isinstance(options.get("lam"), str):  # they have oracles of their own
            certify_optimum(result, A, b, options.get("lam", 0.0), options.get("tol"), options.get("axis") or 0)
        return result

    monkeypatch.setattr(stepwell, "nnls", nnls)
