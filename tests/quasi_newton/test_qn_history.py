"""Histories in a narrower type than x, and products of pairs that are kept: neither changes what a run promises."""

from __future__ import annotations

import numpy as np
import pytest

import stepwell
from stepwell import LBFGSB
from stepwell.quasi_newton.state import memory_words, thread_bytes

#: Half a unit in the last place of a number, relative to it.
ROUNDING = {"float32": 2.0**-24, "bfloat16": 2.0**-8}
NARROW = [("float64", "float32"), ("float64", "bfloat16"), ("float32", "bfloat16")]


def torsion(count):
    problem = stepwell.problems.get("torsion", nx=count, ny=count)
    return problem.fun, problem.bounds, problem.x0


def run(opt, fun, turns):
    while not opt.done and turns:
        opt.tell(*fun(opt.x))
        turns -= 1
    return opt


@pytest.mark.parametrize(("dtype", "history"), NARROW)
@pytest.mark.parametrize("factor", [1.0, 2.0**300, 2.0**-300])
def test_pairs_are_stored_to_their_rounding_in_any_units(dtype, history, factor):
    """A pair may be scaled, both parts alike by a power of two; its numbers are then right to half a unit."""
    if dtype == "float32":
        factor = 2.0 ** (np.log2(factor) / 10)
    fun, _, _ = torsion(7)
    opt = LBFGSB(np.linspace(-1, 1, 49).astype(dtype), m=4, history=history)
    points, gradients = [], []
    while not opt.done and len(points) < 9:
        f, g = fun(opt.x)
        before = opt.nit
        point, g = opt.x.copy(), (factor * g).astype(dtype)
        opt.tell(factor * f, g)
        if opt.nit > before or not points:
            points.append(point.astype(np.float64))
            gradients.append(g.astype(np.float64))
    for k, (s, y) in enumerate(zip(*reversed_pairs(opt))):
        exact_y = gradients[-1 - k] - gradients[-2 - k]
        scale = np.median(y[exact_y != 0] / exact_y[exact_y != 0])
        power = 2.0 ** np.round(np.log2(scale))
        assert abs(scale / power - 1) < 0.01
        np.testing.assert_allclose(y, power * exact_y, rtol=1.01 * ROUNDING[history])
        # s is step times direction, which differs from the difference of the points by their rounding.
        exact_s = points[-1 - k] - points[-2 - k]
        at = 4 * np.finfo(dtype).eps * np.abs(points[-1 - k]).max() * power
        np.testing.assert_allclose(s, power * exact_s, rtol=1.01 * ROUNDING[history], atol=at)
        assert 0.05 < s @ y < 8


def reversed_pairs(opt):
    s, y = opt._run.target.pairs(0)
    return [row.astype(np.float64) for row in reversed(s)], [row.astype(np.float64) for row in reversed(y)]


@pytest.mark.parametrize("history", ["float32", "bfloat16"])
@pytest.mark.parametrize("unit", [2.0**60, 2.0**-60])
def test_units_of_x_and_f_do_not_matter(history, unit):
    """Powers of two are exact everywhere, so that a run takes the very same points, whatever is done to its pairs."""
    fun, _, x0 = torsion(12)

    def solve(unit, factor):
        def scaled(x):
            f, g = fun(unit * x)
            return factor * f, factor * unit * g

        options = {"history": history, "gtol": 0, "ftol": 0, "maxiter": 25, "h0": np.full(x0.size, unit**-2 / factor)}
        return stepwell.minimize(scaled, x0 / unit, jac=True, options=options)

    plain, scaled = solve(1.0, 1.0), solve(unit, 2.0**100)
    assert plain.nit == scaled.nit == 25
    np.testing.assert_array_equal(unit * scaled.x, plain.x)


