"""Files that another library writes by their name: made in a folder of their own, put in place in one step."""

from __future__ import annotations

import contextlib
import filecmp
import os
import shutil
from collections.abc import Iterator

from stepwell.common.files import open_regular, replacing
from stepwell.common.temporary import scratch_folder


@contextlib.contextmanager
def made_elsewhere(path: str | os.PathLike[str], *, same_stays: bool = False) -> Iterator[str]:
    """Yield a name, of the same ending, to which a library writes; afterwards `path` is replaced by that file.

    `same_stays`: a file of the same bytes stays as it is, with the time of its last change.
    """
    folder = os.path.dirname(os.path.abspath(path))
    with scratch_folder(folder) as scratch:
        made = os.path.join(scratch, "made" + os.path.splitext(os.fspath(path))[1])
        yield made
        if same_stays and _is_same(made, path):
            return
        with open_regular(made) as whole, replacing(path) as file:
            shutil.copyfileobj(whole, file)


def _is_same(made: str, path: str | os.PathLike[str]) -> bool:
    return os.path.isfile(path) and not os.path.islink(path) and filecmp.cmp(made, path, shallow=False)
