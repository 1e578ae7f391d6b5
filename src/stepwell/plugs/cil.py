"""L-BFGS-B with bounds as an ``Algorithm`` of CIL, the Core Imaging Library."""

from __future__ import annotations

from typing import Any

import numpy as np
from cil.optimisation.algorithms import Algorithm

from stepwell.arrays.bounds import split_bounds
from stepwell.quasi_newton.optimizer import LBFGSB as Solver


class LBFGSB(Algorithm):
    """Minimise a smooth function of CIL within bounds; one iteration is one accepted step.

    Parameters
    ----------
    initial : DataContainer
        The starting point.
    objective_function : Function
        Callable, with ``gradient(x)``.
    bounds : pair or Bounds, optional
        Lower and upper bound: numbers, arrays or DataContainers.
    options : dict, optional
        Those of `stepwell.LBFGSB`: ``m``, ``gtol``, ``ftol`` and others.
    **kwargs
        Of ``Algorithm``, such as ``update_objective_interval``.

    Notes
    -----
    When the solver has converged, ``run`` ends by StopIteration, as CIL's own algorithms do.

    Examples
    --------
    >>> from stepwell.plugs.cil import LBFGSB  # doctest: +SKIP
    >>> LBFGSB(initial=start, objective_function=misfit, bounds=(0, None)).run(100)  # doctest: +SKIP
    """

    def __init__(
        self, initial: Any, objective_function: Any, bounds: Any = None, options: Any = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.set_up(initial, objective_function, bounds, options)

    def set_up(self, initial: Any, objective_function: Any, bounds: Any = None, options: Any = None) -> None:
        """Prepare a run; the constructor calls this."""
        self.initial, self.objective_function = initial, objective_function
        self.x = initial.copy()
        ends = split_bounds(bounds, "ends")
        pair = None if ends is None else tuple(map(_numbers, ends))
        self.solver = Solver(_numbers(initial).astype(np.float64), pair, **(options or {}))
        self.value = self._evaluate()
        self.configured = True

    def _evaluate(self) -> float:
        """Answer the solver's question, and return the value there."""
        self.x.fill(np.asarray(self.solver.x, dtype=_numbers(self.x).dtype))
        value = float(self.objective_function(self.x))
        self.solver.tell(value, _numbers(self.objective_function.gradient(self.x)).astype(np.float64))
        return value

    def update(self) -> None:
        """Go on to the next accepted point."""
        accepted = self.solver.nit
        while not self.solver.done and self.solver.nit == accepted:
            self._evaluate()
        self.x.fill(np.asarray(self.solver.accepted_point(), dtype=_numbers(self.x).dtype))
        self.value = float(self.solver.fun)

    def update_objective(self) -> None:
        """Note the value of the point that was accepted last."""
        self.loss.append(self.value)

    def should_stop(self) -> bool:
        """Whether the solver has converged, or CIL's own limit is reached."""
        return bool(self.solver.done or super().should_stop())


def _numbers(value: Any) -> np.ndarray:
    """The array of a DataContainer, or of numbers."""
    return np.asarray(value.as_array() if hasattr(value, "as_array") else value)
