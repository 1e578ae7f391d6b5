"""``argmin``: minimisers of a function as functions of its parameters and bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import numpy as np

from stepwell.arrays import Array, describe_home, is_array
from stepwell.arrays.bounds import split_bounds
from stepwell.common.checks import WrongKind, read_choice, require_function, require_instance, warn_caller
from stepwell.common.keywords import keywords_told
from stepwell.derivatives import differentiating_plug
from stepwell.quasi_newton.options import Options

Failure = Literal["warn", "raise", "nan"]

#: x is to be so good that one step of Newton makes it exact to rounding.
TIGHT = {"gtol": 1e-9, "ftol": 0.0}


@keywords_told
def argmin(
    fun: Callable[..., Any],
    x0: Array,
    *theta: Any,
    bounds: Any = None,
    options: Options | None = None,
    on_failure: Failure = "warn",
) -> Array:
    """Return the x that minimises ``fun(x, *theta)``, with its derivatives in the parameters and the bounds.

    PyTorch: x has a graph that leads to `theta`, to the bounds and to every tensor that `fun` has captured (first
    derivatives). JAX: x can be differentiated in `theta` and the bounds, forwards, backwards and again, outside of
    ``jit`` and ``vmap``; what `fun` captures is constant.

    Parameters
    ----------
    fun : callable
        ``fun(x, *theta) -> f``, twice differentiable, in the operations of x0's library. In JAX it is evaluated as it
        is: one that is compiled, ``jax.jit(fun)``, is faster by far.
    x0 : array
        Starting point, a tensor of PyTorch or an array of JAX. It has no derivative.
    *theta : arrays
        Parameters.
    bounds : optional
        As in `stepwell.minimize`; a tuple (lower, upper) of arrays has derivatives. A variable at its bound moves with
        it; of equal bounds, with the lower one.
    options : dict, optional
        As in `stepwell.minimize`; by default ``gtol`` is 1e-9 and ``ftol`` 0, and a step of Newton in the free
        variables takes off what is left (PyTorch).
    on_failure : {"warn", "raise", "nan"}, default "warn"
        What happens where the run has not converged or x is no strict minimiser.

    Returns
    -------
    array
        Of x0's kind and shape.

    Examples
    --------
    >>> import torch, stepwell  # doctest: +SKIP
    >>> c = torch.tensor([0.3, 2.0], requires_grad=True)  # doctest: +SKIP
    >>> fun = lambda x, c: ((x - c) ** 2).sum()  # doctest: +SKIP
    >>> x = stepwell.argmin(fun, torch.zeros(2), c, bounds=(0.0, 1.0))  # doctest: +SKIP
    >>> x.sum().backward()  # doctest: +SKIP
    >>> x.detach(), c.grad.abs()  # doctest: +SKIP
    (tensor([0.3000, 1.0000]), tensor([1., 0.]))
    """
    require_function("fun", fun, optional=False)
    read_choice("on_failure", on_failure, get_args(Failure))
    require_instance("options", options, dict, optional=True)
    plug = differentiating_plug(x0)
    if plug is None:
        what = describe_home(x0) if is_array(x0) else type(x0).__name__
        raise WrongKind(f"x0 is {what}; allowed: a tensor of PyTorch or an array of JAX, which differentiate fun")
    box = split_bounds(bounds, shape=tuple(map(int, x0.shape)))
    return plug.argmin(fun, x0, theta, box, {**TIGHT, **(options or {})}, _failing(on_failure))


def _failing(on_failure: str) -> Callable[[list[str], Array], Array]:
    """Return what a plug calls with troubles, in words, and x."""

    def fail(troubles: list[str], x: Array) -> Array:
        # Rounding that leaves nothing to gain is as good as the tolerance: Newton takes off the rest.
        told = [text for text in troubles if "round" not in text]
        if not told:
            return x
        message = f"argmin: {'; '.join(dict.fromkeys(told))}"
        if on_failure == "raise":
            raise RuntimeError(message)
        if on_failure == "nan":
            return x * np.nan
        warn_caller(message)
        return x

    return fail
