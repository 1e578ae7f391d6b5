"""What every command has in common: --json, --quiet, --verbose, where words go, and how Ctrl-C ends a command.

Results go to standard output, progress and complaints to standard error. With ``--json -`` standard output holds the
JSON and nothing else. Exit statuses: 0 done, 1 not converged or a file that is not what it should be, 2 the command
line is wrong, 130 interrupted by Ctrl-C.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, NoReturn

import click
from rich.console import Console

from stepwell.cli.console import make_console, show
from stepwell.cli.inputs import check_file
from stepwell.cli.interrupts import INTERRUPTED
from stepwell.common.files import write_text
from stepwell.common.json_text import json_text
from stepwell.common.logs import log


@dataclass(frozen=True)
class Output:
    """How much a command says, and where its JSON goes.

    Attributes
    ----------
    command : str
    json_file : str or None
        ``-`` is standard output, which then holds nothing else.
    quiet : bool
        Say nothing but what is wrong.
    verbose : bool
        Say more than usual.
    """

    command: str
    json_file: str | None = None
    quiet: bool = False
    verbose: bool = False

    @property
    def silent(self) -> bool:
        """Whether standard output is to have no words for people."""
        return self.quiet or self.json_file == "-"

    def say(self, *renderables: Any) -> None:
        """Print a result to standard output."""
        if not self.silent:
            show(*renderables)

    def notes(self, texts: Iterable[str]) -> None:
        """Print to standard error what a person should know of a run, unless --quiet."""
        for text in texts:
            log.info("%s: %s", self.command, text)
            if not self.quiet:
                click.echo(f"note: {text}", err=True)

    def detail(self, text: str) -> None:
        """Print to standard error what only --verbose asks for."""
        if self.verbose:
            click.echo(text, err=True)

    def console(self) -> Console:
        """Return the console for progress, on standard error."""
        return make_console(stderr=True)

    @property
    def moving(self) -> bool:
        """Whether there is somebody to show a moving bar to: never in a pipe."""
        return not self.quiet and self.console().is_terminal

    @contextmanager
    def status(self, text: str) -> Iterator[Callable[[str], None]]:
        """Show what is going on, on a terminal; yields a function that changes the text."""
        if not self.moving:
            yield self.detail
            return
        with self.console().status(text) as shown:
            yield shown.update

    def record(self, settings: dict[str, Any], result: dict[str, Any], **more: Any) -> None:
        """Write the JSON, where it was asked for: stepwell, command, settings, result and more keys of a command."""
        log.info("%s: done", self.command)
        if self.json_file is None:
            return
        import stepwell

        held = {"stepwell": stepwell.__version__, "command": self.command, "settings": settings, "result": result}
        text = json_text(held | more)
        if self.json_file == "-":
            click.echo(text)
        else:
            write_text(self.json_file, text + "\n")

    def interrupted(self) -> NoReturn:
        """End the command after Ctrl-C, what there is being written."""
        click.echo(f"stepwell {self.command}: interrupted", err=True)
        click.get_current_context().exit(INTERRUPTED)


def output_parameters() -> list[click.Option]:
    """Return --json, --quiet and --verbose."""
    kind = click.Path(dir_okay=False, writable=True, allow_dash=True)
    text = "Write settings and result as JSON; - is standard output, and then the report is left out."
    return [
        click.Option(["--json", "json_file"], type=kind, metavar="FILE|-", help=text),
        click.Option(["-q", "--quiet"], is_flag=True, help="Say nothing but what is wrong."),
        click.Option(["-v", "--verbose"], is_flag=True, help="Say more."),
    ]


def output_options(*, declare: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the `output_parameters`, which it gets as ``output``; `declare` False: it declares them itself."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def call(*args: Any, json_file: str | None, quiet: bool, verbose: bool, **given: Any) -> Any:
            if quiet and verbose:
                raise click.UsageError("--quiet and --verbose exclude each other")
            check_file(json_file, "--json")
            name = click.get_current_context().command_path.split(" ", 1)[-1]
            log.info("%s: begins", name)
            return command(*args, output=Output(name, json_file, quiet, verbose), **given)

        if declare:
            declared = getattr(call, "__click_params__", [])  # click reads them from the last to the first
            call.__click_params__ = [*reversed(output_parameters()), *declared]  # type: ignore[attr-defined]
        return call

    return decorate


@contextmanager
def first_interrupt(heed: bool = True) -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether Ctrl-C was pressed, once; pressed again it interrupts as ever.

    Only the main thread may ask for signals: elsewhere, or where it is not to be heeded, Ctrl-C interrupts at once.
    Where somebody else has settled what it does, such as a shell that starts jobs which must not be interrupted, it
    goes on to do that.
    """
    pressed = False

    def take(number: int, frame: Any) -> None:
        nonlocal pressed
        pressed = True
        signal.signal(signal.SIGINT, before)

    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not heed or not ours or threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, take)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, before)
