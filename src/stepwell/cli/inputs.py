"""What the commands read from their command lines, checked: numbers, bounds, arrays, devices and files."""

from __future__ import annotations

import errno
import functools
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from stepwell.arrays import places
from stepwell.arrays.places import Place
from stepwell.cli.group import told
from stepwell.common import checkpoints
from stepwell.common.files import Unreadable, own_names
from stepwell.common.pyplot import FORMATS, has_matplotlib

#: Options of a solver's place, by their names.
_ARRAY: dict[str, Any] = {
    "type": click.Choice(places.LIBRARIES),
    "help": "Library that holds the arrays.  [default: numpy; on a GPU the first of torch, cupy, jax that is there]",
}
_DEVICE: dict[str, Any] = {
    "metavar": "cpu|cuda[:K]",
    "default": "cpu",
    "show_default": True,
    "help": "Where the solver runs; plain cuda is the fastest GPU.",
}
_THREADS: dict[str, Any] = {"type": click.IntRange(min=1), "help": "Threads of the solver.  [default: all]"}


class FiniteRange(click.FloatRange):
    """A range of numbers without nan and infinity, which click lets through."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read a number of the range."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


class NumberOrAuto(FiniteRange):
    """A finite number of a range, or the word auto."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read a number or the word."""
        if value == "auto":
            return value
        try:
            float(value)
        except ValueError:
            self.fail(f"{value!r} is no number; allowed: a number, or auto", param, ctx)
        return super().convert(value, param, ctx)


@contextmanager
def usage_errors(*kinds: type[Exception]) -> Iterator[None]:
    """Turn what checks of arguments raise, and further kinds of errors, into one of the command line: status 2."""
    expected: tuple[type[Exception], ...] = (ValueError, *kinds)
    try:
        yield
    except expected as error:
        raise click.UsageError(str(error)) from None


# The next two and `read_device` are callbacks of click options: a BadParameter in one names the option by itself.


def read_parameters(
    ctx: click.Context, option: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, int | float], ...]:
    """Read ``name=value`` pairs; whole numbers stay whole."""
    pairs: list[tuple[str, int | float]] = []
    for value in values:
        name, equals, text = value.partition("=")
        try:
            if not (name and equals):
                raise ValueError
            pairs.append((name.strip(), int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)))
        except ValueError:
            raise click.BadParameter(f"{value!r} is not NAME=NUMBER, such as c=5") from None
    return tuple(pairs)


def read_interval(ctx: click.Context, option: click.Parameter, value: str | None) -> tuple[float, float] | None:
    """Read ``LOW,HIGH``; a side left empty has no bound."""
    if value is None:
        return None
    sides = [side.strip() for side in value.split(",")]
    try:
        if len(sides) != 2:
            raise ValueError
        low = float(sides[0]) if sides[0] else -math.inf
        high = float(sides[1]) if sides[1] else math.inf
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is not LOW,HIGH; allowed: two numbers, or one with the other side empty"
        ) from None
    if not low <= high or low == math.inf or high == -math.inf:
        raise click.BadParameter(f"{value!r} leaves no point; allowed: LOW <= HIGH")
    return low, high


def read_checkpoint_interval(ctx: click.Context, option: click.Parameter, value: str) -> int | str:
    """Read a number of iterations, or a time with its unit."""
    interval: int | str = int(value) if value.strip().isdigit() else value
    with usage_errors():
        checkpoints.read_interval(interval, "iterations")
    return interval


def read_range(flag: str, text: str | None) -> tuple[int, int | None]:
    """Read ``FIRST:LAST``, counted from 0, LAST not included; either may be left out."""
    if text is None:
        return 0, None
    sides = re.fullmatch(r"(\d*):(\d*)", text.strip())
    first, last = (int(side) if side else None for side in sides.groups()) if sides else (None, None)
    if not sides or (last is not None and last <= (first or 0)):
        raise click.BadParameter(f"{text!r} is not FIRST:LAST; allowed: such as 0:100", param_hint=flag)
    return first or 0, last


def check_file(path: str | Path | None, flag: str, endings: Sequence[str] = ()) -> None:
    """Refuse a file that could not be written; None and ``-`` are none."""
    if path is None or path == "-":
        return
    if not Path(path).parent.is_dir():
        raise click.BadParameter(f"there is no folder {str(Path(path).parent)!r}", param_hint=flag)
    if endings and Path(path).suffix[1:].lower() not in endings:
        raise click.BadParameter(f"{str(path)!r} must end in .{' or .'.join(endings)}", param_hint=flag)
    if Path(path).is_dir():
        raise click.BadParameter(f"{str(path)!r} is a folder; a file is needed", param_hint=flag)
    _check_writable(Path(path), flag)


def _check_writable(path: Path, flag: str) -> None:
    """Refuse a file that may not be changed, and one in a folder that takes no new file to be renamed to it."""
    places = [path] if path.exists() else []
    if not places or path.is_file():  # a pipe or a device is written to as it is
        places.append(path.resolve().parent)
    for place in places:
        if not os.access(place, os.W_OK):
            raise click.BadParameter(f"nothing can be written to {str(place)!r}", param_hint=flag)


