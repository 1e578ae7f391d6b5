"""``tikhonov`` and ``cg`` in the graphs of PyTorch.

Dense matrices of moderate size get rules of every order. Operators, functions that capture parameters, sparse and
large matrices are *re-attached*: X is found without a graph, the gradient of what it minimises is evaluated there
once with one, and the solution is X + H⁻¹ times that gradient. It is zero, but derivatives flow through it to
whatever the operator is made of. H⁻¹ itself is a constant there: first derivatives only.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy.sparse import issparse
from scipy.sparse.linalg import LinearOperator
from torch import Tensor

from stepwell.arrays import matrix_product, without_graph
from stepwell.arrays.autograd import is_transformed
from stepwell.common.checks import read_axis, require, require_kind, warn_caller
from stepwell.derivatives import linear
from stepwell.krylov import calls
from stepwell.krylov.choosing import DIRECT_SIZE
from stepwell.krylov.results import LinearResult
from stepwell.operators import Operator, as_operator, from_functions

plain_cg: Any = calls.solve_cg
plain_tikhonov: Any = calls.solve_tikhonov

# ---- the operations: blocks of columns with any leading axes ----


@torch.library.custom_op("stepwell::tikhonov", mutates_args=())
def _tikhonov(
    A: Tensor, B: Tensor, lam: Tensor, L: Tensor | None, method: str, tol: float, maxiter: int | None
) -> Tensor:
    def solve(B: Tensor, A: Tensor, lam: Tensor, L: Tensor | None) -> Tensor:
        one = lam if lam.shape[0] > 1 else lam[0]
        return plain_tikhonov(A, B, one, L, method=method, tol=tol, maxiter=maxiter).x

    return linear.over_blocks(solve, B, (A, 2), (lam, 1), (L, 2)).contiguous().clone()


@_tikhonov.register_fake
def _(A: Tensor, B: Tensor, lam: Tensor, L: Tensor | None, method: str, tol: float, maxiter: int | None) -> Tensor:
    lead = torch.broadcast_shapes(A.shape[:-2], B.shape[:-2], lam.shape[:-1], *([] if L is None else [L.shape[:-2]]))
    return B.new_empty((*lead, A.shape[-1], B.shape[-1]))


@torch.library.custom_op("stepwell::cg", mutates_args=())
def _cg(H: Tensor, B: Tensor, method: str, tol: float, maxiter: int | None) -> Tensor:
    def solve(B: Tensor, H: Tensor) -> Tensor:
        return plain_cg(H, B, method=method, tol=tol, maxiter=maxiter).x

    return linear.over_blocks(solve, B, (H, 2)).contiguous().clone()


@_cg.register_fake
def _(H: Tensor, B: Tensor, method: str, tol: float, maxiter: int | None) -> Tensor:
    lead = torch.broadcast_shapes(H.shape[:-2], B.shape[:-2])
    return B.new_empty((*lead, *B.shape[-2:]))


def _in_front(tensor: Tensor | None, axis: int | None, rank: int) -> Tensor | None:
    """Bring the axis of ``vmap`` to the front, a one where there is none, before `rank` axes."""
    if tensor is None:
        return None
    moved = tensor.unsqueeze(0) if axis is None else tensor.movedim(axis, 0)
    return moved.reshape(moved.shape[0], *[1] * (rank - moved.ndim + 1), *moved.shape[1:])


@_tikhonov.register_vmap
def _(info: Any, axes: Any, A: Tensor, B: Tensor, lam: Tensor, L: Tensor | None, *rest: Any) -> Any:
    given = [(A, 2), (B, 2), (lam, 1), (L, 2)]
    lead = max(t.ndim - (d is not None) - c for (t, c), d in zip(given, axes) if t is not None)
    return _tikhonov(*(_in_front(t, d, lead + c) for (t, c), d in zip(given, axes)), *rest), 0


@_cg.register_vmap
def _(info: Any, axes: Any, H: Tensor, B: Tensor, *rest: Any) -> Any:
    lead = max(t.ndim - (d is not None) for t, d in zip((H, B), axes))
    return _cg(_in_front(H, axes[0], lead), _in_front(B, axes[1], lead), *rest), 0


# ---- their derivatives ----


class _Cg(torch.autograd.Function):
    """H⁻¹B, closed under differentiation: its rules are solves of the same kind."""

    generate_vmap_rule = True

    @staticmethod
    def forward(H: Tensor, B: Tensor, found: Any, method: str, tol: float, maxiter: int | None) -> Tensor:
        return torch.ops.stepwell.cg(H, B, method, tol, maxiter) if found is None else found.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        ctx.how = inputs[3:]
        ctx.save_for_backward(inputs[0], output)
        ctx.save_for_forward(inputs[0], output)

    @staticmethod
    def backward(ctx: Any, G: Tensor) -> Any:
        H, X = ctx.saved_tensors
        U = _solved(H, G, ctx.how)
        own = -(matrix_product(U, X.mT) + matrix_product(X, U.mT)) / 2 if ctx.needs_input_grad[0] else None
        return own, U, None, None, None, None


class _CgWithTangents(_Cg):
    """The same with a forward rule."""

    @staticmethod
    def jvp(ctx: Any, H_dot: Any, B_dot: Any, *others: Any) -> Tensor:
        H, X = ctx.saved_tensors
        rhs = X * 0 if B_dot is None else B_dot
        return _solved(H, rhs if H_dot is None else rhs - matrix_product((H_dot + H_dot.mT) / 2, X), ctx.how)


def _solved(H: Tensor, B: Tensor, how: tuple[Any, ...]) -> Tensor:
    rule = _Cg if torch.compiler.is_compiling() else _CgWithTangents
    return rule.apply(H, B, None, *how)


class _Tikhonov(torch.autograd.Function):
    """X of ``tikhonov`` for dense matrices; λ has one entry, or one a column."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        A: Tensor, B: Tensor, lam: Tensor, L: Any, found: Any, method: str, tol: float, maxiter: int | None
    ) -> Tensor:
        return torch.ops.stepwell.tikhonov(A, B, lam, L, method, tol, maxiter) if found is None else found.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        A, B, lam, L, _, _, ctx.tol, _ = inputs
        ctx.save_for_backward(A, B, lam, L, output)
        ctx.save_for_forward(A, B, lam, L, output)

    @staticmethod
    def backward(ctx: Any, G: Tensor) -> Any:
        A, B, lam, L, X = ctx.saved_tensors
        own, data, shrink, penalty = linear.reverse(A, B, lam, L, X, _normal_solve(A, lam, L, G, ctx.tol))
        if lam.shape[0] == 1:
            shrink = shrink.sum(0, keepdim=True)
        return own, data, shrink, penalty, None, None, None, None


