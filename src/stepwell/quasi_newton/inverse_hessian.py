"""The inverse of the limited-memory BFGS matrix: on devices, and of batches. (On the host: `inverse_operator`.)"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def two_loop(s: Any, y: Any, h0: Any, v: Any) -> Any:
    """Apply the inverse BFGS matrix to a vector: the two-loop recursion (Nocedal 1980), for any array library."""
    q, alphas = v, []
    for si, yi in zip(reversed(s), reversed(y)):
        alpha = (si * q).sum() / (si * yi).sum()
        q = q - alpha * yi
        alphas.append(alpha)
    r = h0 * q
    for si, yi, alpha in zip(s, y, reversed(alphas)):
        beta = (yi * r).sum() / (si * yi).sum()
        r = r + (alpha - beta) * si
    return r


class DeviceInverseHessian:
    """The inverse Hessian approximation of a run on a GPU: ``H @ v`` for device arrays of the caller's library.

    Pairs are asked for when they are first used: those of a narrower dtype than the variables are widened then, and
    may be more than the memory left.
    """

    def __init__(self, pairs: Callable[[], tuple[list[Any], list[Any]]], count: int, h0: Any, n: int) -> None:
        self._ask_pairs, self.n_corrs, self.h0 = pairs, count, h0
        self.shape = (n, n)

    @functools.cached_property
    def _pairs(self) -> tuple[list[Any], list[Any]]:
        return self._ask_pairs()

    @property
    def sk(self) -> list[Any]:
        """Steps, oldest first."""
        return self._pairs[0]

    @property
    def yk(self) -> list[Any]:
        """Gradient differences, oldest first."""
        return self._pairs[1]

    def __reduce__(self) -> tuple[Any, ...]:
        return _with_pairs, (self._pairs, self.h0, self.shape[0])

    def __repr__(self) -> str:
        return f"<{self.shape[0]}x{self.shape[1]} DeviceInverseHessian of {self.n_corrs} pairs>"

    def matvec(self, v: Any) -> Any:
        """Apply the operator to a vector of n elements, in whatever shape."""
        return two_loop(self.sk, self.yk, self.h0, v.reshape(-1)).reshape(v.shape)

    __matmul__ = matvec


def _with_pairs(pairs: tuple[list[Any], list[Any]], h0: Any, n: int) -> DeviceInverseHessian:
    return DeviceInverseHessian(lambda: pairs, len(pairs[0]), h0, n)


class InverseHessians:
    """The inverse Hessian approximations of a batch: ``hess_inv(k)`` makes the operator of problem k.

    Made when asked for, since a batch has many. Pickled, it holds the operators themselves.
    """

    def __init__(self, make: Callable[[int], Any], count: int) -> None:
        self._make, self._count = make, count

    def __call__(self, problem: int) -> Any:
        """Return the operator of one problem."""
        return self._make(problem)

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"hess_inv(k) of {self._count} problems"

    def __reduce__(self) -> tuple[Any, ...]:
        made = [self(problem) for problem in range(self._count)]
        return InverseHessians, (made.__getitem__, self._count)
