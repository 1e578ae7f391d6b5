"""Simulated measurements and how good a reconstruction is."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse.linalg

from stepwell.arrays.checks import read_numpy
from stepwell.common.checks import read_real, read_seed, require_shape
from stepwell.operators import Operator, as_operator
from stepwell.operators.matrices import power_near


def add_noise(B: np.ndarray, level: float, seed: int = 0) -> np.ndarray:
    """Add white noise to every column, its expected norm a fraction of the column's norm.

    Examples
    --------
    >>> import numpy as np
    >>> clean = np.ones((10000, 1))
    >>> bool(abs(np.linalg.norm(add_noise(clean, 0.01) - clean) / 100 - 0.01) < 1e-3)
    True
    """
    B, level, seed = np.asarray(read_numpy("B", B)), read_real("level", level, at_least=0), read_seed(seed)
    require_shape(B.ndim > 0, "B", B, "(m,), or (m, columns)")
    deviation = level * np.linalg.norm(B, axis=0) / np.sqrt(B.shape[0])
    return np.asarray(B + deviation * np.random.default_rng(seed).standard_normal(B.shape))


def largest_singular_value(A: Any) -> float:
    """‖A‖₂ of a host operator, by Lanczos from a fixed start.

    Examples
    --------
    >>> import numpy as np
    >>> round(largest_singular_value(np.diag([1.0, 3.0, 2.0])), 6)
    3.0
    """
    operator = as_operator(A)
    columns = operator.shape[1] or 0
    require_shape(0 not in operator.shape, "A", operator, "at least one row and column")
    size = float(np.abs(operator.forward(np.ones((columns, 1)))).max(initial=0.0))
    if not np.isfinite(size):
        raise ValueError(f"A times ones has entries of {size}; allowed: finite numbers")
    start = np.ones(columns)
    if size == 0:  # perhaps of this vector alone
        start = np.random.default_rng(0).standard_normal(columns)
        size = float(np.abs(operator.forward(start[:, None])).max(initial=0.0))
        if size == 0:
            return 0.0
    unit = power_near(size)  # in which the square of A stays within range
    if columns == 1:
        return float(np.linalg.norm(operator.forward(start[:, None]) / unit) * unit / abs(start[0]))
    product = scipy.sparse.linalg.LinearOperator(
        (columns, columns), matvec=lambda v: _normal(operator, v, 1 / unit), dtype=np.float64
    )
    top = scipy.sparse.linalg.eigsh(product, 1, which="LA", v0=start, return_eigenvectors=False, tol=1e-10)
    return float(np.sqrt(top[0]) * unit)


def signal_to_noise(image: np.ndarray, truth: np.ndarray) -> float:
    """20 log₁₀(‖truth‖ / ‖image − truth‖), in decibels.

    Examples
    --------
    >>> import numpy as np
    >>> round(signal_to_noise(np.array([1.1, 0.0]), np.array([1.0, 0.0])), 6)
    20.0
    """
    image, truth = (np.asarray(read_numpy(name, one)) for name, one in (("image", image), ("truth", truth)))
    require_shape(image.shape == truth.shape, "image", image, f"{truth.shape}, as truth")
    return float(20 * np.log10(np.linalg.norm(truth) / np.linalg.norm(image - truth)))


def _normal(operator: Operator, vector: np.ndarray, scale: float) -> np.ndarray:
    block = np.asarray(vector, dtype=np.float64).reshape(-1, 1)
    return np.asarray(operator.adjoint(operator.forward(block) * scale * scale)[:, 0])
