"""The only module that knows that NumPy, PyTorch, CuPy and JAX differ.

Everything else works on array-API namespaces (``namespace_of``), on NumPy views of host arrays (``host_view``), or
hands a result back in the caller's kind (``in_kind``). Only ``to_host`` and ``to_like`` cross between host and
device, where a solver takes a decision on a small matrix or a caller asks for a copy; nothing moves silently.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

import array_api_compat
import numpy as np

Array = Any  # an array of any supported library


# Asked in every call of every door, and the same for all arrays of one type.
_kinds: dict[type, str] = {}
_namespaces: dict[type, Any] = {}


def kind_of(array: Array) -> str:
    """Name the library of an array: ``"numpy"``, ``"torch"``, ``"cupy"`` or ``"jax"``; plain Python is NumPy's."""
    kind = _kinds.get(type(array))
    if kind is None:
        kind = _kinds[type(array)] = _find_kind(array)
    return kind


def _find_kind(array: Array) -> str:
    if isinstance(array, np.ndarray | np.generic):
        return "numpy"
    if array_api_compat.is_torch_array(array):
        return "torch"
    if array_api_compat.is_cupy_array(array):
        return "cupy"
    if array_api_compat.is_jax_array(array):
        return "jax"
    return "numpy"


def namespace_of(*arrays: Array) -> Any:
    """Return the array-API namespace that the arrays share (Python numbers and None are ignored)."""
    given = [a for a in arrays if hasattr(a, "shape")]
    types = {type(a) for a in given}
    if len(types) != 1:
        return array_api_compat.array_namespace(*given)
    (only,) = types
    if only not in _namespaces:
        _namespaces[only] = array_api_compat.array_namespace(given[0])
    return _namespaces[only]


_DLPACK_CUDA = (2, 13)  # kDLCUDA, kDLCUDAManaged


def is_cuda(array: Any) -> bool:
    """Whether something is an array, of whatever library, that lives on a CUDA device."""
    if isinstance(array, np.ndarray | np.generic | float | int):
        return False
    kind = kind_of(array)
    if kind == "cupy":
        return True
    if kind == "torch":
        return bool(array.is_cuda)
    if kind == "jax":
        return any(d.platform in ("gpu", "cuda") for d in array.devices())
    # Of another library: it says so itself (see stepwell.foreign_arrays).
    if hasattr(array, "__cuda_array_interface__"):
        return True
    return hasattr(array, "__dlpack_device__") and int(array.__dlpack_device__()[0]) in _DLPACK_CUDA


def device_name(array: Array) -> str:
    """Name the device of an array in words fit for a message: ``"cpu"``, ``"cuda:0"``."""
    kind = kind_of(array)
    if kind == "torch":
        return str(array.device)
    if kind == "cupy":
        return f"cuda:{array.device.id}"
    if kind == "jax":
        device = next(iter(array.devices()))
        return f"cuda:{device.id}" if device.platform in ("gpu", "cuda") else str(device.platform)
    return "cuda" if is_cuda(array) else "cpu"


def host_view(array: Array) -> np.ndarray:
    """View a host array of any library as NumPy, without a copy where the library allows it."""
    if isinstance(array, np.ndarray):
        return array
    if kind_of(array) == "torch":
        return np.asarray(array.detach().resolve_neg().numpy())
    return np.asarray(array)


def scalar_of(value: Any) -> float:
    """Return a function value as a float: a number, or an array of any library with one element."""
    if isinstance(value, float):
        return float(value)
    if hasattr(value, "shape") and math.prod(value.shape) == 1:
        value = value.reshape(-1)[0]
    if isinstance(value, complex) or "complex" in str(getattr(value, "dtype", "")):
        raise TypeError(f"f is of type {getattr(value, 'dtype', 'complex')}; allowed: a number that is real")
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        what = f"an array of shape {tuple(value.shape)}" if hasattr(value, "shape") else type(value).__name__
        raise TypeError(f"f is {what}; allowed: a number") from None


def real_host_array(value: Any, name: str, dtype: Any = np.float64) -> np.ndarray:
    """Return values as a contiguous host array of a dtype; what does not hold real numbers is an error with a name."""
    array = value if type(value) is np.ndarray else named_host_view(value, name)
    if array.dtype.kind in "cSUmM":  # a cast would drop the imaginary part, or read text and dates as numbers
        raise TypeError(f"{name} has dtype {array.dtype}; allowed: real numbers")
    return np.ascontiguousarray(array, dtype=dtype)


