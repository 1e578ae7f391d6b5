"""Packages that formats need, asked for in the same words and before any work."""

from __future__ import annotations

import importlib
import importlib.util
import os
from pathlib import Path
from typing import Any

from stepwell.common.files import Unreadable, open_regular

#: Packages that a format needs, by the ending of a file's name, and the extra that brings them.
NEEDS = {
    ".nii": ("nibabel", "nifti"),
    ".nii.gz": ("nibabel", "nifti"),
    ".tif": ("rasterio", "geo"),
    ".tiff": ("rasterio", "geo"),
    ".jp2": ("rasterio", "geo"),
    ".gpkg": ("pyogrio", "geo"),
}
#: With which HDF5 files begin; those of MATLAB have 512 bytes before it.
HDF5_MARK = b"\x89HDF\r\n\x1a\n"
#: Where, and with which, a DICOM file says what it is.
_DICOM_AT, _DICOM_MARK = 128, b"DICM"


def ending_of(path: str | os.PathLike[str]) -> str:
    """Return how a file's name ends, in small letters, ``.nii.gz`` as one."""
    name = Path(path).name.lower()
    return ".nii.gz" if name.endswith(".nii.gz") else Path(name).suffix


def require_package(path: str | os.PathLike[str]) -> None:
    """Raise, with the command that installs it, where the package that reads a file is missing."""
    package, extra = NEEDS.get(ending_of(path), (None, None))
    if ending_of(path) == ".mat" and is_hdf5(path):
        package, extra = "h5py", "matlab"
    if package is not None and importlib.util.find_spec(package) is None:
        raise ModuleNotFoundError(f"{os.fspath(path)}: needs {package}: pip install 'stepwell[{extra}]'")


def load_package(module: str, extra: str, kind: str) -> Any:
    """Import a package; where it is missing the error has the command that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ImportError(f"{kind} needs {module}: pip install 'stepwell[{extra}]'") from None


def is_hdf5(path: str | os.PathLike[str]) -> bool:
    """Whether a file is HDF5, as MATLAB 7.3 writes it or as others do; False where there is none."""
    if not Path(path).is_file():
        return False
    with open_regular(path) as file:
        head = file.read(512 + len(HDF5_MARK))
    return head.startswith(HDF5_MARK) or head[512:] == HDF5_MARK


def refuse_dicom(path: str | os.PathLike[str]) -> None:
    """Raise for a DICOM file, or a folder of them, with the program that makes NIfTI of these."""
    given = Path(path)
    files = sorted(given.iterdir())[:3] if given.is_dir() else [given]
    for file in files:
        if file.is_file() and (file.suffix.lower() == ".dcm" or _marked(file)):
            raise Unreadable(
                f"{os.fspath(path)}: is DICOM; allowed: what dcm2niix makes of it, such as "
                "`dcm2niix -z y -o OUT FOLDER`, whose .nii.gz has all echoes"
            )
    if given.is_dir():
        raise Unreadable(f"{os.fspath(path)}: is a folder; allowed: a file")


def _marked(file: Path) -> bool:
    with open_regular(file) as opened:
        opened.seek(_DICOM_AT)
        return opened.read(len(_DICOM_MARK)) == _DICOM_MARK
