"""The moving bar of the commands. (Apart from their console: what it needs takes time to import.)"""

from __future__ import annotations

from rich.progress import Progress


class ProgressBar(Progress):
    """A bar that says nothing where it is disabled: rich before version 14 ends such a one with an empty line."""

    def stop(self) -> None:
        """Stop the bar."""
        if not self.disable:
            super().stop()
