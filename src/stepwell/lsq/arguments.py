"""Arguments of small least-squares problems: read and checked once, for every public function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from stepwell import _core, arrays
from stepwell.arrays.checks import read_array, require_each, require_one_home
from stepwell.arrays.over_systems import systems_of_whole
from stepwell.common.checks import (
    read_axis,
    read_choice,
    read_real,
    read_whole,
    require,
    require_function,
    require_shape,
)
from stepwell.common.threads import read_threads
from stepwell.cuda.layouts import structure
from stepwell.lsq.batch import UPDATE_CODES, Batch
from stepwell.lsq.constraints import Constraints, Reader, are_states, is_number, read_constraints, read_numbers
from stepwell.lsq.convolution import Convolution
from stepwell.lsq.normal_equations import require_squares, require_symmetric, with_squares

Array = arrays.Array

MethodName: TypeAlias = Literal["auto", "qr", "gram"]
Insertion: TypeAlias = Literal["guarded", "single"]
Rule: TypeAlias = Literal["chi2", "discrepancy", "gcv", "lcurve"]
Update: TypeAlias = Literal["cgs2", "mgs", "rotations", "csne"]

#: The core counts rows and columns of one system, and both together, in 32 bits, with room to pad them.
MAX_ROWS_AND_COLUMNS = 2**31 - 2**10


def check(
    A: Any,
    b: Any,
    *,
    bounds: Any = None,
    lam: Any = 0.0,
    which: Any = None,
    warm_start: Any = None,
    method: str = "auto",
    insertion: str = "guarded",
    update: str = "cgs2",
    maxiter: int | None = None,
    tol: float | None = None,
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
    axis: int = 0,
    **more: Any,
) -> Batch:
    """Turn arguments into a batch, or say what is wrong with them.

    Parameters
    ----------
    bounds : pair or None
        Lower and upper; None is x ≥ 0 alone, which has a faster solver where `more` is empty and λ one number.
    update : str
        How ``method="qr"`` updates its factor; all but the first are there for studies.
    axis : {0, 1}
        Where the systems of a two-dimensional `b` and `warm_start` lie.
    more
        What `read_numbers` and `read_constraints` read.
    """
    read_choice("method", method, get_args(MethodName))
    guarded = read_choice("insertion", insertion, get_args(Insertion)) == "guarded"
    numbers = read_numbers(more)
    require_function("progress", progress)
    convolution = isinstance(A, Convolution)
    matrix, b, single = _alike(A.pulse if convolution else A, b)
    shape = tuple(A.shape) if convolution else tuple(matrix.shape)
    if not convolution:
        require_matrices(matrix)
    rows, columns = shape[-2:]
    if rows + columns > MAX_ROWS_AND_COLUMNS:
        raise ValueError(f"A has shape {shape}; allowed: at most {MAX_ROWS_AND_COLUMNS} rows and columns together")
    across = read_axis(axis) == 1 and b.ndim > 1
    b, column = (b, False) if across else without_column(b, shape, which is not None)
    require_shape(b.ndim == 2 or not across, "b", b, "(m, systems) with axis=1")
    require_shape(b.ndim > 0, "b", b, "(m,), or (systems, m)")
    lone = b.ndim == 1
    own = shape if which is None else shape[-2:]
    if which is not None:
        require_shape(len(shape) == 3, "A", matrix, "(matrices, m, n) with `which`")
    _require_systems(b.T if across else b, b, own, across)
    b = b[None] if lone else _turned(b) if across else b
    lead = () if lone else tuple(map(int, b.shape[:-1]))
    b, matrix = _in_rows(b, rows), matrix.reshape(-1, *shape[-2:]) if len(shape) > 3 else matrix
    systems = int(b.shape[0])
    reader, damping, constraints = Reader(b, lead, single), 0.0, None
    if bounds is None and is_number(lam) and which is None and all(value is None for value in more.values()):
        damping = read_real("lam", lam, at_least=0)
    else:
        more |= {} if which is None else {"which": reader.which(which, shape[0])}
        more |= dict(matrix=A.dense() if convolution and isinstance(lam, str) else matrix, numbers=numbers)
        constraints = read_constraints(reader, (rows, columns), bounds=bounds, lam=lam, warm_start=warm_start, **more)
    limits = _limits(tol, maxiter, columns)
    warm_x, warm_set, chain = _warm(warm_start, b, single, lead, columns, across, constraints)
    shared = len(shape) == 2 or which is not None
    in_batch = systems_of_whole(systems)
    worth = _core.nnls_gram_is_worth_forming(in_batch, columns, shape[0] if which is not None else 1)
    damped = damping > 0 or (constraints is not None and constraints.penalized)
    method, choice = _choose(method, shared, in_batch, rows, columns, damped, worth)
    weighted = constraints is not None and constraints.weights is not None
    many = shared and (in_batch > 1 or which is not None)
    return Batch(
        matrix=matrix,
        b=b,
        single=single,
        convolution=convolution,
        rows=rows,
        columns=columns,
        origin=A.origin if convolution else 0,
        method=method,
        choice=choice,
        form_gram=method == "gram" and many and worth and not weighted,
        options=structure("NnlsOptions")(
            **limits,
            rounding=_rounding(max(rows, columns)),
            damping=damping,
            update=UPDATE_CODES["gram" if method == "gram" else update],
            guarded=guarded,
            chain=chain,
        ),
        warm_x=warm_x,
        warm_set=warm_set,
        threads=read_threads(threads),
        lone=lone,
        lead=lead,
        column=column,
        across=across,
        constraints=constraints,
        systems_in_batch=in_batch,
        equations=rows,
        progress=progress,
    )


def default_limit(columns: int) -> int:
    """Return how many solutions a system may take: wide boxes about nearly dependent columns want 40 a column."""
    return 50 * columns + 100


def _limits(tol: float | None, maxiter: int | None, columns: int) -> dict[str, Any]:
    """Return the caller's tolerance, or 0, and the limit on solutions, as the core calls them."""
    limit = default_limit(columns) if maxiter is None else read_whole("maxiter", maxiter, 1, as_float=True)
    tolerance = 0.0 if tol is None else read_real("tol", tol, above=0, below=1)
    return {"tolerance": tolerance, "max_solves": min(limit, 2**31 - 1)}


