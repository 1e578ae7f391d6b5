"""What commands read of test problems: names that shells complete, sizes and parameters."""

from __future__ import annotations

import math
from typing import Any

import click
import numpy as np

from stepwell.cli.inputs import open_place, usage_errors
from stepwell.lab import problems


def complete_problem(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """Names of test problems, for shells that complete words."""
    return [name for name in problems.names() if name.startswith(begun)]


def build_problem(
    name: str, sizes: dict[str, int | None], parameters: tuple[tuple[str, int | float], ...], **kind: str
) -> problems.Problem:
    """Build the test problem from what was given of its sizes and parameters, in the array library asked for."""
    given: dict[str, Any] = {key: value for key, value in sizes.items() if value is not None}
    for key, number in parameters:
        if key in given:
            raise click.BadParameter(f"{key} is given twice", param_hint="--param")
        given[key] = number
    if name not in problems.names():
        try:
            problems.get(name)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="PROBLEM") from None
    with usage_errors(TypeError):
        _require_room(given)
        problem = problems.get(name, **given)
    place = open_place(kind["array"], kind["dtype"], kind["device"])
    return problem.to(place.xp, kind["dtype"], place.device)


def _require_room(sizes: dict[str, Any]) -> None:
    """Refuse a problem of which not even the start and a gradient fit into the memory."""
    from stepwell.arrays import available_bytes

    free = available_bytes(np.empty(0))
    count = math.prod(abs(int(sizes[name])) for name in ("n", "nx", "ny") if name in sizes)
    if free is not None and 16 * count > free:
        given = ", ".join(f"{name} = {sizes[name]}" for name in ("n", "nx", "ny") if name in sizes)
        raise ValueError(f"{given}: {count} variables; allowed: at most {free // 16}, for which there is memory")
