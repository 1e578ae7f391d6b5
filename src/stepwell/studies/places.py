"""Where a study's arrays live: host memory, or a CUDA device through PyTorch."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from stepwell.arrays import host_copy
from stepwell.studies.measure import cores, cpu_model


class Place:
    """The host: NumPy arrays, wall-clock times.

    Examples
    --------
    >>> place = Place()
    >>> place.name, place.put([1.0, 2.0])
    ('cpu', array([1., 2.]))
    """

    name = "cpu"
    short = "CPU"
    gpu = False

    @property
    def label(self) -> str:
        """What a reader should know it by."""
        return f"CPU, {cores()} threads"

    @property
    def model(self) -> str:
        """The hardware's name."""
        return cpu_model()

    @property
    def library(self) -> dict[str, Any]:
        """Arguments that make `stepwell.problems.get` build its arrays here."""
        return {"xp": np}

    def put(self, array: Any) -> Any:
        """Return a host array as an array of this place."""
        return np.asarray(array)

    def fetch(self, array: Any) -> np.ndarray:
        """Return an array of this place as a host array."""
        return np.asarray(array)

    def wait(self) -> None:
        """Wait until all work has ended."""

    def seconds(self, work: Callable[[], Any], repeats: int = 1) -> float:
        """Return the mean seconds of one call among `repeats` back to back."""
        start = time.perf_counter()
        for _ in range(repeats):
            work()
        return (time.perf_counter() - start) / repeats


class CudaPlace(Place):
    """One CUDA device: PyTorch tensors, times between CUDA events."""

    short = "GPU"
    gpu = True

    def __init__(self, index: int) -> None:
        import torch

        self._torch, self.name = torch, f"cuda:{index}"

    @property
    def label(self) -> str:
        """The device's name."""
        return str(self._torch.cuda.get_device_name(self.name))

    @property
    def model(self) -> str:
        """The device's name."""
        return self.label

    @property
    def library(self) -> dict[str, Any]:
        """Arguments that make `stepwell.problems.get` build its arrays here."""
        return {"xp": self._torch, "device": self.name}

    def put(self, array: Any) -> Any:
        """Return a host array as a tensor on the device."""
        return self._torch.as_tensor(np.ascontiguousarray(array), device=self.name)

    def fetch(self, array: Any) -> np.ndarray:
        """Return a tensor as a host array."""
        return np.asarray(host_copy(array))

    def wait(self) -> None:
        """Wait until all work on the device has ended."""
        self._torch.cuda.synchronize(self.name)

    def seconds(self, work: Callable[[], Any], repeats: int = 1) -> float:
        """Return the mean seconds of one call among `repeats` back to back, between two CUDA events."""
        events = [self._torch.cuda.Event(enable_timing=True) for _ in range(2)]
        events[0].record()
        for _ in range(repeats):
            work()
        events[1].record()
        events[1].synchronize()
        return float(events[0].elapsed_time(events[1])) / 1e3 / repeats


def find_places(device: str) -> list[Place]:
    """Return the host and, where a CUDA device is asked for, that device.

    Examples
    --------
    >>> [place.name for place in find_places("cpu")]
    ['cpu']
    """
    if device == "cpu":
        return [Place()]
    if not re.fullmatch(r"cuda(:\d+)?", device):
        raise ValueError(f"device is {device!r}; allowed: cpu, cuda, cuda:K")
    index = int(device[5:] or 0)
    try:
        import torch
    except ImportError:
        raise ValueError(f"device is {device!r}, which needs PyTorch with CUDA; PyTorch is not installed") from None
    if index >= torch.cuda.device_count():
        raise ValueError(
            f"device is {device!r}; PyTorch {torch.__version__} sees {torch.cuda.device_count()} CUDA devices"
        )
    return [Place(), CudaPlace(index)]
