"""Derivatives of a PyTorch function by the columns that it is handed: numbers that know which columns they depend on.

PyTorch's forward mode takes every tangent through every operation, and most are zero: of ``a * exp(-k * t)`` an
exponential depends on k alone. Here an operation has the derivatives of what it was given, as small as they are, and
values are found once. Operations that have no rule, or look at numbers, raise: PyTorch differentiates such functions.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch


class Dual:
    """A tensor and its derivatives by some columns: tensors that broadcast against it, or numbers."""

    def __init__(self, value: Any, parts: dict[int, Any]) -> None:
        self.value, self.parts = value, parts

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Dual:
        name = func.__name__
        in_place = name.endswith("_") and not name.startswith("__")
        rule = None if kwargs or in_place else RULES.get(name.strip("_"))
        if rule is None:
            raise TypeError(f"torch.{name} has no rule")
        return rule(*args)

    def __getattr__(self, name: str) -> Callable[[], Dual]:
        if name not in SLOPES:
            raise AttributeError(name)
        return functools.partial(RULES[name], self)

    def __bool__(self) -> bool:
        raise TypeError("a number was looked at")


def _read(number: Any) -> tuple[Any, dict[int, Any]]:
    """Return a value and its derivatives."""
    if isinstance(number, Dual):
        return number.value, number.parts
    if not isinstance(number, int | float | torch.Tensor):
        raise TypeError(f"{type(number).__name__} has no rule")
    return number, {}


def _scaled(parts: dict[int, Any], factor: Any) -> dict[int, Any]:
    return {column: factor if part is ONE else part * factor for column, part in parts.items()}


def _merged(a: dict[int, Any], b: dict[int, Any]) -> dict[int, Any]:
    return a | {column: a[column] + part if column in a else part for column, part in b.items()}


def _sum(a: Any, b: Any) -> Dual:
    (x, by_x), (y, by_y) = _read(a), _read(b)
    return Dual(x + y, _merged(by_x, by_y))


def _negative(a: Any) -> Dual:
    x, by_x = _read(a)
    return Dual(-x, _scaled(by_x, -1.0))


def _difference(a: Any, b: Any) -> Dual:
    (x, by_x), (y, by_y) = _read(a), _read(b)
    return Dual(x - y, _merged(by_x, _scaled(by_y, -1.0)))


def _product(a: Any, b: Any) -> Dual:
    (x, by_x), (y, by_y) = _read(a), _read(b)
    return Dual(x * y, _merged(_scaled(by_x, y), _scaled(by_y, x)))


def _quotient(a: Any, b: Any) -> Dual:
    (x, by_x), (y, by_y) = _read(a), _read(b)
    value = x / y
    return Dual(value, _merged(_scaled(by_x, 1 / y), _scaled(by_y, -value / y) if by_y else {}))


def _power(a: Any, exponent: Any) -> Dual:
    if not isinstance(exponent, int | float) or exponent == 0:
        raise TypeError("powers have a rule where the exponent is a number other than 0")
    x, by_x = _read(a)
    return Dual(x**exponent, _scaled(by_x, exponent * x ** (exponent - 1)))


#: The derivative of a column by itself.
ONE = 1.0
#: Of functions of one number: what the derivative is, from the number and the value.
SLOPES: dict[str, Callable[[Any, Any], Any]] = {
    "exp": lambda x, y: y,
    "expm1": lambda x, y: y + 1,
    "log": lambda x, y: 1 / x,
    "log1p": lambda x, y: 1 / (1 + x),
    "sqrt": lambda x, y: 0.5 / y,
    "square": lambda x, y: 2 * x,
    "reciprocal": lambda x, y: -y * y,
    "sin": lambda x, y: x.cos(),
    "cos": lambda x, y: -x.sin(),
    "tanh": lambda x, y: 1 - y * y,
    "sigmoid": lambda x, y: y * (1 - y),
    "atan": lambda x, y: 1 / (1 + x * x),
    "arctan": lambda x, y: 1 / (1 + x * x),
    "erf": lambda x, y: (-x * x).exp() * (2 / math.sqrt(math.pi)),
}


def _of_one(name: str, a: Any) -> Dual:
    x, by_x = _read(a)
    y = getattr(x, name)()
    return Dual(y, _scaled(by_x, SLOPES[name](x, y)))


RULES: dict[str, Callable[..., Dual]] = {
    **dict.fromkeys(("add", "radd"), _sum),
    **dict.fromkeys(("sub", "subtract"), _difference),
    "rsub": lambda a, b: _difference(b, a),
    **dict.fromkeys(("mul", "multiply", "rmul"), _product),
    **dict.fromkeys(("div", "divide", "true_divide", "truediv"), _quotient),
    **dict.fromkeys(("rdiv", "rtruediv"), lambda a, b: _quotient(b, a)),
    **dict.fromkeys(("neg", "negative"), _negative),
    "pow": _power,
    **{name: functools.partial(_of_one, name) for name in SLOPES},
}
for _operator in ("neg", "add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "pow"):
    setattr(Dual, f"__{_operator}__", RULES[_operator])


def by_columns(function: Callable[..., Any], p: Any, points: int | None) -> tuple[Any, Any]:
    """Return values (k, m) of a function of the columns of p (k, n), and its derivatives by them (n, k, m).

    Raises
    ------
    Exception
        Where it does what has no rule; and whatever it raises itself.
    """
    k, n = p.shape
    found = function(*(Dual(p[:, j : j + 1], {j: ONE}) for j in range(n)))
    values = found.value if isinstance(found, Dual) else None
    if values is None or values.ndim != 2 or values.shape[0] != k or points not in (None, values.shape[1]):
        raise TypeError("what was returned has no rule")
    slopes = torch.empty((n, *values.shape), dtype=values.dtype, device=values.device)
    for j in range(n):
        slopes[j] = found.parts.get(j, 0.0)
    return values, slopes
