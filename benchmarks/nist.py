"""NIST's 27 certified nonlinear regressions from both starts: digits of the parameters, by solver, at its defaults.

    python benchmarks/nist.py

All get the same residuals, derivatives and starts. A run counts as right where every parameter has four digits of the
certified value; digits are those of the worst parameter. Raw figures: benchmarks/raw/nist.json.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import scipy.optimize
from common import save, table

import stepwell

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "helpers"))
MOST = 20_000


def solvers():
    """Name -> function of residual, start and derivatives; results have x and nfev."""

    def scipy_by(method):
        def solve(residual, start, jac):
            x_scale = {"x_scale": "jac"} if method != "lm" else {}
            return scipy.optimize.least_squares(residual, start, jac, method=method, max_nfev=MOST, **x_scale)

        return solve

    return {
        "Stepwell `least_squares`": lambda residual, start, jac: stepwell.least_squares(residual, start, jac=jac),
        "SciPy `least_squares`, trf, `x_scale='jac'`": scipy_by("trf"),
        "SciPy `least_squares`, lm": scipy_by("lm"),
    }


def main() -> None:
    """Run them all, print the table and save it."""
    from nist_fits import all_regressions

    rows = []
    for name, solve in solvers().items():
        digits, evaluations, claimed = [], 0, 0
        for problem in all_regressions():
            for start in problem.starts:
                with warnings.catch_warnings(), np.errstate(all="ignore"):
                    warnings.simplefilter("ignore")
                    try:
                        found = solve(problem.residual, np.array(start, dtype=float), problem.jacobian)
                    except (ValueError, FloatingPointError):  # a residual that is not finite ends SciPy's run
                        digits.append(0.0)
                        continue
                reached = max(0.0, float(problem.digits(found.x)))
                digits.append(reached)
                evaluations += int(found.nfev)
                claimed += bool(found.success) and reached < 4
        right = sum(reached >= 4 for reached in digits)
        rows.append(
            {
                "solver": name,
                "runs": len(digits),
                "four digits": right,
                "six digits": sum(reached >= 6 for reached in digits),
                "median digits": float(np.median(digits)),
                "claims success elsewhere": claimed,
                "evaluations": evaluations,
            }
        )
    table(list(rows[0]), [list(row.values()) for row in rows])
    save("nist", "all", {"rows": rows})


if __name__ == "__main__":
    main()
