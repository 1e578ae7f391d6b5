"""NNLS in the graphs of PyTorch.

Two layers. Raw operations, ``torch.ops.stepwell.nnls`` and ``.nnls_normal_solve``, which compilers and exporters see as
one node and ``vmap`` folds into a batch, and which know no derivative. Above them autograd functions, whose rules are
those of `stepwell.derivatives.least_squares`. (Derivatives registered with the operations themselves fail under
``torch.func.grad`` and give zero tangents, without a word, under ``torch.func.jvp``.) A function with a forward rule
cannot be compiled, so there are two of each: with the rule for eager programs, without for compiled ones. (Their
arguments are written out one by one: the compiler counts them to tell whether the first is a context.)
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from stepwell.arrays import graph_library, matrix_product, plus_product
from stepwell.arrays.autograd import apply_rule, is_transformed
from stepwell.common.checks import read_axis, read_real, require, require_kind, require_shape, warn_caller
from stepwell.derivatives import cuda, least_squares
from stepwell.derivatives.matrices import matrix_of
from stepwell.derivatives.normal_equations import pull_back, solve_free
from stepwell.derivatives.systems import Outcome, Spec, as_result, read_systems, solve_folded, turned
from stepwell.lsq.batch import COUNTS
from stepwell.lsq.convolution import Convolution
from stepwell.lsq.host import find_answers
from stepwell.lsq.result import NNLSResult
from stepwell.lsq.solving import solve
from stepwell.lsq.wrap import vectors, wrap

# ---- the operations ----


@torch.library.custom_op("stepwell::nnls", mutates_args=())
def _nnls(
    entries: Tensor, b: Tensor, lam: Tensor, warm: Tensor | None, rows: int, columns: int, origin: int, method: str,
    insertion: str, update: str, chain: bool, maxiter: int | None, tol: float | None, threads: int | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    spec = Spec(rows, columns, origin, method, insertion, update, chain, maxiter, tol, threads)
    return tuple(array.contiguous() for array in solve_folded(entries, b, lam, warm, spec))


@_nnls.register_fake
def _(entries: Tensor, b: Tensor, lam: Tensor, warm: Tensor | None, rows: int, *rest: Any) -> tuple[Tensor, ...]:
    dense = rows < 0
    lead = torch.broadcast_shapes(entries.shape[: -2 if dense else -1], b.shape[:-1], lam.shape)
    n = entries.shape[-1] if dense else rest[0]
    dtype = torch.float32 if entries.dtype == b.dtype == torch.float32 else torch.float64
    like = b.new_empty
    return (
        like((*lead, n), dtype=dtype), like((*lead, n), dtype=dtype), like((*lead, n), dtype=torch.bool),
        like((*lead, 2), dtype=dtype), like((*lead, 6), dtype=torch.int32), like((*lead, 4), dtype=torch.int64),
    )  # fmt: skip


@torch.library.custom_op("stepwell::nnls_normal_solve", mutates_args=())
def _normal_solve(
    entries: Tensor, free: Tensor, lam: Tensor, g: Tensor, rows: int, columns: int, origin: int
) -> Tensor:
    shape = None if rows < 0 else (rows, columns, origin)
    return solve_free(entries, free, lam, g, shape).contiguous().clone()


@_normal_solve.register_fake
def _(entries: Tensor, free: Tensor, lam: Tensor, g: Tensor, rows: int, columns: int, origin: int) -> Tensor:
    lead = torch.broadcast_shapes(entries.shape[: -2 if rows < 0 else -1], free.shape[:-1], lam.shape, g.shape[:-1])
    return g.new_empty((*lead, g.shape[-1]))


def with_axis(tensors: list[tuple[Tensor | None, int | None, int]]) -> list[Tensor | None]:
    """Bring the axis of ``vmap`` to the front of each tensor; (tensor, its axis or None, axes of one system).

    All get as many leading axes, those that a tensor lacks as ones: that is what says that it is shared.
    """
    rank = max(t.ndim - (d is not None) - core for t, d, core in tensors if t is not None)
    out: list[Tensor | None] = []
    for tensor, axis, core in tensors:
        if tensor is None:
            out.append(None)
            continue
        own = tensor.unsqueeze(0) if axis is None else tensor.movedim(axis, 0)
        missing = rank - (own.ndim - 1 - core)
        out.append(own.reshape(own.shape[0], *[1] * missing, *own.shape[1:]))
    return out


@_nnls.register_vmap
def _(info: Any, axes: Any, entries: Tensor, b: Tensor, lam: Tensor, warm: Tensor | None, *rest: Any) -> Any:
    core = 2 if rest[0] < 0 else 1
    given = [(entries, axes[0], core), (b, axes[1], 1), (lam, axes[2], 0), (warm, axes[3], 1)]
    return _nnls(*with_axis(given), *rest), (0,) * 6


@_normal_solve.register_vmap
def _(info: Any, axes: Any, entries: Tensor, free: Tensor, lam: Tensor, g: Tensor, *rest: Any) -> Any:
    core = 2 if rest[0] < 0 else 1
    given = [(entries, axes[0], core), (free, axes[1], 1), (lam, axes[2], 0), (g, axes[3], 1)]
    return _normal_solve(*with_axis(given), *rest), 0


# ---- their derivatives ----


class _NormalSolve(torch.autograd.Function):
    """u = (A_FᵀA_F + λ²I)⁻¹ g."""

    generate_vmap_rule = True

    @staticmethod
    def forward(entries: Tensor, free: Tensor, lam: Tensor, g: Tensor, rows: int, columns: int, origin: int) -> Tensor:
        return torch.ops.stepwell.nnls_normal_solve(entries, free, lam, g, rows, columns, origin)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        entries, free, lam, _, *spec = inputs
        ctx.spec = tuple(spec)
        ctx.save_for_backward(entries, free, lam, output)
        ctx.save_for_forward(entries, free, lam, output)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        entries, free, lam, u = ctx.saved_tensors
        v = _solve(entries, free, lam, g, ctx.spec)
        own, shrink = least_squares.reverse_of_solve(
            matrix_of(entries, ctx.spec), lam, u, v, matrix_too=ctx.needs_input_grad[0], lam_too=ctx.needs_input_grad[2]
        )
        return own, None, _as(shrink, lam), v, None, None, None


class _NormalSolveWithTangents(_NormalSolve):
    """The same with a forward rule."""

    @staticmethod
    def jvp(ctx: Any, entries_dot: Any, _: Any, lam_dot: Any, g_dot: Any, *others: Any) -> Tensor:
        entries, free, lam, u = ctx.saved_tensors
        return least_squares.forward_of_solve(
            matrix_of(entries, ctx.spec), lam, u, lambda rhs: _solve(entries, free, lam, rhs, ctx.spec),
            matrix_dot=entries_dot, lam_dot=lam_dot, g_dot=g_dot,
        )  # fmt: skip


def _solve(entries: Tensor, free: Tensor, lam: Tensor, g: Tensor, spec: tuple[int, int, int]) -> Tensor:
    if graph_library(entries, lam, g) is None:  # nobody will ask for derivatives of this: no graph, no operation
        return solve_free(entries, free, lam, g, None if spec[0] < 0 else spec)
    rule = _NormalSolve if torch.compiler.is_compiling() else _NormalSolveWithTangents
    return rule.apply(entries, free, lam, g, *spec)


def _as(cotangent: Tensor | None, like: Tensor) -> Tensor | None:
    """λ may live on the host beside tensors of a device."""
    return None if cotangent is None else cotangent.to(device=like.device, dtype=like.dtype)


def _free(x: Tensor) -> Tensor:
    """1 where x is positive, 0 elsewhere; NaN for a system that was not solved."""
    x = x.detach()
    return torch.where(x.isnan(), x, (x > 0).to(x.dtype))


def _at_once(entries: Tensor, b: Tensor) -> bool:
    """Whether systems of a device are such that one kernel does all that flows back."""
    lead = entries.shape[:-2]
    alike = b.ndim <= 2 and (lead == b.shape[:-1] or (not lead and b.ndim == 2))
    systems = 1 if b.ndim == 1 else b.shape[0]
    return alike and cuda.suits(entries.shape[-2], entries.shape[-1], systems) and b.numel() > 0 and entries.numel() > 0


def _pulled_back(
    entries: Tensor, b: Tensor, lam: Tensor, x: Tensor, g: Tensor, needs: Any
) -> tuple[Tensor | None, Tensor, Tensor | None]:
    """What flows back to A, b and λ, as `stepwell.derivatives.least_squares.reverse` has it, on a device."""
    lone = b.ndim == 1
    own, data, sides, points = (t[None] if lone else t for t in (entries, b, g, x))
    found = cuda.pull_back(own, data, lam, points, sides, matrix_too=needs[0], lam_too=needs[2])
    to_a = found.to_a
    if (
        found.u is not None and found.residual is not None
    ):  # one matrix for all: what each brings is added up by products of matrices
        to_a = plus_product(matrix_product(found.residual.T, found.u), found.image.T, points, -1)
    shrink = None if found.overlap is None else -2 * lam * found.overlap.sum()
    return to_a[0] if lone and to_a is not None else to_a, found.image[0] if lone else found.image, shrink


class _Solution(torch.autograd.Function):
    """x of NNLS, and what else is known of it, which has no derivative."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        entries: Tensor, b: Tensor, lam: Tensor, warm: Any, call: Any, rows: int, columns: int, origin: int,
        method: str, insertion: str, update: str, chain: bool, maxiter: int | None, tol: float | None,
        threads: int | None,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        spec = (rows, columns, origin, method, insertion, update, chain, maxiter, tol, threads)
        if call is None:
            return torch.ops.stepwell.nnls(entries, b, lam, warm, *spec)
        return (call(entries, b, lam, warm, Spec(*spec)),)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: tuple[Tensor, ...]) -> None:
        entries, b, lam, _, _, *spec = inputs
        ctx.spec, ctx.others = tuple(spec[:3]), len(output) - 1
        ctx.save_for_backward(entries, b, lam, output[0])
        ctx.save_for_forward(entries, b, lam, output[0])
        ctx.mark_non_differentiable(*output[1:])

    @staticmethod
    def backward(ctx: Any, g: Tensor, *others: Any) -> Any:
        entries, b, lam, x = ctx.saved_tensors
        needs = ctx.needs_input_grad
        if x.is_cuda and ctx.spec[0] < 0 and _at_once(entries, b) and graph_library(entries, b, lam, g) is None:
            own, data, shrink = _pulled_back(entries, b, lam, x, g, needs)
            return own, data, _as(shrink, lam), *[None] * (2 + len(Spec._fields))
        doubles = entries.dtype == torch.float64 and entries.ndim == 3 and not needs[2] and not entries.is_cuda
        if doubles and needs[0] and ctx.spec[0] < 0 and graph_library(entries, b, g) is None:
            return *pull_back(entries, b, float(lam), x, g), *[None] * (3 + len(Spec._fields))
        u = _solve(entries, _free(x), lam, g, ctx.spec)
        own, data, shrink = least_squares.reverse(
            matrix_of(entries, ctx.spec), b, lam, x, u, matrix_too=needs[0], lam_too=needs[2]
        )
        return own, data, _as(shrink, lam), *[None] * (2 + len(Spec._fields))


