"""What the API does before any work: check the arguments, agree on library, device and dtype, and give back in kind."""

from __future__ import annotations

from typing import Any

import numpy as np

from stepwell.arrays import (
    Array,
    copy_to_device_of,
    describe_home,
    dtype_name,
    holds_double,
    is_bfloat16,
    is_cuda,
    same_library,
)
from stepwell.arrays.checks import read_array, require_finite, require_one_home
from stepwell.arrays.sparse import is_scipy_sparse
from stepwell.common.checks import WrongKind, read_axis, read_whole, require_shape
from stepwell.krylov.linear_problem import LinearProblem, in_common, name_of_dtype
from stepwell.krylov.reductions import WHOLE, Sums
from stepwell.krylov.rounds import scale_columns
from stepwell.operators import Operator, as_operator, in_library_of


def prepare(
    A: Any,
    B: Any,
    L: Any = None,
    x0: Any = None,
    *,
    name: str = "A",
    square: bool = False,
    axis: int = 1,
    sums: Sums = WHOLE,
) -> LinearProblem:
    """Check operators and blocks against each other and bring them to a common kind.

    The work is done in the library of A (a pair of functions takes that of B), in the dtype of all of them together
    (see :func:`working_dtype`). Over ranks all of it is about this rank's pieces, and what one rank finds wrong is
    raised on all.
    """
    read: Any = None
    with sums.holding():
        read = read_operands(A, B, L, x0, name, square, axis)
    sums.check()
    operator, penalty, block, start, given, in_rows = read
    given_or_not = {"L": penalty, "x0": start}
    sums.agree_all(
        {"the dtype": name_of_dtype(block), "the number of columns of B": int(block.shape[1])}
        | {name: "None" if value is None else "given" for name, value in given_or_not.items()}
    )
    unknowns, equations = sums.extents(int(operator.shape[1]), int(block.shape[0]))
    scaled, scale = scale_columns(block, sums)
    if start is not None:
        start = start / scale
        with sums.holding():
            require_finite("x0", start)
        sums.check()
    return LinearProblem(
        sums.held_operator(operator),
        None if penalty is None else sums.held_operator(penalty),
        scaled,
        start,
        scale,
        scaled is not block,
        given,
        unknowns.local,
        sums,
        unknowns,
        equations,
        rows=in_rows,
        square=square,
    )


def read_operands(
    A: Any,
    B: Any,
    L: Any,
    x0: Any,
    name: str,
    square: bool,
    axis: int,
    *,
    data: str = "B",
    start_name: str = "x0",
) -> tuple[Operator, Operator | None, Array, Array | None, Array, bool]:
    """Return operators, blocks, and B as it was given, as columns, and whether it was rows.

    ``data`` and ``start_name`` are what the caller's function calls B and x0.
    """
    given = read_array(data, B)
    in_rows = read_axis(axis) == 0
    block_shape = "(columns, m)" if in_rows else "(m, columns)"
    require_shape(len(given.shape) in (1, 2), data, given, f"(m,), a vector, or {block_shape}, a block")
    in_rows = in_rows and len(given.shape) == 2
    given = given.T if in_rows else given
    dtype = working_dtype(A, given, L, x0)
    width = 1 if len(given.shape) == 1 else int(given.shape[1])
    operator = as_operator(A, dtype, name=name, columns=width)
    template = given if operator.home is None else operator.home
    block = in_common(given, template, dtype, data, name)
    # (Beside the block, not B itself: L is not to be rounded to half precision or to integers.)
    penalty = None if L is None else as_operator(_beside(L, block), dtype, name="L", columns=width)
    if penalty is not None and penalty.home is not None:
        require_one_home("L", penalty.home, name, template, library=False)

    rows, size = operator.shape
    _require_rows(rows, given, in_rows, f"as {name} of shape {operator.shape} has", data)
    require_shape(not square or size in (None, block.shape[0]), name, operator, "as many columns as rows")
    if size is None:
        size = int(block.shape[0]) if square else int(operator.adjoint(block[:, :1]).shape[0])
        operator.shape = (int(block.shape[0]), size)
    if penalty is not None:
        require_shape(penalty.shape[1] in (None, size), "L", penalty, f"{size} columns, one an unknown")
    if penalty is not None and penalty.shape[1] is None:
        image = penalty.forward(copy_to_device_of(np.zeros((size, 1)), block))
        penalty.shape = (int(image.shape[0]), size)

    start = None
    if x0 is not None:
        expected = (size,) if len(given.shape) == 1 else (size, block.shape[1])
        start = read_array(start_name, x0)
        expected = expected[::-1] if in_rows else expected
        require_shape(tuple(start.shape) == tuple(expected), start_name, start, tuple(expected))
        start = in_common(start.T if in_rows else start, template, dtype, start_name, name)
    return operator, penalty, block, start, given, in_rows


