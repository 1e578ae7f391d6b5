"""The array libraries that are installed here, each with a way to make an array of it on the CPU."""

from __future__ import annotations

import numpy as np
import pytest


def _numpy():
    return np.array


def _torch():
    torch = pytest.importorskip("torch")
    return lambda values: torch.from_numpy(np.array(values))


def _jax():
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)  # tests/conftest.py puts it back
    return jax.numpy.array


@pytest.fixture(params=[_numpy, _torch, _jax], ids=["numpy", "torch", "jax"])
def make(request):
    """Makes an array of NumPy, PyTorch or JAX of a host array, with its dtype."""
    return request.param()


@pytest.fixture
def make_torch():
    """Makes a tensor."""
    return _torch()


@pytest.fixture
def make_jax():
    """Makes an array of JAX, which holds doubles."""
    return _jax()
