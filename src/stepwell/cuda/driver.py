"""The driver's bindings, and what to say where they or the driver are missing."""

from __future__ import annotations

from typing import Any

#: What to do when the CUDA extra is missing.
INSTALL = (
    'CUDA arrays need cuda-core and NVRTC: pip install "stepwell[cu13]" (or "stepwell[cu12]" for a CUDA 12 driver)'
)

#: What to do where there is no device to work on.
NO_DEVICE = "{}: install NVIDIA's driver where there is a GPU, or keep the arrays on the host"


def cuda_driver() -> Any:
    """Return the driver's bindings, ready to use, or say what is missing."""
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise ImportError(INSTALL) from error
    try:
        (answer,) = driver.cuInit(0)
    except RuntimeError as missing:  # the loader's own kind of it, when there is no libcuda
        raise RuntimeError(NO_DEVICE.format("no NVIDIA driver was found")) from missing
    if int(answer) != 0:
        raise RuntimeError(NO_DEVICE.format(f"the NVIDIA driver answers {answer.name}"))
    return driver


def checked(error: Any, *values: Any) -> Any:
    """Unpack what a function of the driver returns, and raise if it failed."""
    if int(error) != 0:
        raise RuntimeError(f"CUDA failed: {getattr(error, 'name', error)}")
    return values[0] if len(values) == 1 else values
