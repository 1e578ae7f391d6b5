"""Arrays of each library, to a CUDA device and back."""

from __future__ import annotations

import numpy as np


def on_device(library, array):
    if library == "torch":
        import torch

        return torch.as_tensor(np.ascontiguousarray(array), device="cuda")
    if library == "cupy":
        import cupy

        return cupy.asarray(array)
    import jax

    return jax.device_put(array)


def on_host(array):
    if hasattr(array, "get"):
        return array.get()
    return array.cpu().numpy() if hasattr(array, "cpu") else np.asarray(array)
