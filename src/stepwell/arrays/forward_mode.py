"""Derivatives of functions of many rows by forward mode, in PyTorch and JAX: n tangents of the whole batch at once.

Rows are independent, so that one tangent e_j serves all of them. Of a function of columns each tangent goes through
what depends on its column alone. A function that takes one row only is mapped.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from stepwell.arrays.kinds import Array, kind_of


class Batched(Protocol):
    """A caller's function of points (k, n) and rows, and of further arrays x."""

    def at(self, x: Any, p: Any, rows: Any) -> Any:
        """Return values (k, m)."""

    def of_columns(self, x: Any) -> Callable[..., Any] | None:
        """Return it as a function of the columns (k, 1) of p; None where it takes p as one array."""

    def one(self, x: Any, q: Any, row: Any) -> Any:
        """Return values (m,) of one row."""

    def refused(self, shape: tuple[int, ...], rows: int, points: int | None) -> Exception:
        """Return the error for values of another shape."""

    def keyed(self) -> tuple[Any, ...] | None:
        """Return the caller's function and how it is called; None where what is compiled of it is not kept."""

    def weakly(self) -> Batched:
        """Return the same by a weak reference to the caller's function."""


class Programs:
    """Values (k, m), columns of J (n, k, m), and both at once, of a function of x, points and rows."""

    def __init__(self, values: Callable[..., Any], columns: Callable[..., Any], both: Callable[..., Any]) -> None:
        self.values, self.columns, self.both = values, columns, both


#: Compiled programs of functions that are still there.
_kept: weakref.WeakKeyDictionary[Any, dict[Any, Programs]] = weakref.WeakKeyDictionary()


def programs_for(function: Batched, template: Array, points: int | None) -> Programs:
    """Return values and derivatives of a function by the library of an array."""
    return programs_of(function, kind_of(template), points)


def programs_of(function: Batched, kind: str | None, points: int | None) -> Programs:
    """Return values and derivatives of a function by its library; what is compiled is kept for the next call."""
    if kind == "torch":
        return _by_torch(function, points)
    import jax

    # Of a function that is compiled already; another may read what has changed since.
    keyed = function.keyed()
    if keyed is None or not isinstance(keyed[0], jax.stages.Wrapped):
        return _by_jax(function, points)
    known, key = _kept.setdefault(keyed[0], {}), (*keyed[1:], points)
    if key not in known:
        # (By a weak reference: what is kept must not keep the function.)
        known[key] = _by_jax(function.weakly(), points)
    return known[key]


def compiled_template(fun: Any) -> Array | None:
    """Return a number of JAX where a function is one of ``jax.jit``; None elsewhere."""
    jax = sys.modules.get("jax")
    return jax.numpy.zeros(()) if jax is not None and isinstance(fun, jax.stages.Wrapped) else None


def _fits(found: Any, p: Any, points: int | None) -> bool:
    shape = tuple(getattr(found, "shape", ()))
    return len(shape) == 2 and shape[0] == p.shape[0] and points in (None, shape[1])


def jax_function(function: Any, points: int | None) -> Callable[[Any, Any, Any], Any]:
    """Return a model as a function of x, points (k, n) and rows in JAX; one of a single problem is mapped."""
    import jax

    def batched(x: Any, p: Any, rows: Any) -> Any:
        first: Exception | None = None
        try:
            found = function.at(x, p, rows)
            if _fits(found, p, points):
                return found
            first = function.refused(tuple(getattr(found, "shape", ())), p.shape[0], points)
        except (TypeError, ValueError, jax.errors.JAXTypeError) as error:
            first = error
        try:  # a function of one problem
            own = hasattr(x, "ndim") and x.ndim >= 2 and x.shape[-2] == p.shape[0] and getattr(function, "own", False)
            return jax.vmap(lambda q, row, z: function.one(z, q, row), in_axes=(0, 0, -2 if own else None))(p, rows, x)
        except Exception:
            raise first from None

    return batched


