"""What the doors do before any work: check the arguments, agree on library, device and dtype, and give back in kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from stepwell.arrays import (
    Array,
    device_name,
    host_view,
    in_kind,
    is_cuda,
    jax_holds_double,
    kind_of,
    namespace_of,
    to_host,
    to_like,
    without_graph,
)
from stepwell.krylov.results import LinearResult, Status
from stepwell.krylov.rounds import Account, scale_columns
from stepwell.operators import Operator, as_operator, in_library_of
from stepwell.operators.matrices import power_near, scaled
from stepwell.operators.operator import require_real
from stepwell.settings import is_number, is_whole

#: Solutions that are to be multiplied by more than this may leave the range of their dtype.
LARGE = {"float32": 1e15, "float64": 1e150}


@dataclass
class Problem:
    """Operators and right-hand sides in one library, on one device, in one dtype.

    ``B`` and ``x0`` are blocks whose columns were divided by ``scale`` (all ones unless ``scaled``); ``given`` is what
    the caller gave as B. ``A`` was divided by ``unit``: λ is to be, too, and the unknowns were multiplied by it.
    """

    A: Operator
    L: Operator | None
    B: Array
    x0: Array | None
    scale: Array
    scaled: bool
    given: Array
    size: int
    unit: float = 1.0

    @property
    def copied(self) -> bool:
        """Whether ``B`` is a copy of what the caller gave: scaled, or in another dtype or library."""
        same = kind_of(self.B) == kind_of(self.given) and self.B.dtype == self.given.dtype
        return self.scaled or not same

    @property
    def columns(self) -> int:
        """Number of right-hand sides."""
        return int(self.B.shape[1])

    def rescaled(self, size: float) -> Problem:
        """Return the same problem with A, which is about so large, divided by a power of two near its size."""
        most = 120 if _dtype_name(self.B) == "float32" else 1000
        unit = power_near(size, most)
        return self.in_units(scaled(self.A, 1 / unit), unit)

    def in_units(self, A: Operator, unit: float) -> Problem:
        """Return the same problem, given A divided by a number."""
        return replace(self, A=A, x0=None if self.x0 is None else self.x0 * unit, unit=unit)

    def result(self, account: Account, **facts: Any) -> LinearResult:
        """Bring the solutions back to the caller's scale, library, dtype and shape."""
        x = account.x
        if self.scaled or self.unit != 1:
            with np.errstate(over="ignore"):
                x = x * (self.scale / self.unit)
                large = float(np.max(to_host(self.scale), initial=0.0)) / self.unit
            if large > LARGE[_dtype_name(x)]:
                xp = namespace_of(x)
                lost = to_host(xp.all(xp.isfinite(x), axis=0)) == 0
                ends = zip(account.status, lost)
                account.status = [Status.OUT_OF_RANGE if gone else status for status, gone in ends]
        if len(self.given.shape) == 1:
            x = x[:, 0]
        if kind_of(x) != kind_of(self.given):
            x = in_kind(host_view(x), self.given)
        return LinearResult(
            x=x,
            status=account.status,
            residual=account.residual,
            iterations=account.iterations,
            products=account.products,
            history=account.history,
            **facts,
        )