class _SolutionWithTangents(_Solution):
    """The same with a forward rule."""

    @staticmethod
    def jvp(ctx: Any, entries_dot: Any, b_dot: Any, lam_dot: Any, *others: Any) -> Any:
        entries, b, lam, x = ctx.saved_tensors
        tangent = least_squares.forward(
            matrix_of(entries, ctx.spec), b, lam, x,
            lambda rhs: _solve(entries, _free(x), lam, rhs, ctx.spec),
            matrix_dot=entries_dot, b_dot=b_dot, lam_dot=lam_dot,
        )  # fmt: skip
        return (tangent, *[None] * ctx.others)


# ---- the API ----

#: A λ of zero, which most have. (Nobody writes to it. Compiled programs make their own.)
_NONE = torch.tensor(0.0, dtype=torch.float64)


class _Call:
    """A call that keeps what it has found of systems, where it can be looked at."""

    def __init__(self, progress: Any) -> None:
        self.progress = progress
        self.batch: Any = None
        self.answers: Any = None  # of host tensors
        self.result: Any = None  # of a device's

    def __call__(self, entries: Tensor, b: Tensor, lam: Tensor, warm: Tensor | None, spec: Spec) -> Tensor:
        self.batch = read_systems(entries, b, lam, warm, spec, self.progress)
        if b.is_cuda:
            self.result = solve(self.batch)
            return self.result.x
        self.answers = find_answers(self.batch)
        return vectors(self.batch, self.answers.x)

    def result_with(self, x: Tensor) -> NNLSResult:
        """Return the whole result, with an x that has a graph; warns where derivatives are those of no solution.

        (A device is not asked whether they are, which would wait.)
        """
        if self.answers is None:
            return dataclasses.replace(self.result, x=x)
        batch, answers = self.batch, self.answers
        if answers.counts[COUNTS.index("status")].any():
            warn_caller(f"derivatives of x hold for solutions, but {wrap(batch, answers).message}")
        known = dict(lam=batch.damping, method=batch.method, choice=batch.choice)
        result: NNLSResult = NNLSResult.deferred(lambda: wrap(batch, answers), x=x, **known)
        return result