def _by_jax(function: Any, points: int | None) -> Programs:
    import jax
    import jax.numpy as jnp

    batched = jax_function(function, points)

    def apart(x: Any, p: Any) -> list[Any] | None:
        called, n = function.of_columns(x), p.shape[1]
        if called is None:
            return None
        given = [p[:, j : j + 1] for j in range(n)]

        def along(j: int) -> Any:
            def moved(column: Any) -> Any:
                return called(*given[:j], column, *given[j + 1 :])

            return jax.jvp(moved, (given[j],), (jnp.ones_like(given[j]),))[1]

        try:
            found = [along(j) for j in range(n)]
        except (TypeError, ValueError, jax.errors.JAXTypeError):
            return None
        return found if all(_fits(one, p, points) for one in found) else None

    def columns(x: Any, p: Any, rows: Any) -> Any:
        n, found = p.shape[1], apart(x, p)
        if found is not None:
            return jnp.stack(found)

        def along(tangent: Any) -> Any:
            return jax.jvp(lambda q: batched(x, q, rows), (p,), (jnp.broadcast_to(tangent, p.shape),))[1]

        return jax.vmap(along)(jnp.eye(n, dtype=p.dtype))

    def both(x: Any, p: Any, rows: Any) -> Any:  # (what they share is found by the compiler)
        return batched(x, p, rows), columns(x, p, rows)

    return Programs(jax.jit(batched), jax.jit(columns), jax.jit(both))


def torch_function(function: Any, points: int | None) -> Callable[[Any, Any, Any], Any]:
    """Return a model as a function of x, points (k, n) and rows of tensors; one of a single problem is mapped."""
    import torch

    state: dict[str, bool] = {}

    def at(x: Any, p: Any, rows: Any) -> Any:
        if not state.get("one"):
            try:
                found = function.at(x, p, rows)
                if _fits(found, p, points):
                    return found
                first: Exception = function.refused(tuple(getattr(found, "shape", ())), p.shape[0], points)
            except (TypeError, ValueError, RuntimeError) as error:
                first = error
            if "one" in state:
                raise first
            try:
                found = torch.func.vmap(lambda q: function.one(x, q, None))(p)
            except Exception:
                raise first from None
            state["one"] = True
            return found
        return torch.func.vmap(lambda q: function.one(x, q, None))(p)

    return at


def _by_torch(function: Any, points: int | None) -> Programs:
    import torch

    from stepwell.arrays.torch_duals import by_columns

    at = torch_function(function, points)
    state: dict[str, bool] = {}

    def values(x: Any, p: Any, rows: Any) -> Any:
        with torch.no_grad():
            return at(x, p, rows)

    def tangents_of(x: Any, p: Any, rows: Any) -> tuple[Callable[[Any], Any], Any]:
        tangents = torch.eye(p.shape[1], dtype=p.dtype, device=p.device)
        return lambda one: torch.func.jvp(lambda q: at(x, q, rows), (p,), (one.expand(p.shape),)), tangents

    def apart(x: Any, p: Any) -> tuple[Any, Any] | None:
        called = None if state.get("together") else function.of_columns(x)
        if called is not None:
            try:
                return by_columns(called, p, points)
            except Exception:  # whatever has no rule there
                state["together"] = True
        return None

    def columns(x: Any, p: Any, rows: Any) -> Any:
        with torch.no_grad():
            found = apart(x, p)
            if found is not None:
                return found[1]
            along, tangents = tangents_of(x, p, rows)
            if state.get("one by one"):
                return torch.stack([along(tangent)[1] for tangent in tangents])
            try:
                return torch.func.vmap(lambda one: along(one)[1])(tangents)
            except RuntimeError:  # functions that look at values: one tangent after the other
                state["one by one"] = True
                return torch.stack([along(tangent)[1] for tangent in tangents])

    def both(x: Any, p: Any, rows: Any) -> Any:
        with torch.no_grad():
            found = apart(x, p)
            if found is not None:
                return found
            if not state.get("one by one"):
                along, tangents = tangents_of(x, p, rows)
                # (Values do not depend on the tangent: they are found once.)
                with contextlib.suppress(RuntimeError, ValueError):
                    return torch.func.vmap(along, out_dims=(None, 0))(tangents)
            return values(x, p, rows), columns(x, p, rows)

    return Programs(values, columns, both)