def _rounding(size: int) -> float:
    """Return the scaled violation that rounding leaves in systems of so many rows or columns."""
    return float(6 * float(np.finfo(float).eps) * max(size, 16) ** 0.25)


def _choose(
    method: str, shared: bool, systems: int, rows: int, columns: int, damped: bool, worth: bool
) -> tuple[str, str]:
    if method != "auto":
        return method, f"{method}, as asked"
    if _core.nnls_is_tiny(rows, columns, damped) and not (shared and systems > 1):
        return "qr", f"qr: {rows} x {columns} is tiny"
    if shared and worth and systems > 1:
        return "gram", f"gram: one matrix for {systems} right-hand sides, its Gram matrix is formed once"
    return "gram", "gram: products of the positive columns alone, dual and residual from A"


def without_column(b: Array, shape: tuple[int, ...], named: bool) -> tuple[Array, bool]:
    """Return b without a last axis of length one, as a column vector has it, and whether it had one."""
    rows, lead = shape[-2], () if named else shape[:-2]
    column = b.ndim > 1 and b.shape[-1] == 1 and rows != 1 and b.shape[-2] == rows
    column = column and (not lead or tuple(b.shape[:-2]) == lead)
    return (b[..., 0], True) if column else (b, False)


def _in_rows(b: Array, rows: int) -> Array:
    """Return right-hand sides of any shape one after the other."""
    return b if b.ndim == 2 else b.reshape(-1, rows)


def _require_systems(rows_of_b: Array, b: Array, shape: tuple[int, ...], across: bool) -> None:
    """Raise unless b, whose systems are turned to rows, fits A; where it would fit turned, the error says so."""
    rows, own = shape[-2], shape[:-2]
    fits = rows_of_b.shape[-1] == rows and (not own or tuple(rows_of_b.shape[:-1]) == own)
    turned = b.ndim == 2 and b.shape[1 if across else 0] == rows and (not own or b.shape[0 if across else 1] == own[0])
    other = 0 if across else 1
    hint = f"; or axis={other}, if its {'rows' if across else 'columns'} are the right-hand sides" if turned else ""
    if own:
        wanted = (rows, own[0]) if across else (own[0], rows)
        require_shape(fits, "b", b, f"{wanted}, as A has shape {shape}{hint}")
    else:
        require_shape(fits, "b", b, f"{rows} entries per system, as A of shape {shape} has rows{hint}")


def read_matrix(name: str, value: Any) -> Array:
    """Return a dense matrix, or say who takes sparse ones."""
    instead = "; or stepwell.tikhonov(A, b, lam, bounds=...), which takes sparse matrices and operators"
    return read_array(name, value, instead=instead if name == "A" else "")


def require_matrices(matrix: Array) -> None:
    """Raise for an A that is neither a matrix nor several."""
    require_shape(matrix.ndim >= 2, "A", matrix, "(m, n) or (systems, m, n)")


def _alike(matrix: Any, b: Any, names: tuple[str, str] = ("A", "b")) -> tuple[Array, Array, bool]:
    """Bring both to arrays of one library and device, and say whether they are both of single precision.

    Those of a device are brought to one dtype; on the host that is left to each part of the batch.
    """
    matrix, b = arrays.as_jax_mixes(read_matrix(names[0], matrix), read_array(names[1], b))
    require_one_home(names[0], matrix, names[1], b)
    xp = arrays.namespace_of(matrix, b)
    if matrix.dtype == b.dtype == xp.float64:
        return matrix, b, False
    single = bool(matrix.dtype == xp.float32 and b.dtype == xp.float32)
    return _ready(matrix, single), _ready(b, single), single


def _ready(array: Array, single: bool) -> Array:
    """Bring a device's array to the dtype that kernels read; of the host's only one that NumPy does not know."""
    xp = arrays.namespace_of(array)
    if not arrays.is_cuda(array):
        return xp.astype(array, xp.float32) if arrays.is_bfloat16(array) else array
    return arrays.as_float(array, "float32" if single else "float64")


