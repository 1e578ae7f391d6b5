"""Handlers of ``jax.ffi``: what they answer is what callbacks answer, bit for bit; without them callbacks serve.

The answers of callbacks are held against the optimality conditions and differences in test_jax_nnls.py.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest

import stepwell

jax = pytest.importorskip("jax")
jnp = jax.numpy
from stepwell import _core  # noqa: E402
from stepwell.derivatives import jax_handlers  # noqa: E402

built = pytest.mark.skipif(not hasattr(_core, "JAX_HANDLERS"), reason="built without STEPWELL_JAX")


@pytest.fixture(autouse=True)
def double():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.fixture
def both_ways(monkeypatch):
    """Calls a function twice: as a program with handlers, and as one with callbacks."""

    def call(function, *arguments):
        answers = []
        for there in (True, False):
            monkeypatch.setattr(jax_handlers, "registered", lambda there=there: there)
            program = jax.jit(lambda *given: function(*given))  # a function of its own is traced anew
            assert ("stepwell_" in program.lower(*arguments).as_text()) is there
            answers.append(jax.tree.map(np.asarray, program(*arguments)))
        return answers

    assert jax_handlers.registered()
    return call


def assert_same(pair):
    for mine, other in zip(*map(jax.tree.leaves, pair), strict=True):
        assert mine.dtype == other.dtype
        np.testing.assert_array_equal(mine, other)


def numbers(*shape, dtype=np.float64, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape).astype(dtype))


def fields(A, b, lam=0.0, **options):
    result = stepwell.nnls(A, b, lam=lam, **options)
    return {
        field.name: getattr(result, field.name)
        for field in dataclasses.fields(result)
        if field.name not in ("method", "choice")
    }


@built
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shapes", [((9, 6), (9,)), ((30, 20), (30,)), ((9, 6), (40, 9)), ((3, 30, 12), (3, 30))])
def test_values(both_ways, shapes, dtype):
    A, b = numbers(*shapes[0], dtype=dtype), numbers(*shapes[1], dtype=dtype, seed=1)
    assert_same(both_ways(functools.partial(fields, lam=0.1), A, b))
    assert_same(both_ways(fields, A, b))


@built
def test_values_without_double(both_ways):
    jax.config.update("jax_enable_x64", False)
    A, b = numbers(9, 6, dtype=np.float32), numbers(9, dtype=np.float32, seed=1)
    assert_same(both_ways(fields, A, b))


@built
@pytest.mark.parametrize(
    "options",
    [
        {"method": "qr"},
        {"method": "gram", "insertion": "single"},
        {"maxiter": 2, "tol": 1e-3},
        {"warm_start": "chain", "threads": 1},
    ],
)
def test_options(both_ways, options):
    A, b = numbers(30, 20), numbers(5, 30, seed=1)
    assert_same(both_ways(functools.partial(fields, **options), A, b))


@built
def test_wrong_options_are_errors_of_the_call():
    with pytest.raises(ValueError, match="method is 'svd'"):
        jax.jit(functools.partial(fields, method="svd"))(numbers(9, 6), numbers(9))


@built
def test_convolutions(both_ways):
    def solved(pulse, b):
        return fields(stepwell.Convolution(pulse, 12, origin=2), b, lam=0.2)

    pulse, b = jnp.abs(numbers(5)), numbers(3, 12, seed=1)
    assert_same(both_ways(solved, pulse, b))
    assert_same(both_ways(jax.grad(lambda p, b: solved(p, b)["x"].sum(), argnums=(0, 1)), pulse, b))
    assert_same(both_ways(jax.vmap(solved, (0, None)), jnp.abs(numbers(2, 5)), b[0]))


@built
@pytest.mark.parametrize("axes", [(None, 0, None), (0, None, None), (0, 0, 0), (None, None, 0), (None, 0, 0)])
def test_vmap_and_its_gradients(both_ways, axes):
    given = [
        numbers(*([3] if axis == 0 else []), *shape, seed=k)
        for k, (axis, shape) in enumerate(zip(axes, [(9, 6), (9,), ()]))
    ]
    given[2] = jnp.abs(given[2]) + 0.1
    assert_same(both_ways(jax.vmap(fields, axes), *given))
    gradient = jax.grad(lambda *args: fields(*args)["x"].sum(), argnums=(0, 1, 2))
    assert_same(both_ways(jax.vmap(gradient, axes), *given))


@built
def test_nested_vmap_shares_along_each_axis_alone(both_ways):
    A, b = numbers(2, 9, 6), numbers(3, 9, seed=1)
    inner = jax.vmap(fields, (None, 0))
    assert_same(both_ways(jax.vmap(inner, (0, None)), A, b))
    assert_same(both_ways(jax.vmap(jax.vmap(fields, (0, None)), (None, 0)), A, b))


@built
def test_a_shared_matrix_stays_shared_under_vmap():
    A, b = numbers(6, 4), numbers(5, 6)
    text = jax.jit(jax.vmap(lambda A, b: fields(A, b)["x"], (None, 0))).lower(A, b).as_text()
    (call,) = [line for line in text.splitlines() if "@stepwell_nnls" in line]
    assert "(tensor<1x6x4xf64>, tensor<5x6xf64>, tensor<1xf64>)" in call


@built
def test_jacobians_and_hessians(both_ways):
    A, b = numbers(8, 5), numbers(8, seed=1)
    assert_same(both_ways(jax.jacrev(lambda b: fields(A, b)["x"]), b))
    assert_same(both_ways(jax.jacfwd(lambda A: fields(A, b)["x"]), A))
    assert_same(both_ways(jax.hessian(lambda b: (fields(A, b)["x"] ** 2).sum()), b))


@built
def test_systems_that_are_not_finite(both_ways):
    A, b = numbers(9, 6), numbers(3, 9, seed=1).at[1, 2].set(jnp.nan)
    assert_same(both_ways(fields, A, b))
    assert_same(both_ways(fields, A.at[0, 0].set(jnp.inf), b))
    assert_same(both_ways(jax.vmap(jax.grad(lambda b: fields(A, b)["x"].sum())), b))


@built
def test_warm_starts_and_empty_systems_take_the_callback():
    A, b = numbers(9, 6), numbers(9, seed=1)
    cold = jax.jit(fields)(A, b)
    warm = jax.jit(lambda A, b, x: fields(A, b, warm_start=x))(A, b, cold["x"])
    np.testing.assert_allclose(warm["x"], cold["x"], rtol=1e-12)
    assert jax.jit(fields)(jnp.zeros((0, 3)), jnp.zeros(0))["x"].tolist() == [0, 0, 0]


def refused(*_, **__):
    raise NotImplementedError("another version of the interface")


@pytest.mark.parametrize("handlers", [{}, {"stepwell_nnls": None}])
def test_without_handlers_the_callback_serves(monkeypatch, handlers):
    monkeypatch.setattr(_core, "JAX_HANDLERS", handlers, raising=False)
    monkeypatch.setattr(jax.ffi, "register_ffi_target", refused)
    monkeypatch.setattr(jax_handlers, "registered", jax_handlers.registered.__wrapped__)  # not what it found before
    A, b = numbers(9, 6), numbers(9, seed=1)
    program = jax.jit(lambda A, b: fields(A, b)["x"])
    assert "stepwell_" not in program.lower(A, b).as_text()
    np.testing.assert_allclose(program(A, b), stepwell.nnls(np.asarray(A), np.asarray(b)).x, rtol=1e-12)


# ---- bounded least squares ----


def bounded_fields(A, b, bounds, **options):
    result = stepwell.lsq_linear(A, b, bounds, **options)
    names = ("x", "dual", "state", "residual", "violation", "equality_error", "lam", "status", "solves", "multipliers")
    return {name: getattr(result, name) for name in names}


BOUNDED = {
    "bounds": {},
    "a sum": {"sum_bounds": (1.0, 1.0)},
    "a range of sums": {"sum_bounds": (np.array([0.2, 0.1, 0.0, 0.3]), 1.0)},
    "weights": {"weights": np.linspace(0.0, 2.0, 9)},
    "a mask": {"mask": np.array([True, True, False, True, True, True])},
    "lambda": {"lam": 0.3},
    "lambdas": {"lam": np.array([0.1, 0.2, 0.0, 0.3])},
    "qr": {"method": "qr", "insertion": "single"},
    "chain": {"warm_start": "chain"},
}


@built
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", BOUNDED)
def test_bounded_values(both_ways, name, dtype):
    A, b = numbers(9, 6, dtype=dtype), numbers(4, 9, dtype=dtype, seed=1)
    low = jnp.full(6, -0.1, dtype)
    assert_same(both_ways(lambda A, b, low: bounded_fields(A, b, (low, 0.4), **BOUNDED[name]), A, b, low))
    if name == "bounds":
        assert_same(both_ways(lambda A, b: bounded_fields(A, b, (0.0, np.inf)), jnp.stack([A, 2 * A]), b[:2]))
        assert_same(both_ways(lambda A, b: bounded_fields(A, b, (-0.1, 0.4)), A, b[0]))


@built
@pytest.mark.parametrize("axes", [(None, 0, None), (0, None, 0), (0, 0, None), (None, None, 0)])
def test_bounded_vmap_and_its_gradients(both_ways, axes):
    A, b, low = numbers(3, 9, 6), numbers(3, 9, seed=1), -0.1 - numbers(3, 6, seed=2) ** 2
    given = [array if axis == 0 else array[0] for array, axis in zip((A, b, low), axes)]

    def weighed(A, b, low):
        return (stepwell.lsq_linear(A, b, (low, 0.4), sum_bounds=(0.5, 0.5)).x * jnp.arange(1.0, 7.0)).sum()

    assert_same(both_ways(jax.vmap(jax.value_and_grad(weighed, (0, 1, 2)), axes), *given))


@built
def test_bounded_systems_that_are_not_finite(both_ways):
    A, b = numbers(9, 6), numbers(4, 9, seed=1).at[2, 3].set(np.nan)
    assert_same(both_ways(lambda A, b: bounded_fields(A, b, (0.0, 1.0)), A, b))
    assert_same(both_ways(lambda A, b: bounded_fields(A, b, (0.0, 1.0)), A.at[0, 0].set(np.inf), b))


@built
@pytest.mark.parametrize("wrong", [{"bounds": (np.nan, 1.0)}, {"lam": -1.0}, {"weights": -1.0}])
def test_wrong_values_are_errors_of_the_run(wrong):
    options = {"bounds": (0.0, 1.0)} | wrong
    traced = {name: jnp.asarray(value) for name, value in options.items() if name != "bounds"}
    low, high = map(jnp.asarray, options["bounds"])

    def solve(low, high, traced):
        weights = traced.get("weights")
        given = dict(traced) if weights is None else {"weights": jnp.full(9, weights)}
        return stepwell.lsq_linear(numbers(9, 6), numbers(9), (low, high), **given).x

    with pytest.raises(jax.errors.JaxRuntimeError, match=r"bounds|lam|weights"):
        jax.block_until_ready(jax.jit(solve)(low, high, traced))
