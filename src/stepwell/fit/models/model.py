"""A model that the core knows: its names, its values and derivatives, and how it is fitted."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stepwell.fit.models.program import Program


class CompiledModel:
    """A curve that is compiled: `stepwell.curve_fit` fits it without calling Python.

    It is a function ``model(x, *params)`` as well, of NumPy arrays, and fits SciPy's ``curve_fit`` as one. Models are
    made by the functions of `stepwell.models`.

    Attributes
    ----------
    names : tuple of str
        Parameters, in their order.
    variables : tuple of str
        What `x` holds: one name for arrays (m,), more for arrays (variables, m).
    bounds : tuple of two lists
        Where parameters have a meaning; not applied unless they are given to `curve_fit`.
    """

    def __init__(
        self,
        text: str,
        kind: str,
        names: Sequence[str],
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
        self.names, self.variables = tuple(names), tuple(variables)
        self.count, self.flag = count, flag
        self.program, self.device_row = program, device_row
        self._value = value
        pairs = bounds or [(-np.inf, np.inf)] * len(self.names)
        self.bounds = [low for low, _ in pairs], [high for _, high in pairs]
        words = [self.variables[0] if len(self.variables) == 1 else "x", *self.names]
        self.__signature__ = inspect.Signature(
            [inspect.Parameter(word, inspect.Parameter.POSITIONAL_OR_KEYWORD) for word in words]
        )
        self.__name__ = text.partition("(")[0]

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return len(self.names)

    def __call__(self, x: Any, *params: Any, **named: Any) -> Any:
        """Return the values at points `x`; parameters broadcast against them."""
        params = (*params, *(named.pop(name) for name in self.names[len(params) :] if name in named))
        if len(params) != self.parameters or named:
            got = f"{len(params)} parameters" + (f" and {', '.join(map(repr, named))}" if named else "")
            raise TypeError(f"{self!r} got {got}; allowed: {', '.join(self.names)}")
        columns = (x,) if len(self.variables) == 1 else tuple(x)
        if len(columns) != len(self.variables):
            raise ValueError(
                f"x has {len(columns)} rows; allowed: {len(self.variables)}, which are {', '.join(self.variables)}"
            )
        return self._value(*columns, *params)

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

    def __reduce__(self) -> tuple[Any, ...]:
        return _made_again, (self._text,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CompiledModel) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return f"models.{self._text}"


def _made_again(text: str) -> CompiledModel:
    """Return the model that a text stands for; pickles hold the call that made a model."""
    import ast

    from stepwell.fit.models import makers

    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
    arguments = [ast.literal_eval(argument) for argument in call.args]
    named = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    found = getattr(makers, call.func.id)(*arguments, **named)
    assert isinstance(found, CompiledModel)
    return found