class _TikhonovWithTangents(_Tikhonov):
    """The same with a forward rule."""

    @staticmethod
    def jvp(ctx: Any, A_dot: Any, B_dot: Any, lam_dot: Any, L_dot: Any, *others: Any) -> Tensor:
        A, B, lam, L, X = ctx.saved_tensors
        return linear.forward(
            A, B, lam, L, X, lambda rhs: _normal_solve(A, lam, L, rhs, ctx.tol),
            A_dot=A_dot, B_dot=B_dot, lam_dot=lam_dot, L_dot=L_dot,
        )  # fmt: skip


def _normal_solve(A: Tensor, lam: Tensor, L: Tensor | None, G: Tensor, tol: float) -> Tensor:
    """(AᵀA + λ²LᵀL)⁻¹G by a factor of the matrix, through which all derivatives flow."""
    penalty = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device) if L is None else matrix_product(L.T, L)
    normal = matrix_product(A.T, A)
    if lam.shape[0] == 1:
        return _solved(normal + lam**2 * penalty, G, ("auto", tol, None))
    matrices = normal + (lam**2)[:, None, None] * penalty
    return _solved(matrices, G.T[:, :, None], ("auto", tol, None))[:, :, 0].T


# ---- re-attachment ----


class Inverse(torch.autograd.Function):
    """A symmetric solve, given as a function: a constant of the graph, so that it has first derivatives alone.

    ``move`` makes of the solution what is returned: it is zero but for what a solver has left.
    """

    @staticmethod
    def forward(ctx: Any, rhs: Tensor, solve: Any, move: Any) -> Tensor:
        """Return what `move` makes of the right-hand side."""
        ctx.solve = solve
        return move(rhs)

    @staticmethod
    def backward(ctx: Any, G: Tensor) -> Any:
        """Solve with the cotangent."""
        with torch.no_grad():
            U = ctx.solve(G.detach())
        return _FirstOrder.apply(U.requires_grad_()) if torch.is_grad_enabled() else U, None, None


