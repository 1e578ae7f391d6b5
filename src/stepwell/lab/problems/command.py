"""`stepwell problems`: the test problems, as a list or one by one."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Mapping

import click
from rich.text import Text

from stepwell.cli.console import make_table
from stepwell.cli.output import Output, output_options
from stepwell.lab import problems
from stepwell.lab.problems.inputs import complete_problem


@click.command(name="problems")
@click.argument("name", required=False, shell_complete=complete_problem)
@output_options()
def command(name: str | None, output: Output) -> None:
    """List the test problems, or show the documentation of problem NAME."""
    if name is None:
        _list(output)
    else:
        _show(name, output)


def _list(output: Output) -> None:
    table = make_table("name", "n", "bounds", "sizes and parameters", "what it is")
    table.columns[0].no_wrap = True
    table.columns[0].style = "bold"
    table.columns[1].justify = "right"
    for line in problems.listing():
        table.add_row(
            line.name, str(line.n), "yes" if line.bounded else "no", _assignments(line.parameters), line.description
        )
    output.say(table, Text("\nstepwell problems NAME shows one; stepwell solve NAME solves it.", style="dim"))
    output.record({}, {"problems": [dataclasses.asdict(line) for line in problems.listing()]})


def _show(name: str, output: Output) -> None:
    try:
        problem = problems.get(name)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="NAME") from None
    documentation = inspect.getdoc(problems._BUILDERS[name]) or ""
    first, _, rest = documentation.removeprefix("Build ").partition("\n\n")
    table = make_table("", "", header=False)
    table.columns[0].style = "bold"
    table.columns[0].no_wrap = True
    table.add_row("variables", f"n = {problem.n} by default")
    sizes = {key: value for key, value in problem.parameters.items() if isinstance(value, int)}
    others = {key: value for key, value in problem.parameters.items() if key not in sizes}
    table.add_row("sizes", _assignments(sizes))
    if others:
        table.add_row("parameters", _assignments(others))
    table.add_row("bounds", _bounds(problem))
    table.add_row("minimum", "not known exactly" if problem.minimum is None else f"{problem.minimum:g}")
    table.add_row("f at the start", f"{float(problem.fun(problem.x0)[0]):.12g}")
    table.add_row("reference", problem.reference)
    settable = " ".join(f"--param {key}={value:g}" for key, value in others.items())
    output.say(
        Text.assemble((problem.name, "bold"), f": {problem.description}\n"),
        first[:1].upper() + first[1:],
        *([" ".join(rest.split())] if rest else []),
        "",
        table,
        Text(f"\nstepwell solve {problem.name} -n {problem.n} {settable}".rstrip(), style="dim"),
    )
    held = {"name": problem.name, "n": problem.n, "parameters": dict(problem.parameters)}
    held |= {"bounded": problem.bounds is not None, "minimum": problem.minimum, "reference": problem.reference}
    output.record({"name": name}, held)


def _bounds(problem: problems.Problem) -> str:
    if problem.bounds is None:
        return "none"
    sides = []
    for values, sign in zip(problem.bounds, (">=", "<=")):
        least, most = float(values.min()), float(values.max())
        if math.isfinite(least) or math.isfinite(most):
            sides.append(f"x {sign} " + (f"{least:g}" if least == most else f"values from {least:g} to {most:g}"))
    return ", ".join(sides)


def _assignments(parameters: Mapping[str, int | float]) -> str:
    return ", ".join(f"{key}={value:g}" for key, value in parameters.items())
