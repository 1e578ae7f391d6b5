"""How Ctrl-C ends the program where there is nothing to put in order."""

from __future__ import annotations

import os
import signal
from typing import Any

#: The exit status of a program that Ctrl-C ended, as shells report it.
INTERRUPTED = 128 + signal.SIGINT


def end_at_once(number: int, frame: Any) -> None:
    """End at once: nothing has been begun, or all is done. (An exception could be lost in what is being imported.)"""
    os.write(2, b"stepwell: interrupted\n")
    os._exit(INTERRUPTED)
