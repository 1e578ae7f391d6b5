"""Values and gradients by the libraries, against gradients written by hand."""

from __future__ import annotations

import numpy as np
import pytest

from stepwell.arrays import host_copy, refusing_writes, value_and_gradient


def quartic(x):
    """The sum of (x - 1)^4 along the last axis, in operations that arrays of all libraries have."""
    return ((x - 1) ** 4).sum(-1)


def differentiable(make):
    if isinstance(make(np.zeros(1)), np.ndarray):
        pytest.skip("NumPy does not differentiate")
    return make


def test_numpy_does_not_differentiate():
    assert value_and_gradient(quartic, np.zeros(2)) is None


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("batch", [False, True])
def test_the_gradient_is_the_one_by_hand(make, dtype, batch):
    make = differentiable(make)
    host = np.random.default_rng(1).standard_normal((5, 3) if batch else 7).astype(dtype)
    x = make(host)
    value, gradient = value_and_gradient(quartic, x, batch=batch)(x)
    assert gradient.dtype == x.dtype
    assert value.shape == ((5,) if batch else ())
    # Products of a few factors: a few roundings each, and the sum of at most 7 terms.
    few = 16 * np.finfo(dtype).eps
    np.testing.assert_allclose(host_copy(value), ((host.astype(float) - 1) ** 4).sum(-1), rtol=few)
    np.testing.assert_allclose(host_copy(gradient), 4 * (host.astype(float) - 1) ** 3, rtol=few)
    np.testing.assert_array_equal(host_copy(x), host)


def test_torch_differentiates_where_the_caller_has_switched_that_off(make_torch):
    import torch

    x = make_torch(np.zeros(2))
    with torch.no_grad():
        value, gradient = value_and_gradient(quartic, x)(x)
    assert not any(tensor.requires_grad for tensor in (value, gradient, x))
    np.testing.assert_array_equal(gradient.numpy(), [-4, -4])


@pytest.mark.parametrize(
    ("fun", "what"),
    [
        (lambda x: 3.0, "float"),
        (lambda x: x.detach().sum(), "a tensor without a graph"),
        (lambda x: (x.sum(), x), "tuple"),
    ],
)
def test_torch_says_what_it_cannot_differentiate(make_torch, fun, what):
    x = make_torch(np.zeros(2))
    with pytest.raises(TypeError, match=f"fun returned {what}; without jac PyTorch differentiates it"):
        value_and_gradient(fun, x)(x)


def test_writing_to_the_solvers_tensor_is_refused(make_torch):
    def careless(x):
        x += 1
        return x.sum()

    x = make_torch(np.zeros(2))
    with pytest.raises(ValueError, match=r"jac changed x in place, which is the solver's; allowed: .*x\.clone\(\)"):
        refusing_writes(careless, "jac", x)(x)
    assert refusing_writes(quartic, "fun", x)(x) == quartic(x)


def test_tensors_of_inference_mode_count_no_changes(make_torch):
    import torch

    with torch.inference_mode():
        x = torch.zeros(2)
        assert float(refusing_writes(quartic, "fun", x)(x)) == 2


def test_others_need_no_guard(make_jax):
    for x in (np.zeros(2), make_jax(np.zeros(2))):
        assert refusing_writes(quartic, "fun", x) is quartic


def test_jax_differentiates_jitted_functions(make_jax):
    import jax

    x = make_jax(np.array([0.0, 3.0]))
    value, gradient = value_and_gradient(jax.jit(quartic), x)(x)
    assert float(value) == 17
    np.testing.assert_array_equal(np.asarray(gradient), [-4, 32])
