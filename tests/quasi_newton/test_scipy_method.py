"""`scipy_method` answers as SciPy's own L-BFGS-B does: SciPy is the oracle wherever it has an answer.

SciPy's own tests run through it in tests/scipy_suite.py.
"""

import multiprocessing
import re
import warnings

import numpy as np
import pytest
import scipy
from scipy.optimize import Bounds, LbfgsInvHessProduct, OptimizeWarning, minimize, rosen, rosen_der
from scipy.sparse.linalg import LinearOperator
from small_problems import bowl_about

import stepwell
from stepwell import Status, scipy_method

NEW_WORDS = tuple(map(int, scipy.__version__.split(".")[:2])) >= (1, 15)
START = np.array([-1.2, 1.0, 0.5])


bowl = bowl_about(3)


def value(x):
    return float(np.sum((x - 3) ** 2))


def both(fun, x0, **given):
    """Return SciPy's result and ours."""
    return tuple(minimize(fun, x0, method=method, **given) for method in ("L-BFGS-B", scipy_method))


class Counting:
    def __init__(self, fun):
        self.fun, self.points = fun, []

    def __call__(self, x, *args):
        self.points.append(x)
        return self.fun(x, *args)


# ---- messages, statuses, limits ----


@pytest.mark.parametrize(
    "options",
    [
        dict(),
        dict(maxiter=2),
        dict(maxiter=2.0),
        dict(maxiter=np.float64(2.5)),
        dict(maxiter=0),
        dict(maxiter=np.inf),
        dict(maxfun=0),
        dict(maxfun=3),
        dict(maxfun=1e300),
        dict(gtol=np.inf),
        dict(gtol=-1, maxiter=3),
        dict(ftol=np.inf),
        dict(ftol=0.9, gtol=0),
        dict(maxcor=1, maxiter=4),
    ],
)
def test_messages_statuses_and_counts_are_scipys(options):
    theirs, ours = both(rosen, START, jac=rosen_der, options=options)
    assert (ours.message, ours.status, ours.success) == (theirs.message, theirs.status, theirs.success)
    assert ours.x.dtype == theirs.x.dtype == np.float64
    if theirs.nit < 5:  # rounding errors have not parted the two yet
        assert (ours.nit, ours.nfev, ours.njev) == (theirs.nit, theirs.nfev, theirs.njev)
        assert ours.x == pytest.approx(theirs.x, rel=1e-8)
        assert ours.jac == pytest.approx(theirs.jac, rel=1e-6, abs=1e-8)


def test_a_limit_goes_before_convergence():
    theirs, ours = both(bowl, np.zeros(3), jac=True, options=dict(maxiter=2))
    assert (ours.message, ours.status, ours.nit) == (theirs.message, theirs.status, theirs.nit)
    assert ours.status == 1
    assert ours.reason is Status.MAX_ITERATIONS


@pytest.mark.parametrize(
    "fun", [lambda x: (x @ x, -2 * x), lambda x: (1.0, np.full(3, np.nan)), lambda x: (1.0, -2 * x)]
)
def test_trouble_is_called_abnormal(fun):
    theirs, ours = both(fun, np.ones(3), jac=True)
    assert (ours.status, ours.success) == (theirs.status, theirs.success) == (2, False)
    word = "ABNORMAL: " if NEW_WORDS else "ABNORMAL_TERMINATION_IN_LNSRCH"
    assert ours.message.startswith(word)
    assert theirs.message.startswith(word)
    assert len(ours.message) > len(theirs.message)  # ours says what happened


def test_a_start_that_is_not_finite_is_a_failure_and_no_error():
    for bad in (np.nan, np.inf):
        theirs, ours = both(bowl, np.array([1.0, bad, 1.0]), jac=True)
        assert (ours.status, ours.success) == (theirs.status, theirs.success)
        assert ours.reason is Status.NONFINITE_START
        assert ours.nfev == 1


