"""NNLS and bounded least squares as calls of XLA's programs on the CPU (``jax.ffi``), where the module has handlers.

The handlers are registered at first use. Where they are missing or JAX refuses them, and on other platforms than the
CPU, the callback serves: same answers, some tens of microseconds and the GIL dearer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from stepwell import _core
from stepwell.common.threads import default_threads
from stepwell.derivatives import bounded_systems
from stepwell.derivatives.bounded import Problem
from stepwell.derivatives.matrices import GRAM
from stepwell.derivatives.systems import Outcome, Spec
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


def solve_nnls(by_callback: Callable[..., Outcome], spec: Spec, shapes: Outcome, *given: Array) -> Outcome:
    """Solve systems, (entries, b, λ), by the handler on the CPU, by the callback elsewhere."""
    entries, b, _ = given
    attributes = _attributes(spec, tuple(entries.shape), int(b.shape[-1]))

    def by_handler(*given: Array) -> Outcome:
        call = jax.ffi.ffi_call("stepwell_nnls", tuple(shapes), vmap_method="expand_dims")
        return Outcome(*call(*given, **attributes))

    return Outcome(*jax.lax.platform_dependent(*given, cpu=by_handler, default=by_callback))


def handles(spec: Spec, entries: Array, b: Array, warm: Array | None) -> bool:
    """Whether the handler takes such systems: not those without rows, nor a warm start, nor a square Q."""
    full = b.shape[-1] > 0 and entries.shape[-1] > 0 and (spec.rows < 0 or spec.columns > 0)
    return registered() and full and warm is None and spec.update != "rotations"


def handles_bounded(spec: bounded_systems.Spec, problem: Problem) -> bool:
    """Whether the handler takes such problems: bounds, a sum, weights, a mask, λ; no L, rule, equality, warm start."""
    more = (problem.L, problem.C, problem.warm)
    full = problem.b.shape[-1] > 0 and problem.entries.shape[-1] > 0 and problem.lower.shape[-1] > 0
    return registered() and full and spec.kind != GRAM and not spec.rule and all(one is None for one in more)


def solve_bounded(
    by_callback: Callable[..., Any], spec: bounded_systems.Spec, shapes: Any, present: list[str], *given: Array
) -> Any:
    """Solve problems, whose fields `present` are given, by the handler on the CPU, by the callback elsewhere."""
    own = dict(zip(present, given))
    attributes = _attributes(spec, tuple(own["entries"].shape), int(own["b"].shape[-1]))
    del attributes["update"]
    for name, field in (("summed", "sum_low"), ("weighted", "weights"), ("masked", "mask")):
        attributes[name] = np.int32(field in own)
    always = ("entries", "b", "lower", "upper", "lam")
    order = [present.index(name) for name in (*always, "sum_low", "sum_high", "weights", "mask") if name in own]

    def by_handler(*given: Array) -> Any:
        call = jax.ffi.ffi_call("stepwell_lsq", tuple(shapes), vmap_method="expand_dims")
        return bounded_systems.Outcome(*call(*(given[k] for k in order), **attributes))

    return bounded_systems.Outcome(*jax.lax.platform_dependent(*given, cpu=by_handler, default=by_callback))


def _attributes(spec: Any, shape: tuple[int, ...], rows: int) -> dict[str, Any]:
    """Check the options as a plain call does, on arrays that hold nothing, and return what the handler is told."""
    update = getattr(spec, "update", "cgs2")
    core = 2 if spec.rows < 0 else 1
    entries = np.broadcast_to(np.ones(()), shape[-core:])
    matrix: Any = entries
    if spec.rows >= 0:
        matrix = Convolution(np.ones(shape[-1]), spec.columns, m=spec.rows, origin=spec.origin)
    batch = check(
        matrix, np.broadcast_to(np.ones(()), (rows,)), spec.method, spec.insertion, update, 0.0,
        "chain" if spec.chain else None, spec.maxiter, spec.tol, spec.threads, None, 0,
    )  # fmt: skip
    whole = {
        "rows": spec.rows,
        "columns": spec.columns,
        "origin": spec.origin,
        "method": _METHODS[spec.method],
        "update": UPDATE_CODES[update],
        "guarded": batch.guarded,
        "chain": batch.chain,
        "max_solves": batch.max_iter,
        "threads": batch.threads or default_threads(),
    }
    return {name: np.int32(value) for name, value in whole.items()} | {
        "tolerance": np.float64(batch.tolerance),
        "rounding": np.float64(batch.rounding),
    }


def solve_normal(elsewhere: Callable[..., Array], shape: tuple[int, int, int] | None, *given: Array) -> Array:
    """Solve the normal equations, (entries, free, λ, g), by the handler on the CPU."""
    g = given[-1]
    rows, _, origin = (-1, 0, 0) if shape is None else shape

    def by_handler(*given: Array) -> Array:
        result = jax.ShapeDtypeStruct(g.shape, g.dtype)
        call = jax.ffi.ffi_call("stepwell_normal_solve", result, vmap_method="expand_dims")
        return call(*given, rows=np.int32(rows), origin=np.int32(origin), threads=np.int32(default_threads()))

    return jax.lax.platform_dependent(*given, cpu=by_handler, default=elsewhere)
