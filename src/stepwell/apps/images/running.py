"""The shell of every run that makes maps: other settings are refused, an unfinished run goes on, an account is left."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stepwell.apps.images.work import Work, forget_finished, make_folder, plain, refuse_other_settings
from stepwell.common.files import own_names, write_text
from stepwell.common.temporary import scratch_folder


class MapRun:
    """One run: `begun`, `settle` its settings, `start` its maps, fill these, `replace` what was there, and `end`.

    Parameters
    ----------
    account : path
        Where settings, counts and means are written at the end.
    others : names
        Further files that a finished run may have left beside the account.
    restart, overwrite : bool
        Discard what an unfinished run has left; write over a finished run with other settings.

    Attributes
    ----------
    work : Work
        The maps, once they are open.
    settings : dict
        What stands in the account.
    """

    work: Work

    def __init__(self, account: Path, *others: str, restart: bool, overwrite: bool) -> None:
        self._began = time.perf_counter()
        self.account, self._others = account, others
        self._restart, self._overwrite = restart, overwrite

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return time.perf_counter() - self._began

    @contextmanager
    def begun(self) -> Iterator[str]:
        """Make the folder of the account, which goes again where nothing comes of it, and a scratch folder there."""
        folder = self.account.parent
        with make_folder(folder), scratch_folder(folder) as scratch, own_names(folder):
            yield scratch

    def settle(self, settings: Mapping[str, Any], *unrecorded: str) -> None:
        """Refuse what a finished run with other settings has left; some settings are not in accounts."""
        self._all = plain(settings)
        self.settings = {name: value for name, value in self._all.items() if name not in unrecorded}
        self._replaces = refuse_other_settings(self.account, self.settings, self._overwrite)

    def start(self, unfinished: Path, maps: Mapping[str, tuple[tuple[int, ...], str]], slabs: int) -> Work:
        """Open the maps, new or as an unfinished run with the same settings has left them."""
        self.work = Work(unfinished, self._all, maps, slabs, restart=self._restart)
        return self.work

    def replace(self) -> None:
        """Remove a finished run with other settings: the new maps are there."""
        if self._replaces:
            forget_finished(self.account, *self._others)

    def end(self, held: Mapping[str, Any]) -> None:
        """Write the account and remove the unfinished maps, which are elsewhere now."""
        from stepwell import __version__

        record = {"stepwell": __version__, "settings": self.settings, **held}
        write_text(self.account, json.dumps(plain(record), indent=1) + "\n")
        self.work.discard()


def told(run: object, *names: str) -> dict[str, Any]:
    """Return some of the fields of a result, for its account."""
    return {name: getattr(run, name) for name in names}
