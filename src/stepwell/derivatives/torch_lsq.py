"""Least squares in the graphs of PyTorch.

The solution is found without a graph, by the usual call or, where this is compiled or transformed, by the operation
``torch.ops.stepwell.lsq``; `bounded.attached` then makes it a function of the arguments, through one step whose value
is zero and whose derivatives are solves (`torch_steps`). x ≥ 0 with one λ has a shorter way: `torch_nonnegative`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from stepwell.arrays import without_graph
from stepwell.arrays.autograd import is_transformed
from stepwell.common.checks import require_kind, warn_caller
from stepwell.derivatives import torch_nonnegative
from stepwell.derivatives.bounded import ProblemArrays, attached, read_problem
from stepwell.derivatives.matrices import DENSE
from stepwell.derivatives.systems import (
    REALS,
    Outcome,
    Spec,
    as_result,
    columns_of,
    multipliers_of,
    shaped_as,
    solve_folded,
)
from stepwell.derivatives.torch_steps import image, leads_of_tensors, with_axis, zero_step
from stepwell.lsq.batch import COUNTS
from stepwell.lsq.convolution import Convolution

# ---- the operation ----


def _schema() -> str:
    """Return the schema of the operation, in which the compiler wants every array and option named."""
    kinds = {"Array": "Tensor", "int": "int", "str": "str", "float": "float", "bool": "bool"}
    names = [(n, kind.__forward_arg__) for one in (ProblemArrays, Spec) for n, kind in one.__annotations__.items()]
    told = [f"{kinds[kind.removesuffix(' | None')]}{'?' * kind.endswith('| None')} {name}" for name, kind in names]
    return f"({', '.join(told)}) -> ({', '.join(['Tensor'] * len(Outcome._fields))})"


def _read(given: tuple[Any, ...]) -> tuple[ProblemArrays, Spec]:
    return ProblemArrays(*given[: len(ProblemArrays._fields)]), Spec(*given[len(ProblemArrays._fields) :])


@torch.library.custom_op("stepwell::lsq", mutates_args=(), schema=_schema())
def _lsq(*given: Any) -> tuple[Tensor, ...]:
    return tuple(array.contiguous().clone() for array in solve_folded(*_read(given)))


@_lsq.register_fake
def _(*given: Any) -> tuple[Tensor, ...]:
    problem, spec = _read(given)
    lead, n, like = leads_of_tensors(problem, spec.axes), columns_of(problem, spec), problem.b.new_empty
    return (
        like((*lead, n)), like((*lead, n)), like((*lead, n), dtype=torch.int8),
        like((*lead, len(REALS) + multipliers_of(problem))), like((*lead, len(COUNTS)), dtype=torch.int32),
    )  # fmt: skip


@_lsq.register_vmap
def _(info: Any, axes: Any, *given: Any) -> Any:
    problem, spec = _read(given)
    cores: Any = spec.axes
    moved = with_axis(list(zip(problem, axes, cores)))
    return _lsq(*moved, *spec), (0,) * len(Outcome._fields)


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
    lam, warm_start = arrays["lam"], options["warm_start"]
    chain, rule = isinstance(warm_start, str), lam if isinstance(lam, str) else ""
    warm = None if chain or warm_start is None else torch.as_tensor(warm_start).detach()
    options = options | {"warm_start": warm_start if chain else warm}
    traced = torch.compiler.is_compiling() or any(
        isinstance(one, Tensor) and is_transformed(one) for one in (entries, b, lam)
    )
    if not traced and torch_nonnegative.suits(entries, b, arrays, options):
        kind = (A.m, A.n, A.origin) if isinstance(A, Convolution) else DENSE
        return torch_nonnegative.nnls(entries.to(dtype), b.to(dtype), lam, kind, options)

    def as_array(value: Any) -> Tensor:
        return torch.as_tensor(value, dtype=dtype, device=b.device)

    arrays = arrays | {
        name: torch.as_tensor(arrays[name]) for name in ("which", "mask") if arrays.get(name) is not None
    }
    if arrays.get("equality") is not None:
        C, d = arrays["equality"]
        arrays["equality"] = _constant(C), d
    problem, form = read_problem(A, b, as_array, **arrays | {"lam": 0.0 if rule else lam, "warm": warm})
    if torch.compiler.is_compiling() or any(is_transformed(array) for array in problem if array is not None):
        spec = Spec.of_call(form.kind, rule, options)
        outcome = Outcome(*torch.ops.stepwell.lsq(*map(_constant, problem), *spec))
        found = outcome.reals[..., REALS.index("lam")] if rule else problem.lam
        x = attached(problem, form.kind, outcome.x, outcome.state, found, zero_step, image)
        return shaped_as(as_result(outcome._replace(x=x), spec), form.lead, form.column)
    constants = {name: _constant(value) for name, value in arrays.items() if name != "gram"}
    with torch.no_grad():
        result = plain(_constant(A), _constant(b), **constants, **options)
    n = result.x.shape[-2 if form.column else -1]
    x = result.x.reshape((-1, n) if form.lead else (n,))
    state = result.state.reshape(x.shape)
    found = as_array(result.lam).reshape((-1,) if form.lead else ()) if rule else problem.lam
    kept = getattr(result, "_factor", None)
    step = zero_step if kept is None else functools.partial(zero_step, factor=kept)
    x = attached(problem, form.kind, x, state, found, step, image).reshape(result.x.shape)
    if not x.is_cuda and not bool(torch.as_tensor(result.success).all()):
        warn_caller(f"derivatives of x hold for solutions, but {result.message}")
    return dataclasses.replace(result, x=x)
