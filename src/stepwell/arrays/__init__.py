"""The only package that knows that NumPy, PyTorch, CuPy and JAX differ.

Everything else works on array-API namespaces (``namespace_of``), on NumPy views of host arrays (``host_view``), or
hands a result back in the caller's kind (``in_kind``). Only ``to_host`` and ``to_like`` cross between host and
device, where a solver takes a decision on a small matrix or a caller asks for a copy; nothing moves silently.
"""

from __future__ import annotations

from stepwell.arrays.blocks import (
    add_at,
    column_dots,
    empty_block,
    factor_positive,
    plus_diagonal,
    plus_multiple,
    plus_product,
    take_columns,
    with_column,
    with_row,
)
from stepwell.arrays.conversion import (
    as_float,
    host_copy,
    host_view,
    in_kind,
    jax_double,
    jax_holds_double,
    lent,
    scalar_of,
    to_host,
    to_like,
    without_graph,
)
from stepwell.arrays.device import (
    available_bytes,
    capture,
    current_stream,
    device_address,
    from_dlpack,
    shares_streams,
)
from stepwell.arrays.kinds import (
    Array,
    as_contiguous,
    default_float,
    device_index,
    device_name,
    is_bfloat16,
    is_contiguous,
    is_cuda,
    is_like,
    kind_of,
    namespace_of,
    numpy_dtype,
)

__all__ = [
    "Array",
    "add_at",
    "as_contiguous",
    "as_float",
    "available_bytes",
    "capture",
    "column_dots",
    "current_stream",
    "default_float",
    "device_address",
    "device_index",
    "device_name",
    "empty_block",
    "factor_positive",
    "from_dlpack",
    "host_copy",
    "host_view",
    "in_kind",
    "is_bfloat16",
    "is_contiguous",
    "is_cuda",
    "is_like",
    "jax_double",
    "jax_holds_double",
    "kind_of",
    "lent",
    "namespace_of",
    "numpy_dtype",
    "plus_diagonal",
    "plus_multiple",
    "plus_product",
    "scalar_of",
    "shares_streams",
    "take_columns",
    "to_host",
    "to_like",
    "with_column",
    "with_row",
    "without_graph",
]
