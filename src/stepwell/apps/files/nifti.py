"""NIfTI: maps in the space of the image they were made from, and whether two images lie in one space."""

from __future__ import annotations

import contextlib
import gzip
import logging
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from stepwell.common.files import Unreadable, replacing


def write_nifti(path: str | os.PathLike[str], array: np.ndarray, like: Any = None) -> None:
    """Write a map, a slice at a time; `like` is nibabel's image whose affine and header are passed on."""
    import nibabel

    header = None
    affine = np.eye(4)
    if like is not None:
        header = like.header.copy()
        header.set_data_dtype(array.dtype)
        header.set_slope_inter(1, 0)
        for field in ("cal_max", "cal_min"):
            header[field] = 0
        affine = like.affine
    image = nibabel.Nifti1Image(array, affine, header, dtype=array.dtype)
    with replacing(path) as file:
        if os.fspath(path).endswith(".gz"):
            with gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=4, mtime=0) as packed:
                image.to_stream(packed)
        else:
            image.to_stream(file)


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Keep nibabel from printing what it also raises: of a damaged header there is one line, the error's."""
    logger = logging.getLogger("nibabel.global")

    def refuse(record: logging.LogRecord) -> bool:
        return False

    logger.addFilter(refuse)
    try:
        yield
    finally:
        logger.removeFilter(refuse)


def require_same_space(image: Any, other: Any, path: str | os.PathLike[str], name: str) -> None:
    """Raise where two of nibabel's images do not lie in one place: both affines are shown.

    Entries may differ by a thousandth of a voxel, which is what programs that store them as float32 leave.
    """
    ours, theirs = np.asarray(image.affine, dtype=float), np.asarray(other.affine, dtype=float)
    sizes = np.sqrt((ours[:3, :3] ** 2).sum(axis=0))
    if np.allclose(ours, theirs, rtol=0, atol=1e-3 * float(sizes.max(initial=1.0))):
        return
    raise Unreadable(
        f"{os.fspath(path)}: the {name} lies elsewhere than the image: its affine is {_rows(theirs)} "
        f"({_orientation(theirs)}), the image's {_rows(ours)} ({_orientation(ours)}); allowed: the same, so resample "
        "or reorient one of them"
    )


def _rows(affine: np.ndarray) -> str:
    return "[" + "; ".join(" ".join(f"{value:g}" for value in row) for row in affine[:3]) + "]"


def _orientation(affine: np.ndarray) -> str:
    import nibabel

    return "".join(code or "?" for code in nibabel.aff2axcodes(affine))
