"""Minimisers in the graphs of PyTorch, by re-attachment.

The minimiser is found without a graph and put at its bounds with theirs; there the gradient of f is evaluated once with
a graph, and x − H_FF⁻¹ ∇f_F is returned: a Newton step in the free variables F, which squares the error of x. Through
it derivatives reach whatever f has used. H_FF⁻¹, applied by conjugate gradients with products by autograd, is a
constant of the graph: first derivatives alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from stepwell.arrays import without_graph
from stepwell.derivatives.torch_linear import Inverse
from stepwell.krylov.calls import solve_cg
from stepwell.quasi_newton.api import minimize


def argmin(fun: Any, x0: Any, theta: tuple[Any, ...], bounds: Any, options: Any, fail: Any) -> Tensor:
    """As `stepwell.argmin`, for tensors; ``fail(message, x)`` says what becomes of a point that is no minimiser."""
    start = x0.detach()
    lower, upper = (None, None) if bounds is None else bounds
    fixed = [without_graph(one) for one in theta]
    box = None if bounds is None else (without_graph(lower), without_graph(upper))
    result = minimize(lambda x: fun(x, *fixed), start, bounds=box, options=options)
    x = result.x
    held = torch.zeros_like(x, dtype=torch.bool)
    base = x
    # Of equal bounds the lower one gets the derivative.
    for bound in (upper, lower):
        if bound is not None:
            limit = torch.as_tensor(bound, dtype=x.dtype, device=x.device).expand(x.shape)
            at = x == limit.detach()
            base, held = torch.where(at, limit, base), held | at
    free = (~held).reshape(-1).nonzero()[:, 0]
    with torch.enable_grad():
        point = base.clone() if base.requires_grad else base.detach().clone().requires_grad_()
        (gradient,) = torch.autograd.grad(fun(point, *theta), point, create_graph=True)
    trouble = [] if result.success else [str(result.message)]
    if not gradient.requires_grad:
        return fail(trouble, base)
    if not free.numel():  # derivatives of zero, where there is something to have them
        return fail(trouble, base.reshape(-1).index_add(0, free, gradient.reshape(-1)[free]).reshape(x.shape))

    def product(v: Tensor) -> Tensor:
        whole = torch.zeros_like(gradient).reshape(-1).index_copy(0, free, v)
        found = torch.autograd.grad(
            gradient, point, whole.reshape(gradient.shape), retain_graph=True, allow_unused=True
        )
        return torch.zeros_like(v) if found[0] is None else found[0].detach().reshape(-1)[free]

    def solve(rhs: Tensor, told: list[str] | None = None) -> Tensor:
        found = solve_cg(product, rhs.detach().contiguous(), tol=1e-10)
        if found.status.name == "BREAKDOWN":
            text = "the Hessian of fun is not positive definite in the free variables: x is no strict minimiser"
            if told is None:
                return fail([text], found.x)
            told.append(text)
        return found.x

    def move(rhs: Tensor) -> Tensor:
        """The step of Newton, where it leads to no bound."""
        step = solve(rhs, trouble)
        new = base.detach().reshape(-1)[free] - step
        inside = torch.isfinite(new).all()
        for bound, sign in ((lower, 1.0), (upper, -1.0)):
            if bound is not None:
                limit = torch.as_tensor(bound, dtype=x.dtype, device=x.device).detach().expand(x.shape)
                inside = inside & (sign * (new - limit.reshape(-1)[free]) > 0).all()
        return step if bool(inside) else torch.zeros_like(step)

    step = Inverse.apply(gradient.reshape(-1)[free], solve, move)
    moved = base.reshape(-1).index_add(0, free, -step).reshape(x.shape)
    return fail(trouble, moved)
