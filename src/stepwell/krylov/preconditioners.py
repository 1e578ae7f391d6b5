"""Preconditioners of a linear problem: operators, functions of a block, and diagonals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stepwell.arrays import Array, is_array, namespace_of, to_host, without_graph
from stepwell.arrays.checks import read_array, require_each, require_real
from stepwell.common.checks import require_kind, require_shape
from stepwell.krylov.linear_problem import LinearProblem, in_common, name_of_dtype
from stepwell.operators import as_operator
from stepwell.operators.error_state import callers_arithmetic


def as_preconditioner(preconditioner: Any, problem: LinearProblem) -> Callable[[Array], Array]:
    """Return the function that applies a preconditioner to a block: operator, function of a block, or a diagonal."""
    if preconditioner is None:
        return lambda block: block
    apply: Any = None
    with problem.sums.holding():
        apply = _read_preconditioner(preconditioner, problem)
    problem.sums.check()
    return problem.sums.held(apply, problem.size)


def _read_preconditioner(preconditioner: Any, problem: LinearProblem) -> Callable[[Array], Array]:
    if callable(preconditioner) and not hasattr(preconditioner, "shape"):

        def precondition(block: Array) -> Array:
            own = namespace_of(block).asarray(block, copy=True)  # which the function may write into
            with callers_arithmetic():
                image = preconditioner(own)
            return _preconditioned(image, block)

        return precondition
    if is_array(preconditioner) and len(preconditioner.shape) == 1:
        require_real("preconditioner", preconditioner)
        require_shape(preconditioner.shape[0] == problem.size, "preconditioner", preconditioner, (problem.size,))
        diagonal = in_common(preconditioner, problem.B, name_of_dtype(problem.B), "preconditioner", "A")
        return lambda block: diagonal * block
    operator = as_operator(preconditioner, name_of_dtype(problem.B), name="preconditioner")
    square = (problem.size, problem.size)
    require_shape(operator.shape == square, "preconditioner", operator, square)
    return operator.forward


def as_diagonal(preconditioner: Any, problem: LinearProblem) -> np.ndarray | None:
    """Return a preconditioner that is a diagonal in the problem's units, on the host; refuse any other kind."""
    if preconditioner is None:
        return None
    array = preconditioner if is_array(preconditioner) and len(preconditioner.shape) == 1 else None
    allowed = "with bounds, the diagonal of an approximate inverse as a vector"
    require_kind(array is not None, "preconditioner", preconditioner, allowed)
    values = to_host(array) * problem.unit**2
    require_each(np.isfinite(values) & (values > 0), "preconditioner", values, "finite numbers above 0, with bounds")
    return values


def _preconditioned(image: Any, block: Array) -> Array:
    """Check what a preconditioner that is a function has made of a block."""
    argument, shape = "what preconditioner returned", tuple(block.shape)
    image = without_graph(image) if hasattr(image, "shape") else read_array(argument, image)
    require_shape(tuple(image.shape) == shape, argument, image, shape)
    return image