def _require_rows(rows: int | None, given: Array, in_rows: bool, reason: str, name: str) -> None:
    """Raise unless the right-hand sides have so many entries; where they would have them turned, the error says so."""
    if rows in (None, given.shape[0]):
        return
    turned = len(given.shape) == 2 and given.shape[1] == rows
    other = f"axis={int(in_rows)}, if its {'columns' if in_rows else 'rows'} are the right-hand sides"
    allowed = f"{rows} {'columns' if in_rows else 'rows'}, {reason}{f'; or {other}' if turned else ''}"
    require_shape(False, name, given.T if in_rows else given, allowed)


def working_dtype(*parts: Any) -> str:
    """Return the dtype that NumPy's ``result_type`` finds for all parts that have one, where it is float32.

    In all other cases (float64, integers alone, half precision alone) that is float64. Functions have no dtype;
    lists are NumPy arrays; bfloat16 counts as float16. Where the first part is an array of JAX, not of float64, and JAX
    holds no float64 (``jax_enable_x64``), it is float32.

    Examples
    --------
    >>> import numpy as np
    >>> single, double, small = np.ones(2, np.float32), np.ones(2), np.ones(2, np.int8)
    >>> working_dtype(single, None, single), working_dtype(single, double), working_dtype(single, small)
    ('float32', 'float64', 'float32')
    """
    homes = [part.home if isinstance(part, Operator) else part for part in parts]
    arrays = [_listed(part) if isinstance(part, list) and not any(map(callable, part)) else part for part in homes]
    typed: list[Any] = [array for array in arrays if getattr(array, "dtype", None) is not None]
    dtypes = [np.dtype(np.float16) if is_bfloat16(array) else _as_numpy_dtype(array.dtype) for array in typed]
    if not dtypes:
        return "float64"
    first = getattr(typed[0], "home", typed[0])  # of an operator that tells it
    only_single = dtypes[0] != np.float64 and not holds_double(first)
    return "float32" if only_single or np.result_type(*dtypes) == np.float32 else "float64"


def _listed(part: list[Any]) -> np.ndarray | None:
    try:
        return np.asarray(part)
    except ValueError:  # rows of different lengths, which whoever reads this argument refuses by its name
        return None


def _as_numpy_dtype(dtype: Any) -> np.dtype:
    try:
        found = np.dtype(dtype_name(dtype))
    except TypeError:  # of another library
        return np.dtype(np.float64)
    return found if found.kind in "biufc" else np.dtype(np.float64)  # dates and texts are refused elsewhere


def iteration_limit(maxiter: int | None, size: int, bounded: bool = False) -> int:
    """Return the limit, twice the unknowns and at least 100 by default; within bounds at least 1000."""
    if maxiter is None:
        return max(1000 if bounded else 100, 2 * size)
    return read_whole("maxiter", maxiter, 0, as_float=True)


def _beside(L: Any, template: Array) -> Any:
    """Return L in the library of the template, where both are on the host; what cannot be brought there is refused."""
    if is_cuda(template) or isinstance(L, tuple | Operator) or (callable(L) and not hasattr(L, "shape")):
        return L
    if is_scipy_sparse(L):
        return L if isinstance(template, np.ndarray) else in_library_of(L, template)
    if same_library(getattr(L, "home", L), template):
        return L
    if isinstance(L, np.ndarray):
        return copy_to_device_of(L, template)
    raise WrongKind(f"L is a {type(L).__name__}, while B is {describe_home(template)}; allowed: one library")
