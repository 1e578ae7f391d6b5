"""Matrix products in the full precision of their numbers, whatever a library's setting rounds them to.

On GPUs, JAX by default, PyTorch after ``torch.set_float32_matmul_precision("high")`` and CuPy with ``CUPY_TF32=1``
round the factors of float32 products to TF32, of 11 bits; conjugate gradients come to a halt on that. These settings
hold for a whole process and are the caller's. So JAX is told the precision with each product; PyTorch and CuPy, which
take none, multiply in float64 where the setting would round.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from stepwell.arrays.jax_programs import jax_program
from stepwell.arrays.kinds import Array, is_array, kind_of, namespace_of

#: Numbers of a factor that are turned into float64 at a time.
_AT_A_TIME = 2**23


def matrix_product(left: Array, right: Array) -> Array:
    """Return ``left @ right`` in full precision; either may have leading axes.

    An object of another kind, such as a sparse matrix, may stand on the left: it has a product of its own. JAX's are
    told the precision; those of other libraries have no setting that rounds.

    Examples
    --------
    >>> matrix_product(np.eye(2), np.array([[1.0], [2.0]])).ravel()
    array([1., 2.])
    """
    if "jax" in (kind_of(left), kind_of(right)):
        import jax

        if is_array(left):
            return _jax_products()["product"](left, right)
        with jax.default_matmul_precision("highest"):
            return left @ right
    return _in_double(left, right) if is_array(left) and rounds_products(right) else left @ right


def transposed_product(left: Array, right: Array) -> Array:
    """Return ``left.T @ right`` for two matrices in full precision; nothing is transposed for it.

    Examples
    --------
    >>> transposed_product(np.array([[1.0, 2.0]]), np.array([[3.0]])).ravel()
    array([3., 6.])
    """
    if kind_of(right) == "jax":
        return _jax_products()["transposed"](left, right)
    return matrix_product(left.T, right)


def plus_product(block: Array, left: Array, right: Array, sign: int = 1) -> Array:
    """Return ``block + sign * left @ right`` as a new array in full precision, in one pass where the library can."""
    kind = kind_of(block)
    if kind == "jax":
        return _jax_products()["plus"](block, left, right, float(sign))
    if kind == "torch" and not rounds_products(block):
        return block.addmm(left, right, alpha=sign)
    product = matrix_product(left, right)
    return block + product if sign > 0 else block - product


def rounds_products(array: Array) -> bool:
    """Whether the setting of an array's library rounds the factors of products of such arrays.

    JAX, which is told the precision with each product, is not asked.
    """
    kind = kind_of(array)
    if kind == "torch":
        return _torch_rounds(array)
    return kind == "cupy" and array.dtype == np.float32 and _cupy_rounds()


def in_full_precision(array: Array) -> Array:
    """Return an array in a dtype in which its library multiplies in full precision: as it is, or in float64."""
    return _double(array) if rounds_products(array) else array


def _torch_rounds(array: Array) -> bool:
    import torch

    # (Not by `dtype_name`, which remembers names: a program that PyTorch compiles may not.)
    if array.dtype != torch.float32:
        return False
    on_device = bool(array.is_cuda)
    if torch.compiler.is_compiling():  # a program may be run with another setting than it was compiled with
        return True
    backend = torch.backends.cuda if on_device else torch.backends.mkldnn
    # From version 2.9 on a backend says it itself; asked for the old setting, PyTorch raises where both were used.
    try:
        return backend.matmul.fp32_precision in ("tf32", "bf16")
    except AttributeError:
        allowed = ("highest",) if on_device else ("highest", "high")
        return torch.get_float32_matmul_precision() not in allowed


def _cupy_rounds() -> bool:
    from cupy import _core

    # (CuPy has no public name for it. What the environment says is found out at the first call.)
    return str(_core._routines_linalg.compute_type_to_str(_core.get_compute_type(np.float32))).endswith(
        ("TF32", "BF16", "FP16")
    )


def _double(array: Array) -> Array:
    xp = namespace_of(array)
    return xp.astype(array, xp.float64)


def _in_double(left: Array, right: Array) -> Array:
    """Return ``left @ right`` by a product of doubles, some rows of the left factor at a time."""
    xp, wide = namespace_of(right), _double(right)

    def part(rows: Array) -> Array:
        return xp.astype(_double(rows) @ wide, right.dtype)

    count = int(left.shape[-2]) if left.ndim > 1 else 1
    step = max(1, _AT_A_TIME // max(1, int(left.shape[-1])))
    if left.ndim != 2 or count <= step:
        return part(left)
    return xp.concat([part(left[first : first + step]) for first in range(0, count, step)], axis=0)


@functools.cache
def _jax_products() -> dict[str, Any]:
    """Functions with products of which JAX makes one program each."""
    import jax

    def product(left: Array, right: Array) -> Array:
        return jax.numpy.matmul(left, right, precision=jax.lax.Precision.HIGHEST)

    def transposed(left: Array, right: Array) -> Array:
        return product(left.T, right)

    def plus(block: Array, left: Array, right: Array, sign: Any) -> Array:
        return block + product(left, sign * right)

    named = {"product": product, "transposed": transposed, "plus": plus}
    return {name: jax_program(function) for name, function in named.items()}
