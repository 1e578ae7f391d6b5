"""The methods ``"prcg"`` and ``"aprcg"``: the Galerkin projection on kept directions, and conjugate gradients after it.

The theory stands in `projected`, whose solver keeps the directions from one right-hand side to the next.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stepwell.arrays import Array, namespace_of, plus_multiple, to_host
from stepwell.krylov.column_progress import ColumnProgress
from stepwell.krylov.linear_problem import LinearProblem, bytes_per_number
from stepwell.krylov.results import LinearStatus
from stepwell.krylov.rounds import Correction, Method, Round, Start
from stepwell.krylov.space import DirectionSpace, plus_rows, plus_rows_and_overlaps
from stepwell.krylov.systems import Carried, System, TikhonovSystem

#: Steps for which a residual that is updated with fresh products is as good as one made of the data's residual.
FEW_STEPS = 16


def problem_space(problem: LinearProblem, system: System, memory: int) -> DirectionSpace:
    """Return an empty space for the directions of a problem."""
    whole = problem.unknowns.whole, problem.equations.whole if isinstance(system, TikhonovSystem) else 0
    return DirectionSpace(problem.size, system.data_size, bytes_per_number(problem.B), memory, problem.sums, whole)


class Projected(Method):
    """The methods ``"prcg"`` and ``"aprcg"`` on one column, over a space of kept directions."""

    def __init__(self, space: DirectionSpace, precondition: Callable[[Array], Array], augmented: bool) -> None:
        self.space = space
        self.precondition = precondition
        self.augmented = augmented
        self._projected: tuple[Array, list[float], Array | None] | None = None

    def start(self, system: System) -> Start | None:
        """Start from the projection of the data, without Aᵀb; None where there is nothing to project on."""
        panels = self.space.working_panels()
        if not (self.augmented and panels and self.space.keeps_images and isinstance(system, TikhonovSystem)):
            return None
        data = system.data()
        shares = system.sums.panels_times([panel.images for panel in panels], data)
        x = namespace_of(data).zeros_like(panels[0].directions[:1, :].T)
        for panel, share in zip(panels, shares):
            x, data = plus_rows(x, panel.directions, share), plus_rows(data, panel.images, share, -1)
        state, gradient = system.start_at(x, data)
        rhs, overlaps = gradient, []
        for panel, share in zip(panels, shares):  # Aᵀb = r + Hx
            rhs, overlap = plus_rows_and_overlaps(rhs, panel.products, share, gradient)
            overlaps += [] if overlap is None else [overlap]
        coefficients = np.concatenate([to_host(share)[: panel.count, 0] for panel, share in zip(panels, shares)])
        known = np.concatenate(system.sums.total(*overlaps)) if overlaps else None
        self._projected = gradient, coefficients.tolist(), known
        return Start(x, state, gradient, rhs)

    def __call__(self, task: Round) -> Correction:
        """Project on the kept directions, then refine with new ones."""
        space, system = self.space, task.system
        progress = ColumnProgress(task)
        residual, data = task.residual, task.state[0] if space.keeps_images else None
        overlaps = None
        ahead: tuple[Array, Array | None, float] | None = None  # the next column, and what is known of it
        unmoved = False
        if self._projected is not None and self._projected[0] is residual:  # see `start`
            unmoved, x = True, namespace_of(residual).zeros_like(residual)
            coefficients, overlaps = self._projected[1:]
        else:
            x, residual, data, coefficients = self._project(residual, data)
            if space.length(residual) <= float(task.aim[0] * task.norms[0]):
                progress.end_all(LinearStatus.CONVERGED)
        self._projected = None
        steps = 0
        while not progress.any_ended:
            column, known, length = (self.precondition(residual), None, None) if ahead is None else ahead
            if not steps and column is residual:
                known = overlaps
            direction, cancelled = space.conjugate(column, known, length, projected=len(coefficients) > steps)
            ahead = None
            if direction is None:  # what an earlier projection left within the space
                unmoved, overlaps, before = False, None, space.length(residual)
                more, residual, data, shares = self._project(residual, data)
                x = x + more
                if len(shares) == len(coefficients):  # else some were dropped on the way, and none is scored
                    coefficients = np.add(coefficients, shares).tolist()
                after = space.length(residual)
                if after <= float(task.aim[0] * task.norms[0]):
                    progress.end_all(LinearStatus.CONVERGED)
                elif not after <= 0.5 * before:
                    progress.end_all(LinearStatus.STAGNATED)
                continue
            product, image = system.product_and_image(direction)
            energy, slope, square = space.energies(direction, product, residual)
            if 0 < energy < cancelled**2:
                direction, product, image = space.conjugate_again(direction, product, image)
                energy, slope, square = space.energies(direction, product, residual)
            if system.sums.stopped:  # told by another rank, with the sums
                progress.end_all(LinearStatus.STOPPED)
                break
            progress.step(1.0)
            if not 0 < energy < np.inf:
                progress.end_all(LinearStatus.NONFINITE if np.isnan(energy) else LinearStatus.BREAKDOWN)
                break
            unmoved, unit = False, energy**-0.5
            step = slope / energy
            x = plus_multiple(x, step, direction)
            residual = plus_multiple(residual, -step, product)
            if data is not None and image is not None:
                data = plus_multiple(data, -step, image)
            space.add(unit, direction, product, image, square)
            coefficients.append(step / unit)
            steps += 1
            if system.sums.spread:  # one message for the residual's norm and the next direction's first sums
                column = self.precondition(residual)
                known, length, norm = space.look_ahead(column, residual)
                ahead = column, known, length
            else:
                norm = space.length(residual)
            progress.look(steps, np.full((1, 1), norm))
        whole = len(coefficients) == space.count  # none was dropped on the way
        space.score(np.array(coefficients) if whole else None)
        progress.release(x)
        correction = progress.close()
        if unmoved:
            correction.x = None
        if data is not None and steps <= FEW_STEPS:
            correction.carried = Carried(data, residual)
        return correction

    def _project(self, residual: Array, data: Array | None) -> tuple[Array, Array, Array | None, list[float]]:
        """Galerkin solution over the kept directions, what remains of both residuals, and the coefficients."""
        x = namespace_of(residual).zeros_like(residual)
        coefficients: list[float] = []
        for panel in self.space.working_panels():
            for part in [panel] if self.augmented else [panel.row(i) for i in range(panel.count)]:
                share = self.space.sums.rows_times(part.directions, residual)  # PᵀHP = I
                x, residual = plus_rows(x, part.directions, share), plus_rows(residual, part.products, share, -1)
                if data is not None and part.images is not None:
                    data = plus_rows(data, part.images, share, -1)
                coefficients += to_host(share)[: part.count, 0].tolist()
        return x, residual, data, coefficients
