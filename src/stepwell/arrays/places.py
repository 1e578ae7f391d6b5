"""Where the arrays of a study, of the tour or of a command live: an array library, and a device of it."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.util
import re
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

from stepwell.arrays import device_index, host_copy, is_array, namespace_of, seconds_of, wait_for_device
from stepwell.arrays.sparse import sparse_like
from stepwell.common.threads import default_threads

#: A test problem.
P = TypeVar("P")

#: The array libraries that can hold the vectors, by the names under which they are installed.
LIBRARIES = ("numpy", "torch", "cupy", "jax")


class NoSuchPlace(ValueError):
    """A library or a device that is not there; `argument` says which of the two."""

    def __init__(self, message: str, argument: str) -> None:
        super().__init__(message)
        self.argument = argument


@dataclasses.dataclass(frozen=True)
class Place:
    """An array library and a device of it; by default NumPy on the host.

    Parameters
    ----------
    library : str
        ``"numpy"``, ``"torch"``, ``"cupy"`` or ``"jax"``, for people.
    xp, device
        The library, and the device as it names it.
    name : str
        The device in words: ``"cpu"``, ``"cuda:0"``.

    Examples
    --------
    >>> place = Place()
    >>> place.name, place.put([1.0, 2.0])
    ('cpu', array([1., 2.]))
    """

    library: str = "numpy"
    xp: Any = np
    device: Any = None
    name: str = "cpu"

    @property
    def gpu(self) -> bool:
        """Whether this is a CUDA device."""
        return self.name != "cpu"

    @property
    def short(self) -> str:
        """What it is called in tables."""
        return "GPU" if self.gpu else "CPU"

    @property
    def label(self) -> str:
        """What a reader should know it by."""
        if not self.gpu:
            return f"CPU, {default_threads()} threads" + ("" if self.xp is np else f", {self.library}")
        from stepwell.cuda.devices import list_devices

        return list_devices()[device_index(self.like)].name

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Names and values for a list of what something ran on."""
        if self.xp is np:
            return [("arrays", "NumPy on the CPU")]
        return [("arrays", f"{self.library} on {self.name}"), (self.library, self.version)]

    @property
    def version(self) -> str:
        """The version of the library."""
        return str(importlib.import_module(self.library).__version__)

    @property
    def arrays(self) -> dict[str, Any]:
        """Arguments that make `stepwell.problems.get` build its arrays here."""
        return {"xp": self.xp, "device": self.device}

    @functools.cached_property
    def like(self) -> Any:
        """An empty array of this place."""
        return self.put(np.empty(0))

    def put(self, values: Any) -> Any:
        """Return host values as an array of this place, with the dtype that they have."""
        if self.xp is np:
            return np.asarray(values)
        namespace = namespace_of(self.xp.asarray(0.0))
        return namespace.asarray(np.asarray(values, order="C"), device=self.device)

    def put_sparse(self, matrix: Any) -> Any:
        """Return a SciPy CSR matrix in this place, as float64."""
        return matrix if self.xp is np else sparse_like(matrix, self.like)

    def fetch(self, array: Any) -> np.ndarray:
        """Return an array of this place, or what NumPy makes one of, on the host."""
        return np.asarray(host_copy(array) if is_array(array) and not isinstance(array, np.ndarray) else array)

    def problem(self, problem: P) -> P:
        """Return a test problem with its start and bounds in this place."""
        return problem if self.xp is np else cast(P, cast(Any, problem).to(self.xp, "float64", self.device))

    def wait(self) -> None:
        """Wait until all work in this place is done, so that a clock can be read."""
        wait_for_device(self.like)

    def seconds(self, work: Callable[[], Any], repeats: int = 1) -> float:
        """Return the mean seconds of one call among `repeats` back to back, by the device's clock where it has one."""
        return seconds_of(work, repeats, self.like)


def choose_library(library: str | None, device: str) -> str:
    """Return the library asked for; by default NumPy, and on a GPU the first of the others that is installed.

    Examples
    --------
    >>> choose_library(None, "cpu"), choose_library("torch", "cuda")
    ('numpy', 'torch')
    """
    others = LIBRARIES[1:]
    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise NoSuchPlace(f"device is {device!r}; allowed: cpu, cuda, cuda:K", "device")
    if library not in (None, *LIBRARIES):
        raise NoSuchPlace(f"array is {library!r}; allowed: {', '.join(LIBRARIES)}", "array")
    if device == "cpu":
        return library or "numpy"
    if library == "numpy":
        raise NoSuchPlace(f"numpy has no arrays on {device}; allowed: {', '.join(others)}", "array")
    found = library or next((name for name in others if importlib.util.find_spec(name) is not None), None)
    if found is None:
        raise NoSuchPlace(
            f"{device} needs an array library, and none is installed of {', '.join(others)} (pip install torch)",
            "device",
        )
    return found


def open_place(library: str | None, device: str = "cpu", dtype: str = "float64") -> Place:
    """Import an array library and find a device of it.

    Parameters
    ----------
    library : str, optional
        One of `LIBRARIES`; by default as `choose_library` has it.
    device : str
        ``"cpu"`` or ``"cuda:K"``.
    dtype : str
        For float64, JAX is told to hold such numbers.

    Examples
    --------
    >>> open_place("numpy").library
    'numpy'
    """
    library = choose_library(library, device)
    on_gpu = device != "cpu"
    index = int(device[5:]) if on_gpu else 0
    if library == "numpy":
        return Place()
    try:
        if library == "torch":
            import torch

            if on_gpu and index >= torch.cuda.device_count():
                raise NoSuchPlace(
                    f"{device} is not there: PyTorch {torch.__version__} sees {torch.cuda.device_count()} CUDA devices",
                    "device",
                )
            return Place(library, torch, device, device)
        if library == "cupy":
            import cupy

            if not on_gpu:
                raise NoSuchPlace("cupy has no arrays on the CPU; allowed: a CUDA device (cuda, cuda:K)", "array")
            if index >= cupy.cuda.runtime.getDeviceCount():
                raise NoSuchPlace(f"{device} is not there", "device")
            chosen = cupy.cuda.Device(index)
            chosen.use()
            return Place(library, cupy, chosen, device)
        import jax
    except ImportError:
        raise NoSuchPlace(
            (f"{device} needs an array library; " if on_gpu else "")
            + f"{library} is not installed; install it (pip install {library}) or use NumPy's arrays",
            "array",
        ) from None
    if dtype == "float64":
        jax.config.update("jax_enable_x64", True)
    try:
        found = jax.devices("cuda" if on_gpu else "cpu")
    except RuntimeError:
        found = []
    if index >= len(found):
        raise NoSuchPlace(f"{device} is not there: JAX {jax.__version__} sees {len(found)} such devices", "device")
    return Place(library, jax.numpy, found[index], device)


def find_places(device: str, library: str | None = None) -> list[Place]:
    """Return where a study runs: on the host, and where a CUDA device is asked for NumPy on the host before it.

    Examples
    --------
    >>> [(place.library, place.name) for place in find_places("cpu")]
    [('numpy', 'cpu')]
    """
    library = choose_library(library, device)
    if device == "cpu":
        return [open_place(library)]
    return [Place(), open_place(library, f"cuda:{int(device[5:] or 0)}")]
