"""Arrays of each library, to a CUDA device and back."""

from __future__ import annotations

import numpy as np
import pytest


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


def _torch_on_cpu(array):
    import torch

    return torch.from_numpy(np.array(array))


def _jax_on_cpu(array):
    import jax

    return jax.device_put(np.array(array), jax.devices("cpu")[0])


def _skipping(library, make):
    """Skip the test where the library is not installed."""

    def made(array):
        pytest.importorskip(library)
        return make(array)

    return made


def on_cpu():
    """Ways of making an array on the host, one for each library, as parameters of a test."""
    makers = {"numpy": np.array, "torch": _torch_on_cpu, "jax": _jax_on_cpu}
    return [pytest.param(_skipping(name, make), id=name) for name, make in makers.items()]


def on_gpu():
    """The same on a CUDA device."""
    return [
        pytest.param(
            _skipping(name, lambda array, name=name: on_device(name, array)), id=f"{name}-cuda", marks=pytest.mark.cuda
        )
        for name in ("torch", "cupy", "jax")
    ]
