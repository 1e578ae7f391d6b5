"""The driver's bindings, and what to say where they or the driver are missing."""

from __future__ import annotations

import importlib
import sys
import threading
from typing import Any

#: What to do when the CUDA extra is missing.
INSTALL = (
    'CUDA arrays need cuda-core and NVRTC: pip install "stepwell[cu13]" (or "stepwell[cu12]" for a CUDA 12 driver)'
)

#: What to do where there is no device to work on.
NO_DEVICE = "{}: install NVIDIA's driver where there is a GPU, or keep the arrays on the host"


_importing = threading.RLock()
_imported: dict[str, Any] = {}  # whole, by name


def import_cuda(package: str, module: str | None = None) -> Any:
    """Import a package of the CUDA extra, or a module of it, or say what to install.

    One thread at a time: its packages import each other, and of two threads that import them for the first time Python
    may hand one a package that is half made.
    """
    name = package if module is None else f"{package}.{module}"
    found = _imported.get(name)
    if found is not None and sys.modules.get(name) is found and sys.modules.get(package) is not None:
        return found
    with _importing:
        try:
            importlib.import_module(package)
            found = _imported[name] = importlib.import_module(name)
        except ImportError as error:
            raise ImportError(INSTALL) from error
    return found


def cuda_driver() -> Any:
    """Return the driver's bindings, ready to use, or say what is missing."""
    driver = import_cuda("cuda.bindings", "driver")
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