def prepare(A: Any, B: Any, L: Any = None, x0: Any = None, *, name: str = "A", square: bool = False) -> Problem:
    """Check operators and blocks against each other and bring them to a common kind.

    The work is done in the library of A (a pair of functions takes that of B), in the dtype of all of them together
    (see :func:`working_dtype`).
    """
    given = B if hasattr(B, "shape") and kind_of(B) != "numpy" else np.asarray(B)
    if len(given.shape) not in (1, 2):
        raise ValueError(f"B: got an array of shape {tuple(given.shape)}; it must be a vector or a block of columns")
    require_real(given, "B")
    dtype = working_dtype(A, given, L, x0)
    width = 1 if len(given.shape) == 1 else int(given.shape[1])
    operator = as_operator(A, dtype, name=name, columns=width)
    template = given if operator.home is None else operator.home
    penalty = None if L is None else as_operator(_beside(L, template), dtype, name="L", columns=width)
    block = _in_common(given, template, dtype, "B", name)
    if penalty is not None and penalty.home is not None:
        _require_same_device(penalty.home, template, "L", name)

    rows, size = operator.shape
    if rows is not None and rows != block.shape[0]:
        raise ValueError(f"B: has {block.shape[0]} rows, but {name} has shape {operator.shape}")
    if square and size is not None and size != block.shape[0]:
        raise ValueError(f"{name}: has shape {operator.shape}; it must be square")
    if size is None:
        size = int(block.shape[0]) if square else int(operator.adjoint(block[:, :1]).shape[0])
        operator.shape = (int(block.shape[0]), size)
    if penalty is not None and penalty.shape[1] not in (None, size):
        raise ValueError(f"L: has shape {penalty.shape}, but there are {size} unknowns")
    if penalty is not None and penalty.shape[1] is None:
        image = penalty.forward(to_like(np.zeros((size, 1)), block))
        penalty.shape = (int(image.shape[0]), size)

    scaled, scale = scale_columns(block)
    start = None
    if x0 is not None:
        expected = (size,) if len(given.shape) == 1 else (size, block.shape[1])
        start = x0 if hasattr(x0, "shape") else np.asarray(x0)
        require_real(start, "x0")
        if tuple(start.shape) != tuple(expected):
            raise ValueError(f"x0: got shape {tuple(start.shape)}; it must be {tuple(expected)}")
        start = _in_common(start, template, dtype, "x0", name) / scale
        if not bool(namespace_of(start).all(namespace_of(start).isfinite(start))):
            raise ValueError("x0: has entries that are not finite")
    return Problem(operator, penalty, scaled, start, scale, scaled is not block, given, size)


def working_dtype(*parts: Any) -> str:
    """Return the dtype that NumPy's ``result_type`` finds for all parts that have one, where it is float32.

    In all other cases (float64, integers alone, half precision alone) that is float64. Functions have no dtype;
    lists are NumPy arrays. Where the first part is a float32 array of JAX and JAX holds no float64
    (``jax_enable_x64``), it is float32.

    Examples
    --------
    >>> import numpy as np
    >>> single, double, small = np.ones(2, np.float32), np.ones(2), np.ones(2, np.int8)
    >>> working_dtype(single, None, single), working_dtype(single, double), working_dtype(single, small)
    ('float32', 'float64', 'float32')
    """
    homes = [part.home if isinstance(part, Operator) else part for part in parts]
    arrays = [np.asarray(part) if isinstance(part, list) and not any(map(callable, part)) else part for part in homes]
    typed: list[Any] = [array for array in arrays if getattr(array, "dtype", None) is not None]
    dtypes = [_as_numpy_dtype(array.dtype) for array in typed]
    if not dtypes:
        return "float64"
    only_single = dtypes[0] == np.float32 and kind_of(typed[0]) == "jax" and not jax_holds_double()
    return "float32" if only_single or np.result_type(*dtypes) == np.float32 else "float64"


def _as_numpy_dtype(dtype: Any) -> np.dtype:
    try:
        return np.dtype(str(dtype).rpartition(".")[2])
    except TypeError:  # of another library, such as bfloat16
        return np.dtype(np.float64)


def as_preconditioner(preconditioner: Any, problem: Problem) -> Callable[[Array], Array]:
    """Return the function that applies a preconditioner to a block: operator, function of a block, or a diagonal."""
    if preconditioner is None:
        return lambda block: block
    if callable(preconditioner) and not hasattr(preconditioner, "shape"):
        return lambda block: without_graph(preconditioner(block))
    if hasattr(preconditioner, "shape") and len(preconditioner.shape) == 1:
        require_real(preconditioner, "preconditioner")
        if preconditioner.shape[0] != problem.size:
            raise ValueError(
                f"preconditioner: the diagonal has {preconditioner.shape[0]} entries, there are {problem.size} unknowns"
            )
        diagonal = _in_common(preconditioner, problem.B, _dtype_name(problem.B), "preconditioner", "A")
        return lambda block: diagonal * block
    operator = as_operator(preconditioner, _dtype_name(problem.B), name="preconditioner")
    if operator.shape != (problem.size, problem.size):
        raise ValueError(f"preconditioner: has shape {operator.shape}; it must be {(problem.size, problem.size)}")
    return operator.forward


