"""The fast path of least squares in the graphs of PyTorch: x ≥ 0 and one λ, in eager programs.

What `torch_lsq` does for every problem, as one autograd function by the rules of `stepwell.derivatives.least_squares`.
Numbers that nobody differentiates again take one call, of the host or of a device, for all that flows back; and what
else a result has is put together when somebody looks at it.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stepwell.arrays import graph_library, matrix_product, plus_product
from stepwell.arrays.autograd import apply_rule
from stepwell.arrays.over_systems import systems_of_whole
from stepwell.common.checks import read_real, warn_caller
from stepwell.derivatives import cuda, least_squares
from stepwell.derivatives.matrices import DENSE, Kind, matrix_of
from stepwell.derivatives.normal_equations import pull_back
from stepwell.derivatives.torch_steps import solve_step
from stepwell.lsq.arguments import check
from stepwell.lsq.batch import COUNTS, Batch
from stepwell.lsq.constraints import is_number
from stepwell.lsq.convolution import Convolution
from stepwell.lsq.host import find_answers
from stepwell.lsq.result import LSQResult
from stepwell.lsq.solving import solve
from stepwell.lsq.wrap import vectors, wrap

#: A λ of zero, which most have. (Nobody writes to it.)
_NONE = torch.tensor(0.0, dtype=torch.float64)


def suits(entries: Tensor, b: Tensor, arrays: dict[str, Any], options: dict[str, Any]) -> bool:
    """Whether arguments of `stepwell.nnls` are such as this path takes."""
    others = [arrays.get(name) for name in ("bounds", "sum_bounds", "equality", "mask", "weights", "which", "L")]
    others += [options.get(name) for name in ("noise", "uncertainty")]
    plain = not arrays.get("gram") and all(value is None for value in others) and is_number(arrays["lam"])
    return plain and b.ndim <= 2 and entries.ndim <= 3


def nnls(entries: Tensor, b: Tensor, lam: Any, kind: Kind, options: dict[str, Any]) -> LSQResult:
    """Solve, with an x that has derivatives; A, or its pulse, and b are tensors of one dtype."""
    if not isinstance(lam, Tensor):
        number = read_real("lam", lam, at_least=0)
        lam = torch.tensor(number, dtype=torch.float64) if number else _NONE
    call = _Call(kind, options)
    x = apply_rule(_Solution, entries, b, lam, call)
    return call.result_with(x)


class _Call:
    """A call that keeps what it has found of systems."""

    def __init__(self, kind: Kind, options: dict[str, Any]) -> None:
        self.kind, self.options = kind, options
        self.batch: Any = None
        self.answers: Any = None  # of host tensors
        self.result: Any = None  # of a device's

    def __call__(self, entries: Tensor, b: Tensor, lam: float) -> Tensor:
        self.batch = _read(entries, b, lam, self.kind, self.options)
        if b.is_cuda:
            self.result = solve(self.batch)
            return self.result.x
        self.answers = find_answers(self.batch)
        return vectors(self.batch, self.answers.x)

    def result_with(self, x: Tensor) -> LSQResult:
        """Return the whole result, with an x that has a graph; warns where derivatives are those of no solution.

        (A device is not asked whether they are, which would wait.)
        """
        batch, answers = self.batch, self.answers
        if answers is None:
            held = vars(self.result) | {"x": x}
            found: LSQResult = LSQResult.deferred(held.pop("_make"), **held)
            return found
        if answers.counts[COUNTS.index("status")].any():
            warn_caller(f"derivatives of x hold for solutions, but {wrap(batch, answers).message}")
        known = dict(method=batch.method, choice=batch.choice)
        result: LSQResult = LSQResult.deferred(lambda: wrap(batch, answers), x=x, **known)
        return result


def _read(entries: Tensor, b: Tensor, lam: float, kind: Kind, options: dict[str, Any]) -> Batch:
    """Check systems. Of usual ones, shapes are checked once: it takes longer than a small batch to solve."""
    plain = all(value is None or isinstance(value, int | float | str) for value in options.values())
    if plain and kind == DENSE and not b.is_cuda and entries.dtype == b.dtype == torch.float64:
        told = tuple(options.items())
        known = _known(tuple(entries.shape), tuple(b.shape), told, lam, systems_of_whole(0))
        return known.with_arrays(entries, b if b.ndim == 2 else b[None])
    matrix: Any = entries if kind == DENSE else Convolution(entries, kind[1], m=kind[0], origin=kind[2])
    return check(matrix, b, lam=lam, **options)


@functools.lru_cache(maxsize=64)
def _known(
    of_a: tuple[int, ...], of_b: tuple[int, ...], options: tuple[tuple[str, Any], ...], lam: float, in_batch: int
) -> Batch:
    """Check systems of these shapes; `in_batch` is there for the cache: the check asks for it as well."""
    return check(np.broadcast_to(0.0, of_a), np.broadcast_to(0.0, of_b), lam=lam, **dict(options))


class _Solution(torch.autograd.Function):
    """x, of the systems that a call solves."""

    generate_vmap_rule = True

    @staticmethod
    def forward(entries: Tensor, b: Tensor, lam: Tensor, call: _Call) -> Tensor:
        return call(entries, b, float(lam))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        entries, b, lam, call = inputs
        ctx.kind = call.kind
        ctx.save_for_backward(entries, b, lam, output)
        ctx.save_for_forward(entries, b, lam, output)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        entries, b, lam, x = ctx.saved_tensors
        own, data, shrink = _cotangents(entries, b, lam, x, g, ctx.kind, ctx.needs_input_grad)
        # λ may live on the host beside tensors of a device.
        return own, data, None if shrink is None else shrink.to(device=lam.device, dtype=lam.dtype), None

    @staticmethod
    def jvp(ctx: Any, entries_dot: Any, b_dot: Any, lam_dot: Any, _: Any) -> Any:
        entries, b, lam, x = ctx.saved_tensors
        return least_squares.forward(
            matrix_of(entries, ctx.kind), b, lam, x,
            lambda rhs: solve_step(entries, _free(x), lam, rhs, None, None, ctx.kind),
            matrix_dot=entries_dot, b_dot=b_dot, lam_dot=lam_dot,
        )  # fmt: skip


def _free(x: Tensor) -> Tensor:
    """1 where x is positive, 0 elsewhere; NaN for a system that was not solved."""
    x = x.detach()
    return torch.where(x.isnan(), x, (x > 0).to(x.dtype))


def _cotangents(
    entries: Tensor, b: Tensor, lam: Tensor, x: Tensor, g: Tensor, kind: Kind, needs: Any
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return what flows back to A, b and λ: by one kernel of a device, one call of the host, or by the rules."""
    if kind == DENSE and graph_library(entries, b, lam, g) is None:
        if x.is_cuda and _at_once(entries, b):
            return _by_kernel(entries, b, lam, x, g, needs)
        if not x.is_cuda and entries.dtype == torch.float64 and entries.ndim == 3 and needs[0] and not needs[2]:
            return *pull_back(entries, b, float(lam), x, g), None
    u = solve_step(entries, _free(x), lam, g, None, None, kind)
    return least_squares.reverse(matrix_of(entries, kind), b, lam, x, u, matrix_too=needs[0], lam_too=needs[2])