def test_programs_that_look_for_words_find_them():
    # BoTorch has matched "TOTAL NO. of ITERATIONS REACHED LIMIT" and "f AND g EVALUATIONS EXCEEDS LIMIT" since before
    # SciPy 1.15, and the words in capitals since; scikit-learn prints the message; others search for "CONVERGENCE".
    word = "OF" if NEW_WORDS else "of"
    limits = [dict(maxiter=2), dict(maxfun=2)]
    said = [minimize(rosen, START, jac=rosen_der, method=scipy_method, options=o).message for o in limits]
    assert re.search(f"^STOP: TOTAL NO. {word} ITERATIONS REACHED LIMIT$", said[0])
    assert re.search(f"^STOP: TOTAL NO. {word} (F,G|f AND g) EVALUATIONS EXCEEDS LIMIT$", said[1])
    assert minimize(rosen, START, jac=rosen_der, method=scipy_method).message.startswith("CONVERGENCE: ")


def test_options_of_ours_are_there_too():
    r = minimize(rosen, START, jac=rosen_der, method=scipy_method, options=dict(target=1.0, line_search="va15"))
    assert r.reason is Status.TARGET
    assert r.message.startswith("CONVERGENCE: ")
    assert r.fun <= 1.0
    r = minimize(rosen, START, jac=rosen_der, method=scipy_method, options=dict(time_limit=1e-9))
    assert r.message == "STOP: CPU EXCEEDING THE TIME LIMIT"


# ---- bounds ----


def test_two_arrays_are_two_pairs():
    pairs = (np.array([0.0, 1.0]), np.array([0.5, 2.0]))
    theirs, ours = both(value, np.zeros(2), bounds=pairs)
    assert ours.x == pytest.approx(theirs.x, abs=1e-6) == [1.0, 2.0]


@pytest.mark.parametrize(
    "bounds",
    [
        [(0, 1), (None, 2), (-np.inf, None)],
        np.array([[0, 1], [-1, 2], [0.5, 0.75]]),
        np.array([[0, 1], [None, 2], [0.5, None]]),
        Bounds([0, -np.inf, 1], 2),
        Bounds(0, 1),
        [(np.array([0.5]), np.array([2.0]))] * 3,
        [(0.0, 2.5)],
        [(None, None)] * 3,
        None,
    ],
    ids=str,
)
def test_bounds_in_every_form(bounds):
    theirs, ours = both(bowl, np.zeros(3), jac=True, bounds=bounds)
    assert ours.x == pytest.approx(theirs.x, abs=1e-6)
    assert ours.message == theirs.message


@pytest.mark.parametrize(
    "bounds", [[(2, 1)] * 3, [(0, 1)] * 2, (0, 1), (np.zeros(3), np.ones(3)), Bounds(np.zeros(2), np.ones(2)), []]
)
def test_bounds_that_are_none_are_refused_with_the_same_error(bounds):
    errors = []
    for method in ("L-BFGS-B", scipy_method):
        with pytest.raises((ValueError, TypeError)) as caught:
            minimize(bowl, np.zeros(3), jac=True, bounds=bounds, method=method)
        errors.append((caught.type, str(caught.value)))
    assert errors[0][0] is errors[1][0]
    if "bound" in errors[0][1]:
        assert errors[0] == errors[1]


def test_a_start_outside_is_moved_inside_without_a_word():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        theirs, ours = both(Counting(bowl), np.full(3, 9.0), jac=True, bounds=[(0, 1)] * 3)
    assert (ours.x == theirs.x).all()


# ---- fixed variables ----


def test_fixed_variables_are_not_differenced():
    free, n = 4, 40
    bounds = [(0.0, 2.0)] * free + [(1.0, 1.0)] * (n - free)
    counts = []
    for method in ("L-BFGS-B", scipy_method):
        fun = Counting(value)
        r = minimize(fun, np.full(n, 0.5), method=method, bounds=bounds)
        assert r.nfev == len(fun.points)
        assert np.isnan(r.jac[free:]).all()
        assert np.isfinite(r.jac[:free]).all()
        assert r.hess_inv is None
        assert all((point[free:] == 1.0).all() for point in fun.points)
        counts.append(r.nfev)
    assert counts[0] == counts[1]


def test_with_a_gradient_fixed_variables_have_theirs():
    theirs, ours = both(bowl, np.zeros(3), jac=True, bounds=[(1, 1), (0, 2), (0, 2)])
    assert ours.jac == pytest.approx(theirs.jac)
    assert ours.hess_inv is not None