def named_host_view(value: Any, name: str) -> np.ndarray:
    """View an array as `host_view` does; what cannot be viewed, or lives on a GPU, is an error with a name."""
    if is_cuda(value):
        raise ValueError(
            f"{name}: an array on {device_name(value)}, while x0 is on the host; allowed: one device (nothing is moved "
            "silently)"
        )
    try:
        return host_view(value)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged lists, sparse tensors and the like
        raise type(error)(f"{name} cannot be read as an array: {error}") from None


def default_float(array: Array) -> np.dtype:
    """Return the dtype that other numbers become: float64, but for JAX without 64-bit numbers its own, float32."""
    if kind_of(array) != "jax":
        return np.dtype(np.float64)
    import jax

    usual: np.dtype = np.dtype(jax.numpy.result_type(float))
    return usual


def is_like(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether an array of some shape holds its elements in the order of the wanted shape: equal, flat, or but for ones.

    Examples
    --------
    >>> is_like((6,), (2, 3)), is_like((2, 1, 3), (2, 3)), is_like((3, 2), (2, 3))
    (True, True, False)
    """
    if shape == wanted or shape == (math.prod(wanted),):
        return True
    return [k for k in shape if k != 1] == [k for k in wanted if k != 1]


def in_kind(values: np.ndarray, template: Array) -> Array:
    """Return host values as an array of the template's library, sharing memory where the library allows it."""
    kind = kind_of(template)
    if kind == "torch":
        import torch

        return torch.from_numpy(values)
    if kind == "jax":
        import jax

        # A read-only or unaligned buffer cannot be shared with JAX: it copies those by itself.
        with jax.default_device(next(iter(template.devices()))), jax_double():
            return jax.numpy.asarray(values, dtype=values.dtype)
    return values


def lent(values: np.ndarray, template: Array) -> Array:
    """Return host values of the solver's as `in_kind` does, for reading only where the library knows of that."""
    if kind_of(template) != "numpy":
        return in_kind(values, template)
    view = values.view()
    view.flags.writeable = False
    return view


def jax_double() -> Any:
    """Return a context in which JAX makes arrays of 64-bit numbers, where it would shrink them by default."""
    import jax

    return jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64()


def as_float(array: Array, dtype: str) -> Array:
    """Return an array with a floating dtype, named as NumPy names it: itself where it has it, else a copy."""
    xp = namespace_of(array)
    with jax_double() if kind_of(array) == "jax" else contextlib.nullcontext():
        return xp.astype(array, getattr(xp, dtype), copy=False)


def jax_holds_double() -> bool:
    """Whether JAX makes arrays of 64-bit numbers at present."""
    import jax

    return bool(jax.dtypes.canonicalize_dtype(np.float64) == np.float64)


def device_index(array: Array) -> int:
    """Return the number of the CUDA device that an array lives on."""
    return int(device_name(array).partition(":")[2] or 0)


def current_stream(template: Array) -> int:
    """Return the handle of the CUDA stream that the template's library is using on the template's device."""
    kind = kind_of(template)
    if kind == "torch":
        import torch

        return int(torch.cuda.current_stream(template.device).cuda_stream)
    if kind == "cupy":
        import cupy

        return int(cupy.cuda.get_current_stream(template.device.id).ptr)
    return 0  # JAX has streams of its own, which it does not show: the default stream, and waiting


def shares_streams(template: Array) -> bool:
    """Whether work of the template's library and ours can follow each other on one stream, without waiting."""
    return kind_of(template) in ("torch", "cupy")


def device_address(array: Array) -> int:
    """Return the address of a contiguous device array; waits for JAX to have computed it."""
    kind = kind_of(array)
    if kind == "torch":
        return int(array.data_ptr())
    if kind == "cupy":
        return int(array.data.ptr)
    array.block_until_ready()
    return int(array.unsafe_buffer_pointer())


def is_contiguous(array: Array) -> bool:
    """Whether a device array lies in one piece, in C order."""
    kind = kind_of(array)
    if kind == "torch":
        return bool(array.is_contiguous())
    if kind == "cupy":
        return bool(array.flags.c_contiguous)
    return True


def as_contiguous(array: Array) -> Array:
    """Return an array in one piece, in C order: itself where it is, else a copy."""
    kind = kind_of(array)
    if kind == "torch":
        return array.contiguous()
    if kind == "cupy":
        import cupy

        return cupy.ascontiguousarray(array)
    return array if kind == "jax" else np.ascontiguousarray(array)


def empty_block(rows: int, columns: int, template: Array) -> Array:
    """Return a C-ordered block of the template's library, device and dtype, with anything in it."""
    if kind_of(template) == "torch":
        return template.new_empty((rows, columns))
    if kind_of(template) == "jax":
        import jax

        with jax.default_device(next(iter(template.devices()))):
            return jax.numpy.zeros((rows, columns), dtype=template.dtype)
    if kind_of(template) == "cupy":
        import cupy

        with template.device:
            return cupy.empty((rows, columns), dtype=template.dtype)
    return np.empty((rows, columns), dtype=template.dtype)


def add_at(array: Array, places: Array, values: Array) -> Array:
    """Add values to a vector at places, one after the other where a place occurs twice; in place (not for JAX)."""
    kind = kind_of(array)
    if kind == "torch":
        return array.index_add_(0, places, values)
    if kind == "cupy":
        import cupy

        cupy.add.at(array, places, values)
    else:
        np.add.at(array, places, values)
    return array


def from_dlpack(exported: Any, template: Array) -> Array:
    """View exported device memory as an array of the template's library, without a copy."""
    kind = kind_of(template)
    if kind == "torch":
        import torch

        return torch.from_dlpack(exported)
    if kind == "cupy":
        import cupy

        return cupy.from_dlpack(exported)
    import jax

    return jax.dlpack.from_dlpack(exported)


def host_copy(array: Array) -> np.ndarray:
    """Copy an array of any library, on any device, to the host."""
    kind = kind_of(array)
    if kind == "torch":
        return np.array(array.detach().resolve_neg().cpu().numpy())
    if kind == "cupy":
        return np.asarray(array.get())
    return np.array(array)


def numpy_dtype(array: Array) -> np.dtype:
    """Return the NumPy dtype that corresponds to an array's."""
    return np.dtype(str(array.dtype).rpartition(".")[2])


def capture(template: Array, work: Any) -> Any:
    """Capture ``work(stream)`` in a CUDA graph; returns a function that replays it on the caller's stream.

    ``work`` is called once, with the handle of the capturing stream, and what it returns is kept alive with the
    graph. Raises whatever the library raises when the work cannot be captured.
    """
    if kind_of(template) == "torch":
        import torch

        # By hand, because `torch.cuda.graph` also empties the memory cache, which takes longer than a short run.
        graph = torch.cuda.CUDAGraph()
        here, side = torch.cuda.current_stream(template.device), torch.cuda.Stream(template.device)
        side.wait_stream(here)
        with torch.cuda.stream(side):
            graph.capture_begin()
            try:
                kept = work(int(side.cuda_stream))
            except BaseException:
                with contextlib.suppress(RuntimeError):  # says only that the capture has failed
                    graph.capture_end()
                raise
            graph.capture_end()
        here.wait_stream(side)
        replay = graph.replay
    else:
        import cupy

        # A pool of its own: memory used inside the graph must not be lent to anyone else while it can be replayed.
        pool = cupy.cuda.MemoryPool()
        stream = cupy.cuda.Stream(non_blocking=True)
        outer = cupy.cuda.get_current_stream()
        with cupy.cuda.using_allocator(pool.malloc), stream:
            work(int(stream.ptr))  # a real turn outside the graph fills the pool: nothing is allocated while capturing
            stream.synchronize()
            stream.begin_capture()
            try:
                kept = (work(int(stream.ptr)), pool)
            finally:
                captured = stream.end_capture()

        def replay() -> None:
            captured.launch(stream=outer)

    def play() -> Any:
        replay()
        return kept

    return play


def to_host(array: Array) -> np.ndarray:
    """Copy an array of any library and device to the host, as float64."""
    return np.asarray(host_copy(array), dtype=np.float64)


def to_like(values: np.ndarray, template: Array) -> Array:
    """Copy host values to the template's library and device; floats take the template's dtype."""
    kind = kind_of(template)
    floating = np.issubdtype(values.dtype, np.floating)
    if kind == "torch":
        import torch

        host = np.ascontiguousarray(values)
        tensor = torch.from_numpy(host if host.flags.writeable else host.copy())
        return tensor.to(device=template.device, dtype=template.dtype if floating else None)
    if kind == "cupy":
        import cupy

        with template.device:
            return cupy.asarray(values, dtype=template.dtype if floating else None)
    if kind == "jax":
        import jax

        return jax.device_put(values.astype(template.dtype) if floating else values, next(iter(template.devices())))
    return values.astype(template.dtype, copy=False) if floating else values


def take_columns(block: Array, columns: np.ndarray) -> Array:
    """Return the named columns of a two-dimensional array, as a new C-ordered array."""
    return namespace_of(block).take(block, to_like(columns, block), axis=1)


def plus_product(block: Array, left: Array, right: Array, sign: int = 1) -> Array:
    """Return ``block + sign * left @ right`` as a new array, in one pass where the library can."""
    if kind_of(block) == "torch":
        return block.addmm(left, right, alpha=sign)
    return block + left @ right if sign > 0 else block - left @ right


def plus_multiple(block: Array, factor: Any, other: Array) -> Array:
    """Return ``block + factor * other`` as a new array, in one pass where the library can."""
    if kind_of(block) == "torch" and isinstance(factor, float):
        return block.add(other, alpha=factor)
    if isinstance(other, np.ndarray):
        product = factor * other
        if product.shape == block.shape and product.dtype == block.dtype:
            return np.add(block, product, out=product)
        return block + product
    return block + factor * other


def plus_diagonal(matrix: Array, value: float) -> Array:
    """Return a square matrix with a number added along its diagonal; the same matrix where the library can write."""
    if kind_of(matrix) == "jax":
        places = np.arange(matrix.shape[0])
        return matrix.at[places, places].add(value)
    if isinstance(matrix, np.ndarray):
        matrix[np.arange(matrix.shape[0]), np.arange(matrix.shape[0])] += value
    else:
        diagonal = matrix.diagonal()  # a view that can be written to, which NumPy's is not
        diagonal += value
    return matrix


def with_column(block: Array, j: int, values: Array) -> Array:
    """Return a two-dimensional array with one column replaced; the same array where the library can write to it."""
    if kind_of(block) == "jax":
        return block.at[:, j].set(values)
    block[:, j] = values
    return block


def with_row(block: Array, i: int, values: Array, factor: float = 1.0) -> Array:
    """Return a block with one row replaced by ``factor * values``; the same block where the library can write to it."""
    if kind_of(block) == "jax":
        return block.at[i].set(factor * values)
    if isinstance(block, np.ndarray):
        np.multiply(values, factor, out=block[i])
    else:
        block[i] = factor * values
    return block


def column_dots(left: Array, right: Array) -> Array:
    """Inner products of equal columns of two blocks: ``sum(left * right, axis=0)``."""
    if isinstance(left, np.ndarray):
        # One pass, and no BLAS, whose threads would linger; few sums run side by side, so they are of doubles.
        return np.einsum("ij,ij->j", left, right, dtype=np.float64).astype(left.dtype, copy=False)
    return namespace_of(left).sum(left * right, axis=0)


def factor_positive(matrix: Array) -> Callable[[Array], Array]:
    """Factor a symmetric positive definite matrix by Cholesky and return the function that solves with it.

    The matrix may be overwritten. Where it is not positive definite the solutions are not finite.
    """
    kind = kind_of(matrix)
    if kind == "torch":
        import torch

        lower, info = torch.linalg.cholesky_ex(matrix)
        failed = bool(info.any())
        return lambda rhs: torch.full_like(rhs, float("nan")) if failed else torch.cholesky_solve(rhs, lower)
    if kind == "jax":
        from jax.scipy.linalg import cho_factor, cho_solve

        factors = cho_factor(matrix)  # NaN where it failed
        return lambda rhs: cho_solve(factors, rhs)
    if kind == "cupy":
        import cupy
        from cupyx.scipy.linalg import solve_triangular

        lower = cupy.linalg.cholesky(matrix)  # NaN where it failed

        def solve(rhs: Array) -> Array:
            return solve_triangular(lower, solve_triangular(lower, rhs, lower=True), lower=True, trans="T")

        return solve
    from scipy.linalg import LinAlgError, cho_factor, cho_solve

    try:
        factors = cho_factor(matrix, overwrite_a=True, check_finite=False)
    except LinAlgError:
        return lambda rhs: np.full_like(rhs, np.nan)
    return lambda rhs: cho_solve(factors, rhs, check_finite=False)


def available_bytes(template: Array) -> int | None:
    """Free memory where the template lives, or None where that cannot be told."""
    kind = kind_of(template)
    if is_cuda(template):
        if kind == "torch":
            import torch

            return int(torch.cuda.mem_get_info(template.device)[0])
        if kind == "cupy":
            with template.device:
                return int(template.device.mem_info[0])
        return None
    try:
        with open("/proc/meminfo") as lines:
            fields = dict(line.split(":", 1) for line in lines)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None
