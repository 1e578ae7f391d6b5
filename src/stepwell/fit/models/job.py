"""Fits as the core reads them, on the host and on a device: sizes, options and addresses."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from stepwell import _core
from stepwell.cuda.layouts import structure
from stepwell.fit.models.program import Program

#: Rows of the core's tables of reals and of counts, by the names that results have.
REALS = ("cost", "promise", "violation", "optimality", "distance", "condition")
COUNTS = ("status", "nit", "nfev", "njev", "rank", "free", "points")
#: Most points along a side of a grid.
MAX_SIDE = 32


class Described(Protocol):
    """What is asked of a `CompiledModel` here."""

    kind: str
    parameters: tuple[str, ...]
    variables: tuple[str, ...]
    count: int
    flag: bool
    program: Program | None
    device_row: str | None

    @property
    def n(self) -> int:
        """Number of parameters."""


@dataclasses.dataclass
class Arrays:
    """What a fit reads and fills: arrays of one place, contiguous, in the caller's type but for those named."""

    x: Any  # (variables, m), or (problems, variables, m)
    y: Any  # (1 or problems, m)
    weights: Any  # the same, or None
    start: Any  # (1 or problems, n)
    low: Any  # (1 or problems, n), float64
    high: Any
    values: Any  # (problems, n)
    variances: Any  # (problems, n), float64, or None
    covariance: Any  # (problems, n, n), float64, or None
    reals: Any  # (6, problems), float64
    counts: Any  # (7, problems), int32
    active: Any  # (problems, n), int8


@dataclasses.dataclass
class Settings:
    """Options of the core, as ``FitProblem.options`` gives them."""

    ftol: float
    gtol: float
    xtol: float
    epsilon: float
    max_iterations: int
    max_evaluations: int
    single: bool
    secant: bool
    loss: int
    scale: float
    absolute: bool


def across_of(model: Described, x: np.ndarray) -> int:
    """Return the points of a row where points form a grid whose first variable runs fastest; 0 elsewhere."""
    if model.kind != "spot" or x.ndim != 2:
        return 0
    points = x.shape[1]
    changes = np.flatnonzero(x[1] != x[1, :1])
    across = int(changes[0]) if len(changes) else points
    if points % across or across > MAX_SIDE:
        return 0
    table = x.reshape(2, -1, across)
    alike = (table[0] == table[0, :1]).all() and (table[1] == table[1, :, :1]).all()
    return across if alike else 0


def answers(problems: int, n: int, real: Any, uncertainty: str | None) -> dict[str, Any]:
    """Return shapes and types of what fits fill, by the names of `Arrays`; None for what is not wanted."""
    return dict(
        values=((problems, n), real),
        variances=None if uncertainty is None else ((problems, n), "float64"),
        covariance=((problems, n, n), "float64") if uncertainty == "covariance" else None,
        reals=((len(REALS), problems), "float64"),
        counts=((len(COUNTS), problems), "int32"),
        active=((problems, n), "int8"),
    )


def job_of(
    arrays: Arrays, settings: Settings, address: Callable[[Any], int], problems: int, points: int, n: int
) -> Any:
    """Return the core's ``FitModelJob``, without a model; the arrays have to live as long as it is used."""

    def step(array: Any, size: int) -> int:
        return size if array is not None and array.shape[0] > 1 else 0

    return structure("FitModelJob")(
        problems=problems,
        points=points,
        parameters=n,
        y=address(arrays.y),
        y_stride=step(arrays.y, points),
        weights=address(arrays.weights),
        weights_stride=step(arrays.weights, points),
        start=address(arrays.start),
        start_stride=step(arrays.start, n),
        low=address(arrays.low),
        high=address(arrays.high),
        low_stride=step(arrays.low, n),
        high_stride=step(arrays.high, n),
        options=structure("FitOptions")(
            ftol=settings.ftol,
            gtol=settings.gtol,
            xtol=settings.xtol,
            epsilon=settings.epsilon,
            max_iterations=settings.max_iterations,
            max_evaluations=settings.max_evaluations,
            single=settings.single,
            secant=settings.secant,
        ),
        loss=settings.loss,
        loss_scale=settings.scale,
        unit_variance=int(settings.absolute),
        values=address(arrays.values),
        variances=address(arrays.variances),
        covariance=address(arrays.covariance),
        reals=address(arrays.reals),
        counts=address(arrays.counts),
        active=address(arrays.active),
    )


def make_job(
    model: Described,
    arrays: Arrays,
    settings: Settings,
    across: int,
    address: Callable[[Any], int],
    problems: int,
) -> Any:
    """Return the core's ``FitModelJob`` of a compiled model."""
    points = int(arrays.y.shape[-1])
    job = job_of(arrays, settings, address, problems, points, model.n)
    job.variables, job.model = len(model.variables), _core.FIT_MODELS["grid_spot" if across else model.kind]
    job.count, job.flag, job.across = model.count, int(model.flag), across
    job.x, job.x_stride = address(arrays.x), len(model.variables) * points if arrays.x.ndim == 3 else 0
    program = model.program
    if program is not None:
        job.program = program.instructions.ctypes.data
        job.constants = program.constants.ctypes.data
        job.outputs = program.outputs.ctypes.data
        job.instructions = len(program.instructions)
        job.constant_count = len(program.constants)
        job.registers, job.uniform = program.registers, program.uniform
    return job


def read_x(model: Described, x: Any, own: bool, points: int, dtype: Any) -> np.ndarray:
    """Return xdata as (variables, m), or with `own` as (problems, variables, m)."""
    x = np.asarray(x, dtype=dtype)
    count = len(model.variables)
    wanted = f"({points},)" if count == 1 else f"({count}, {points})"
    if x.ndim == 0 or x.shape[-1] != points or (count > 1 and x.shape[0] != count):
        raise ValueError(f"xdata has shape {x.shape}; allowed for {model!r}: {wanted}, {', '.join(model.variables)}")
    if own:
        return np.ascontiguousarray(np.moveaxis(x.reshape(count, -1, points), 0, 1))
    if x.size != count * points:
        raise ValueError(f"xdata has shape {x.shape}; allowed for {model!r}: {wanted}, {', '.join(model.variables)}")
    return np.ascontiguousarray(x.reshape(count, points))