@pytest.mark.parametrize("unknown", [np.nan, None])
def test_what_a_gradient_does_not_know_of_fixed_variables_is_not_needed(unknown):
    def fun(x):
        return value(x), [unknown, 2 * (x[1] - 3)]

    r = minimize(fun, np.zeros(2), jac=True, method=scipy_method, bounds=[(1, 1), (0, 2)])
    assert r.success
    assert r.x.tolist() == [1.0, 2.0]


def test_where_everything_is_fixed():
    theirs, ours = both(value, np.zeros(2), bounds=[(1, 1), (2, 2)])
    for field in theirs:
        assert np.all(ours[field] == theirs[field])


# ---- evaluations ----


def test_a_pair_is_asked_once_a_point_and_may_keep_or_change_it():
    def fun(x):
        pair = bowl(x)
        x[:] = np.nan
        return pair

    for method in ("L-BFGS-B", scipy_method):
        counted = Counting(fun)
        r = minimize(counted, np.zeros(3), jac=True, method=method)
        assert r.success
        assert r.nfev == r.njev == len(counted.points)
        assert len({id(point) for point in counted.points}) == len(counted.points)


def test_values_and_gradients_in_every_shape():
    forms = [
        (lambda x: np.array(value(x)), lambda x: bowl(x)[1].tolist()),
        (lambda x: np.array([[value(x)]]), lambda x: bowl(x)[1][:, None]),
        (lambda x: np.float32(value(x)), lambda x: bowl(x)[1].astype(np.float32)),
    ]
    for fun, jac in forms:
        theirs, ours = both(fun, np.zeros(3), jac=jac)
        assert ours.x == pytest.approx(theirs.x, abs=1e-6)
    assert minimize(lambda x: (x - 1) ** 2, 0.0, jac=lambda x: 2 * (x - 1), method=scipy_method).x == pytest.approx([1])
    with pytest.raises(ValueError, match="must return a scalar value"):
        minimize(lambda x: x, np.zeros(2), jac=lambda x: x, method=scipy_method)


def test_single_precision_points_stay_single():
    seen = set()

    def fun(x):
        seen.add(x.dtype)
        return bowl(x)

    r = minimize(fun, np.zeros(3, np.float32), jac=True, method=scipy_method)
    assert seen == {np.dtype(np.float32)}
    assert r.x.dtype == r.jac.dtype == np.float64
    assert r.x == pytest.approx(3, rel=1e-5)


STEPS = [
    dict(jac=None),
    dict(jac=None, eps=1e-5),
    dict(jac=None, eps=np.array([1e-5, 1e-6, -1e-7])),
    dict(jac=None, eps=1e-30),
    dict(jac="2-point"),
    dict(jac="2-point", finite_diff_rel_step=1e-6),
    dict(jac="3-point", finite_diff_rel_step=np.array([1e-4, 1e-5, 1e-6])),
    dict(jac="3-point"),
    dict(jac="cs"),
]


def in_order(point):
    return [(x.real, x.imag) for x in point]


@pytest.mark.parametrize("bounds", [None, [(-1.2, 0), (1 - 1e-9, 1 + 3e-9), (0, 0.5)]])
@pytest.mark.parametrize("given", STEPS, ids=str)
def test_differences_take_scipys_points(given, bounds):
    jac, options = given["jac"], {name: step for name, step in given.items() if name != "jac"}
    theirs, ours = Counting(rosen), Counting(rosen)
    # One gradient at x0, and then the run is over: SciPy hands jac="3-point" to its own method only.
    a = minimize(theirs, START, jac=jac, bounds=bounds, method="L-BFGS-B", options=dict(gtol=np.inf, **options))
    b = scipy_method(ours, START, jac=jac, bounds=bounds, gtol=np.inf, **options)
    assert a.nfev == b.nfev == len(ours.points)
    for p, q in zip(sorted(theirs.points, key=in_order), sorted(ours.points, key=in_order)):
        assert np.allclose(p, q, rtol=0, atol=1e-15)
    # Rounding errors of f, weighted with 3, 4 and 1 at most (one-sided, of order two), over the shortest step.
    steps = np.abs(np.array(ours.points[1:]) - START)
    bound = 8 * np.finfo(float).eps * rosen(START) / steps[steps > 0].min()
    assert b.jac == pytest.approx(a.jac, abs=bound, nan_ok=True)


