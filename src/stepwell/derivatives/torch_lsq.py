"""``lsq_linear`` and ``lsq_gram`` in the graphs of PyTorch, in the two layers that `torch_nnls` describes.

The solution is found without a graph, by the usual call or, where this is compiled or transformed, by the operation
``torch.ops.stepwell.lsq``; `bounded.attached` then makes it a function of the arguments, through one step whose value
is zero and whose derivatives are solves, ``torch.ops.stepwell.lsq_step``.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from stepwell.arrays import graph_library, without_graph
from stepwell.arrays.autograd import is_transformed
from stepwell.common.checks import require_kind, warn_caller
from stepwell.derivatives import least_squares
from stepwell.derivatives.bounded import Problem, attached, read_problem
from stepwell.derivatives.bounded_systems import (
    REALS,
    Outcome,
    Spec,
    as_result,
    multipliers_of,
    shaped_as,
    solve_folded,
)
from stepwell.derivatives.matrices import GRAM, Gram, Kind, matrix_of
from stepwell.derivatives.normal_equations import solve_free, solve_free_with_rows, solve_with_kept
from stepwell.derivatives.torch_nnls import with_axis
from stepwell.lsq.convolution import Convolution

# ---- the operations ----


@torch.library.custom_op("stepwell::lsq", mutates_args=())
def _lsq(
    entries: Tensor, b: Tensor, lower: Tensor, upper: Tensor, sum_low: Tensor | None, sum_high: Tensor | None,
    weights: Tensor | None, mask: Tensor | None, lam: Tensor, L: Tensor | None, C: Tensor | None, d: Tensor | None,
    warm: Tensor | None, rows: int, columns: int, origin: int, rule: str, chi2: float, method: str, insertion: str,
    chain: bool, maxiter: int | None, tol: float | None, threads: int | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    problem = Problem(entries, b, lower, upper, sum_low, sum_high, weights, mask, lam, L, C, d, warm)
    spec = Spec(rows, columns, origin, rule, chi2, method, insertion, chain, maxiter, tol, threads)
    return tuple(array.contiguous().clone() for array in solve_folded(problem, spec))


def _leads(arrays: tuple[Any, ...], axes: tuple[Any, ...]) -> torch.Size:
    shapes = [array.shape[: array.ndim - core] for array, core in zip(arrays, axes) if array is not None]
    return torch.broadcast_shapes(*shapes)


@_lsq.register_fake
def _(*given: Any) -> tuple[Tensor, ...]:
    problem, spec = Problem(*given[: len(Problem._fields)]), Spec(*given[len(Problem._fields) :])
    lead = _leads(problem, spec.axes)
    n, like, dtype = problem.lower.shape[-1], problem.b.new_empty, problem.b.dtype
    return (
        like((*lead, n)), like((*lead, n)), like((*lead, n), dtype=torch.int8),
        like((*lead, len(REALS) + multipliers_of(problem)), dtype=dtype),
        like((*lead, 6), dtype=torch.int32), like((*lead, 4), dtype=torch.int64),
    )  # fmt: skip


@_lsq.register_vmap
def _(info: Any, axes: Any, *given: Any) -> Any:
    count = len(Problem._fields)
    spec = Spec(*given[count:])
    cores: Any = spec.axes
    return _lsq(*with_axis(list(zip(given[:count], axes, cores))), *spec), (0,) * 6


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
    lead = _leads((entries, free, lam, g, C, t), _step_axes(rows))
    return g.new_empty((*lead, g.shape[-1] + (0 if C is None else C.shape[-2])))


@_lsq_step.register_vmap
def _(info: Any, axes: Any, *given: Any) -> Any:
    return _lsq_step(*with_axis(list(zip(given[:6], axes, _step_axes(given[6])))), *given[6:]), 0


# ---- the step and its derivatives ----


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
            lead = _leads((entries, free, lam, g, C, t), _step_axes(rows))
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
        solved = _solve(entries, free, lam, g, C, t, ctx.kind)
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
            lambda rhs: _solve(entries, free, lam, rhs, C, t, ctx.kind),
            matrix_dot=entries_dot, lam_dot=lam_dot, g_dot=torch.zeros_like(free) if g_dot is None else g_dot,
        )  # fmt: skip


def _solve(
    entries: Tensor, free: Tensor, lam: Tensor, g: Tensor, C: Any, t: Any, kind: Kind, *, known: bool = False,
    factor: Any = None,
) -> Tensor:  # fmt: skip
    if not known and graph_library(entries, lam, g, t) is None:  # nobody will ask for derivatives of this
        return _solved(entries, free, lam, g, C, t, kind)
    rule = _Step if torch.compiler.is_compiling() else _StepWithTangents
    return rule.apply(entries, free, lam, g, C, t, *kind, known, factor)


_step = functools.partial(_solve, known=True)


class _Image(torch.autograd.Function):
    """G y, of which nobody looks at the value, which is therefore left zero: a product with a large G costs as much as
    the rest of a warm start. Its derivative in G, as large as G, is written at once."""

    generate_vmap_rule = True

    @staticmethod
    def forward(G: Tensor, y: Tensor) -> Tensor:
        return y.new_zeros(_leads((G, y), (2, 1)) + y.shape[-1:])

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


def _image(G: Tensor, y: Tensor) -> Tensor:
    rule = _Image if torch.compiler.is_compiling() else _ImageWithTangents
    return rule.apply(G, y)


# ---- the API ----


def _constant(value: Any) -> Any:
    """Return an argument without its graph: a tensor, a pair of them, a convolution."""
    if isinstance(value, tuple | list):
        return tuple(map(_constant, value))
    if isinstance(value, Convolution):
        return Convolution(without_graph(value.pulse), value.n, m=value.m, origin=value.origin)
    return without_graph(value)


def lsq(plain: Callable[..., Any], A: Any, b: Any, arrays: dict[str, Any], options: dict[str, Any]) -> Any:
    """Solve, with an x that has derivatives.

    Parameters
    ----------
    plain : callable
        The solver without derivatives, of the same arguments. Not called where the call is compiled or transformed.
    A, b
        Of ``lsq_gram`` G and c.
    arrays : dict
        What `read_problem` reads beside the two.
    options : dict
        All other arguments.
    """
    names = ("G", "c") if arrays.get("gram") else ("A", "b")
    entries = A.pulse if isinstance(A, Convolution) else A
    for name, tensor in zip(names, (entries, b)):
        require_kind(isinstance(tensor, Tensor), name, tensor, "a tensor, as other arguments are")
    dtype = torch.float32 if entries.dtype == b.dtype == torch.float32 else torch.float64

    def as_array(value: Any) -> Tensor:
        return torch.as_tensor(value, dtype=dtype, device=b.device)

    arrays = arrays | {
        name: torch.as_tensor(arrays[name]) for name in ("which", "mask") if arrays.get(name) is not None
    }
    if arrays.get("equality") is not None:
        C, d = arrays["equality"]
        arrays["equality"] = _constant(C), d
    lam, warm_start = arrays["lam"], options["warm_start"]
    chain, rule = isinstance(warm_start, str), lam if isinstance(lam, str) else ""
    warm = None if chain or warm_start is None else torch.as_tensor(warm_start).detach()
    problem, form = read_problem(A, b, as_array, **arrays | {"lam": 0.0 if rule else lam, "warm": warm})
    if torch.compiler.is_compiling() or any(is_transformed(array) for array in problem if array is not None):
        spec = Spec.of_call(form.kind, rule, options)
        outcome = Outcome(*torch.ops.stepwell.lsq(*map(_constant, problem), *spec))
        found = outcome.reals[..., REALS.index("lam")] if rule else problem.lam
        x = attached(problem, form.kind, outcome.x, outcome.state, found, _step, _image)
        return shaped_as(as_result(outcome._replace(x=x), spec), form.lead, form.column)
    constants = {name: _constant(value) for name, value in arrays.items() if name != "gram"}
    with torch.no_grad():
        result = plain(
            _constant(A), _constant(b), **constants, **options | {"warm_start": warm_start if chain else warm}
        )
    n = problem.lower.shape[-1]
    x = result.x.reshape((-1, n) if form.lead else (n,))
    state = result.state.reshape(x.shape) if hasattr(result, "state") else torch.where(x > 0, 0, -1)
    found = as_array(result.lam).reshape((-1,) if form.lead else ()) if rule else problem.lam
    kept = getattr(result, "_factor", None)
    step = _step if kept is None else functools.partial(_step, factor=kept)
    x = attached(problem, form.kind, x, state, found, step, _image).reshape(result.x.shape)
    if not x.is_cuda and not bool(torch.as_tensor(result.success).all()):
        warn_caller(f"derivatives of x hold for solutions, but {result.message}")
    return dataclasses.replace(result, x=x)
