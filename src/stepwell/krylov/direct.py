"""Dense Cholesky, for systems whose matrix fits in memory: the yardstick at moderate size."""

from __future__ import annotations

from collections.abc import Callable

from stepwell.arrays import Array, factor_positive, namespace_of, on_device_of, plus_diagonal, to_host
from stepwell.arrays.sparse import is_scipy_sparse
from stepwell.krylov.column_progress import progress_for
from stepwell.krylov.linear_problem import bytes_per_number
from stepwell.krylov.results import LinearStatus
from stepwell.krylov.rounds import Correction, Method, Round
from stepwell.krylov.systems import PositiveSystem, System, TikhonovSystem
from stepwell.operators.operator import GRAM_WIDTH, Operator


class Direct(Method):
    """The method ``"direct"``: factor once, solve for all columns; later rounds are iterative refinement.

    With fewer equations than unknowns and L = I the factored matrix is the small one,
    (AᵀA + λ²I)⁻¹ = (I − Aᵀ(AAᵀ + λ²I)⁻¹A) / λ².
    """

    takes_idle = True

    def __init__(self) -> None:
        self._solve: Callable[[Array], Array] | None = None

    def __call__(self, task: Round) -> Correction:
        """Solve with the factor; a matrix that is not positive definite ends every column as a breakdown."""
        progress = progress_for(task)
        residual = task.residual
        xp = namespace_of(residual)
        if progress.any_ended and task.maxiter <= 0:
            progress.release(xp.zeros_like(residual))
            return progress.close()
        made = 0
        if self._solve is None:
            self._solve = self._factored(task)
            made = _written_out(task.system)
            task.system.count_products(made)
        if task.idle is not None:
            progress.release(xp.zeros_like(residual))
        x = self._solve(residual)
        failed = to_host(xp.all(xp.isfinite(x), axis=0)) == 0
        progress.end_each(failed, LinearStatus.BREAKDOWN)
        if failed.any():
            x = xp.zeros_like(residual)
        progress.iterations[:] = 1
        progress.products += made / progress.products.size
        progress.end_all(LinearStatus.CONVERGED)
        progress.release(x)
        return progress.close()

    def _factored(self, task: Round) -> Callable[[Array], Array]:
        system, template = task.system, task.residual
        if isinstance(system, PositiveSystem):
            return factor_positive(dense(system.H, template))
        assert isinstance(system, TikhonovSystem)
        A, lam = system.A, float(system.lam[0])
        if uses_dual(A, system.L, lam):
            inner = factor_positive(plus_diagonal(outer_gram(A, template), lam * lam))
            return lambda rhs: (rhs - A.adjoint(inner(A.forward(rhs)))) / (lam * lam)
        gram = A.gram(template)
        if system.L is None:
            gram = plus_diagonal(gram, lam * lam)
        elif lam:
            gram = gram + lam * lam * system.L.gram(template)
        return factor_positive(gram)


def _written_out(system: System) -> int:
    """Products that it took to write the matrix out."""
    assert isinstance(system, PositiveSystem | TikhonovSystem)
    operator = system.H if isinstance(system, PositiveSystem) else system.A
    if operator.matrix is not None:
        return 0
    dual = isinstance(system, TikhonovSystem) and uses_dual(system.A, system.L, float(system.lam[0]))
    return system.data_size if dual else system.size


def uses_dual(A: Operator, L: Operator | None, lam: float) -> bool:
    """Whether the smaller system in data space is the one to factor."""
    rows, columns = A.shape
    assert rows is not None
    assert columns is not None
    return L is None and rows < columns and lam > 0


def direct_bytes(A: Operator, L: Operator | None, lam: float, block: Array) -> int:
    """Bytes of the dense matrix and of what its making takes: a copy, or a few columns and their images."""
    rows, columns = A.shape
    assert rows is not None
    assert columns is not None
    size = rows if uses_dual(A, L, lam) else columns
    numbers = size * size + max(size * size, min(GRAM_WIDTH, size) * (rows + columns))
    return (numbers + (0 if L is None else size * size)) * bytes_per_number(block)


def dense(H: Operator, template: Array) -> Array:
    """Write out a square operator as a dense matrix."""
    xp = namespace_of(template)
    return H.forward(xp.eye(int(template.shape[0]), dtype=template.dtype, **on_device_of(template)))


def outer_gram(A: Operator, template: Array) -> Array:
    """Return AAᵀ as a dense matrix."""
    # Columns are cut from matrices of SciPy alone; a sparse one of PyTorch cannot be turned.
    matrix = A.matrix.T if is_scipy_sparse(A.matrix) else None
    turned = Operator(A.adjoint, A.forward, (A.shape[1], A.shape[0]), A.home, matrix)
    return turned.gram(template)