@pytest.mark.parametrize(("dtype", "history"), NARROW)
@pytest.mark.parametrize("name", ["torsion", "journal-bearing", "minimal-surface", "combustion", "rosenbrock"])
def test_same_minimum(name, dtype, history):
    problem = stepwell.problems.get(name)
    start = np.asarray(problem.x0, dtype)
    found = [
        stepwell.minimize(problem.fun, start, jac=True, bounds=problem.bounds, options={"history": kept, "maxcor": 8})
        for kept in (None, history)
    ]
    assert all(one.success for one in found)
    # Both end by ftol: within a few of its decreases of the minimum.
    rounding = 1e-6 if dtype == "float64" else 1e-4
    assert abs(found[1].fun - found[0].fun) <= rounding * max(1, abs(found[0].fun))
    assert found[1].nfev <= 1.5 * found[0].nfev + 10


@pytest.mark.parametrize("history", ["float32", "bfloat16"])
def test_the_inverse_hessian_is_that_of_the_stored_pairs(history):
    fun, _, x0 = torsion(9)
    result = stepwell.minimize(fun, x0, jac=True, options={"history": history, "maxiter": 20, "maxcor": 5})
    newest_s, newest_y = result.hess_inv.sk[-1], result.hess_inv.yk[-1]
    np.testing.assert_allclose(result.hess_inv @ newest_y, newest_s, atol=1e-12 * np.abs(newest_s).max())


@pytest.mark.parametrize("history", [None, "float32", "bfloat16"])
@pytest.mark.parametrize("cauchy", ["exact", "none"])
def test_resumed_runs_have_the_same_bits(history, cauchy):
    """n = 3025 is large enough for products of pairs to be kept; a resumed run takes them anew."""
    fun, bounds, x0 = torsion(55)
    make = {"m": 6, "history": history, "cauchy": cauchy, "bounds": bounds}
    whole = run(LBFGSB(x0, **make), fun, 60)
    for turns in (1, 9, 33):
        part = run(LBFGSB(x0, **make), fun, turns)
        again = run(LBFGSB.from_state_dict(part.state_dict()), fun, 60 - turns)
        np.testing.assert_array_equal(again.x, whole.x)
        assert again.nit == whole.nit > 40


@pytest.mark.parametrize("history", [None, "float32"])
def test_threads_and_batches_change_no_bit(history):
    fun, bounds, x0 = torsion(110)
    points = []
    for threads in (1, 2):
        points.append(run(LBFGSB(x0, m=6, history=history, threads=threads, bounds=bounds), fun, 40).x)
    np.testing.assert_array_equal(*points)
    both = stepwell.minimize_batch(
        lambda rows: tuple(map(np.stack, zip(*(fun(row) for row in rows)))),
        np.stack([x0, 0.5 * x0]),
        jac=True,
        bounds=bounds,
        options={"maxcor": 6, "history": history, "maxiter": 15},
    )
    alone = stepwell.minimize(
        fun, x0, jac=True, bounds=bounds, options={"maxcor": 6, "history": history, "maxiter": 15}
    )
    np.testing.assert_array_equal(both.x[0], alone.x)


def test_memory():
    for history, part in ((None, 1), ("float32", 1 / 2), ("bfloat16", 1 / 4)):
        opt = LBFGSB(np.ones(100_000), m=10, history=history, threads=1)
        expected = 8 * memory_words(100_000, 10, history=part) + thread_bytes(10)
        assert opt.nbytes == pytest.approx(expected, rel=0.01)


def test_wrong_histories():
    with pytest.raises(ValueError, match="history is 'float16'; allowed: 'float64', 'float32', 'bfloat16'"):
        LBFGSB(np.ones(3), history="float16")
    with pytest.raises(ValueError, match="history is 'float64'; allowed: float32, bfloat16, as x0 is float32"):
        stepwell.minimize(lambda x: (x @ x, 2 * x), np.ones(3, np.float32), jac=True, options={"history": "float64"})
    state = LBFGSB(np.ones(3), history="float32").state_dict()
    state["settings"] = state["settings"].replace("float32", "bfloat16")
    with pytest.raises(ValueError, match="checksum"):
        LBFGSB.from_state_dict(state)