def refuse_input_as_output(given: str | Path | None, outputs: Iterable[str | Path | None], flag: str) -> None:
    """Refuse, before any work, to write over the file that is read, by whatever name."""
    for output in outputs:
        if given is None or output is None or str(output) == "-":
            continue
        with suppress(OSError):  # one of them is not there: they are not the same
            if os.path.samefile(given, output):
                raise click.BadParameter(f"{str(output)!r} is the input; allowed: another file", param_hint=flag)


@contextmanager
def file_trouble(path: str | Path) -> Iterator[None]:
    """Say in one line, which begins with the path, what is wrong with a file or its contents: status 1."""
    try:
        yield
    except (ValueError, OSError) as error:
        text = " ".join(str(error).split())
        if isinstance(error, OSError) and error.filename is not None:  # perhaps of a file beside this one
            text = f"{error.filename}: {error.strerror}"
        elif not isinstance(error, Unreadable) and not text.startswith(f"{path}: "):
            text = f"{path}: {text}"
        raise click.ClickException(text) from error


@contextmanager
def writing_trouble() -> Iterator[None]:
    """Say in one line why a file could not be written: status 1."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EPIPE:  # standard output, on which nobody reads on: click ends in silence
            raise
        raise click.ClickException(f"could not write: {told(error)}") from error


def check_folder(path: Path, flag: str) -> None:
    """Refuse a folder that could not be made, with those above it, or written to; names in it are then our own."""
    above = next(folder for folder in (path, *path.parents) if folder.exists())
    if not above.is_dir():
        raise click.BadParameter(f"{str(above)!r} is a file; a folder is needed", param_hint=flag)
    if not os.access(above, os.W_OK):
        raise click.BadParameter(f"nothing can be written to {str(above)!r}", param_hint=flag)
    click.get_current_context().with_resource(own_names(path))


def check_plot(path: str | Path | None) -> None:
    """Refuse a picture that could not be drawn."""
    check_file(path, "--plot", FORMATS)
    if path is not None:
        require_matplotlib("--plot")


def require_matplotlib(flag: str, advice: str = "") -> None:
    """Ask for matplotlib before work begins."""
    if not has_matplotlib():
        raise click.BadParameter(f"needs matplotlib: pip install 'stepwell[plot]'{advice}", param_hint=flag)


def can_draw(wanted: bool, output: Any) -> bool:
    """Whether pictures are wanted and can be drawn; without matplotlib a note says that there will be none."""
    if not wanted:
        return False
    if not has_matplotlib():
        output.notes(["no picture is drawn, which needs matplotlib: pip install 'stepwell[plot]'"])
        return False
    return True


def read_device(ctx: click.Context, option: click.Parameter, value: str) -> str:
    """Read ``cpu``, ``cuda`` or ``cuda:K``."""
    if not re.fullmatch(r"cpu|cuda(:\d+)?", value):
        raise click.BadParameter(f"{value!r} is not a device; allowed: cpu, cuda, cuda:K")
    return value


def place_parameters() -> list[click.Parameter]:
    """Return --array and --device, for `placed` commands."""
    return [click.Option(["--array"], **_ARRAY), click.Option(["--device"], callback=read_device, **_DEVICE)]


def threads_parameter() -> click.Option:
    """Return the option --threads."""
    return click.Option(["--threads"], **_THREADS)


def placed(command: Callable[..., Any]) -> Callable[..., Any]:
    """Hand a command the library and the device that are meant, where `place_parameters` leave it to Stepwell."""

    @functools.wraps(command)
    def call(*args: Any, array: str | None, device: str, **given: Any) -> Any:
        with place_trouble():
            library = places.choose_library(array, device)
        return command(*args, array=library, device=_choose_device(device), **given)

    return call


def place_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command --array, --device and --threads: by which library, where and on how many cores it solves."""
    return _declaring(placed(command), [*place_parameters(), threads_parameter()])


def _declaring(command: Callable[..., Any], options: list[click.Parameter]) -> Callable[..., Any]:
    """Put options before those that a function has already."""
    held: Any = command
    held.__click_params__ = [*getattr(held, "__click_params__", []), *reversed(options)]  # click reads them backwards
    return command


@contextmanager
def place_trouble() -> Iterator[None]:
    """Say which of --array and --device is wrong: status 2."""
    try:
        yield
    except places.NoSuchPlace as error:
        raise click.BadParameter(str(error), param_hint=f"--{error.argument}") from None


def _choose_device(device: str) -> str:
    """Turn plain ``cuda`` into the fastest device of this machine."""
    if device != "cuda":
        return device
    from stepwell.cuda.devices import fastest_device

    try:
        return f"cuda:{fastest_device()}"
    except (ImportError, RuntimeError) as error:
        raise click.BadParameter(str(error), param_hint="--device") from None


def open_place(library: str, dtype: str, device: str) -> Place:
    """Import an array library and find a device of it."""
    with place_trouble():
        return places.open_place(library, device, dtype)
