"""What `stepwell solve` reads from its command line, checked: numbers, bounds, arrays and devices."""

from __future__ import annotations

import math
import re
from typing import Any

import click

from stepwell import problems

#: How each array library is installed, for the message when it is missing.
LIBRARIES = {"numpy": "numpy", "torch": "torch", "jax": "jax"}


class Parameter(click.ParamType[tuple[str, int | float]]):
    """``name=value`` with a number as value."""

    name = "NAME=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int | float]:
        """Split at the equals sign; whole numbers stay whole."""
        if isinstance(value, tuple):
            return value
        name, equals, text = str(value).partition("=")
        try:
            if not (name and equals):
                raise ValueError
            number: int | float = int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)
        except ValueError:
            self.fail(f"{value!r} is not name=number, such as c=5", param, ctx)
        return name.strip(), number


class Interval(click.ParamType[tuple[float, float]]):
    """``LOW,HIGH``; a side left empty has no bound."""

    name = "LOW,HIGH"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, float]:
        """Split at the comma and check low <= high."""
        if isinstance(value, tuple):
            return value
        sides = [side.strip() for side in str(value).split(",")]
        try:
            if len(sides) != 2:
                raise ValueError
            low = float(sides[0]) if sides[0] else -math.inf
            high = float(sides[1]) if sides[1] else math.inf
        except ValueError:
            self.fail(
                f"{value!r} is not LOW,HIGH; allowed: two numbers, or one side empty: 0,1 or 0, or ,1", param, ctx
            )
        if not low <= high or low == math.inf or high == -math.inf:
            self.fail(f"{value!r} leaves no point; allowed: LOW <= HIGH", param, ctx)
        return low, high


class Device(click.ParamType[str]):
    """``cpu``, ``cuda`` or ``cuda:K``."""

    name = "cpu|cuda[:K]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the device with its number."""
        if not re.fullmatch(r"cpu|cuda(:\d+)?", str(value)):
            self.fail(f"{value!r} is not a device; allowed: cpu, cuda, cuda:K", param, ctx)
        return "cuda:0" if value == "cuda" else str(value)


def array_library(name: str, dtype: str, device: str) -> tuple[Any, Any]:
    """Import an array library and find a device of it; return both as `stepwell.problems.get` wants them."""
    on_gpu = device.startswith("cuda")
    if name == "numpy":
        if on_gpu:
            raise click.BadParameter(f"{device} needs --array torch or --array jax", param_hint="--device")
        import numpy

        return numpy, None
    try:
        if name == "torch":
            import torch

            if on_gpu and int(device[5:]) >= torch.cuda.device_count():
                raise click.BadParameter(
                    f"{device} is not there: PyTorch {torch.__version__} sees {torch.cuda.device_count()} CUDA devices",
                    param_hint="--device",
                )
            return torch, device
        import jax
    except ImportError:
        raise click.BadParameter(
            f"{name} is not installed; install it (pip install {LIBRARIES[name]}) or use --array numpy",
            param_hint="--array",
        ) from None
    if dtype == "float64":
        jax.config.update("jax_enable_x64", True)
    try:
        found = jax.devices("cuda" if on_gpu else "cpu")
    except RuntimeError:
        found = []
    index = int(device[5:]) if on_gpu else 0
    if index >= len(found):
        raise click.BadParameter(
            f"{device} is not there: JAX {jax.__version__} sees {len(found)} such devices", param_hint="--device"
        )
    return jax.numpy, found[index]


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
    try:
        problem = problems.get(name, **given)
    except (ValueError, TypeError) as error:
        raise click.UsageError(str(error)) from None
    xp, device = array_library(kind["array"], kind["dtype"], kind["device"])
    return problem.to(xp, kind["dtype"], device)