def nnls(A: Any, b: Any, *, lam: Any, warm_start: Any, axis: int, progress: Any, **options: Any) -> NNLSResult:
    """As `stepwell.nnls`, whose arguments these are, with an x that has derivatives."""
    convolution = isinstance(A, Convolution)
    entries = A.pulse if convolution else A
    for name, tensor in (("A", entries), ("b", b)):
        require_kind(isinstance(tensor, Tensor), name, tensor, "a tensor, as the other argument is one")
    across = read_axis(axis) == 1 and b.ndim == 2
    dtype = torch.float32 if entries.dtype == b.dtype == torch.float32 else torch.float64
    entries, b = entries.to(dtype), b.to(dtype)
    shape = (A.m, A.n, A.origin) if convolution else (-1, 0, 0)
    chain = isinstance(warm_start, str)
    if chain:
        require(warm_start == "chain", "warm_start", warm_start, "an x, a boolean set, or 'chain'")
    warm = None if chain or warm_start is None else torch.as_tensor(warm_start).detach()
    compiled = torch.compiler.is_compiling()
    if isinstance(lam, Tensor):
        require_shape(lam.ndim == 0, "lam", lam, "(), one number")
    else:
        number = read_real("lam", lam, at_least=0)
        lam = torch.tensor(number, dtype=torch.float64) if number or compiled else _NONE
    if across:
        b, warm = b.T, warm.T if warm is not None and warm.ndim == 2 else warm
    spec = Spec(rows=shape[0], columns=shape[1], origin=shape[2], chain=chain, **options)
    traced = compiled or any(is_transformed(t) for t in (entries, b, lam))
    rule = _Solution if compiled else _SolutionWithTangents
    if traced:
        require(progress is None, "progress", progress, "None where the call is compiled or transformed")
        result = as_result(Outcome(*rule.apply(entries, b, lam, warm, None, *spec)), spec)
    else:
        call = _Call(progress)
        (x,) = apply_rule(rule, entries, b, lam, warm, call, *spec)
        result = call.result_with(x)
    return turned(result) if across else result