def _at_once(entries: Tensor, b: Tensor) -> bool:
    """Whether systems of a device are such that one kernel does all that flows back."""
    lead = entries.shape[:-2]
    alike = b.ndim <= 2 and (lead == b.shape[:-1] or (not lead and b.ndim == 2))
    systems = 1 if b.ndim == 1 else b.shape[0]
    return alike and cuda.suits(entries.shape[-2], entries.shape[-1], systems) and b.numel() > 0 and entries.numel() > 0


def _by_kernel(
    entries: Tensor, b: Tensor, lam: Tensor, x: Tensor, g: Tensor, needs: Any
) -> tuple[Tensor | None, Tensor, Tensor | None]:
    """What `stepwell.derivatives.least_squares.reverse` has, on a device."""
    lone = b.ndim == 1
    own, data, sides, points = (t[None] if lone else t for t in (entries, b, g, x))
    found = cuda.pull_back(own, data, lam, points, sides, matrix_too=needs[0], lam_too=needs[2])
    to_a = found.to_a
    # One matrix for all: what each system brings is added up by products of matrices.
    if found.u is not None and found.residual is not None:
        to_a = plus_product(matrix_product(found.residual.T, found.u), found.image.T, points, -1)
    shrink = None if found.overlap is None else -2 * lam * found.overlap.sum()
    return to_a[0] if lone and to_a is not None else to_a, found.image[0] if lone else found.image, shrink
