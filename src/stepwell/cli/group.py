"""The command line: `stepwell COMMAND`. Each command lives in a module of its own, imported when it is called."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import signal
import sys
from typing import Any

import click

from stepwell.cli.interrupts import INTERRUPTED, end_at_once

#: Command name -> (module, help line). The module defines a click command called ``command``.
COMMANDS: dict[str, tuple[str, str]] = {
    "tour": ("stepwell.lab.tour.command", "Every solver at work in a minute, and a report."),
    "solve": ("stepwell.lab.solve.command", "Minimise a test problem."),
    "problems": ("stepwell.lab.problems.command", "List the test problems, or show one."),
    "info": ("stepwell.cli.info", "Show versions, threads and devices."),
    "reconstruct": ("stepwell.apps.tomography.command", "Reconstruct slices from projections."),
    "study": ("stepwell.lab.studies.command", "Repeat a published experiment beside other methods."),
    "voronoi": ("stepwell.apps.voronoi.command", "Tessellate: points, cells, mesh and its quality."),
    "stipple": ("stepwell.apps.voronoi.stipple_command", "Draw a picture with dots."),
    "deconvolve": ("stepwell.apps.waveform.command", "Recover surfaces from lidar waveforms."),
    "decompose": ("stepwell.apps.decomposition.command", "Take lidar waveforms apart into Gaussians."),
    "t2map": ("stepwell.apps.t2.command", "Map T2 and myelin water from multi-echo MRI."),
    "relax": ("stepwell.apps.relaxation.command", "Map T1, T2*, T2, ADC or IVIM of MRI series."),
    "unmix": ("stepwell.apps.unmixing.command", "Unmix hyperspectral images into abundances."),
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
        if signal.getsignal(signal.SIGINT) is end_at_once:  # from here on there is something to end in order
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; a file that cannot be written, standard output included, is one line and status 1."""
        try:
            try:
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()  # at the interpreter's end it would be too late to say what is wrong
        except KeyboardInterrupt:  # a command that has something to write does so, and ends by itself
            click.echo(" ".join(filter(None, ("stepwell", ctx.invoked_subcommand))) + ": interrupted", err=True)
            ctx.exit(INTERRUPTED)
        except MemoryError as error:
            raise click.ClickException(f"there is not enough memory: {error}") from error
        except OverflowError as error:
            raise click.ClickException(f"a number is too large: {error}") from error
        except OSError as error:
            if error.errno == errno.EPIPE:  # nobody reads on: click ends in silence
                raise
            discard_output()
            raise click.ClickException(told(error)) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


def told(error: OSError) -> str:
    """Return what is wrong with a file, or with standard output, in a line."""
    return "standard output is closed" if error.errno == errno.EBADF else " ".join(str(error).split())


def discard_output() -> None:
    """What is still to be written to a full disk is lost; the interpreter would try again at its end, and complain."""
    try:
        sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="stepwell")
def main() -> None:
    """Large-scale solvers for inverse problems, where your arrays live."""
