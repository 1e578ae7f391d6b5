"""NNLS and bounded least squares as calls of XLA's programs on the CPU (``jax.ffi``), where the module has handlers.

The handlers are registered at first use. Where they are missing or JAX refuses them, and on other platforms than the
CPU, the callback serves: same answers, some tens of microseconds and the GIL dearer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stepwell import _core
from stepwell.common.threads import default_threads
from stepwell.derivatives.bounded import ProblemArrays
from stepwell.derivatives.matrices import GRAM, Kind
from stepwell.derivatives.systems import Outcome, Spec, columns_of
from stepwell.lsq.arguments import check
from stepwell.lsq.batch import UPDATE_CODES
from stepwell.lsq.convolution import Convolution

Array = Any
_METHODS = {"auto": 0, "qr": 1, "gram": 2}


@functools.cache
def registered() -> bool:
    """Register the handlers; whether there are any, and JAX takes them."""
    handlers = getattr(_core, "JAX_HANDLERS", {})
    try:
        for name, capsule in handlers.items():
            jax.ffi.register_ffi_target(name, capsule, platform="cpu")
    except Exception:  # of another version of the interface, say: the callbacks serve
        return False
    return bool(handlers)


def handles(spec: Spec, problem: ProblemArrays) -> bool:
    """Whether a handler takes such problems: bounds, a sum, weights, a mask, λ; no L, rule, equality, warm start."""
    more: tuple[Any, ...] = (problem.L, problem.C, problem.warm)
    more += () if problem.lower is not None else (problem.sum_low, problem.weights, problem.mask)
    full = 0 not in (problem.b.shape[-1], problem.entries.shape[-1], columns_of(problem, spec))
    return registered() and full and spec.kind != GRAM and not spec.rule and all(one is None for one in more)


def solve(
    by_callback: Callable[..., Outcome], spec: Spec, shapes: Outcome, present: list[str], *given: Array
) -> Outcome:
    """Solve problems, whose fields `present` are given, by the handler on the CPU, by the callback elsewhere."""
    own = dict(zip(present, given))
    attributes = _attributes(spec, tuple(own["entries"].shape), int(own["b"].shape[-1]))
    by_handler = _by_bounded if "lower" in own else _by_nonnegative

    def handled(*given: Array) -> Outcome:
        return by_handler(dict(zip(present, given)), shapes, attributes)

    return Outcome(*jax.lax.platform_dependent(*given, cpu=handled, default=by_callback))


def _by_nonnegative(own: dict[str, Array], shapes: Outcome, attributes: dict[str, Any]) -> Outcome:
    x, lead, dtype = shapes.x, shapes.x.shape[:-1], shapes.x.dtype
    results = (x, x, jax.ShapeDtypeStruct(x.shape, bool), jax.ShapeDtypeStruct((*lead, 2), dtype), shapes.counts)
    call = jax.ffi.ffi_call("stepwell_nnls", results, vmap_method="expand_dims")
    given = [own[name] for name in ("entries", "b", "lam")]
    x, dual, in_factor, reals, counts = call(*given, **attributes, update=np.int32(UPDATE_CODES["cgs2"]))
    more = [jnp.zeros((*lead, 1), dtype), jnp.broadcast_to(own["lam"], lead)[..., None]]
    return Outcome(x, dual, in_factor.astype(jnp.int8) - 1, jnp.concatenate([reals, *more], axis=-1), counts)


def _by_bounded(own: dict[str, Array], shapes: Outcome, attributes: dict[str, Any]) -> Outcome:
    for name, field in (("summed", "sum_low"), ("weighted", "weights"), ("masked", "mask")):
        attributes = attributes | {name: np.int32(field in own)}
    order = ("entries", "b", "lower", "upper", "lam", "sum_low", "sum_high", "weights", "mask")
    call = jax.ffi.ffi_call("stepwell_lsq", tuple(shapes), vmap_method="expand_dims")
    return Outcome(*call(*(own[name] for name in order if name in own), **attributes))


def _attributes(spec: Spec, shape: tuple[int, ...], rows: int) -> dict[str, Any]:
    """Check the options as a plain call does, on arrays that hold nothing, and return what the handler is told."""
    core = 2 if spec.rows < 0 else 1
    entries = np.broadcast_to(np.ones(()), shape[-core:])
    matrix: Any = entries
    if spec.rows >= 0:
        matrix = Convolution(np.ones(shape[-1]), spec.columns, m=spec.rows, origin=spec.origin)
    batch = check(
        matrix, np.broadcast_to(np.ones(()), (rows,)), warm_start="chain" if spec.chain else None, **spec.options
    )
    whole = {
        "rows": spec.rows,
        "columns": spec.columns,
        "origin": spec.origin,
        "method": _METHODS[spec.method],
        "threads": batch.threads or default_threads(),
    }
    whole |= {name: getattr(batch.options, name) for name in ("guarded", "chain", "max_solves")}
    reals = {name: np.float64(getattr(batch.options, name)) for name in ("tolerance", "rounding")}
    return {name: np.int32(value) for name, value in whole.items()} | reals


def solves(kind: Kind, columns: int) -> bool:
    """Whether there is a handler for the solves of derivatives with such matrices."""
    return kind != GRAM and columns > 0 and registered()


def solve_normal(elsewhere: Callable[..., Array], kind: Kind, *given: Array) -> Array:
    """Solve the normal equations, (entries, free, λ, g), by the handler on the CPU."""
    g = given[-1]
    rows, _, origin = kind

    def by_handler(*given: Array) -> Array:
        result = jax.ShapeDtypeStruct(g.shape, g.dtype)
        call = jax.ffi.ffi_call("stepwell_normal_solve", result, vmap_method="expand_dims")
        return call(*given, rows=np.int32(rows), origin=np.int32(origin), threads=np.int32(default_threads()))

    return jax.lax.platform_dependent(*given, cpu=by_handler, default=elsewhere)
