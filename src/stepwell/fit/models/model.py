"""A model that the core knows: its names, its values and derivatives, and how it is fitted."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stepwell.arrays import is_array, namespace_of, of_numpy
from stepwell.fit.models.program import Program


class CompiledModel:
    """A curve that is compiled: `stepwell.curve_fit` fits it without calling Python.

    It is a function ``model(x, *params)`` as well, of NumPy, CuPy, PyTorch or JAX arrays, and fits SciPy's
    ``curve_fit`` as one. Models are made by the functions of `stepwell.models`.

    Attributes
    ----------
    parameters : tuple of str
        Names of the parameters, in their order.
    variables : tuple of str
        What `x` holds: one name for arrays (m,), more for arrays (variables, m).
    bounds : tuple of two lists
        Where parameters have a meaning; not applied unless they are given to `curve_fit`.
    """

    def __init__(
        self,
        text: str,
        kind: str,
        parameters: Sequence[str],
        variables: Sequence[str],
        value: Callable[..., Any],
        *,
        count: int = 1,
        flag: bool = False,
        bounds: Sequence[tuple[float, float]] | None = None,
        program: Program | None = None,
        device_row: str | None = None,
    ) -> None:
        self._text, self.kind = text, kind
        self.parameters, self.variables = tuple(parameters), tuple(variables)
        self.count, self.flag = count, flag
        self.program, self.device_row = program, device_row
        self._value = value
        pairs = bounds or [(-np.inf, np.inf)] * len(self.parameters)
        self.bounds = [low for low, _ in pairs], [high for _, high in pairs]
        words = [self.variables[0] if len(self.variables) == 1 else "x", *self.parameters]
        self.__signature__ = inspect.Signature(
            [inspect.Parameter(word, inspect.Parameter.POSITIONAL_OR_KEYWORD) for word in words]
        )
        self.__name__ = text.partition("(")[0]

    @property
    def n(self) -> int:
        """Number of parameters."""
        return len(self.parameters)

    def __call__(self, x: Any, *params: Any, **named: Any) -> Any:
        """Return the values at points `x`; parameters broadcast against them."""
        params = (*params, *(named.pop(name) for name in self.parameters[len(params) :] if name in named))
        if len(params) != self.n or named:
            got = f"{len(params)} parameters" + (f" and {', '.join(map(repr, named))}" if named else "")
            raise TypeError(f"{self!r} got {got}; allowed: {', '.join(self.parameters)}")
        columns = (x,) if len(self.variables) == 1 else tuple(x)
        if len(columns) != len(self.variables):
            raise ValueError(
                f"x has {len(columns)} rows; allowed: {len(self.variables)}, which are {', '.join(self.variables)}"
            )
        return self._value(_library_of(*params, *columns), *columns, *params)

    def jac(self, x: Any, *params: Any) -> np.ndarray:
        """Return the derivatives by the parameters, (m, n), or (problems, m, n) where parameters are columns.

        Examples
        --------
        >>> import numpy as np, stepwell
        >>> stepwell.models.exponentials(1).jac(np.array([0.0, 1.0]), 2.0, 0.0)
        array([[ 1., -0.],
               [ 1., -2.]])
        """
        from stepwell.fit.models.host import rows

        return rows(self, x, *params)[..., :-1]

    def __stepwell_fit__(self, problem: Any) -> dict[str, Any]:
        """Fit a batch (`stepwell.fit.problem.FitProblem`); what it returns stands there."""
        from stepwell.fit.models.host import fit

        return fit(self, problem)

    def __stepwell_fit_on_device__(self, *arguments: Any) -> Any:
        """Fit data on a CUDA device, from the arguments of ``curve_fit``; returns its result."""
        from stepwell.fit.models.device import curve_fit

        return curve_fit(self, *arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return _made_again, (self._text,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CompiledModel) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return f"models.{self._text}"


def _library_of(*values: Any) -> Any:
    """Return the namespace of the first array that is not NumPy's; else NumPy."""
    for value in values:
        if is_array(value) and not of_numpy(value):
            return namespace_of(value)
    return np


def _made_again(text: str) -> CompiledModel:
    """Return the model that a text stands for; pickles hold the call that made a model."""
    makers = importlib.import_module("stepwell.fit.models.makers")  # which makes models of this module
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    assert isinstance(call.func, ast.Name)
    arguments = [ast.literal_eval(argument) for argument in call.args]
    named = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    found = getattr(makers, call.func.id)(*arguments, **named)
    assert isinstance(found, CompiledModel)
    return found
