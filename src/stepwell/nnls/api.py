"""The API of non-negative least squares: checks the input, chooses the method, sends it to its target."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from stepwell import arrays
from stepwell.checks import (
    read_array,
    read_axis,
    read_choice,
    read_real,
    read_whole,
    require,
    require_each,
    require_function,
    require_one_home,
    require_shape,
)
from stepwell.deprecation import renamed
from stepwell.lazy import over_systems, systems_of_whole
from stepwell.nnls.batch import Batch
from stepwell.nnls.convolution import Convolution
from stepwell.nnls.result import NNLSResult
from stepwell.threads import read_threads
from stepwell.typing import ArrayLike

Array = arrays.Array

MethodName: TypeAlias = Literal["auto", "qr", "gram"]
Insertion: TypeAlias = Literal["guarded", "single"]
Update: TypeAlias = Literal["cgs2", "mgs", "rotations", "csne"]


@renamed(max_iter="maxiter", damping="lam")
def nnls(
    A: ArrayLike | Convolution,
    b: ArrayLike,
    *,
    method: MethodName = "auto",
    insertion: Insertion = "guarded",
    update: Update = "cgs2",
    lam: float = 0.0,
    warm_start: ArrayLike | Literal["chain"] | None = None,
    maxiter: int | None = None,
    tol: float | None = None,
    axis: Literal[0, 1] = 0,
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
    dim: str | None = None,
) -> NNLSResult:
    """Solve min ‖Ax − b‖² + λ²‖x‖² subject to x ≥ 0, for one system or very many.

    Parameters
    ----------
    A : array, shape (m, n) or (systems, m, n), or Convolution
        One matrix for all right-hand sides, or one for each. Any shape, rank and scale; zero and equal columns are
        legal.
    b : array, shape (m,) or (systems, m); (m, systems) with ``axis=1``
        The right-hand sides. NumPy, torch, CuPy or JAX, on the CPU or a CUDA device, the same as `A`; float64 or
        float32 (arithmetic is float64 in either case). An array of dask, cut into blocks of whole systems, gives a
        result whose fields are arrays of dask, not yet computed; a DataArray of xarray, of any dimensions, one of
        DataArrays. The bits are those of a direct call.
    method : {"auto", "qr", "gram"}, default "auto"
        ``"qr"`` keeps Q and R of the positive columns. ``"gram"`` keeps R alone, from products of columns (all formed
        once where A is shared), refines with A, and goes over to Q and R where columns are nearly dependent.
        ``"auto"`` decides by shape; `NNLSResult.choice` says how.
    insertion : {"guarded", "single"}, default "guarded"
        ``"single"`` inserts one column a step, as Lawson and Hanson do; ``"guarded"`` several that are large in the
        dual and far from parallel, and drops again those that would not become positive.
    update : {"cgs2", "mgs", "rotations", "csne"}, default "cgs2"
        How ``method="qr"`` updates its factor: classical Gram-Schmidt twice, modified Gram-Schmidt, rotations of a
        square Q, or the corrected semi-normal equations without Q. All but the first exist for comparison.
    lam : float, default 0
        λ ≥ 0 itself; it enters squared, as in :func:`stepwell.tikhonov`. (Once spelt ``damping``.)
    warm_start : array or "chain", optional
        An x (its positive entries) or a boolean set, of shape (n,) or (systems, n), to start from; or ``"chain"``:
        each system starts from the set of the one before (in chains of 64). (n, systems) with ``axis=1``.
    maxiter : int, default 10 n + 100
        Limit on least-squares solutions per system. (Once spelt ``max_iter``.)
    tol : float, optional
        Bound on the scaled violation. By default, and at the least, what rounding leaves: about
        6 max(m, n, 16)^(1/4) ulp of ‖b‖ + Σ ‖a_j‖ x_j, and nothing that a residual in twice the precision still
        shows where b is fitted better than that. A larger `tol` ends earlier.
    axis : {0, 1}, default 0
        The axis of a two-dimensional `b` along which the systems lie, and of a two-dimensional `warm_start` and the
        result's `x`, `dual` and `active` as well. 0: systems are rows, as a stack of matrices has them first. 1: they
        are columns, as in AX = B and in :func:`stepwell.tikhonov`. The shape of b is never used to guess it.
    threads : int, default all
        CPU threads. Systems are dealt out from a queue; a single large system uses all threads.
    progress : callable, optional
        Called as ``progress(done, systems)`` after each part of a batch; on a GPU, where a batch is one launch, at
        its end. None with arrays of dask and xarray.
    dim : str, optional
        The dimension of a DataArray `b` that holds the equations of one system; all others are systems. The unknowns
        are called as the other dimension of a DataArray `A`, or else ``"unknown"``.

    Returns
    -------
    NNLSResult
        Also unpacks as ``x, residual``. Trouble in one system of a batch is that system's status.

    Raises
    ------
    ValueError, TypeError
        Where the arguments do not fit together, or a lone system (or a shared matrix) is not finite.

    Examples
    --------
    >>> import numpy as np, stepwell
    >>> A = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    >>> x, rnorm = stepwell.nnls(A, np.array([2.0, 1.0, -1.0]))
    >>> x
    array([1.5, 0. ])
    >>> many = stepwell.nnls(A, np.array([[2.0, 1.0, -1.0], [1.0, 3.0, 2.0]]))
    >>> many.x
    array([[1.5, 0. ],
           [1. , 2. ]])
    >>> many.status
    array([0, 0], dtype=int32)
    """
    if arrays.is_container(A.pulse if isinstance(A, Convolution) else A, b, warm_start) or dim is not None:
        require(progress is None, "progress", progress, "None with arrays of dask and xarray, which dask watches")
        settings = dict(
            method=method, insertion=insertion, update=update, lam=lam, maxiter=maxiter, tol=tol, threads=threads
        )  # fmt: skip
        return _over_blocks(A, b, warm_start, settings, read_axis(axis), dim)
    batch = check(A, b, method, insertion, update, lam, warm_start, maxiter, tol, threads, progress, axis)
    if arrays.is_cuda(batch.b):
        from stepwell.nnls import cuda

        result = cuda.solve(batch)
    else:
        from stepwell.nnls import host

        result = host.solve(batch)
    if axis == 0 or batch.lone:
        return result
    return dataclasses.replace(result, x=result.x.T, dual=result.dual.T, active=result.active.T)


def _over_blocks(A: Any, b: Any, warm_start: Any, settings: dict[str, Any], axis: int, dim: str | None) -> NNLSResult:
    """Solve systems given as arrays of dask or xarray."""
    solve: Callable[..., NNLSResult]
    matrix: tuple[Any, str]
    if isinstance(A, Convolution):
        solve, matrix = functools.partial(_convolved, n=A.n, m=A.m, origin=A.origin, **settings), (A.pulse, "p")
    else:
        solve, matrix = functools.partial(nnls, **settings), (A, "mn")
    if isinstance(warm_start, str):
        solve, warm_start = functools.partial(solve, warm_start=warm_start), None
    arguments = {"b": (b, "m"), "pulse" if isinstance(A, Convolution) else "A": matrix, "warm_start": (warm_start, "n")}
    result: NNLSResult = over_systems(solve, arguments, dict.fromkeys(("x", "dual", "active"), "n"), dim=dim, axis=axis)
    return result


def _convolved(b: Any, pulse: Any, *, n: int, m: int, origin: int, **settings: Any) -> NNLSResult:
    return nnls(Convolution(pulse, n, m=m, origin=origin), b, **settings)


def check(
    A: Any,
    b: Any,
    method: str,
    insertion: str,
    update: str,
    lam: float,
    warm_start: Any,
    maxiter: int | None,
    tol: float | None,
    threads: int | None,
    progress: Callable[[int, int], object] | None,
    axis: int = 0,
) -> Batch:
    """Turn the arguments of :func:`nnls` into a batch, or say what is wrong with them."""
    read_choice("method", method, get_args(MethodName))
    read_choice("insertion", insertion, get_args(Insertion))
    read_choice("update", update, get_args(Update))
    if method == "gram" and update != "cgs2":
        raise ValueError(f"update is {update!r}; allowed: 'cgs2' with method='gram', which has one update of its own")
    require_function("progress", progress)
    convolution = isinstance(A, Convolution)
    matrix, b, single = _alike(A.pulse if convolution else A, b)
    shape = tuple(A.shape) if convolution else tuple(matrix.shape)
    require_shape(len(shape) in (2, 3), "A", matrix, "(m, n) or (systems, m, n)")
    require_shape(b.ndim in (1, 2), "b", b, "(m,), or (systems, m), with axis=1 (m, systems)")
    rows, columns = shape[-2:]
    if rows + columns > MAX_ROWS_AND_COLUMNS:
        raise ValueError(f"A has shape {shape}; allowed: at most {MAX_ROWS_AND_COLUMNS} rows and columns together")
    lone = b.ndim == 1
    across = read_axis(axis) == 1 and not lone
    _require_systems(b.T if across else b, b, shape, across)
    b = b[None] if lone else _turned(b) if across else b
    systems = int(b.shape[0])
    lam = read_real("lam", lam, at_least=0)
    if update == "rotations":
        require(lam == 0, "lam", lam, "0 with update='rotations', which has none; or update='cgs2'")
    size = max(rows, columns, 16)
    tolerance = 0.0 if tol is None else read_real("tol", tol, above=0, below=1)
    limit = 10 * columns + 100 if maxiter is None else read_whole("maxiter", maxiter, 1, as_float=True)
    threads = read_threads(threads)
    warm_x, warm_set, chain = _warm(warm_start, b, single, systems, columns, across)
    whole = systems_of_whole(systems)
    method, choice = _choose(method, update, len(shape) == 2, whole, rows, columns, lam > 0)
    many = len(shape) == 2 and whole > 1
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
        update="gram" if method == "gram" else update,
        guarded=insertion == "guarded",
        form_gram=method == "gram" and many and whole * GRAM_WORTH >= columns,
        damping=lam,
        tolerance=tolerance,
        rounding=6 * float(np.finfo(float).eps) * size**0.25,
        max_iter=min(limit, 2**31 - 1),
        warm_x=warm_x,
        warm_set=warm_set,
        chain=chain,
        threads=threads,
        lone=lone,
        whole=whole,
        progress=progress,
    )


#: The core counts rows and columns of one system, and both together, in 32 bits, with room to pad them.
MAX_ROWS_AND_COLUMNS = 2**31 - 2**10
#: The Gram matrix of a shared A costs n/2 products with A; a solve saves some tens of them.
GRAM_WORTH = 60
#: Systems with fewer positive unknowns than this cost nothing: they get the most careful method.
TINY = 8


def _choose(
    method: str, update: str, shared: bool, systems: int, rows: int, columns: int, damped: bool
) -> tuple[str, str]:
    if method != "auto":
        return method, f"{method}, as asked"
    if update != "cgs2":
        return "qr", f"qr: update={update!r} belongs to it"
    most_positive = columns if damped else min(rows, columns)
    if most_positive < TINY and not (shared and systems > 1):
        return "qr", f"qr: {rows} x {columns} is tiny"
    if shared and systems * GRAM_WORTH >= columns and systems > 1:
        return "gram", f"gram: one matrix for {systems} right-hand sides, its Gram matrix is formed once"
    return "gram", "gram: products of the positive columns alone, dual and residual from A"


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
        require_shape(fits, "b", b, f"{rows} entries a system, as A of shape {shape} has rows{hint}")


def _alike(matrix: Any, b: Any) -> tuple[Array, Array, bool]:
    """Bring both to arrays of one library and device, and say whether they are both of single precision.

    Those of a device are brought to one dtype; on the host that is left to each part of the batch.
    """
    matrix, b = read_array("A", matrix), read_array("b", b)
    require_one_home("A", matrix, "b", b)
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
    warm_start: Any, b: Array, single: bool, systems: int, columns: int, across: bool
) -> tuple[Array | None, Array | None, bool]:
    if warm_start is None:
        return None, None, False
    if isinstance(warm_start, str):
        require(warm_start == "chain", "warm_start", warm_start, "an x, a boolean set, or 'chain'")
        return None, None, True
    start = read_array("warm_start", warm_start)
    require_one_home("warm_start", start, "b", b)
    allowed = ((columns,), (columns, systems) if across else (systems, columns))
    require_shape(tuple(start.shape) in allowed, "warm_start", start, f"{allowed[0]} or {allowed[1]}")
    start = start[None] if start.ndim == 1 else _turned(start) if across else start
    xp = arrays.namespace_of(b)
    if xp.isdtype(start.dtype, "bool"):
        return None, start, False
    start = _ready(start, single)
    require_each(~xp.isnan(start), "warm_start", start, "numbers other than NaN")
    return start, None, False
