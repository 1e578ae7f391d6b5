"""CUDA arrays of other libraries, known only by ``__cuda_array_interface__`` or DLPack.

Their kind cannot be made by us, and may not compute at all. They are viewed, without a copy, as arrays of a library
that is at hand: that of another array of the same call, else CuPy, else PyTorch.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from stepwell.arrays.kinds import Array, kind_of


def view_foreign(array: Any, template: Array = None) -> Array:
    """View a CUDA array of any library as one of the template's, of CuPy or of PyTorch, without a copy.

    The stream on which its owner last wrote it is waited for by our library's current stream, not by the host.
    """
    kind = kind_of(array)
    if kind != "numpy":
        return array
    kind = kind_of(template) if template is not None else _library_at_hand(array)
    if kind == "jax":
        import jax

        if not hasattr(array, "__dlpack__"):
            raise TypeError(f"{type(array).__name__} has no __dlpack__, which JAX needs; allowed: arrays of JAX")
        return jax.dlpack.from_dlpack(array)
    library: Any = importlib.import_module(kind)
    if hasattr(array, "__dlpack__"):
        return library.from_dlpack(array)
    if kind == "cupy":
        return library.asarray(array)
    tensor = library.as_tensor(array, device="cuda")
    stream = array.__cuda_array_interface__.get("stream")
    if stream is not None:
        # PyTorch does not look at the writer's stream by itself.
        here = library.cuda.current_stream(tensor.device)
        here.wait_stream(library.cuda.ExternalStream(stream, device=tensor.device))
    return tensor


def _library_at_hand(array: Any) -> str:
    if importlib.util.find_spec("cupy") is not None:
        return "cupy"
    if importlib.util.find_spec("torch") is not None and importlib.import_module("torch").cuda.is_available():
        return "torch"
    raise ImportError(
        f"x0 is a {type(array).__name__} on a GPU, which only CuPy or PyTorch can compute with; install one of them "
        "(pip install cupy-cuda13x, or torch built for CUDA)"
    )
