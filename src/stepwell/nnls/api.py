"""The front door of non-negative least squares: checks the input, chooses the method, sends it to its target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stepwell import arrays
from stepwell.checks import (
    read_array,
    read_choice,
    read_real,
    read_whole,
    require,
    require_each,
    require_function,
    require_one_home,
    require_shape,
)
from stepwell.nnls.batch import Batch
from stepwell.nnls.convolution import Convolution
from stepwell.nnls.result import NNLSResult
from stepwell.threads import read_threads

Array = arrays.Array

METHODS = ("auto", "qr", "gram")
INSERTIONS = ("guarded", "single")
UPDATES = ("cgs2", "mgs", "rotations", "csne")


def nnls(
    A: Array | Convolution,
    b: Array,
    *,
    method: str = "auto",
    insertion: str = "guarded",
    update: str = "cgs2",
    damping: float = 0.0,
    warm_start: Array | str | None = None,
    max_iter: int | None = None,
    tol: float | None = None,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> NNLSResult:
    """Solve min ‖Ax − b‖² + λ²‖x‖² subject to x ≥ 0, for one system or very many.

    Parameters
    ----------
    A : array, shape (m, n) or (systems, m, n), or Convolution
        One matrix for all right-hand sides, or one for each. Any shape, rank and scale; zero and equal columns are
        legal.
    b : array, shape (m,) or (systems, m)
        The right-hand sides. NumPy, torch, CuPy or JAX, on the CPU or a CUDA device, the same as `A`; float64 or
        float32 (arithmetic is float64 in either case).
    method : {"auto", "qr", "gram"}
        ``"qr"`` keeps Q and R of the positive columns. ``"gram"`` keeps R alone, from products of columns (all formed
        once where A is shared), refines with A, and goes over to Q and R where columns are nearly dependent.
        ``"auto"`` decides by shape; `NNLSResult.choice` says how.
    insertion : {"guarded", "single"}
        ``"single"`` inserts one column a step, as Lawson and Hanson do; ``"guarded"`` several that are large in the
        dual and far from parallel, and drops again those that would not become positive.
    update : {"cgs2", "mgs", "rotations", "csne"}
        How ``method="qr"`` updates its factor: classical Gram-Schmidt twice, modified Gram-Schmidt, rotations of a
        square Q, or the corrected semi-normal equations without Q. All but the first exist for comparison.
    damping : float
        λ ≥ 0.
    warm_start : array or "chain", optional
        An x (its positive entries) or a boolean set, of shape (n,) or (systems, n), to start from; or ``"chain"``:
        each system starts from the set of the one before (in chains of 64).
    max_iter : int, optional
        Limit on least-squares solutions per system; by default 10 n + 100.
    tol : float, optional
        Bound on the scaled violation. By default, and at the least, what rounding leaves: about
        6 max(m, n, 16)^(1/4) ulp of ‖b‖ + Σ ‖a_j‖ x_j.
    threads : int, optional
        CPU threads; by default all. Systems are dealt out from a queue; a single large system uses all threads.
    progress : callable, optional
        Called as ``progress(done, systems)`` after each part of a batch; on a GPU, where a batch is one launch, at
        its end.

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
    batch = check(A, b, method, insertion, update, damping, warm_start, max_iter, tol, threads, progress)
    if arrays.is_cuda(batch.b):
        from stepwell.nnls import cuda

        return cuda.solve(batch)
    from stepwell.nnls import host

    return host.solve(batch)


def check(
    A: Any,
    b: Any,
    method: str,
    insertion: str,
    update: str,
    damping: float,
    warm_start: Any,
    max_iter: int | None,
    tol: float | None,
    threads: int | None,
    progress: Callable[[int, int], None] | None,
) -> Batch:
    """Turn the arguments of :func:`nnls` into a batch, or say what is wrong with them."""
    read_choice("method", method, METHODS)
    read_choice("insertion", insertion, INSERTIONS)
    read_choice("update", update, UPDATES)
    if method == "gram" and update != "cgs2":
        raise ValueError(f"update is {update!r}; allowed: 'cgs2' with method='gram', which has one update of its own")
    require_function("progress", progress)
    convolution = isinstance(A, Convolution)
    matrix, b, single = _alike(A.pulse if convolution else A, b)
    shape = tuple(A.shape) if convolution else tuple(matrix.shape)
    require_shape(len(shape) in (2, 3), "A", matrix, "(m, n) or (systems, m, n)")
    require_shape(b.ndim in (1, 2), "b", b, "(m,) or (systems, m)")
    rows, columns = shape[-2:]
    require_shape(b.shape[-1] == rows, "b", b, f"{rows} entries a system, as A of shape {shape} has rows")
    fits = len(shape) == 2 or (b.ndim == 2 and b.shape[0] == shape[0])
    require_shape(fits, "b", b, f"({shape[0]}, {rows}), as A has shape {shape}")
    lone = b.ndim == 1
    b = b[None] if lone else b
    systems = int(b.shape[0])
    damping = read_real("damping", damping, least=0)
    if update == "rotations":
        require(damping == 0, "damping", damping, "0 with update='rotations', which has none; or update='cgs2'")
    size = max(rows, columns, 16)
    tolerance = 0.0 if tol is None else read_real("tol", tol, above=0, below=1)
    limit = 10 * columns + 100 if max_iter is None else read_whole("max_iter", max_iter, 1)
    threads = read_threads(threads)
    warm_x, warm_set, chain = _warm(warm_start, b, single, systems, columns)
    method, choice = _choose(method, update, len(shape) == 2, systems, rows, columns, damping > 0)
    many = len(shape) == 2 and systems > 1
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
        form_gram=method == "gram" and many and systems * GRAM_WORTH >= columns,
        damping=damping,
        tolerance=tolerance,
        rounding=6 * float(np.finfo(float).eps) * size**0.25,
        max_iter=min(limit, 2**31 - 1),
        warm_x=warm_x,
        warm_set=warm_set,
        chain=chain,
        threads=threads,
        lone=lone,
        progress=progress,
    )


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


def _warm(
    warm_start: Any, b: Array, single: bool, systems: int, columns: int
) -> tuple[Array | None, Array | None, bool]:
    if warm_start is None:
        return None, None, False
    if isinstance(warm_start, str):
        require(warm_start == "chain", "warm_start", warm_start, "an x, a boolean set, or 'chain'")
        return None, None, True
    start = read_array("warm_start", warm_start)
    require_one_home("warm_start", start, "b", b)
    allowed = ((columns,), (systems, columns))
    require_shape(tuple(start.shape) in allowed, "warm_start", start, f"{allowed[0]} or {allowed[1]}")
    start = start[None] if start.ndim == 1 else start
    xp = arrays.namespace_of(b)
    if xp.isdtype(start.dtype, "bool"):
        return None, start, False
    start = _ready(start, single)
    require_each(~xp.isnan(start), "warm_start", start, "numbers other than NaN")
    return start, None, False
