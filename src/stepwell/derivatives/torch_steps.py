"""The solves behind derivatives of least squares in the graphs of PyTorch: one operation, and its own derivatives.

The operation, ``torch.ops.stepwell.lsq_step``, is one node to compilers and exporters, and ``vmap`` folds it into a
batch; it knows no derivative. Above it are autograd functions. (Derivatives registered with operations themselves fail
under ``torch.func.grad`` and give zero tangents, without a word, under ``torch.func.jvp``.) A function with a forward
rule cannot be compiled, so there are two of each: with the rule for eager programs, without for compiled ones. (Their
arguments are written out one by one: the compiler counts them to tell whether the first is a context.)
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from stepwell.arrays import graph_library
from stepwell.derivatives import least_squares
from stepwell.derivatives.matrices import GRAM, Gram, Kind, matrix_of
from stepwell.derivatives.normal_equations import solve_free, solve_free_with_rows, solve_with_kept


def leads_of_tensors(arrays: tuple[Any, ...], axes: tuple[Any, ...]) -> torch.Size:
    """Return the leading axes of tensors, of which one system has so many axes."""
    shapes = [array.shape[: array.ndim - core] for array, core in zip(arrays, axes) if array is not None]
    return torch.broadcast_shapes(*shapes)


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


@torch.library.custom_op("stepwell::lsq_step", mutates_args=())
def _lsq_step(
    entries: Tensor, free: Tensor, lam: Tensor, g: Tensor, C: Tensor | None, t: Tensor | None, rows: int, columns: int,
    origin: int,
) -> Tensor:  # fmt: skip
    return _solved(entries, free, lam, g, C, t, (rows, columns, origin)).contiguous().clone()


def _solved(entries: Tensor, free: Tensor, lam: Tensor, g: Tensor, C: Any, t: Any, kind: Kind) -> Tensor:
    shape, gram = (kind if kind[0] >= 0 else None), kind == GRAM
    if C is None:
        return solve_free(entries, free, lam, g, shape, gram=gram)
    return solve_free_with_rows(entries, free, lam, g, C, t, shape, gram=gram)


def _step_axes(rows: int) -> tuple[int, ...]:
    return (2 if rows < 0 else 1, 1, 0, 1, 2, 1)


@_lsq_step.register_fake
def _(entries: Any, free: Any, lam: Any, g: Any, C: Any, t: Any, rows: int, columns: int, origin: int) -> Tensor:
    lead = leads_of_tensors((entries, free, lam, g, C, t), _step_axes(rows))
    return g.new_empty((*lead, g.shape[-1] + (0 if C is None else C.shape[-2])))


@_lsq_step.register_vmap
def _(info: Any, axes: Any, *given: Any) -> Any:
    return _lsq_step(*with_axis(list(zip(given[:6], axes, _step_axes(given[6])))), *given[6:]), 0


def _parts(whole: Tensor, n: int, C: Any) -> tuple[Tensor, Tensor | None]:
    """Return u and ν apart. (Where there is no ν, no slice either: its alias has no rule for batched gradients.)"""
    return (whole, None) if C is None else (whole[..., :n], whole[..., n:])


class _Step(torch.autograd.Function):
    """u and ν of H u + Cᵀν = g, C u = t; C is a constant. `known` says that u is zero, and ν of no interest."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        entries: Tensor, free: Tensor, lam: Tensor, g: Tensor, C: Any, t: Any, rows: int, columns: int, origin: int,
        known: bool, factor: Any,
    ) -> Tensor:  # fmt: skip
        if known:
            lead = leads_of_tensors((entries, free, lam, g, C, t), _step_axes(rows))
            return g.new_zeros((*lead, g.shape[-1] + (0 if C is None else C.shape[-2])))
        return torch.ops.stepwell.lsq_step(entries, free, lam, g, C, t, rows, columns, origin)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        entries, free, lam, _, C, _, *kind, known, factor = inputs
        ctx.kind, ctx.known, ctx.factor = tuple(kind), known, factor
        ctx.save_for_backward(entries, free, lam, C, output)
        ctx.save_for_forward(entries, free, lam, C, output)

    @staticmethod
    def backward(ctx: Any, G: Tensor) -> Any:
        entries, free, lam, C, found = ctx.saved_tensors
        n, needs = free.shape[-1], ctx.needs_input_grad
        # Of u = 0 the first derivatives in A and λ are zero: nothing that a graph would have to know of.
        if ctx.known and graph_library(entries, lam, G) is None:
            if ctx.factor is not None:  # the solve's own
                return None, None, None, solve_with_kept(ctx.factor, G), *[None] * 7
            needs = [False] * len(needs)
        g, t = _parts(G, n, C)
        solved = solve_step(entries, free, lam, g, C, t, ctx.kind)
        (u, _), (v, rest) = _parts(found, n, C), _parts(solved, n, C)
        matrix = matrix_of(entries, ctx.kind)
        own, shrink = least_squares.reverse_of_solve(matrix, lam, u, v, matrix_too=needs[0], lam_too=needs[2])
        return own, None, shrink, v, None, rest, *[None] * 5


