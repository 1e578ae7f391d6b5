"""Breakdown-free block conjugate gradients: all columns search in one common space.

O'Leary (1980); the rank-revealing choice of directions follows the idea of Ji and Li (2017). Each step takes the
residuals of the columns still at work, makes them conjugate to earlier directions, keeps a numerically independent
set P of what remains, and minimises every column over span(P). Columns that reach the tolerance leave: their
solution stands, and the block gets narrower.

Residuals are conjugate to all but the last block by themselves only in exact arithmetic, and only while no column
leaves. Blocks kept in memory make up for both: the directions are made conjugate to every block that the memory
budget holds, which costs no product.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stepwell import _core
from stepwell.arrays import (
    Array,
    copy_to_device_of,
    is_cuda,
    namespace_of,
    shapes_are_compiled,
    take_columns,
    to_host,
)
from stepwell.krylov.column_progress import progress_for
from stepwell.krylov.kept import KeptPanels, kept_for
from stepwell.krylov.results import LinearStatus
from stepwell.krylov.rounds import Correction, Method, Round
from stepwell.operators.block_products import combined, plus_combined


class BlockCG(Method):
    """The method ``"block"``.

    Parameters
    ----------
    precondition : callable
        Applied to blocks of residuals.
    memory : int
        Bytes for earlier blocks of directions and their products. The last block is kept in any case.
    width : int
        Largest number of columns that form one block; more columns are taken in turns.
    unknowns : int, optional
        Entries of a column, on all ranks together, as the memory is. By default those of the blocks.
    """

    takes_idle = True

    def __init__(
        self, precondition: Callable[[Array], Array], memory: int, width: int, unknowns: int | None = None
    ) -> None:
        self.precondition = precondition
        self.memory = memory
        self.width = width
        self.unknowns = unknowns

    def __call__(self, task: Round) -> Correction:
        """Run one block after another until every column is below its threshold."""
        count = int(task.residual.shape[1])
        if count <= self.width:
            return self._run(task)
        parts = []
        for columns in np.array_split(np.arange(count), -(-count // self.width)):
            system = task.system.take(columns)
            residual = take_columns(task.residual, columns)
            norms, relative = task.norms[columns], task.relative[columns]
            idle = None if task.idle is None else task.idle[columns]
            aim, spent = task.aim[columns], task.spent[columns]
            part = Round(system, (), residual, norms, relative, aim, spent, task.maxiter, task.watch, idle=idle)
            parts.append(self._run(part))
        return Correction(
            namespace_of(task.residual).concat([part.x for part in parts], axis=1),
            np.concatenate([part.iterations for part in parts]),
            np.concatenate([part.products for part in parts]),
            [history for part in parts for history in part.history],
            [claim for part in parts for claim in part.claims],
        )

    def _run(self, task: Round) -> Correction:
        residual = task.residual
        xp, sums = namespace_of(residual), task.system.sums
        on_device = is_cuda(residual)
        cut = rank_cut(residual)
        progress = progress_for(task)
        x = xp.zeros_like(residual)
        wide = shapes_are_compiled(residual)  # zero columns fill up what is narrower
        kept = kept_for(residual, self.memory, sums, self.unknowns)
        panels = kept if isinstance(kept, KeptPanels) and not sums.spread else None  # then steps are few programs
        candidates: Array | None = None
        gram: np.ndarray | None = None
        steps = 0
        while True:
            if progress.any_ended:
                stay = progress.release(x)
                if not stay.size:
                    return progress.close()
                x, residual, *others = progress.kept(stay, x, residual, *(() if candidates is None else (candidates,)))
                candidates = others[0] if others else None
                gram = None if gram is None else progress.kept_gram(stay, gram)

            if candidates is None:
                candidates = kept.conjugate(self.precondition(residual))
            if gram is None:
                gram = to_host(sums.gram(candidates, candidates))
            mix = independent_combinations(gram, cut, wide)
            if sums.stopped:  # told by another rank, with the sums
                progress.end_all(LinearStatus.STOPPED)
                continue
            if mix is None or not mix.shape[1]:
                progress.end_all(LinearStatus.NONFINITE if mix is None else LinearStatus.STAGNATED)
                continue
            if panels is not None:
                directions, products, grams = task.system.search(candidates, mix, residual)
                energies, slopes = np.split(to_host(grams), [mix.shape[1]], axis=1)
            else:
                directions = combined(candidates, copy_to_device_of(mix, residual))
                products = task.system.product(directions)
                energies, slopes = (
                    to_host(one) for one in sums.several_grams((directions, products), (directions, residual))
                )
            progress.step(float(mix.shape[1]))
            mix = independent_combinations(energies, cut)  # small matrices are the host's
            if mix is None or not mix.shape[1]:
                progress.end_all(LinearStatus.NONFINITE if mix is None else LinearStatus.BREAKDOWN)
                continue
            inverse = combined(mix, mix.T)  # (PᵀHP)⁻¹ on the independent part
            step = combined(inverse, slopes)
            steps += 1
            if panels is not None:
                x, residual, norms = panels.step(x, residual, directions, products, inverse, step)
                candidates, told = panels.next_candidates(self.precondition(residual), norms)
                shown, gram = np.split(to_host(told), [1])
            else:
                step = copy_to_device_of(step, residual)
                residual = plus_combined(residual, products, step, -1)
                norms = sums.norms(residual)
                x = plus_combined(x, directions, step)
                kept.add(directions, products, copy_to_device_of(inverse, residual))
                # A device goes on with the next candidates while the host looks at the norms; columns that leave were
                # made conjugate for nothing, which a host would rather not pay for.
                candidates = kept.conjugate(self.precondition(residual)) if on_device else None
                shown, gram = to_host(norms)[None, :], None
            progress.look(steps, shown)


def rank_cut(block: Array) -> float:
    """Smallest pivot, relative to the largest, that counts in a Gram matrix of such columns."""
    epsilon = float(namespace_of(block).finfo(block.dtype).eps)
    return 50 * epsilon * max(1, int(block.shape[1]))


def independent_combinations(gram: np.ndarray, cut: float, square: bool = False) -> np.ndarray | None:
    """Combinations of columns that are orthonormal in the inner product of a Gram matrix.

    Cholesky with diagonal pivoting of the Gram matrix of the normalised columns, ended at the first pivot not above
    ``cut``: nearly dependent columns are left out (they come back once the others have taken their share).

    Returns
    -------
    ndarray or None
        ``mix``, one row per column and one column per independent direction, with ``mixᵀ gram mix = I``; None where
        the Gram matrix is not finite. ``square``: columns of zeros follow, where there is any direction.
    """
    mix = np.empty(gram.shape)
    rank = _core.independent_combinations(np.ascontiguousarray(gram), cut, mix)
    if rank < 0:
        return None
    return mix if square and rank > 0 else mix[:, :rank]
