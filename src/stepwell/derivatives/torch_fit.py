"""Fits in the graphs of PyTorch, by re-attachment: x keeps its bits and gets derivatives."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from stepwell.arrays import without_graph
from stepwell.arrays.forward_mode import torch_function
from stepwell.derivatives.fit import Given, costs
from stepwell.fit.result import FitResult


def curve_fit(solver: Callable[..., FitResult], given: Given, parts: dict[str, Any]) -> FitResult:
    """Fit without a graph, then attach x to whatever of `parts` has one: xdata, ydata, sigma, lower, upper."""
    found = solver(**{name: without_graph(value) for name, value in parts.items()})
    flat = found.x.detach().reshape(-1, found.x.shape[-1])
    attached = _attached(found, flat, given, parts)
    return dataclasses.replace(found, x=attached.reshape(found.x.shape))


def _attached(found: FitResult, x: Tensor, given: Given, parts: dict[str, Any]) -> Tensor:
    B, n = x.shape
    state = found.active_mask.reshape(x.shape)

    def rows(value: Any, width: int) -> Tensor:
        made = torch.as_tensor(value, dtype=x.dtype, device=x.device)
        return made.expand(*given.lead, width).reshape(B, width)

    base = x
    for side, name in ((1, "upper"), (-1, "lower")):  # of equal bounds the lower one
        if isinstance(parts[name], Tensor):
            limit = rows(parts[name], n)
            base = torch.where((state == side) | ((state == 2) & (limit.detach() == x)), limit, base)
    y = parts["ydata"]
    m = int(y.shape[-1])
    data = rows(y, m)
    weights = None if parts["sigma"] is None else 1 / rows(parts["sigma"], m)
    good = torch.isfinite(torch.as_tensor(found.cost, device=x.device)).reshape(B, 1)
    counts = torch.isfinite(data.detach()) & good
    if given.mask is not None:
        counts = counts & (rows(given.mask, m) != 0)
    if weights is not None:
        counts = counts & (weights.detach() > 0)
    at = torch_function(given.curve, m)
    which = torch.arange(B, device=x.device)
    abscissa = given.abscissa(parts["xdata"])
    with torch.enable_grad():
        point = base.clone() if base.requires_grad else base.detach().clone().requires_grad_()
        total = costs(torch, given.loss, given.scale, at(abscissa, point, which), data, weights, counts)
        (g,) = torch.autograd.grad(torch.where(counts, total, torch.zeros_like(total)).sum(), point, create_graph=True)
    columns = [torch.autograd.grad(g[:, j].sum(), point, retain_graph=True, allow_unused=True)[0] for j in range(n)]
    hessian = torch.stack([torch.zeros_like(x) if one is None else one.detach() for one in columns], dim=2)
    free = (state == 0) & good
    both = free[:, :, None] & free[:, None, :]
    eye = torch.eye(n, dtype=x.dtype, device=x.device).expand(B, n, n)
    matrix = torch.where(both, hessian, eye)
    step = torch.linalg.solve_ex(matrix, torch.where(free, g, torch.zeros_like(g))[..., None])[0][..., 0]
    return base - (step - step.detach())
