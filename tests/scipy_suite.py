"""Run SciPy's own tests for L-BFGS-B through Stepwell.

    python tests/scipy_suite.py [--mode inner|method|both] [--tests FOLDER] [-k EXPRESSION]

Two modes. ``inner``: SciPy's function `_minimize_lbfgsb`, which stands behind ``minimize(method="L-BFGS-B")`` and
`fmin_l_bfgs_b`, is replaced by one that calls `stepwell.scipy_method`. ``method``: `scipy.optimize.minimize` gets
``method=stepwell.scipy_method`` whenever the method is L-BFGS-B, by name or by default. Only tests that come to the
solver count. What fails is run once more with SciPy untouched: a test that fails there, too, says nothing about us.

The exit status is the number of failures that are not in `ARGUED`. Without SciPy's tests (some packages leave them
out; ``--tests`` takes the folder scipy/optimize/tests of a source distribution of the same version) nothing is run, and
the status is 0.
"""

from __future__ import annotations

import argparse
import functools
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import pytest
import scipy.optimize
import scipy.optimize._lbfgsb_py as inner
import scipy.optimize._minimize as outer

import stepwell

FILES = [
    "test_optimize.py", "test_lbfgsb_hessinv.py", "test_lbfgsb_setulb.py", "test__basinhopping.py",
    "test__dual_annealing.py", "test__shgo.py", "test__differential_evolution.py", "test_regression.py",
    "test_minimize_constrained.py",
]  # fmt: skip

#: Failures that stay, by the test's name, and why ours is better.
ARGUED = {
    # SciPy's operator is the BFGS update of the identity, which its solver does not start from: where f is scaled by
    # 1e6, it has 1 instead of about 1e-6 for every direction that no pair has met. Ours is the update of the scaled
    # diagonal that the run ended with; sk, yk, rho and the secant equation are the same.
    "test_lbfgsb_hessinv.py::test_3": "hess_inv starts from the run's own scaled diagonal, not from the identity",
}

#: SciPy's functions, before anything is replaced.
SCIPY_MINIMIZE = scipy.optimize.minimize
SCIPY_INNER = inner._minimize_lbfgsb


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Ledger:
    """A pytest plugin that notes which tests come to the solver, and how they end."""

    def __init__(self) -> None:
        self.calls = 0
        self.used: set[str] = set()
        self.failed: dict[str, str] = {}
        self._before = 0

    def pytest_runtest_setup(self) -> None:
        self._before = self.calls

    def pytest_runtest_teardown(self, item: Any) -> None:
        if self.calls > self._before:
            self.used.add(item.nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            lines = str(report.longrepr).splitlines()
            said = [line[2:].strip() for line in lines if line.startswith("E ")]
            self.failed[report.nodeid] = " / ".join(said[:4])


def in_place_of_inner(ledger: Ledger) -> Callable[..., Any]:
    """Return a stand-in for `_minimize_lbfgsb`, whose callback SciPy has wrapped already."""

    def _minimize_lbfgsb(fun: Any, x0: Any, args: Any = (), jac: Any = None, bounds: Any = None, **options: Any) -> Any:
        ledger.calls += 1
        callback = options.pop("callback", None)
        for name in ("disp", "iprint"):
            if options.get(name) is getattr(inner, "_NoValue", None):
                options.pop(name, None)

        def tell(intermediate_result: Any) -> None:
            try:
                callback(intermediate_result)
            except StopIteration:
                callback.stop_iteration = True
                raise

        told = None if callback is None else tell
        return stepwell.scipy_method(fun, x0, args=args, jac=jac, bounds=bounds, callback=told, **options)

    return _minimize_lbfgsb


def in_place_of_minimize(ledger: Ledger) -> Callable[..., Any]:
    """Return `scipy.optimize.minimize` with our method wherever it would take L-BFGS-B."""

    @functools.wraps(SCIPY_MINIMIZE)
    def minimize(
        fun: Any, x0: Any, args: Any = (), method: Any = None, jac: Any = None, hess: Any = None, hessp: Any = None,
        bounds: Any = None, constraints: Any = (), tol: Any = None, callback: Any = None, options: Any = None,
    ) -> Any:  # fmt: skip
        by_default = method is None and bounds is not None and not constraints
        if by_default or (isinstance(method, str) and method.lower() == "l-bfgs-b"):
            ledger.calls += 1
            method = stepwell.scipy_method
        return SCIPY_MINIMIZE(fun, x0, args, method, jac, hess, hessp, bounds, constraints, tol, callback, options)

    return minimize


def replace_everywhere(old: Any, new: Any) -> None:
    """Replace a function in every module that has imported it."""
    for module in list(sys.modules.values()):
        if module is sys.modules[__name__]:
            continue
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if value is old:
                setattr(module, name, new)


def run(files: list[str], ledger: Ledger, expression: str | None = None) -> None:
    """Run tests in this process, quietly."""
    chosen = ["-k", expression] if expression else []
    quiet = ["-q", "--no-header", "--no-summary", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore"]
    quiet.append("--import-mode=append")  # what stands in front of sys.path is ours, in processes that tests start, too
    pytest.main([*files, *chosen, *quiet, "--rootdir", str(pathlib.Path(files[0].split("::")[0]).parent)], [ledger])


def judge(mode: str, files: list[str], expression: str | None) -> int:
    """Run one mode, print what failed, and return how many failures are not argued."""
    ledger = Ledger()
    old = SCIPY_INNER if mode == "inner" else SCIPY_MINIMIZE
    new = in_place_of_inner(ledger) if mode == "inner" else in_place_of_minimize(ledger)
    replace_everywhere(old, new)
    try:
        run(files, ledger, expression)
    finally:
        replace_everywhere(new, old)
    untouched = Ledger()
    folder = pathlib.Path(files[0]).parent
    again = [str(folder / name.rpartition("/")[2]) for name in ledger.failed]
    if again:
        run(again, untouched)
    ours = {name: said for name, said in ledger.failed.items() if name not in untouched.failed}
    new_failures = 0
    for name, said in sorted(ours.items()):
        short = name.rpartition("/")[2]
        why = ARGUED.get(short)
        new_failures += why is None
        say(f"{mode}: FAILED {short}\n    {said}\n    " + (f"argued: {why}" if why else "not argued"))
    for name in sorted(set(ledger.failed) - set(ours)):
        say(f"{mode}: fails with SciPy alone, too: {name.rpartition('/')[2]}")
    say(f"{mode}: {len(ours)} of {len(ledger.used)} tests that come to the solver fail, {new_failures} not argued")
    return new_failures


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=("inner", "method", "both"), default="both")
    parser.add_argument("--tests", type=pathlib.Path, default=pathlib.Path(scipy.optimize.__file__).parent / "tests")
    parser.add_argument("-k", dest="expression", help="only tests that match, as for pytest")
    asked = parser.parse_args()
    files = [str(asked.tests / name) for name in FILES if (asked.tests / name).exists()]
    if not files:
        say(f"skipped: {asked.tests} has no tests of SciPy {scipy.__version__}; --tests takes their folder")
        return 0
    modes = ("inner", "method") if asked.mode == "both" else (asked.mode,)
    return sum(judge(mode, files, asked.expression) for mode in modes)


if __name__ == "__main__":
    assert outer.minimize is SCIPY_MINIMIZE
    sys.exit(main())
