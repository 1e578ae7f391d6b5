"""Maps as NIfTI files in the space of the image they were made from."""

from __future__ import annotations

import gzip
import os
from typing import Any

import numpy as np

from stepwell.common.files import replacing


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
