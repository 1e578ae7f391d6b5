"""Calls of our solvers from compiled programs of JAX: with the program's own buffers, on its device and its stream.

Where JAX lends its buffers (a handler of ``jax.ffi`` that JAX has itself, ``jax.experimental.buffer_callback``) a
function gets views of them: of NumPy's on the host, and on a GPU of CuPy's or PyTorch's, whose work then follows the
program's on one stream, without a copy to the host. Elsewhere, and on a GPU where neither library is there,
``jax.pure_callback`` serves, by way of the host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from stepwell.arrays.borrowed import borrowed, give_back, lender

try:
    from jax.experimental.buffer_callback import buffer_callback
except ImportError:  # of an earlier JAX
    buffer_callback = None

Array = Any


def call(function: Callable[..., tuple[Array, ...]], shapes: Any, *given: Array) -> Any:
    """Call a function of arrays, which returns arrays of the same library, for what has `shapes`.

    Under ``vmap`` arguments that are not mapped arrive with an axis of length one, and results have one more axis.
    """
    leaves, tree = jax.tree_util.tree_flatten(shapes)
    if lends_buffers():

        def with_buffers(context: Any, out: Any, *buffers: Any) -> None:
            with borrowed([*buffers, *out], context) as arrays:
                found = function(*arrays[: len(buffers)])
                for own, into in zip(found, arrays[len(buffers) :], strict=True):
                    give_back(own, into)

        results = buffer_callback(with_buffers, leaves, vmap_method="expand_dims")(*given)
    else:

        def with_copies(*arrays: Any) -> list[np.ndarray]:
            found = function(*map(np.asarray, arrays))
            return [np.asarray(own).astype(leaf.dtype) for own, leaf in zip(found, leaves, strict=True)]

        results = jax.pure_callback(with_copies, leaves, *given, vmap_method="expand_dims")
    return jax.tree_util.tree_unflatten(tree, results)


def lends_buffers() -> bool:
    """Whether programs lend their buffers, and there is a library to see them with."""
    return buffer_callback is not None and (jax.default_backend() == "cpu" or lender() is not None)


def on_gpu(there: Callable[..., Array], elsewhere: Callable[..., Array], *given: Array) -> Array:
    """Call one function where the program runs on a GPU of NVIDIA's, and another elsewhere."""
    if jax.default_backend() == "cpu" or there is elsewhere:  # there is no GPU: nothing to trace for it
        return elsewhere(*given)
    return jax.lax.platform_dependent(*given, cuda=there, default=elsewhere)
