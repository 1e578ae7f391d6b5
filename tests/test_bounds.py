"""One reading of bounds in every solver: all forms, all array libraries, and SciPy's meaning where two are possible."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.optimize
from scipy.optimize import Bounds, OptimizeWarning
from small_problems import bowl_about

import stepwell
from stepwell.arrays.bounds import split_bounds

TARGET = np.array([2.0, -3.0, 0.25])
LOWER, UPPER = np.array([0.0, -1.0, 0.0]), np.array([1.0, np.inf, 0.5])
#: The solution of every problem here: the nearest point within the bounds to TARGET.
WITHIN = np.array([1.0, -1.0, 0.25])


def libraries():
    yield "numpy", np.asarray
    yield "torch", lambda values: pytest.importorskip("torch").tensor(np.asarray(values, float))
    yield "jax", lambda values: pytest.importorskip("jax.numpy").asarray(np.asarray(values, float))


FORMS = {
    "Bounds": lambda put: Bounds(LOWER, UPPER),
    "lower and upper": lambda put: (put(LOWER), put(UPPER)),
    "list of lower and upper": lambda put: [put(LOWER), put(UPPER)],
    "two lists": lambda put: (LOWER.tolist(), [1.0, None, 0.5]),
    "(2, n)": lambda put: put(np.stack([LOWER, UPPER])),
    "(n, 2)": lambda put: put(np.stack([LOWER, UPPER], axis=1)),
    "pairs": lambda put: [(0.0, 1.0), (-1, None), (0, 0.5)],
    "tuple of pairs": lambda put: ((0.0, 1.0), (-1, None), (0, 0.5)),
    "zip": lambda put: zip(LOWER.tolist(), UPPER.tolist()),
}


def host(x):
    return x.detach().numpy() if hasattr(x, "detach") else np.asarray(x)


def bowl(put):
    return bowl_about(put(TARGET))


def by_minimize(put, bounds):
    return stepwell.minimize(bowl(put), put(0.25 * np.ones(3)), jac=True, bounds=bounds).x


def by_minimize_batch(put, bounds):
    return stepwell.minimize_batch(bowl(put), put(0.25 * np.ones((2, 3))), jac=True, bounds=bounds).x[1]


def by_ask_and_tell(put, bounds):
    opt, fun = stepwell.LBFGSB(put(0.25 * np.ones(3)), bounds), bowl(put)
    while not opt.done:
        opt.tell(*fun(opt.x))
    return opt.accepted_point()


def by_lsq_linear(put, bounds):
    return stepwell.lsq_linear(put(np.eye(3)), put(TARGET), bounds).x


def by_lsq_linear_of_many(put, bounds):
    return stepwell.lsq_linear(put(np.eye(3)), put(np.stack([0 * TARGET, TARGET])), bounds).x[1]


def by_equalities(put, bounds):
    row = put(np.array([[1.0, 1.0, 1.0], [0.0, 0.0, 1.0]]))
    return stepwell.lsq_linear(put(np.eye(3)), put(TARGET), bounds, equality=(row, put(np.array([0.25, 0.25])))).x


def by_lsq_gram(put, bounds):
    return stepwell.lsq_gram(put(np.eye(3)), put(TARGET), bounds).x


def by_tikhonov(put, bounds):
    return stepwell.tikhonov(put(np.eye(3)), put(TARGET), 0.0, bounds=bounds, tol=1e-12).x


SOLVERS = (
    by_minimize,
    by_minimize_batch,
    by_ask_and_tell,
    by_lsq_linear,
    by_lsq_linear_of_many,
    by_equalities,
    by_lsq_gram,
    by_tikhonov,
)


@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: solver.__name__[3:])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_in_every_solver(form, solver, library):
    put = dict(libraries())[library]
    if library == "jax":
        jax = pytest.importorskip("jax")
        with jax.enable_x64(True):
            x = host(solver(put, FORMS[form](put)))
    else:
        x = host(solver(put, FORMS[form](put)))
    np.testing.assert_allclose(x, WITHIN, atol=1e-7)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("library", ["torch", "jax"])
def test_argmin(form, library):
    put = dict(libraries())[library]
    bounds = FORMS[form](put)
    if library == "jax":
        jax = pytest.importorskip("jax")
        with jax.enable_x64(True):
            x = stepwell.argmin(lambda x, c: ((x - c) ** 2).sum(), put(np.zeros(3)), put(TARGET), bounds=bounds)
    else:
        x = stepwell.argmin(lambda x, c: ((x - c) ** 2).sum(), put(np.zeros(3)), put(TARGET), bounds=bounds)
    np.testing.assert_allclose(host(x), WITHIN, atol=1e-7)


@pytest.mark.parametrize("form", [form for form in FORMS if form != "zip"])  # groups are read more than once
def test_optimizer_of_torch(form):
    torch = pytest.importorskip("torch")
    from stepwell.torch import LBFGSB

    bounds = FORMS[form](torch.tensor)
    x = torch.nn.Parameter(torch.full((3,), 0.25, dtype=torch.float64))
    # A list has bounds for each parameter.
    optimizer = LBFGSB([x], bounds=[bounds] if isinstance(bounds, list) else bounds, max_iter=50)

    def closure():
        optimizer.zero_grad()
        loss = ((x - torch.tensor(TARGET)) ** 2).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    np.testing.assert_allclose(host(x), WITHIN, atol=1e-7)


@pytest.mark.parametrize("form", ["Bounds", "(n, 2)", "pairs", "tuple of pairs", "zip"])
def test_method_of_scipy(form):
    x = scipy.optimize.minimize(
        bowl(np.asarray), np.full(3, 0.25), jac=True, bounds=FORMS[form](np.asarray), method=stepwell.scipy_method
    ).x
    np.testing.assert_allclose(x, WITHIN, atol=1e-7)


# ---- two variables: both readings are possible ----

A2, B2 = np.eye(2), np.array([1.0, 1.0])
LISTS = ([0, 0], [0.5, 2])


def parabola(x):
    return ((x - 1) ** 2).sum(-1), 2 * (x - 1)


@pytest.mark.parametrize(
    "bounds", [LISTS, [[0, 0], [0.5, 2]], ((0, 0), (0.5, 2)), np.array([[0, 0], [0.5, 2]]), Bounds([0, 0], [0.5, 2])]
)
def test_least_squares_read_as_scipys_lsq_linear(bounds):
    theirs = scipy.optimize.lsq_linear(A2, B2, bounds).x
    assert theirs == pytest.approx([0.5, 1.0])
    for ours in (
        stepwell.lsq_linear(A2, B2, bounds),
        stepwell.lsq_gram(A2, B2, bounds),
        stepwell.tikhonov(A2, B2, 0.0, bounds=bounds),
    ):
        np.testing.assert_allclose(ours.x, theirs, atol=1e-7)


@pytest.mark.parametrize(
    "bounds", [LISTS, [[0, 0], [0.5, 2]], ((0, 0), (0.5, 2)), np.array([[0, 0], [0.5, 2]]), Bounds([0, 0.5], [0, 2])]
)
def test_minimize_reads_as_scipys(bounds):
    start = np.array([0.0, 0.6])
    theirs = scipy.optimize.minimize(parabola, start, jac=True, bounds=bounds, method="L-BFGS-B").x
    assert theirs == pytest.approx([0.0, 1.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OptimizeWarning)
        ours = [
            stepwell.minimize(parabola, start, jac=True, bounds=bounds).x,
            stepwell.minimize_batch(parabola, start[None], jac=True, bounds=bounds).x[0],
            scipy.optimize.minimize(parabola, start, jac=True, bounds=bounds, method=stepwell.scipy_method).x,
        ]
    for x in ours:
        np.testing.assert_allclose(x, theirs, atol=1e-7)


LIVE_PAIRS = [lambda u: [(0.0, u)] * 3, lambda u: [(0.0, None), (None, u), (0.0, u)], lambda u: ([0.0] * 3, [u] * 3)]


@pytest.mark.parametrize("written", LIVE_PAIRS)
def test_numbers_in_pairs_keep_their_derivatives_in_torch(written):
    """All of |x - 3|² pulls against the upper bounds: each x at a bound u has the derivative 1."""
    torch = pytest.importorskip("torch")
    u = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    three = torch.full((3,), 3.0, dtype=torch.float64)
    xs = (
        stepwell.argmin(
            lambda x, c: ((x - c) ** 2).sum(), torch.zeros(3, dtype=torch.float64), three, bounds=written(u)
        ),
        stepwell.lsq_linear(torch.eye(3, dtype=torch.float64), three, bounds=written(u)).x,
    )
    for x in xs:
        (slope,) = torch.autograd.grad(x.sum(), u)
        assert float(slope) == pytest.approx(float((x == 1).sum()))
        assert float(slope) >= 2
    # A solver without derivatives reads the values.
    assert stepwell.minimize(lambda x: (float(x @ x), 2 * x), np.ones(3), jac=True, bounds=written(u)).success


@pytest.mark.parametrize("written", LIVE_PAIRS)
def test_numbers_in_pairs_keep_their_derivatives_in_jax(written):
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    jnp = jax.numpy

    def least(u):
        return stepwell.argmin(lambda x, c: jnp.sum((x - c) ** 2), jnp.zeros(3), 3.0, bounds=written(u)).sum()

    def linear(u):
        return stepwell.lsq_linear(jnp.eye(3), jnp.full(3, 3.0), bounds=written(u)).x.sum()

    count = 2 if written(1.0)[0] == (0.0, None) else 3
    for solve in (least, linear):
        assert float(jax.grad(solve)(1.0)) == pytest.approx(count)


def test_two_lists_warn_and_show_both_readings():
    with pytest.warns(OptimizeWarning) as heard:
        x = stepwell.minimize(parabola, np.array([0.0, 0.6]), jac=True, bounds=LISTS).x
    np.testing.assert_allclose(x, [0.0, 1.0], atol=1e-7)
    (said,) = {str(one.message) for one in heard}
    assert "two pairs, 0 <= x[0] <= 0 and 0.5 <= x[1] <= 2" in said
    assert "lower = [0, 0] and upper = [0.5, 2]" in said
    assert heard[0].filename == __file__
    # What the warning says to write means what it says, without a word.
    from re import findall

    written = [eval(text, {"Bounds": Bounds}) for text in findall(r"Bounds\(.*?\]\)", said)]
    assert len(written) == 2
    for bounds, expected in zip(written, ([0.0, 1.0], [0.5, 1.0])):
        x = stepwell.minimize(parabola, np.array([0.0, 0.6]), jac=True, bounds=bounds).x
        np.testing.assert_allclose(x, expected, atol=1e-7)


@pytest.mark.parametrize(
    "bounds",
    [
        [[0, 0], [0.5, 2]],  # a list of pairs
        ((0, 0), (0.5, 2)),  # as SciPy's documentation writes pairs
        ([0, 1], [1, 2]),  # the same either way
        ([0, 5], [1, 2]),  # 5 is above 2: pairs alone
        ([0, None], [None, 0]),
    ],
    ids=str,
)
def test_no_warning_where_there_is_one_reading(bounds):
    assert split_bounds(bounds) is not None  # warnings are errors


@pytest.mark.parametrize(
    ("bounds", "rule", "said"),
    [
        (5.0, "pairs", "bounds cannot be read; got float; allowed: None; a scipy"),
        ("ab", "pairs", "bounds cannot be read; got str"),
        ("ab", "ends", "bounds is 'ab'; allowed: a pair"),
        (5.0, "ends", "bounds is 5.0; allowed: a pair"),
        ((0, 1, 2), "ends", r"bounds is \(0, 1, 2\); allowed: a pair"),
        (np.zeros((3, 3)), "pairs", r"bounds has shape \(3, 3\); allowed"),
        (np.zeros((3, 3)), "ends", r"bounds has shape \(3, 3\); allowed: a pair"),
        (np.zeros(3), "ends", r"bounds has shape \(3,\)"),
        (np.zeros((4, 3, 2)), "ends", r"bounds has shape \(4, 3, 2\)"),
    ],
    ids=str,
)
def test_what_cannot_be_read(bounds, rule, said):
    with pytest.raises(ValueError, match=said):
        split_bounds(bounds, rule)


def test_arrays_of_more_axes():
    low, high = np.zeros((3, 2)), np.arange(6.0).reshape(3, 2)
    for bounds in (np.stack([low, high]), np.stack([low, high], axis=-1)):
        found = split_bounds(bounds, shape=(3, 2))
        assert all(map(np.array_equal, found, (low, high)))
    # Every system has its own bounds.
    found = split_bounds(np.stack([low, high]), "ends")
    assert all(map(np.array_equal, found, (low, high)))


def test_derivatives_reach_an_array_of_bounds():
    torch = pytest.importorskip("torch")
    bounds = torch.tensor(np.stack([LOWER, UPPER]), requires_grad=True)
    for x in (
        stepwell.lsq_linear(torch.eye(3, dtype=torch.float64), torch.tensor(TARGET), bounds).x,
        stepwell.argmin(
            lambda x, c: ((x - c) ** 2).sum(), torch.zeros(3, dtype=torch.float64), torch.tensor(TARGET), bounds=bounds
        ),
    ):
        (gradient,) = torch.autograd.grad(x.sum(), bounds)
        assert gradient.tolist() == [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]


def test_a_number_of_scipys_bounds_holds_for_all():
    for x in (
        stepwell.lsq_linear(A2, B2, Bounds(0, 0.5)).x,
        stepwell.lsq_linear(A2, np.stack([B2, B2]), Bounds(0, 0.5)).x[1],
        stepwell.lsq_gram(A2, B2, Bounds(0, 0.5)).x,
        stepwell.tikhonov(A2, B2, 0.0, bounds=Bounds(0, 0.5)).x,
        stepwell.minimize(parabola, np.zeros(2), jac=True, bounds=Bounds(0, 0.5)).x,
    ):
        np.testing.assert_allclose(x, [0.5, 0.5], atol=1e-12)


def test_no_bounds_of_least_squares():
    np.testing.assert_allclose(stepwell.lsq_linear(A2, -B2, None).x, -B2)
    np.testing.assert_allclose(stepwell.lsq_gram(A2, -B2, bounds=None).x, -B2)


def test_a_sum_has_one_pair():
    assert split_bounds((None, 1), "ends", name="sum_bounds", one=True) == (-np.inf, 1)
    with pytest.raises(TypeError, match=r"sum_bounds is \[\(0, 1\)\]; allowed: a pair"):
        stepwell.lsq_linear(A2, B2, sum_bounds=[(0, 1)])
