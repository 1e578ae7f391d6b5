"""The models that are there: each function checks its arguments and names the parameters."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from stepwell.common.checks import read_switch, require
from stepwell.fit.models import formulas
from stepwell.fit.models.model import CompiledModel
from stepwell.fit.models.parsing import CONSTANTS, FUNCTIONS, parse
from stepwell.fit.models.program import compile_program, device_row, evaluate

#: Most parameters of a model, and most terms of a sum.
MAX_PARAMETERS, MAX_TERMS = 64, 32
_POSITIVE, _ANY, _SHARE = (0.0, np.inf), (-np.inf, np.inf), (0.0, 1.0)


def _terms(count: Any, most: int) -> int:
    require(
        isinstance(count, int) and not isinstance(count, bool) and 1 <= count <= most, "count", count, f"1 to {most}"
    )
    return int(count)


def _numbered(count: int, *stems: str) -> list[str]:
    """Return names in groups: a1, a2, ..., k1, k2, ...; without numbers where there is one of each."""
    return [stem if count == 1 else f"{stem}{k + 1}" for stem in stems for k in range(count)]


def _sum_model(text: str, kind: str, count: int, offset: bool, stems: str, limits: Any, value: Any) -> CompiledModel:
    names = _numbered(count, *stems.split()) + ["c"] * offset
    bounds = [limit for limit in limits for _ in range(count)] + [_ANY] * offset
    formula = functools.partial(value, count)
    return CompiledModel(text, kind, names, ["x"], formula, count=count, flag=offset, bounds=bounds)


def exponentials(count: int = 1, *, offset: bool = False) -> CompiledModel:
    """Return a sum of exponentials, Σ a exp(-k x), plus c where `offset` is set.

    Parameters are a1, a2, ..., k1, k2, ..., c: relaxation, fluorescence, kinetics.

    Examples
    --------
    >>> import stepwell
    >>> stepwell.models.exponentials(2, offset=True).parameters
    ('a1', 'a2', 'k1', 'k2', 'c')
    """
    count, offset = _terms(count, MAX_TERMS - 1), read_switch("offset", offset)
    text = f"exponentials({count}, offset={offset})"
    return _sum_model(text, "exponentials", count, offset, "a k", (_ANY, _POSITIVE), formulas.exponentials)


def gaussians(count: int = 1, *, offset: bool = False) -> CompiledModel:
    """Return a sum of Gaussians, Σ a exp(-(x - mu)² / 2 s²), plus c where `offset` is set.

    Parameters are a1, ..., mu1, ..., s1, ..., c.

    Examples
    --------
    >>> gaussians(2).parameters
    ('a1', 'a2', 'mu1', 'mu2', 's1', 's2')
    >>> float(gaussians()(1.5, 2.0, 1.5, 0.3))  # x, a, mu, s
    2.0
    """
    count, offset = _terms(count, (MAX_PARAMETERS - 1) // 3), read_switch("offset", offset)
    text = f"gaussians({count}, offset={offset})"
    return _sum_model(text, "gaussians", count, offset, "a mu s", (_ANY, _ANY, _POSITIVE), formulas.gaussians)


def lorentzians(count: int = 1, *, offset: bool = False) -> CompiledModel:
    """Return a sum of Lorentzians, Σ a / (1 + ((x - mu) / w)²), plus c where `offset` is set.

    Parameters are a1, ..., mu1, ..., w1, ..., c; w is half the full width at half maximum.

    Examples
    --------
    >>> float(lorentzians()(1.5, 2.0, 1.0, 0.5))  # x, a, mu, w: half of the height
    1.0
    """
    count, offset = _terms(count, (MAX_PARAMETERS - 1) // 3), read_switch("offset", offset)
    text = f"lorentzians({count}, offset={offset})"
    return _sum_model(text, "lorentzians", count, offset, "a mu w", (_ANY, _ANY, _POSITIVE), formulas.lorentzians)


def pseudo_voigts(count: int = 1, *, offset: bool = False) -> CompiledModel:
    """Return a sum of pseudo-Voigt profiles, Σ a (eta L + (1 - eta) G), plus c where `offset` is set.

    L and G are a Lorentzian and a Gaussian of height one and full width w at half maximum. Parameters are a1, ...,
    mu1, ..., w1, ..., eta1, ..., c.

    Examples
    --------
    >>> float(pseudo_voigts()(1.5, 2.0, 1.0, 1.0, 0.3))  # x, a, mu, w, eta
    1.0
    """
    count, offset = _terms(count, (MAX_PARAMETERS - 1) // 4), read_switch("offset", offset)
    text = f"pseudo_voigts({count}, offset={offset})"
    limits = (_ANY, _ANY, _POSITIVE, _SHARE)
    return _sum_model(text, "pseudo_voigts", count, offset, "a mu w eta", limits, formulas.pseudo_voigts)


def polynomial_peak(degree: int = 1) -> CompiledModel:
    """Return a Gaussian on a polynomial, a exp(-(x - mu)² / 2 s²) + c0 + c1 x + ....

    Parameters are a, mu, s, c0, c1, ....

    Examples
    --------
    >>> polynomial_peak(1).parameters
    ('a', 'mu', 's', 'c0', 'c1')
    >>> float(polynomial_peak(1)(0.0, 2.0, 0.0, 1.0, 0.5, 3.0))
    2.5
    """
    require(isinstance(degree, int) and 0 <= degree <= 12, "degree", degree, "0 to 12")
    names = ["a", "mu", "s", *(f"c{k}" for k in range(degree + 1))]
    bounds = [_ANY, _ANY, _POSITIVE] + [_ANY] * (degree + 1)
    text, value = f"polynomial_peak({degree})", formulas.polynomial_peak
    return CompiledModel(text, "polynomial_peak", names, ["x"], value, count=degree + 1, bounds=bounds)


def gaussian2d(*, elliptical: bool = False) -> CompiledModel:
    """Return a spot, a exp(-(x - x0)² / 2 s² - (y - y0)² / 2 s²) + c, of points ``(x, y)``.

    `xdata` is (2, m). Parameters are a, x0, y0, s, c; with `elliptical` a, x0, y0, sx, sy, c. Points that form a grid,
    x running fastest, are fitted faster.

    Examples
    --------
    >>> import numpy as np
    >>> points = np.array([[0.0, 1.0], [0.0, 0.0]])  # x and y of two points
    >>> gaussian2d()(points, 2.0, 0.0, 0.0, 1.0, 0.5).round(3).tolist()
    [2.5, 1.713]
    """
    elliptical = read_switch("elliptical", elliptical)
    widths = ["sx", "sy"] if elliptical else ["s"]
    bounds = [_POSITIVE, _ANY, _ANY, *([_POSITIVE] * len(widths)), _ANY]
    names, text = ["a", "x0", "y0", *widths, "c"], f"gaussian2d(elliptical={elliptical})"
    return CompiledModel(text, "spot", names, ["x", "y"], formulas.gaussian2d, flag=elliptical, bounds=bounds)


def ivim() -> CompiledModel:
    """Return the signal of intravoxel incoherent motion, S0 (f exp(-b Dstar) + (1 - f) exp(-b D)).

    Parameters are S0, f, Dstar, D; the variable is b.

    Examples
    --------
    >>> float(ivim()(0.0, 100.0, 0.1, 0.02, 0.001))  # at b = 0 the signal is S0
    100.0
    """
    bounds = [_POSITIVE, _SHARE, _POSITIVE, _POSITIVE]
    return CompiledModel("ivim()", "ivim", ["S0", "f", "Dstar", "D"], ["b"], formulas.ivim, bounds=bounds)


def tofts(*, extended: bool = False) -> CompiledModel:
    """Return Tofts' model of contrast agent in tissue, Ktrans ∫ cp(τ) exp(-kep (t - τ)) dτ, plus vp cp(t).

    The term of vp is there where `extended` is set.
    `xdata` is (2, m): times in increasing order, and the concentration in the blood plasma at these times, which is
    taken to be linear between them and to begin with the first. Parameters are Ktrans, kep and, extended, vp.

    Examples
    --------
    >>> import numpy as np
    >>> times, plasma = np.linspace(0, 5, 6), np.ones(6)
    >>> tofts()(np.array([times, plasma]), 0.25, 0.5).round(3).tolist()
    [0.0, 0.197, 0.316, 0.388, 0.432, 0.459]
    """
    extended = read_switch("extended", extended)
    names = ["Ktrans", "kep", "vp"][: 2 + extended]
    bounds = [_POSITIVE, _POSITIVE, _SHARE][: len(names)]
    text = f"tofts(extended={extended})"
    return CompiledModel(text, "tofts", names, ["t", "cp"], formulas.tofts, flag=extended, bounds=bounds)


def expression(text: str, *variables: str) -> CompiledModel:
    """Return the model of an expression such as ``"a*exp(-k*t) + c"``, whose variables are named after it.

    Every other name is a parameter, in the order of the text. Allowed are numbers, ``pi``, ``e``, ``+ - * / **``,
    parentheses, and exp, log, sqrt, sin, cos, tan, sinh, cosh, tanh, arctan, erf, abs and pow. Derivatives are those of
    the formula. The text is read, never run.

    Parameters
    ----------
    text : str
        The expression.
    *variables : str
        Names of the variables; with more than one, `xdata` is (variables, m).

    Examples
    --------
    >>> import stepwell
    >>> stepwell.models.expression("a*exp(-k*t)*cos(w*t)", "t")
    models.expression('a*exp(-k*t)*cos(w*t)', 't')
    """
    require(isinstance(text, str), "text", text, "a string such as 'a*exp(-k*t)'")
    require(len(variables) > 0, "variables", variables, "the name of at least one")
    for name in variables:
        taken = name in FUNCTIONS or name in CONSTANTS or not isinstance(name, str) or not name.isidentifier()
        require(not taken, "variable", name, "a name that is no function or constant")
    graph, value, names = parse(text, variables)
    require(len(names) <= MAX_PARAMETERS, "parameters", len(names), f"at most {MAX_PARAMETERS}")
    outputs = [*(graph.derivative(value, graph.symbol(name)) for name in names), value]

    def value_in(xp: Any, *columns: Any) -> Any:
        symbols = dict(zip((*variables, *names), columns, strict=True))
        return evaluate(graph, value, symbols, formulas.functions_of(xp)) + 0 * (columns[0] + columns[len(variables)])

    return CompiledModel(
        f"expression({', '.join(map(repr, (text, *variables)))})",
        "program",
        names,
        variables,
        value_in,
        program=compile_program(graph, outputs, names, variables),
        device_row=device_row(graph, outputs, names, variables),
    )
