"""CGLS for all columns at once (pseudo-block): one operator call a step, each column with its own coefficients.

Hestenes and Stiefel (1952); the least-squares form is CGLS of Björck, Elfving and Strakoš (1998). Columns share
products of matrix with block, nothing else: the iterates are those of one column alone, and columns may have
different λ.
"""

from __future__ import annotations

from collections.abc import Callable

from stepwell.arrays import (
    Array,
    copy_to_device_of,
    is_cuda,
    namespace_of,
    next_direction,
    plus_multiple,
    rows_on_host,
    shapes_are_compiled,
    take_columns,
)
from stepwell.krylov.column_progress import progress_for
from stepwell.krylov.results import LinearStatus
from stepwell.krylov.rounds import Correction, Method, Round
from stepwell.krylov.systems import Carried, TikhonovSystem

#: Steps between looks at the residuals on a GPU, where each look waits for the device.
STEPS_PER_LOOK_ON_GPU = 4


class PseudoBlock(Method):
    """The method ``"pseudo-block"``; given one column at a time it is ``"cgls"``."""

    takes_idle = True

    def __init__(self, precondition: Callable[[Array], Array]) -> None:
        self.precondition = precondition

    def __call__(self, task: Round) -> Correction:
        """Run until every column is below its threshold."""
        system, state, residual = task.system, task.state, task.residual
        xp, sums = namespace_of(residual), system.sums
        in_programs = shapes_are_compiled(residual) and not sums.spread
        per_look = STEPS_PER_LOOK_ON_GPU if is_cuda(residual) else 1
        progress = progress_for(task)
        x = safe = xp.zeros_like(residual)
        direction = self.precondition(residual)
        rho = sums.dots(residual, direction)
        norms: list[Array] = []
        flats: list[Array] = []
        steps = 0
        while True:
            if progress.any_ended:
                stay = progress.release(x)
                if not stay.size:
                    correction = progress.close()
                    if steps and progress.at_once:
                        correction.carried = Carried(state[0], residual)
                    return correction
                if stay.size < x.shape[1]:
                    system = system.take(stay)
                    state = tuple(part if part is None else take_columns(part, stay) for part in state)
                    x, direction, rho = (
                        take_columns(x, stay),
                        take_columns(direction, stay),
                        xp.take(rho, copy_to_device_of(stay, rho)),
                    )
                    safe = x

            image = system.image(direction)
            if isinstance(system, TikhonovSystem) and in_programs:
                x, state, flat = system.stepped(x, direction, rho, state, image)
            else:
                curvature = system.curvature(direction, image)
                if sums.stopped:  # told by another rank, with the sums
                    progress.end_all(LinearStatus.STOPPED)
                    continue
                flat = curvature <= 0  # a NaN is not flat: it shows in the residual
                step = xp.where(flat, xp.zeros_like(rho), rho / xp.where(flat, xp.ones_like(rho), curvature))
                x = plus_multiple(x, step, direction)
                state = system.advance(state, step, image)
            residual = system.gradient(state)
            z = self.precondition(residual)
            if in_programs:
                rho, norm, direction = next_direction(residual, z, rho, direction)
            else:
                rho_before = rho
                if z is residual:
                    rho = sums.dots(residual, z)
                    norm = xp.sqrt(rho)
                else:
                    rho, norm = sums.dots_and_norms(residual, z)
                ratio = rho / xp.where(rho_before > 0, rho_before, xp.ones_like(rho))
                direction = plus_multiple(z, ratio, direction)
            steps += 1
            progress.step(float(x.shape[1]))
            norms.append(norm)
            flats.append(flat)

            if steps % per_look == 0 or steps >= task.maxiter:
                shown = rows_on_host(flats + norms)
                progress.end_each((shown[: len(flats)] != 0).any(axis=0), LinearStatus.BREAKDOWN)
                progress.look(steps, shown[len(flats) :])
                lost = progress.ended_so(LinearStatus.NONFINITE)
                if lost.any():  # hand back the last point that was seen to be finite
                    x = xp.where(copy_to_device_of(lost, x), safe, x)
                norms, flats, safe = [], [], x
