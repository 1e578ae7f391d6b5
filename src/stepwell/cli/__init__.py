"""The command line: `stepwell COMMAND`. Each command lives in a module of its own, imported when it is called."""

from __future__ import annotations

import importlib

import click

#: Command name -> (module, help line). The module defines a click command called ``command``.
COMMANDS: dict[str, tuple[str, str]] = {
    "tour": ("stepwell.cli.tour", "Every solver at work in a minute, and a report."),
    "solve": ("stepwell.cli.solve", "Minimise a test problem."),
    "problems": ("stepwell.cli.problems", "List the test problems, or show one."),
    "info": ("stepwell.cli.info", "Show versions, threads and devices."),
    "reconstruct": ("stepwell.cli.reconstruct", "Reconstruct slices from parallel-beam projections."),
    "study": ("stepwell.cli.study", "Repeat a published experiment beside other methods."),
    "voronoi": ("stepwell.cli.voronoi", "Tessellate: points, cells, mesh and its quality."),
    "stipple": ("stepwell.cli.stipple", "Draw a picture with dots."),
    "deconvolve": ("stepwell.cli.deconvolve", "Recover surfaces from lidar waveforms."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported on use, so that `stepwell --help` starts at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order they are declared."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import the module of one command."""
        if name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="stepwell")
def main() -> None:
    """Large-scale solvers for inverse problems, where your arrays live."""