class _FirstOrder(torch.autograd.Function):
    """What a first derivative is made of, where somebody may ask for a second one: it would be wrong, not zero."""

    @staticmethod
    def forward(ctx: Any, U: Tensor) -> Tensor:
        return U.clone()

    @staticmethod
    def backward(ctx: Any, G: Tensor) -> Any:
        raise RuntimeError(
            "a solution that depends on an operator or a function has first derivatives alone; allowed: tikhonov and "
            "cg with dense matrices, nnls, or JAX, for second ones"
        )


class _Constant(torch.autograd.Function):
    """The product with a matrix of NumPy or SciPy, through which gradients pass by its transpose."""

    @staticmethod
    def forward(ctx: Any, X: Tensor, product: Any, transposed: Any) -> Tensor:
        ctx.products = transposed, product
        return torch.as_tensor(product(X.detach().numpy(force=True)), dtype=X.dtype, device=X.device)

    @staticmethod
    def backward(ctx: Any, G: Tensor) -> Any:
        return _Constant.apply(G, *ctx.products), None, None


def _functions(A: Any) -> Any:
    """Return products with blocks of columns that keep the graph: those that the solver itself uses throw it away."""
    if isinstance(A, Tensor):
        return (lambda X: matrix_product(A, X)), (lambda Y: matrix_product(A.T, Y))
    if isinstance(A, Operator):
        return A._forward, A._adjoint
    if isinstance(A, tuple | list):
        return tuple(lambda X, f=f: torch.stack([f(column) for column in X.unbind(1)], 1) for f in A)
    if callable(A) and not hasattr(A, "shape"):
        return _functions((A, A))
    if isinstance(A, np.ndarray | LinearOperator) or issparse(A):
        constant = as_operator(A)
        forward, adjoint = constant.forward, constant.adjoint
        return (lambda X: _Constant.apply(X, forward, adjoint)), (lambda Y: _Constant.apply(Y, adjoint, forward))
    return (lambda X: matrix_product(A, X)), (lambda Y: matrix_product(A.T, Y))


def _itself(X: Tensor) -> Tensor:
    return X


def _reattached(X: Tensor, gradient: Any, solve: Any) -> Tensor:
    """X with the graph of a gradient that is zero there."""
    with torch.enable_grad():
        rest = gradient(X.detach())
    return X + Inverse.apply(rest, solve, torch.zeros_like) if rest.requires_grad else X


# ---- the API ----


def _refuse_beside(options: dict[str, Any], *names: str) -> None:
    for name in names:
        require(options.get(name) is None, name, options.get(name), "None where the call is compiled or transformed")


def _dense(*matrices: Any) -> bool:
    return all(matrix is None or (isinstance(matrix, Tensor) and matrix.layout == torch.strided) for matrix in matrices)


