"""Least squares in the programs of JAX: a call to the host that finds x, and its derivatives.

`bounded.attached` makes x a function of the arguments, through one step whose value is zero and whose tangents are
linear solves (``jax.lax.custom_linear_solve``), which JAX transposes and differentiates again, so that every order
follows from one rule. Under ``vmap`` arguments that are not mapped arrive with an axis of length one: a shared matrix
stays shared.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stepwell.arrays import matrix_product
from stepwell.common.checks import require_kind
from stepwell.derivatives import jax_calls, jax_handlers, jax_solve, least_squares
from stepwell.derivatives.bounded import ProblemArrays, attached, read_problem
from stepwell.derivatives.matrices import GRAM, Kind, matrix_of
from stepwell.derivatives.normal_equations import solve_free, solve_free_with_rows
from stepwell.derivatives.systems import (
    REALS,
    Outcome,
    Spec,
    as_result,
    columns_of,
    leads_of,
    multipliers_of,
    shaped_as,
    solve_folded,
)
from stepwell.lsq.batch import COUNTS
from stepwell.lsq.convolution import Convolution
from stepwell.lsq.result import LSQResult

Array = Any


def _aligned(array: Array, core: int, rank: int) -> Array:
    """Return an array with as many leading axes as the others have, so that those that ``vmap`` adds stay aligned."""
    return jnp.reshape(array, (*[1] * (rank - (array.ndim - core)), *array.shape))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _found(spec: Spec, problem: ProblemArrays) -> Outcome:
    """The solution by the host's solver, a constant of the graph."""
    lead = np.broadcast_shapes(*leads_of(problem, spec))
    n, dtype = columns_of(problem, spec), problem.b.dtype

    def shaped(last: int, kind: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((*lead, last), kind)

    shapes = Outcome(
        shaped(n, dtype), shaped(n, dtype), shaped(n, jnp.int8), shaped(len(REALS) + multipliers_of(problem), dtype),
        shaped(len(COUNTS), jnp.int32),
    )  # fmt: skip
    present = [name for name in ProblemArrays._fields if getattr(problem, name) is not None]
    given = [_aligned(getattr(problem, name), getattr(spec.axes, name), len(lead)) for name in present]

    def called(*arrays: Array) -> Outcome:
        own = dict(zip(present, arrays))
        return solve_folded(ProblemArrays(**{name: own.get(name) for name in ProblemArrays._fields}), spec)

    def by_callback(*arrays: Array) -> Outcome:
        return jax_calls.call(called, shapes, *arrays)

    if jax_handlers.handles(spec, problem):
        return jax_handlers.solve(by_callback, spec, shapes, present, *given)
    return by_callback(*given)


@_found.defjvp
def _(spec: Spec, primals: Any, tangents: Any) -> tuple[Outcome, Outcome]:
    found = _found(spec, *primals)
    rest = [
        jnp.zeros_like(array) if jnp.issubdtype(array.dtype, jnp.floating) else np.zeros(array.shape, jax.dtypes.float0)
        for array in found
    ]
    return found, Outcome(*rest)


# ---- the step ----


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _step(kind: Kind, entries: Array, free: Array, lam: Array, g: Array, C: Array | None, t: Array | None) -> Array:
    """u = 0 and ν, of no interest, of H u + Cᵀν = g, C u = t at a solution."""
    return jnp.zeros((*g.shape[:-1], g.shape[-1] + (0 if C is None else C.shape[-2])), g.dtype)


@_step.defjvp
def _(kind: Kind, primals: Any, tangents: Any) -> tuple[Array, Array]:
    entries, free, lam, g, C, t = primals
    entries_dot, _, lam_dot, g_dot, _, t_dot = tangents
    found = _step(kind, entries, free, lam, g, C, t)

    def solve(rhs: Array) -> Array:
        whole = rhs if C is None else jnp.concatenate([rhs, t_dot], axis=-1)
        return _linear_solve(kind, entries, free, lam, C, whole)

    tangent = least_squares.forward_of_solve(
        matrix_of(entries, kind), lam, found[..., : g.shape[-1]], solve,
        matrix_dot=entries_dot, lam_dot=lam_dot, g_dot=g_dot,
    )  # fmt: skip
    return found, tangent


def _linear_solve(kind: Kind, entries: Array, free: Array, lam: Array, C: Array | None, rhs: Array) -> Array:
    """u and ν of H u + Cᵀν = g, C u = t, of the g and t in rhs: a symmetric map that JAX can transpose."""
    matrix, n, inside = matrix_of(entries, kind), free.shape[-1], free > 0
    idle = None if C is None else jnp.all((C == 0) | ~inside[..., None, :], axis=-1)

    def product(whole: Array) -> Array:
        inner = jnp.where(inside, whole[..., :n], 0)
        image = matrix.normal_times(inner) + (lam * lam)[..., None] * inner
        if C is None:
            return jnp.where(inside, image, whole)
        image = image + matrix_product(whole[..., None, n:], C)[..., 0, :]
        rows = jnp.where(idle, whole[..., n:], matrix_product(C, inner[..., None])[..., 0])
        return jnp.concatenate([jnp.where(inside, image, whole[..., :n]), rows], axis=-1)

    def solved(entries: Array, free: Array, lam: Array, rhs: Array, *rows: Array) -> tuple[Array]:
        how: dict[str, Any] = dict(shape=kind if kind[0] >= 0 else None, gram=kind == GRAM)
        if not rows:
            return (solve_free(entries, free, lam, rhs, **how),)
        return (solve_free_with_rows(entries, free, lam, rhs[..., :n], rows[0], rhs[..., n:], **how),)

    def by_callback(*given: Array) -> Array:
        (found,) = jax_calls.call(solved, (jax.ShapeDtypeStruct(given[3].shape, given[3].dtype),), *given)
        return found

    def by_program(entries: Array, free: Array, lam: Array, rhs: Array, *rows: Array) -> Array:
        own = functools.partial(jax_solve.solve_free, gram=kind == GRAM)
        if not rows:
            return own(entries, free, lam, rhs)
        return solve_free_with_rows(entries, free, lam, rhs[..., :n], rows[0], rhs[..., n:], None, solve=own)

    def elsewhere(*given: Array) -> Array:
        return jax_calls.on_gpu(by_program if kind[0] < 0 else by_callback, by_callback, *given)

    def solve_by(*given: Array) -> Array:
        if C is None and jax_handlers.solves(kind, n):
            return jax_handlers.solve_normal(elsewhere, kind, *given)
        return elsewhere(*given)

    def solve(_: Any, rhs: Array) -> Array:
        rank, core = rhs.ndim - 1, 2 if kind[0] < 0 else 1
        given = [_aligned(entries, core, rank), _aligned(free, 1, rank), _aligned(lam, 0, rank), rhs]
        given += [] if C is None else [_aligned(C, 2, rank)]
        found = solve_by(*given)
        held = jnp.where(free == 0, rhs[..., :n], found[..., :n])  # the identity; of an unsolved system NaN
        return held if C is None else jnp.concatenate([held, jnp.where(idle, rhs[..., n:], found[..., n:])], axis=-1)

    found = jax.lax.custom_linear_solve(product, rhs, solve, symmetric=True)
    u = jnp.where(free == 0, 0, found[..., :n])
    return u if C is None else jnp.concatenate([u, found[..., n:]], axis=-1)


# ---- the API ----


def lsq(plain: Any, A: Any, b: Any, arrays: dict[str, Any], options: dict[str, Any]) -> LSQResult:
    """Solve, with an x that has derivatives; arguments are those of PyTorch's, `plain` is not called."""
    _register()
    traced = any(isinstance(value, jax.core.Tracer) for name, value in options.items() if name != "warm_start")
    require_kind(not traced, "options", options, "plain values")
    entries = A.pulse if isinstance(A, Convolution) else A
    dtype = jnp.result_type(jnp.asarray(entries), jnp.asarray(b), jnp.float32)

    def as_array(value: Any) -> Array:
        return jnp.asarray(value, dtype)

    arrays = arrays | {name: jnp.asarray(arrays[name]) for name in ("which", "mask") if arrays.get(name) is not None}
    if arrays.get("equality") is not None:
        C, d = arrays["equality"]
        arrays["equality"] = jax.lax.stop_gradient(jnp.asarray(C)), d
    lam, warm_start = arrays["lam"], options["warm_start"]
    chain, rule = isinstance(warm_start, str), lam if isinstance(lam, str) else ""
    warm = None if chain or warm_start is None else jnp.asarray(warm_start)
    problem, form = read_problem(A, b, as_array, **arrays | {"lam": 0.0 if rule else lam, "warm": warm})
    spec = Spec.of_call(form.kind, rule, options)
    outcome = _found(spec, jax.lax.stop_gradient(problem))
    found = outcome.reals[..., REALS.index("lam")] if rule else problem.lam

    def step(entries: Array, free: Array, lam: Array, g: Array, C: Any, t: Any, kind: Kind) -> Array:
        return _step(kind, entries, free, lam, g, C, t)

    x = attached(problem, form.kind, outcome.x, outcome.state, found, step)
    return shaped_as(as_result(outcome._replace(x=x), spec), form.lead, form.column)


@functools.cache
def _register() -> None:
    """Let results leave compiled functions: all fields are arrays but for the two texts."""
    texts = ["method", "choice", "_problem"]
    fields = [name for name in LSQResult.__dataclass_fields__ if name not in texts]
    jax.tree_util.register_dataclass(LSQResult, fields, texts)
