"""A bar for whoever says ``progress=True``: rich's in a terminal, tqdm's in a notebook, none in a pipe."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from stepwell.common.checks import require_function

#: Called as ``progress(done, total)``; True shows a bar.
Told = Callable[[int, int], object]
F = TypeVar("F", bound=Callable[..., Any])


def with_bar(title: str) -> Callable[[F], F]:
    """Let a function with an argument `progress` take True, which shows a bar while it runs, and False."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def call(*args: Any, **given: Any) -> Any:
            progress = given.get("progress")
            if not isinstance(progress, bool):
                return function(*args, **given)
            if not progress:
                return function(*args, **(given | {"progress": None}))
            with shown_bar(title) as tell:
                return function(*args, **(given | {"progress": tell}))

        return call  # type: ignore[return-value]

    return decorate


def as_told(progress: Told | bool | None) -> Told | None:
    """Return the function that `with_bar` has made of an argument; it leaves no True or False."""
    if isinstance(progress, bool):
        return None
    require_function("progress", progress)
    return progress


@contextlib.contextmanager
def shown_bar(title: str) -> Iterator[Told]:
    """Show a bar; yields the function that moves it."""
    with _notebook_bar(title) if in_notebook() else _terminal_bar(title) as tell:
        yield tell


def in_notebook() -> bool:
    """Whether this runs in a notebook (Jupyter, Colab) in which tqdm can draw."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None or type(shell).__name__ == "TerminalInteractiveShell":
        return False
    try:
        import tqdm.auto  # noqa: F401
    except ImportError:
        return False
    return True


@contextlib.contextmanager
def _notebook_bar(title: str) -> Iterator[Told]:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that widgets are missing: the bar is then text
        from tqdm.auto import tqdm

        bar = tqdm(desc=title)

    def tell(done: int, total: int) -> None:
        bar.total = total
        bar.update(done - bar.n)

    try:
        yield tell
    finally:
        bar.close()


@contextlib.contextmanager
def _terminal_bar(title: str) -> Iterator[Told]:
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done, total: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
