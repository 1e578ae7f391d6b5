"""How the command line starts: standard streams that are there, and Ctrl-C heeded before anything large is imported."""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn

from stepwell.cli.interrupts import end_at_once

#: What each standard stream is without, where whoever started the program has closed it. Standard output is one to
#: which nothing can be written: that it is lost must not stay unsaid.
_STREAMS = {"stdin": ("r", os.O_RDONLY), "stdout": ("w", os.O_RDONLY), "stderr": ("w", os.O_WRONLY)}


def main() -> NoReturn:
    """Run `stepwell COMMAND`."""
    _open_closed_streams()
    heeding = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heeding:
        signal.signal(signal.SIGINT, end_at_once)
    from stepwell.cli import group

    status = 1
    try:
        group.main(prog_name="stepwell")
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except OSError as error:  # of --help and the like: nothing can be printed
        group.discard_output()
        sys.stderr.write(f"Error: {group.told(error)}\n")
    finally:
        if heeding:
            signal.signal(signal.SIGINT, end_at_once)
    sys.exit(status)


def _open_closed_streams() -> None:
    """Open what was closed (``>&-``): else a file of ours would get its number, and what is printed there with it."""
    for number, (name, (mode, flags)) in enumerate(_STREAMS.items()):
        if getattr(sys, name) is not None:
            continue
        descriptor = os.open(os.devnull, flags)  # the lowest number that is free: this one
        stream = open(descriptor, mode, encoding="utf-8", closefd=descriptor != number)  # noqa: SIM115
        setattr(sys, name, stream)
