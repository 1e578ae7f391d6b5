"""Gradients by the libraries that differentiate: PyTorch and JAX."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from stepwell.arrays.kinds import Array, is_traced, kind_of

Function = Callable[[Any], Any]
ValueAndGradient = Callable[[Array], tuple[Any, Array]]


def _as_it_is(value: Any) -> Any:
    return value


def value_and_gradient(
    fun: Function, template: Array, *, batch: bool = False, read: Function = _as_it_is
) -> ValueAndGradient | None:
    """Return the function that evaluates `fun` and differentiates it, or None where the library cannot.

    A function that JAX has compiled already is compiled together with its gradient, once for all calls with it: tracing
    it for each gradient would take many times as long as the rest.

    Parameters
    ----------
    fun : callable
        Maps an array of the template's library to a number; for a batch, (B, n) to the B values of its rows.
    template : array
        Of the caller's library: PyTorch and JAX differentiate, NumPy and CuPy do not.
    batch : bool, default False
        Each value depends on its own row alone, so that the gradient of their sum holds the gradients of all.
    read : callable, optional
        Looks at what `fun` returns, and returns it.

    Examples
    --------
    >>> import numpy as np
    >>> value_and_gradient(np.sum, np.zeros(2)) is None
    True
    """
    kind = kind_of(template)
    if kind == "torch":
        return _by_torch(lambda point: read(fun(point)), batch)
    if kind != "jax":
        return None
    if is_compiled(fun, template):
        return _compiled_by_jax(fun, batch, read)
    return _by_jax(lambda point: read(fun(point)), batch)


def is_compiled(fun: Function, template: Array) -> bool:
    """Whether JAX compiles a function of its arrays: one of ``jax.jit``, which sees no array itself, only its trace."""
    if kind_of(template) != "jax":
        return False
    import jax

    return isinstance(fun, jax.stages.Wrapped)


def compiled(fun: Function, template: Array) -> Function | None:
    """Return a function of arrays of the template's library as a compiled one: in JAX; elsewhere None.

    Examples
    --------
    >>> import numpy as np
    >>> compiled(np.sum, np.zeros(2)) is None
    True
    """
    if kind_of(template) != "jax":
        return None
    import jax

    # A function of its own: JAX would know what it has compiled before, whatever has changed that it reads.
    function: Function = fun if is_compiled(fun, template) else jax.jit(lambda point: fun(point))
    return function


def graph_library(*values: Any) -> str | None:
    """Name the library in which a solution has to carry derivatives, or None where it has not.

    That is PyTorch where a tensor among the values asks for a gradient (and gradients are on), has a tangent, or stands
    for others in a transformation or a compilation; JAX where an array is traced.

    Examples
    --------
    >>> import numpy as np
    >>> graph_library(np.zeros(2), 0.5) is None
    True
    """
    for value in values:
        kind = kind_of(value)
        if (kind == "torch" and _in_torch_graph(value)) or (kind == "jax" and is_traced(value)):
            return kind
    return None


def differentiating_library(array: Any) -> str | None:
    """Name the library of an array where that differentiates functions: PyTorch, JAX; else None."""
    kind = kind_of(array)
    return kind if kind in ("torch", "jax") else None


def recording_library(*values: Any) -> str | None:
    """Name the library that records what is done with tensors among the values, whether or not these ask for it."""
    for value in values:
        if kind_of(value) == "torch":
            import torch

            return "torch" if torch.is_grad_enabled() else None
    return None


def _in_torch_graph(tensor: Array) -> bool:
    import torch

    if torch.compiler.is_compiling() or (tensor.requires_grad and torch.is_grad_enabled()):
        return True
    if is_transformed(tensor):
        return True
    return torch.autograd.forward_ad.unpack_dual(tensor).tangent is not None


def is_transformed(tensor: Array) -> bool:
    """Whether a tensor stands for others in a transformation of ``torch.func``: it has no values to look at."""
    import torch

    kinds = torch._C._functorch  # (the second: batches of gradients, ``is_grads_batched``)
    return bool(kinds.is_functorch_wrapped_tensor(tensor) or kinds.is_legacy_batchedtensor(tensor))


def transforming(array: Array) -> str | None:
    """Name the transformations for which an array stands for others, so that it has no values to look at; None: none.

    Examples
    --------
    >>> import numpy as np
    >>> transforming(np.zeros(2)) is None
    True
    """
    kind = kind_of(array)
    if kind == "jax" and is_traced(array):
        return "jax.grad, jit or vmap"
    return "torch.func.grad or vmap" if kind == "torch" and is_transformed(array) else None


def transformed_within(template: Array) -> str | None:
    """Name the transformations that now run and allow no gradient of a function of plain tensors; None: none."""
    if kind_of(template) != "torch":
        return None
    import torch

    return "torch.func.grad or vmap" if torch._C._functorch.peek_interpreter_stack() is not None else None


def apply_rule(rule: Any, *arguments: Any) -> Any:
    """Apply an ``autograd.Function`` to tensors that no transformation has wrapped.

    As ``rule.apply`` does there, which reads the signature of ``forward`` first: that takes longer than a small solve.
    """
    import torch

    return super(torch.autograd.Function, rule).apply(*arguments)


def refusing_writes(function: Function, name: str, template: Array) -> Function:
    """Return a function of points that raises where it has written to one: PyTorch has no read-only tensors.

    NumPy refuses by itself, and JAX has nothing that writes: there the function is returned as it is.
    """
    if kind_of(template) != "torch":
        return function

    def called(point: Any) -> Any:
        # Tensors count their changes, but for those made in inference mode.
        before = 0 if point.is_inference() else point._version
        out = function(point)
        if not point.is_inference() and point._version != before:
            raise ValueError(f"{name} changed x in place, which is the solver's; allowed: changing a copy (x.clone())")
        return out

    return called


def _by_torch(fun: Function, batch: bool) -> ValueAndGradient:
    import torch

    def evaluate(x: Array) -> tuple[Any, Array]:
        point = x.detach().requires_grad_()
        with torch.enable_grad():
            value = fun(point)
            if not (isinstance(value, torch.Tensor) and value.requires_grad):
                what = "a tensor without a graph" if isinstance(value, torch.Tensor) else type(value).__name__
                raise TypeError(
                    f"fun returned {what}; without jac PyTorch differentiates it: return a tensor computed from x, "
                    "or give jac"
                )
            if not batch and value.numel() != 1:
                raise TypeError(
                    f"fun returned a tensor of shape {tuple(value.shape)}; allowed: one number, such as the sum of its "
                    "squares"
                )
            (gradient,) = torch.autograd.grad(value.sum() if batch else value, point)
        return value.detach(), gradient

    return evaluate


def _by_jax(fun: Function, batch: bool) -> ValueAndGradient:
    import jax

    if not batch:
        derivative: ValueAndGradient = jax.value_and_grad(fun)
        return derivative

    def total(point: Array) -> tuple[Any, Any]:
        values = fun(point)
        return values.sum(), values

    derivative_of_total = jax.value_and_grad(total, has_aux=True)

    def evaluate(point: Array) -> tuple[Any, Array]:
        (_, values), gradient = derivative_of_total(point)
        return values, gradient

    return evaluate


#: Compiled gradients of functions that are still there: they hold these by weak references alone.
_gradients: weakref.WeakKeyDictionary[Any, dict[tuple[bool, Function], ValueAndGradient]] = weakref.WeakKeyDictionary()


def _compiled_by_jax(fun: Function, batch: bool, read: Function) -> ValueAndGradient:
    import jax

    known, key = _gradients.setdefault(fun, {}), (batch, read)
    if key not in known:
        held = weakref.ref(fun)

        def function(point: Array) -> Any:
            alive = held()
            assert alive is not None
            return read(alive(point))

        known[key] = jax.jit(_by_jax(function, batch))
    derivative = known[key]

    # Whoever has the gradient keeps the function; what is kept for later runs does not.
    def evaluate(point: Array, _kept: Function = fun) -> tuple[Any, Array]:
        return derivative(point)

    return evaluate
