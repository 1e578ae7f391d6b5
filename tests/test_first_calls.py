"""What a first call imports: SciPy's optimizers take longer to import than all else, and are not asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

CALLS = {
    "minimize": "r = stepwell.minimize(lambda x: (float(x @ x), 2 * x), np.ones(9), jac=True, bounds=(0, 2))",
    "minimize_batch": ("r = stepwell.minimize_batch(lambda x: ((x * x).sum(1), 2 * x), np.ones((3, 9)), jac=True)"),
    "nnls": "r = stepwell.nnls(np.eye(5), np.ones(5))",
    "lsq_linear": "r = stepwell.lsq_linear(np.eye(5), np.ones(5), bounds=(0, 1))",
    "least_squares": "r = stepwell.least_squares(lambda x: x - 1, np.zeros(3))",
    "curve_fit": "t = np.arange(9.0); r = stepwell.curve_fit(lambda t, a, b: a + b * t, t, 1 - 2 * t, [0.0, 0.0])",
    "lasso": "r = stepwell.lasso(np.eye(9), np.ones(9), 0.1)",
    "tv": "r = stepwell.tv(None, np.ones(64), 0.1, shape=(8, 8))",
}
#: These may need a factor of SciPy's.
FACTORED = {
    "cg": "r = stepwell.cg(np.eye(9), np.ones(9))",
    "tikhonov": "r = stepwell.tikhonov(np.eye(9), np.ones(9), 0.1)",
}


def run(code):
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\nimport numpy as np\nimport stepwell\n{code}"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("solver", CALLS)
def test_a_first_call_imports_no_scipy(solver):
    looked = "repr(r); print(sorted(name for name in sys.modules if name.partition('.')[0] == 'scipy'))"
    assert run(f"{CALLS[solver]}\n{looked}") == "[]"


@pytest.mark.parametrize("solver", FACTORED)
def test_a_first_call_imports_no_optimizers(solver):
    heavy = "scipy.optimize", "scipy.sparse", "scipy.special"
    assert run(f"{FACTORED[solver]}\nrepr(r); print([name for name in {heavy} if name in sys.modules])") == "[]"


OUTSIDE = "stepwell.minimize(lambda x: (float(x @ x), 2 * x), np.full(9, 5.0), jac=True, bounds=(0, 2))"


def test_a_warning_imports_no_optimizers():
    said = run(
        "import warnings\n"
        "with warnings.catch_warnings(record=True) as heard:\n"
        f"    warnings.simplefilter('always'); {OUTSIDE}\n"
        "print([one.category.__name__ for one in heard], 'scipy.optimize' in sys.modules)"
    )
    assert said == "['UserWarning'] False"


def test_a_warning_has_the_class_of_scipy_s_for_who_filters_by_it():
    said = run(
        "import warnings; from scipy.optimize import OptimizeWarning\n"
        "warnings.simplefilter('error'); warnings.simplefilter('ignore', OptimizeWarning)\n"
        f"{OUTSIDE}; print('ignored')"
    )
    assert said == "ignored"


def test_a_result_made_before_scipy_was_there_is_one_of_scipy_s():
    said = run(
        f"{CALLS['minimize']}\n"
        "from scipy.optimize import LbfgsInvHessProduct, OptimizeResult\n"
        "import copy, pickle\n"
        "for one in (r, pickle.loads(pickle.dumps(r)), copy.copy(r), copy.deepcopy(r)):\n"
        "    assert isinstance(one, OptimizeResult) and type(one) is stepwell.Result\n"
        "    assert isinstance(one.hess_inv, LbfgsInvHessProduct) and one['hess_inv'] is one.hess_inv\n"
        "    assert one.x is one['x'] and one.nit == one.get('nit') and one.get('nothing') is None\n"
        "    assert dict(one)['hess_inv'] is one.hess_inv and {**one}.keys() == one.keys()\n"
        "    assert not hasattr(one, 'nothing') and 'nit' in dir(one)\n"
        "r.note = 5; assert r['note'] == 5; del r.note; assert 'note' not in r; print('good')"
    )
    assert said == "good"
