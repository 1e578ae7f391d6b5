"""Derivatives by columns are those of PyTorch's own forward mode, or refused."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from stepwell.arrays.torch_duals import RULES, SLOPES, by_columns  # noqa: E402

T = torch.linspace(0.1, 3.1, 8, dtype=torch.float64)
P = torch.rand((5, 4), dtype=torch.float64, generator=torch.Generator().manual_seed(1)) + 0.5

FUNCTIONS = {
    "decays": lambda a, b, k, s: a * torch.exp(-k * T) + b * torch.exp(-s * T),
    "shared": lambda a, b, k, s: a * torch.exp(-((T - b) ** 2) / (2 * k**2)) + b * s,
    "one is not used": lambda a, b, k, s: a + b * T - s,
    "a column alone": lambda a, b, k, s: 2.0 * T - k + (1 - s) / T,
    "numbers": lambda a, b, k, s: 3 - (2 * a - 1) / (b * 0.5) + 1 / (k * T) - (s + 1) * T / 4,
    "of torch": lambda a, b, k, s: torch.sub(torch.add(a, T), b) * torch.mul(b, T) - torch.div(k, torch.pow(s, 2)),
    "swapped": lambda a, b, k, s: T * a + (T - b) + T / k - torch.neg(s) * T,
    **{name: lambda a, b, k, s, name=name: getattr(torch, name)(0.7 * a * T) * b + k * s for name in SLOPES},
    "methods": lambda a, b, k, s: (a * T).exp() + (b * T).tanh() - (k * T).sqrt() * s.log(),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_pytorch_differentiates(name):
    f = FUNCTIONS[name]
    values, slopes = by_columns(f, P, 8)

    def along(tangent):
        return torch.func.jvp(lambda p: f(*p.split(1, 1)), (P,), (tangent.expand(P.shape),))

    wanted, by_each = zip(*(along(row) for row in torch.eye(4, dtype=P.dtype)), strict=True)
    np.testing.assert_array_equal(values, wanted[0])
    # Some twenty roundings, of terms that are at most 50 times as large as what they leave.
    np.testing.assert_allclose(slopes, torch.stack(by_each), rtol=1e-13, atol=1e-13)


def test_every_rule_is_of_a_function_of_pytorch():
    assert all(hasattr(torch, name) or hasattr(torch.Tensor, f"__{name}__") for name in RULES)


@pytest.mark.parametrize(
    "f",
    [
        lambda a, b, k, s: torch.where(a < T, b * T, k * s),
        lambda a, b, k, s: a * T if a else b * T,
        lambda a, b, k, s: a * T if a.max() > 0 else b * T,
        lambda a, b, k, s: torch.cat([a, b, k, s], 1) @ torch.ones(4, 8, dtype=P.dtype),
        lambda a, b, k, s: torch.exp(a * T, out=torch.empty(5, 8, dtype=P.dtype)),
        lambda a, b, k, s: T.clone().mul_(a),
        lambda a, b, k, s: a**b * T,
        lambda a, b, k, s: a * T.numpy(),
        lambda a, b, k, s: a * b,
        lambda a, b, k, s: T.expand(5, 8),
    ],
)
def test_what_has_no_rule_is_left_to_pytorch(f):
    with pytest.raises((TypeError, AttributeError)):
        by_columns(f, P, 8)