def check_tolerance(tol: float) -> None:
    """Refuse a tolerance that no residual can be compared with."""
    if not (isinstance(tol, int | float | np.number) and np.isfinite(tol) and float(tol) > 0):
        raise ValueError(f"tol: got {tol!r}; it must be one finite positive number")


def iteration_limit(max_iter: int | None, size: int) -> int:
    """Return the limit, twice the unknowns and at least 100 by default."""
    if max_iter is None:
        return max(100, 2 * size)
    if not is_whole(max_iter) or not 0 <= max_iter < np.inf:
        raise ValueError(f"max_iter: got {max_iter!r}; it must be an integer, at least 0")
    return int(max_iter)


def check_memory(memory: int) -> None:
    """Refuse what is no number of bytes."""
    if not (is_number(memory) and 0 <= float(memory) < np.inf):
        raise ValueError(f"memory: got {memory!r}; it must be a finite number of bytes, at least 0")


def check_callback(callback: Any) -> None:
    """Refuse what cannot be called."""
    if callback is not None and not callable(callback):
        raise TypeError(f"callback: got {callback!r}; it must be callable")


def column_numbers(problem: Problem, least_squares: bool) -> int:
    """Numbers that one column at work takes, where it is longest: when λ²LᵀL joins AᵀA, or when the state advances."""
    size, rows = problem.size, int(problem.B.shape[0])
    if not least_squares:
        return 7 * size
    if problem.L is None:
        return max(8 * size + 2 * rows, 7 * size + 3 * rows)
    penalties = problem.L.shape[0] or 0
    return max(8 * size + 2 * rows + 2 * penalties, 5 * size + 3 * rows + 3 * penalties)


def bytes_per_number(block: Array) -> int:
    """Bytes of one number of the block."""
    return 4 if "float32" in str(block.dtype) else 8


def _dtype_name(block: Array) -> str:
    return "float32" if "float32" in str(block.dtype) else "float64"


def _require_same_device(array: Array, template: Array, argument: str, name: str) -> None:
    here, there = device_name(array), device_name(template)
    if here != there or (is_cuda(array) and kind_of(array) != kind_of(template)):
        raise TypeError(
            f"{argument}: is {kind_of(array)} on {here}, but {name} works with {kind_of(template)} on {there}; "
            f"move one of them"
        )


def _beside(L: Any, template: Array) -> Any:
    """Return L in the library of the template, where both are on the host; what cannot be brought there is refused."""
    if is_cuda(template) or isinstance(L, tuple | Operator) or (callable(L) and not hasattr(L, "shape")):
        return L
    kind = kind_of(template)
    if sp.issparse(L):
        return L if kind == "numpy" else in_library_of(L, template)
    if kind == "numpy" and kind_of(L) != "numpy":
        raise TypeError(f"L: is a {kind_of(L)} array, but A and B are NumPy's; allowed: one library")
    if kind != "numpy" and isinstance(L, np.ndarray):
        return to_like(L, template)
    if kind != "numpy" and kind_of(L) != kind:
        raise TypeError(f"L: is a {type(L).__name__}, but A and B are {kind}'s; allowed: an array of that library")
    return L


def _in_common(array: Array, template: Array, dtype: str, argument: str, name: str) -> Array:
    """Bring an array on the same device to the template's library and the working dtype, as a block of columns."""
    _require_same_device(array, template, argument, name)
    array = without_graph(array)
    if kind_of(array) != kind_of(template):
        array = in_kind(np.array(host_view(array)), template)
    xp = namespace_of(array)
    block = xp.astype(array, getattr(xp, dtype), copy=False)
    if argument == "preconditioner" or len(block.shape) == 1:
        return xp.reshape(block, (-1, 1))
    return block