class _StepWithTangents(_Step):
    """The same with a forward rule."""

    @staticmethod
    def jvp(ctx: Any, entries_dot: Any, _: Any, lam_dot: Any, g_dot: Any, C_dot: Any, t_dot: Any, *others: Any) -> Any:
        entries, free, lam, C, found = ctx.saved_tensors
        n = free.shape[-1]
        u, multipliers = _parts(found, n, C)
        t = torch.zeros_like(multipliers) if C is not None and t_dot is None else t_dot
        return least_squares.forward_of_solve(
            matrix_of(entries, ctx.kind), lam, u,
            lambda rhs: solve_step(entries, free, lam, rhs, C, t, ctx.kind),
            matrix_dot=entries_dot, lam_dot=lam_dot, g_dot=torch.zeros_like(free) if g_dot is None else g_dot,
        )  # fmt: skip


def solve_step(
    entries: Tensor, free: Tensor, lam: Tensor, g: Tensor, C: Any, t: Any, kind: Kind, *, known: bool = False,
    factor: Any = None,
) -> Tensor:  # fmt: skip
    """Return u and ν of H u + Cᵀν = g, C u = t, with derivatives where somebody may ask for them."""
    if not known and graph_library(entries, lam, g, t) is None:  # nobody will ask for derivatives of this
        return _solved(entries, free, lam, g, C, t, kind)
    rule = _Step if torch.compiler.is_compiling() else _StepWithTangents
    return rule.apply(entries, free, lam, g, C, t, *kind, known, factor)


#: The step at a solution, whose value is zero.
zero_step = functools.partial(solve_step, known=True)


class _Image(torch.autograd.Function):
    """G y, of which nobody looks at the value, which is therefore left zero: a product with a large G costs as much as
    the rest of a warm start. Its derivative in G, as large as G, is written at once."""

    generate_vmap_rule = True

    @staticmethod
    def forward(G: Tensor, y: Tensor) -> Tensor:
        return y.new_zeros(leads_of_tensors((G, y), (2, 1)) + y.shape[-1:])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        G, y = ctx.saved_tensors
        own, others = ctx.needs_input_grad
        return Gram(G).normal_cotangent(g, y) if own else None, Gram(G).normal_times(g) if others else None


class _ImageWithTangents(_Image):
    """The same with a forward rule."""

    @staticmethod
    def jvp(ctx: Any, G_dot: Any, y_dot: Any) -> Any:
        G, y = ctx.saved_tensors
        changes = [] if G_dot is None else [Gram(G_dot).normal_times(y)]
        changes += [] if y_dot is None else [Gram(G).normal_times(y_dot)]
        return sum(changes, torch.zeros_like(y))


def image(G: Tensor, y: Tensor) -> Tensor:
    """Return what has the derivatives of G y."""
    rule = _Image if torch.compiler.is_compiling() else _ImageWithTangents
    return rule.apply(G, y)
