"""Expressions: what is allowed, and that programs and derivatives are those of the text, for random texts too."""

from __future__ import annotations

import numpy as np
import pytest

import stepwell
from stepwell import models
from stepwell.fit.models import host
from stepwell.fit.models.parsing import parse

T = np.linspace(0.2, 2, 25)


@pytest.mark.parametrize(
    ("text", "piece"),
    [
        ("a*exp(-k*t", "which is not one"),
        ("__import__('os').system('true')", "allowed: numbers, names"),
        ("a.real*t", "'a.real'"),
        ("a[0]*t", "a[0]"),
        ("a*t if t > 0 else 1", "allowed: numbers"),
        ("lambda t: t", "allowed: numbers"),
        ("a*foo(t)", "foo(t)"),
        ("exp(a, t)", "exp(a, t)"),
        ("a % t", "a % t"),
        ("a*True", "True"),
        ("a*1e999", "finite"),
        ("a*10**400*t", "'10**400', which is out of range"),
        ("3*t", "no parameter"),
        ("a" + "+t" * 3000, "characters"),
        ("-" * 150 + "a*t", "deep"),
        ("a := t", "which is not one"),
        ("a*t\nb", "which is not one"),
        ("a*'t'", "'t'"),
    ],
)
def test_what_is_no_expression_is_refused_by_name(text, piece):
    with pytest.raises(ValueError, match="expression") as error:
        models.expression(text, "t")
    assert piece in str(error.value)


def test_names_that_are_taken_are_refused():
    with pytest.raises(ValueError, match="variable"):
        models.expression("a*exp(exp)", "exp")
    with pytest.raises(ValueError, match="variables"):
        models.expression("a*t")
    with pytest.raises(ValueError, match="text"):
        models.expression(3, "t")


def test_parameters_come_in_the_order_of_the_text():
    assert models.expression("z + b*exp(-a*t)/z", "t").parameters == ("z", "b", "a")


def test_equal_parts_are_computed_once():
    graph, _, _ = parse("a*exp(-k*t) + b*exp(-k*t)*exp(-k*t)", ["t"])
    assert sum(node.kind == "exp" for node in graph.nodes) == 1
    program = models.expression("a*exp(-k*k)*t", "t").program
    assert program.uniform >= 4  # k*k, its negative, and its exponential have one value per problem


def random_expression(rng, depth):
    """A text whose value is finite for a, b, c, t in (0.5, 2): arguments of functions are kept small."""
    if depth == 0:
        return str(rng.choice(["a", "b", "c", "t", f"{rng.uniform(0.5, 2):.3f}", "pi"]))
    left, right = (random_expression(rng, depth - 1) for _ in range(2))
    kind = int(rng.integers(9))
    if kind < 3:
        return f"({left} {'+-*'[kind]} {right})"
    if kind == 3:
        return f"({left}) / (2 + tanh({right}))"
    if kind == 4:
        function = rng.choice(["sin", "cos", "tanh", "arctan", "erf"])
        return f"{function}({left})"
    if kind == 5:
        return f"exp(-tanh({left})**2)"
    if kind == 6:
        return f"log(2 + sin({left}))"
    if kind == 7:
        return f"sqrt(1 + ({left})**2)"
    return f"(2 + cos({left}))**({rng.choice(['2', '3', '-1', '0.5', 'a', '1.7'])})"


def assert_program_is_the_text(seed):
    rng = np.random.default_rng(seed)
    text = random_expression(rng, int(rng.integers(2, 5))) + " + a*t + b + c*t*t"
    model = models.expression(text, "t")
    p = rng.uniform(0.5, 2, model.n)
    found = host.rows(model, T, *p)
    np.testing.assert_allclose(
        found[:, -1], model(T, *p), rtol=1e-11, atol=1e-11 * np.abs(found[:, -1]).max(), err_msg=text
    )
    # Differences of fourth order, whose error is that of rounding over the step: 1e-16 / 1e-3, times the values' size.
    step = 1e-3
    for j in range(model.n):
        shift = step * np.eye(model.n)[j]
        slopes = [(model(T, *(p + k * shift)) - model(T, *(p - k * shift))) / (2 * k * step) for k in (1, 2, 3)]
        exact = 1.5 * slopes[0] - 0.6 * slopes[1] + 0.1 * slopes[2]
        scale = max(1.0, np.abs(found).max())
        np.testing.assert_allclose(
            found[:, j], exact, rtol=1e-4, atol=1e-6 * scale, err_msg=f"{text}, {model.parameters[j]}"
        )


@pytest.mark.parametrize("seed", range(40))
def test_random_expressions_have_the_values_and_slopes_of_their_text(seed):
    assert_program_is_the_text(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1400))
def test_more_random_expressions(seed):
    assert_program_is_the_text(seed)


@pytest.mark.parametrize("seed", range(3))
def test_fits_of_random_expressions_are_those_of_callables(seed):
    rng = np.random.default_rng(seed)
    model = models.expression("a*" + random_expression(rng, 2).replace("a", "b") + " + c*t + d", "t")
    truth = rng.uniform(0.8, 1.5, model.n)
    y = model(T, *truth) + 0.01 * rng.standard_normal((5, len(T)))
    box = (0.1, 5.0)
    found = stepwell.curve_fit(model, T, y, truth * 1.1, bounds=box)
    wanted = stepwell.curve_fit(lambda t, *p: model(t, *p), T, y, truth * 1.1, bounds=box, jac="3-point")
    both = np.asarray(found.success) & np.asarray(wanted.success)
    np.testing.assert_allclose(found.cost[both], wanted.cost[both], rtol=1e-6)


def test_device_rows_name_everything_they_use():
    row = models.expression("a*exp(-k*t) + c*abs(t)**b", "t").device_row
    for name in ("p[0]", "p[1]", "x[0]", "J[0] =", "J[3] =", "value =", "exp(", "pow("):
        assert name in row