def test_differences_of_workers():
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for workers in (pool.map, map, 1):
            r = scipy_method(rosen, START, workers=workers)
            assert r.x == pytest.approx([1, 1, 1], abs=1e-4)
    with pytest.raises(RuntimeError, match="workers is -3"):
        scipy_method(rosen, START, workers=-3)


# ---- what SciPy passes along ----


def test_what_is_not_used_warns_as_in_scipy():
    cases = [
        (dict(hess=lambda x: np.eye(3)), RuntimeWarning, r"does not use Hessian information \(hess\)"),
        (dict(hessp=lambda x, p: p), RuntimeWarning, r"does not use Hessian-vector product information \(hessp\)"),
        (dict(constraints=[dict(type="eq", fun=value)]), RuntimeWarning, "cannot handle constraints"),
        (dict(options=dict(return_all=True)), RuntimeWarning, "does not support the return_all option"),
        (dict(options=dict(foo=1)), OptimizeWarning, "Unknown solver options: foo"),
    ]
    if NEW_WORDS:
        cases += [(dict(options={name: 0}), DeprecationWarning, "are deprecated") for name in ("disp", "iprint")]
    for given, category, words in cases:
        with pytest.warns(category, match=words) as caught:
            assert minimize(bowl, np.zeros(3), jac=True, method=scipy_method, **given).success
        assert [w.filename for w in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        minimize(bowl, np.zeros(3), jac=True, method=scipy_method, constraints=[], callback=None, tol=1e-9)


def test_tolerances():
    for given in (dict(tol=1e-1), dict(tol=1e-1, options=dict(gtol=1e-9, ftol=0))):
        theirs, ours = both(rosen, START, jac=rosen_der, **given)
        assert abs(ours.nit - theirs.nit) <= 2
        assert ours.message == theirs.message


@pytest.mark.parametrize("form", ["point", "result"])
def test_callbacks(form):
    seen = {}
    for method in ("L-BFGS-B", scipy_method):
        points = seen[method] = []

        def point(xk):
            points.append(xk.copy())  # noqa: B023
            if len(points) == 3:  # noqa: B023
                raise StopIteration

        def result(intermediate_result):
            assert intermediate_result.fun == rosen(intermediate_result.x)
            point(intermediate_result.x)

        r = minimize(rosen, START, jac=rosen_der, method=method, callback=point if form == "point" else result)
        assert len(points) == 3
        assert (r.x == points[-1]).all()
        if tuple(map(int, scipy.__version__.split(".")[:2])) >= (1, 12) or method is scipy_method:
            assert (r.status, r.success) == (99, False)
            assert r.message == "`callback` raised `StopIteration`."
    for p, q in zip(*seen.values()):
        assert p == pytest.approx(q, rel=1e-10)


def test_the_inverse_hessian_has_scipys_attributes():
    theirs, ours = both(rosen, START, jac=rosen_der, options=dict(maxiter=4))
    inverse = ours.hess_inv
    assert isinstance(inverse, LbfgsInvHessProduct)
    assert isinstance(inverse, LinearOperator)
    assert inverse.n_corrs == len(inverse.sk) == 4
    for name in ("sk", "yk", "rho"):
        known = getattr(theirs.hess_inv, name)  # SciPy stops before it has taken up the last pair
        assert getattr(inverse, name)[: len(known)] == pytest.approx(known, rel=1e-6, abs=1e-8)
    dense = inverse.todense()
    assert dense == pytest.approx(dense.T)
    assert inverse @ np.eye(3) == pytest.approx(dense)
    assert inverse.dot(inverse.yk[-1]) == pytest.approx(inverse.sk[-1])
    assert (inverse.T @ START).tolist() == (inverse @ START).tolist()


def test_called_by_itself():
    r = stepwell.scipy_method(lambda x, a: (a * x @ x, 2 * a * x), [1.0, 2.0], args=2.0, jac=True)
    assert r.success
    assert r.x == pytest.approx(0, abs=1e-6)
    with pytest.raises(ValueError, match="maxls must be positive"):
        scipy_method(rosen, START, maxls=0)
    with pytest.warns(OptimizeWarning, match="maxcor is 600"):
        scipy_method(rosen, START, maxcor=600)
