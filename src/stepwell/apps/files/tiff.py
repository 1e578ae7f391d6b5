"""Stacks of TIFF pages, read and written by tifffile."""

from __future__ import annotations

import contextlib
import logging
import math
import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from stepwell.apps.files.foreign import made_elsewhere
from stepwell.apps.files.packages import load_package
from stepwell.common.array_files import require_room
from stepwell.common.files import Unreadable, damage_told, open_regular


def read_pages(path: str | os.PathLike[str]) -> np.ndarray:
    """Read pages (page, ., .): those of one file, or of the files of a folder in the order of their names."""
    tifffile = load_package("tifffile", "tiff", "a TIFF stack")
    if os.path.isdir(path):
        files = sorted(name for name in os.listdir(path) if name.lower().endswith((".tif", ".tiff")))
        if not files:
            raise Unreadable(f"{os.fspath(path)}: the folder holds no TIFF file")
        pages = [_read_file(tifffile, os.path.join(path, name)) for name in files]
        if len({page.shape for page in pages}) != 1 or pages[0].ndim != 2:
            raise Unreadable(f"{os.fspath(path)}: the pages are not images of one shape")
        return np.stack(pages)
    return _read_file(tifffile, path)


def write_pages(path: str | os.PathLike[str], pages: Iterable[np.ndarray]) -> None:
    """Write pages one after the other, as float32."""
    tifffile = load_package("tifffile", "tiff", "a TIFF stack")
    with made_elsewhere(path) as made, tifffile.TiffWriter(made, bigtiff=True) as writer:
        for page in pages:
            writer.write(np.asarray(page, dtype=np.float32), contiguous=True)


def _read_file(tifffile: Any, path: str | os.PathLike[str]) -> np.ndarray:
    """Read all pages of one file."""
    with open_regular(path) as file, damage_told(path), _told_damage() as told:
        try:
            with tifffile.TiffFile(file) as opened:
                require_room(path, sum(math.prod(page.shape) * page.dtype.itemsize for page in opened.pages))
                values = np.asarray(opened.asarray() if len(opened.series) < 2 else _stacked(path, opened.pages))
        except tifffile.TiffFileError as error:
            raise Unreadable(f"{os.fspath(path)}: is no TIFF file ({error})") from error
    if told:  # such as a chain of pages that is cut: those before it would be taken for all
        raise Unreadable(f"{os.fspath(path)}: is damaged ({told[0]})")
    return values


def _stacked(path: str | os.PathLike[str], pages: Any) -> np.ndarray:
    """Return pages that were written one by one, of which tifffile takes the first alone for the image."""
    if len({page.shape for page in pages}) != 1:
        raise Unreadable(f"{os.fspath(path)}: the pages are not images of one shape")
    return np.stack([page.asarray() for page in pages])


@contextlib.contextmanager
def _told_damage() -> Iterator[list[str]]:
    """Gather what tifffile only logs as an error; nothing of it is printed."""
    told: list[str] = []
    logger = logging.getLogger("tifffile")

    def take(record: logging.LogRecord) -> bool:
        if record.levelno >= logging.ERROR:
            told.append(" ".join(record.getMessage().split()))
        return False

    logger.addFilter(take)
    try:
        yield told
    finally:
        logger.removeFilter(take)
