"""What compiled kernels are called on disk, and how they are written there: by Stepwell, and while it is built.

Nothing but the standard library is imported: a build has no more (scripts/usual_kernels.py).
"""

from __future__ import annotations

import functools
import hashlib
import os
import pathlib
from collections.abc import Mapping

#: What compilers get beside an architecture, definitions and the folder of headers.
STANDARD = "c++20"


@functools.cache
def _sources_digest(folder: str) -> bytes:
    """SHA-256 of all that kernels are compiled from: once a process, since it takes as long as loading a kernel."""
    digest = hashlib.sha256()
    for part in ("core", "cuda"):
        for parent, folders, files in os.walk(os.path.join(folder, part)):
            folders.sort()
            for name in sorted(files):
                if not name.endswith((".hpp", ".cu", ".cuh")):
                    continue
                path = os.path.join(parent, name)
                with open(path, "rb") as file:
                    digest.update(os.path.relpath(path, folder).encode() + b"\0" + file.read())
    return digest.digest()


def source_of(name: str, folder: pathlib.Path) -> pathlib.Path:
    """Return the source ``NAME.cu`` in a folder with ``core`` and ``cuda``."""
    (path,) = folder.glob(f"cuda/*/{name}.cu")
    return path


def entry_name(
    name: str, defines: Mapping[str, str | int], architecture: str, source: str, folder: pathlib.Path
) -> str:
    """Return the name of a kernel's entry, without the compiler's version and the ending."""
    digest = hashlib.sha256(repr((name, sorted(defines.items()), architecture, source)).encode())
    digest.update(_sources_digest(str(folder)))
    return f"{name}-{architecture}-{digest.hexdigest()[:32]}"


def checksum(entry: str, code: bytes) -> bytes:
    """SHA-256 of the name of an entry's file and its code: under another's name it is as wrong as a damaged one."""
    return hashlib.sha256(entry.encode() + b"\0" + code).digest()
