"""Objectives that JAX compiles, by option or because they are compiled already: same minima, traced once."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from stepwell import minimize, minimize_batch

jax = pytest.importorskip("jax")
jnp = jax.numpy

CENTRE = np.array([0.5, 2.0, -1.5])


class Counted:
    """A quadratic of which each call in Python is counted: as often as it is traced."""

    def __init__(self, centre=CENTRE):
        self.calls, self.centre = 0, centre

    def __call__(self, x, scale=1.0):
        self.calls += 1
        return scale * ((x - self.centre.astype(x.dtype)) ** 2 * jnp.array([1, 4, 9], x.dtype)).sum()


def start():
    return jnp.zeros(3)


def solves_the_quadratic(result):
    assert result.success
    np.testing.assert_allclose(np.clip(CENTRE, -1, 1), result.x, atol=1e-4)  # float32; the gradient tolerance is 1e-5


@pytest.mark.parametrize("form", ["none", "callable", "True", "2-point"])
def test_a_function_is_traced_once(form):
    fun = Counted()
    slope = jax.grad(Counted())
    given = {"none": None, "callable": slope, "True": True, "2-point": "2-point"}[form]
    objective = (lambda x: (fun(x), slope(x))) if form == "True" else fun
    result = minimize(objective, start(), jac=given, bounds=(-1.0, 1.0), options={"jit": True})
    if form == "2-point":  # differences of float32 end at its rounding
        np.testing.assert_allclose(np.clip(CENTRE, -1, 1), result.x, atol=1e-2)
    else:
        solves_the_quadratic(result)
    assert result.nfev > 2
    assert fun.calls == 1
    assert isinstance(result.x, jax.Array)


def test_without_the_option_nothing_is_traced_but_for_gradients():
    fun = Counted()
    result = minimize(fun, start(), bounds=(-1.0, 1.0))
    assert fun.calls == result.nfev


def test_other_arguments_are_constants_of_the_run():
    fun = Counted()
    solves_the_quadratic(minimize(fun, start(), args=(2.0,), bounds=(-1.0, 1.0), options={"jit": True}))
    assert fun.calls == 1


def test_what_a_function_has_captured_is_read_in_every_run():
    fun = Counted()
    minimize(fun, start(), options={"jit": True})
    fun.centre = -CENTRE
    moved = minimize(fun, start(), options={"jit": True})
    np.testing.assert_allclose(moved.x, -CENTRE, atol=1e-4)


def test_the_gradient_of_a_compiled_function_is_compiled_once_for_all_runs():
    fun = Counted()
    ready = jax.jit(fun)
    for _ in range(3):
        solves_the_quadratic(minimize(ready, start(), bounds=(-1.0, 1.0)))
    assert fun.calls == 1


def test_compiled_functions_are_not_kept_alive():
    ready = jax.jit(lambda x: ((x - 1) ** 2).sum())
    minimize(ready, start())
    gone = weakref.ref(ready)
    del ready
    gc.collect()
    assert gone() is None


def test_a_batch():
    x0 = jnp.zeros((2, 3))
    centre = jnp.asarray([[1.0, 2, 3], [3, 2, 1]])
    fun = jax.jit(lambda x: ((x - centre) ** 2).sum(1))
    for result in (minimize_batch(fun, x0), minimize_batch(fun, x0, options={"jit": True})):
        np.testing.assert_allclose(result.x, centre, atol=1e-4)


def test_a_pair_is_told_so():
    pair = jax.jit(lambda x: (x.sum(), x))
    with pytest.raises(TypeError, match="did you mean jac=True"):
        minimize(pair, start())


@pytest.mark.parametrize(
    ("x0", "jit", "error"),
    [(np.zeros(2), True, "no JAX array"), (jnp.zeros(2), "yes", "True or False")],
)
def test_what_cannot_be_compiled_is_an_error(x0, jit, error):
    with pytest.raises((ValueError, TypeError), match=error):
        minimize(lambda x: (x**2).sum(), x0, options={"jit": jit})


@pytest.mark.parametrize("transform", [jax.grad, jax.jit, lambda f: lambda a: jax.vmap(f)(jnp.stack([a, a]))])
@pytest.mark.parametrize("library", [np, jnp])
def test_a_run_inside_a_transformation_says_what_to_use(transform, library):
    def least(a):
        return minimize(lambda x: jnp.sum((x - a) ** 2), library.zeros(3)).x.sum()

    def least_of_two(a):
        return minimize_batch(lambda x: jnp.sum((x - a) ** 2, 1), library.zeros((2, 3))).x.sum()

    for solve in (least, least_of_two):
        with pytest.raises(TypeError, match=r"(x0|f) is traced by .*stepwell.argmin"):
            transform(solve)(1.0)


@pytest.mark.parametrize("library", [np, jnp])
@pytest.mark.parametrize("name", ["bounds", "h0"])
def test_bounds_and_weights_inside_a_transformation_say_what_to_use(name, library):
    def fun(x):
        return 0.5 * float(x @ x), x

    def least(u):
        given = {"bounds": (0, u)} if name == "bounds" else {"options": {"h0": u}}
        return jnp.sum(minimize(fun, library.zeros(3), jac=True, **given).x)

    def least_of_two(u):
        given = {"bounds": (0, u)} if name == "bounds" else {"options": {"h0": u}}
        return jnp.sum(minimize_batch(fun, library.zeros((2, 3)), jac=True, **given).x)

    for solve in (least, least_of_two):
        with pytest.raises(TypeError, match=rf"{name} is traced by jax.grad, jit or vmap .*stepwell.argmin"):
            jax.grad(solve)(jnp.ones(3))


@pytest.mark.parametrize("library", [np, jnp])
@pytest.mark.parametrize("kind", ["pairs", "with None", "lists"])
def test_traced_numbers_in_pairs_say_what_to_use(kind, library):
    def least(u):
        own = {"pairs": [(0, u[0])] * 3, "with None": [(None, u[0]), (0, 1), (0, 1)], "lists": ([0, 0, 0], [u[0]] * 3)}
        return jnp.sum(minimize(lambda x: (0.5 * float(x @ x), x), library.zeros(3), jac=True, bounds=own[kind]).x)

    with pytest.raises(TypeError, match=r"bounds is traced by jax.grad, jit or vmap .*stepwell.argmin"):
        jax.grad(least)(jnp.ones(3))


@pytest.mark.parametrize("what", ["x0", "bounds", "h0", "fun"])
def test_a_run_inside_a_transformation_of_torch_says_what_to_use(what):
    torch = pytest.importorskip("torch")

    def least(u):
        start = u if what == "x0" else torch.zeros(3, dtype=torch.float64)
        shift = u if what == "fun" else 0.0
        more = {"bounds": {"bounds": (0, u)}, "h0": {"options": {"h0": u}}}.get(what, {})
        return minimize(lambda x: ((x - shift) ** 2).sum(), start, **more).x.sum()

    # (What torch.func.grad finds made within it stands for others, x0 first of all.)
    for transform, at, named in ((torch.func.grad, 1, "x0"), (torch.func.vmap, 2, what)):
        u = torch.ones((at, 3)[2 - at :], dtype=torch.float64)
        with pytest.raises(TypeError, match=rf"{named} is traced by torch.func.grad or vmap .*stepwell.argmin"):
            transform(least)(u)


def test_rows_that_change_are_refused():
    with pytest.raises(ValueError, match="takes rows"):
        minimize_batch(lambda x, rows: (x**2).sum(1), jnp.zeros((2, 3)), options={"jit": True})