def _turned(array: Array) -> Array:
    """Return a block with its columns as rows: a view on the host, whose parts are copied as they are solved."""
    return arrays.as_contiguous(array.T) if arrays.is_cuda(array) else array.T


def _warm(
    warm_start: Any,
    b: Array,
    single: bool,
    lead: tuple[int, ...],
    columns: int,
    across: bool,
    constraints: Constraints | None,
) -> tuple[Array | None, Array | None, bool]:
    """Return the x to start from, or the set, and whether each system starts from the one before."""
    if warm_start is None:
        return None, None, False
    if isinstance(warm_start, str):
        require(warm_start == "chain", "warm_start", warm_start, "an x, states (int8), a boolean set, or 'chain'")
        return None, None, True
    start = read_array("warm_start", warm_start)
    require_one_home("warm_start", start, "b", b)
    systems = int(b.shape[0])
    allowed = ((columns,), (columns, systems) if across else (*lead, columns) if lead else (systems, columns))
    require_shape(tuple(start.shape) in allowed, "warm_start", start, f"{allowed[0]} or {allowed[1]}")
    start = start[None] if start.ndim == 1 else _turned(start) if across else start.reshape(-1, columns)
    xp = arrays.namespace_of(b)
    if are_states(start):
        return None, start if constraints is not None else start == 0, False
    if xp.isdtype(start.dtype, "bool"):
        return None, start, False
    start = _ready(start, single)
    require_each(~xp.isnan(start), "warm_start", start, "numbers other than NaN")
    return start, None, False


def check_gram(
    G: Any,
    c: Any,
    *,
    bounds: Any,
    bb: Any,
    rows: int | None,
    lam: Any,
    L: Any,
    warm_start: Any,
    maxiter: int | None,
    tol: float | None,
    threads: int | None,
    progress: Callable[[int, int], object] | None,
    keep_factor: bool = False,
    **more: Any,
) -> Batch:
    """Turn the arguments of ``lsq_gram`` into a batch, or say what is wrong with them."""
    require_function("progress", progress)
    matrix, linear, single = _alike(G, c, ("G", "c"))
    square = matrix.ndim in (2, 3) and matrix.shape[-1] == matrix.shape[-2]
    require_shape(square, "G", matrix, "(n, n) or (systems, n, n)")
    n = int(matrix.shape[-1])
    fits = linear.ndim in (1, 2) and linear.shape[-1] == n
    fits = fits and (matrix.ndim == 2 or tuple(linear.shape[:-1]) == tuple(matrix.shape[:-2]))
    require_shape(fits, "c", linear, f"({n},) or (systems, {n}), as G has shape {tuple(matrix.shape)}")
    lone = linear.ndim == 1
    lead = () if lone else (int(linear.shape[0]),)
    linear = linear[None] if lone else linear
    reader = Reader(linear, lead, False)
    reader.rounds_bounds = single
    squared = None if bb is None else reader.rows("bb", bb, None).reshape(-1)
    given = reader.doubles(reader.home("G", matrix))
    from_singles = "float32" in str(matrix.dtype)
    require_symmetric(given, from_singles)
    require_squares(given)
    xp, unit, lams = arrays.namespace_of(given), None, None
    if not (is_number(lam) and read_real("lam", lam, at_least=0) == 0):
        unit = reader.doubles(reader.home("L", np.eye(n) if L is None else L))
        require_shape(unit.ndim == 2 and unit.shape[-1] == n, "L", unit, f"(rows, {n}), as G has columns")
        lams = reader.lam(lam)
        given = given + lams[:, None, None] ** 2 * xp.matmul(unit.T, unit)
    linear_doubles = reader.doubles(reader.home("c", linear))
    given = with_squares(given, linear_doubles, lone, from_singles)
    constraints = read_constraints(
        reader,
        (0, n),
        bounds=bounds,
        warm_start=warm_start,
        keep_factor=keep_factor,
        gram=arrays.as_contiguous(given if given.ndim == 3 else given[None]),
        penalty_in_gram=unit,
        lam_in_gram=lams,
        linear=arrays.as_contiguous(linear_doubles),
        squared_b=squared,
        numbers=read_numbers(more),
        **more,
    )
    limits = _limits(tol, maxiter, n)
    warm_x, warm_set, chain = _warm(warm_start, linear, single, lead, n, False, constraints)
    return Batch(
        matrix=matrix,
        b=linear,
        single=single,
        convolution=False,
        rows=0,
        columns=n,
        origin=0,
        method="gram",
        choice="gram: normal equations are given",
        form_gram=False,
        options=structure("NnlsOptions")(
            **limits, rounding=_rounding(n), update=UPDATE_CODES["gram"], guarded=True, chain=chain
        ),
        warm_x=warm_x,
        warm_set=warm_set,
        threads=read_threads(threads),
        lone=lone,
        lead=lead,
        column=False,
        across=False,
        constraints=constraints,
        systems_in_batch=int(linear.shape[0]),
        progress=progress,
        names=("G", "c"),
        equations=0 if rows is None else read_whole("rows", rows, 1),
    )
