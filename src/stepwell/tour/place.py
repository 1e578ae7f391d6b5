"""Where the arrays of the tour live: NumPy on the host, or a library of the caller's choice on a device."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from stepwell.arrays import host_copy
from stepwell.problems import Problem


@dataclass(frozen=True)
class Place:
    """An array library and a device of it; by default NumPy on the host.

    Attributes
    ----------
    library : str
        ``"numpy"``, ``"torch"`` or ``"cupy"``.
    xp, device
        The library, and the device as it names it.
    name : str
        The device in words: ``"cpu"``, ``"cuda:0"``.

    Examples
    --------
    >>> Place().send(np.ones(2))
    array([1., 1.])
    """

    library: str = "numpy"
    xp: Any = np
    device: Any = None
    name: str = "cpu"

    def send(self, values: np.ndarray) -> Any:
        """Copy host values to this place."""
        if self.library == "torch":
            return self.xp.as_tensor(values, device=self.device)
        if self.library == "cupy":
            with self.device:
                return self.xp.asarray(values)
        return values

    def fetch(self, values: Any) -> np.ndarray:
        """Copy values from this place to the host."""
        return values if isinstance(values, np.ndarray) else host_copy(values)

    def send_sparse(self, matrix: Any) -> Any:
        """Copy a SciPy CSR matrix to this place."""
        if self.library == "torch":
            rows, columns, entries = (self.send(part) for part in (matrix.indptr, matrix.indices, matrix.data))
            with warnings.catch_warnings():
                # PyTorch calls its CSR tensors a beta.
                warnings.simplefilter("ignore", UserWarning)
                return self.xp.sparse_csr_tensor(rows, columns, entries, size=matrix.shape, device=self.device)
        if self.library == "cupy":
            from cupyx.scipy.sparse import csr_matrix

            with self.device:
                return csr_matrix(matrix)
        return matrix

    def problem(self, problem: Problem) -> Problem:
        """Return a test problem with its start and bounds at this place."""
        return problem if self.library == "numpy" else problem.to(self.xp, "float64", self.device)

    def wait(self) -> None:
        """Wait until all work at this place is done, so that a clock can be read."""
        if self.library == "torch" and self.name != "cpu":
            self.xp.cuda.synchronize(self.device)
        elif self.library == "cupy":
            with self.device:
                self.xp.cuda.Device().synchronize()