def tikhonov(A: Any, B: Any, lam: Any, L: Any, *, axis: int, **options: Any) -> LinearResult:
    """As `stepwell.tikhonov`, with an x that has derivatives in A, B, λ and L, or in what they are made of."""
    require_kind(isinstance(B, Tensor), "B", B, "a tensor, as other arguments are")
    given = [t for t in (A, B, lam, L) if isinstance(t, Tensor)]
    traced = torch.compiler.is_compiling() or any(map(is_transformed, given))
    across = read_axis(axis) == 0 and B.ndim == 2
    block = B.T if across else B if B.ndim == 2 else B[:, None]
    plain: Any = None
    if not traced:
        with torch.no_grad():
            plain = plain_tikhonov(*map(without_graph, (A, B, lam, L)), axis=axis, **options)
        _warn_of_unsolved(plain)
        X = plain.x.T if across else plain.x if B.ndim == 2 else plain.x[:, None]
        lam = torch.as_tensor(plain.lam, dtype=torch.float64) if isinstance(lam, str) else lam
    lams = torch.atleast_1d(lam if isinstance(lam, Tensor) else torch.as_tensor(lam, dtype=torch.float64))
    if _dense(A, L) and (traced or A.shape[-1] <= DIRECT_SIZE):
        dtype = torch.float32 if all(t.dtype == torch.float32 for t in (A, B)) else torch.float64
        A, block = A.to(dtype), block.to(dtype)
        L = None if L is None else L.to(dtype)
        lams = lams.to(device=A.device, dtype=dtype)
        if traced:
            _refuse_beside(options, "x0", "preconditioner", "callback", "noise", "memory")
        rule = _Tikhonov if torch.compiler.is_compiling() else _TikhonovWithTangents
        how = (options["method"], options["tol"], options["maxiter"])
        X = rule.apply(A, block, lams, L, None if traced else X, *how)
    else:
        require_kind(not traced, "A", A, "a dense tensor where the call is compiled or transformed")
        forward, adjoint = _functions(A)
        bend, back = _functions(L) if L is not None else (_itself, _itself)
        block, lams = block.to(X.dtype), lams.to(device=X.device, dtype=X.dtype)

        def gradient(X: Tensor) -> Tensor:
            return adjoint(block - forward(X)) - lams**2 * back(bend(X))

        def product(X: Tensor, square: Tensor) -> Tensor:
            return adjoint(forward(X)) + square * back(bend(X))

        def solve(G: Tensor) -> Tensor:
            return _by_lam(product, lams, G, options)

        X = _reattached(X, gradient, solve)
    x = X.T if across else X if B.ndim == 2 else X[:, 0]
    return LinearResult.of_traced(x, lams[0] if B.ndim == 1 else lams) if plain is None else replace(plain, x=x)


def _by_lam(product: Any, lams: Tensor, G: Tensor, options: dict[str, Any]) -> Tensor:
    """Solve with the matrix-free H, the columns of each λ together, to the tolerance of the solution itself."""
    how = {name: options[name] for name in ("tol", "maxiter", "preconditioner")}
    squares = (lams.detach() ** 2).expand(G.shape[1])
    out = torch.empty_like(G)
    n = G.shape[0]
    for square in squares.unique():
        columns = squares == square
        own = functools.partial(product, square=square)
        H = from_functions(own, own, (n, n), blocks=True)
        out[:, columns] = plain_cg(H, G[:, columns].contiguous(), **how).x
    return out


def cg(H: Any, B: Any, *, axis: int, **options: Any) -> LinearResult:
    """As `stepwell.cg`, with an x that has derivatives in H and B, or in what H is made of."""
    require_kind(isinstance(B, Tensor), "B", B, "a tensor, as H is")
    traced = torch.compiler.is_compiling() or any(is_transformed(t) for t in (H, B) if isinstance(t, Tensor))
    across = read_axis(axis) == 0 and B.ndim == 2
    block = B.T if across else B if B.ndim == 2 else B[:, None]
    plain: Any = None
    if not traced:
        with torch.no_grad():
            plain = plain_cg(without_graph(H), B.detach(), axis=axis, **options)
        _warn_of_unsolved(plain)
        X = plain.x.T if across else plain.x if B.ndim == 2 else plain.x[:, None]
    how = {name: options[name] for name in ("method", "tol", "maxiter")}
    if _dense(H):
        dtype = torch.float32 if H.dtype == B.dtype == torch.float32 else torch.float64
        if traced:
            _refuse_beside(options, "x0", "preconditioner", "callback", "memory")
        rule = _Cg if torch.compiler.is_compiling() else _CgWithTangents
        X = rule.apply(H.to(dtype), block.to(dtype), None if traced else X, *how.values())
    else:
        require_kind(not traced, "H", H, "a dense tensor where the call is compiled or transformed")
        product, _ = _functions(H)
        how["preconditioner"] = options["preconditioner"]
        X = _reattached(X, lambda X: block.to(X.dtype) - product(X), lambda G: plain_cg(H, G.contiguous(), **how).x)
    x = X.T if across else X if B.ndim == 2 else X[:, 0]
    return LinearResult.of_traced(x, None) if plain is None else replace(plain, x=x)


def _warn_of_unsolved(result: LinearResult) -> None:
    if not result.success:
        warn_caller(f"derivatives of x hold for solutions, but {result.message}")
