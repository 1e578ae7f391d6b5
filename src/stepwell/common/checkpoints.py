"""Checkpoints: named arrays and plain values in one file, with a kind, a version and a checksum, and without pickle.

The file is an npz file that `numpy.load` reads. Beside the arrays it holds a text, ``checkpoint``: JSON with the kind,
the version of this format, the plain values and the SHA-256 of all of it. It is replaced in one step, so that at every
moment, also after SIGKILL, there is one whole checkpoint; what was changed or cut short is told when it is read.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from stepwell.common.array_files import open_arrays, write_arrays
from stepwell.common.checks import require, require_kind
from stepwell.common.files import Path, Unreadable, damage_told, replacing

#: The version of this format; what a kind of checkpoint holds has a version of its own among its fields.
VERSION = 1
_HEAD = "checkpoint"
_UNITS = {"s": 1, "min": 60, "h": 3600}


def write(path: Path, kind: str, fields: Mapping[str, Any]) -> None:
    """Write arrays and plain values (numbers, texts, and lists of them) in place of the checkpoint at `path`.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "run.ckpt"
    >>> write(file, "example", {"x": np.arange(3), "turns": 7})
    >>> read(file, "example")
    {'turns': 7, 'x': array([0, 1, 2])}
    """
    arrays = {name: np.asarray(value) for name, value in fields.items() if isinstance(value, np.ndarray | np.generic)}
    plain = {name: value for name, value in fields.items() if name not in arrays}
    head = {"kind": kind, "version": VERSION, "arrays": sorted(arrays), "plain": plain}
    head = json.loads(json.dumps(head))  # as it will be read: tuples are lists
    head["sha256"] = _checksum(head, arrays)
    held = {_HEAD: np.array(json.dumps(head)), **arrays}
    with replacing(path, again=True) as file:
        write_arrays(file, held)


def read(path: Path, kind: str) -> dict[str, Any]:
    """Return what :func:`write` wrote; whatever is wrong with the file is `Unreadable`, whose text has the path."""
    with open_arrays(path, stored=True) as file, damage_told(path):
        if _HEAD not in file:
            raise Unreadable(f"{path}: is not a checkpoint")
        try:
            head = json.loads(str(file[_HEAD]))
            found, version, names, plain = (head[name] for name in ("kind", "version", "arrays", "plain"))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise Unreadable(f"{path}: is a damaged checkpoint: {error!r}") from error
        if found != kind:
            raise Unreadable(f"{path}: is a checkpoint of {found!r}; allowed: {kind!r}")
        if version != VERSION:
            raise Unreadable(f"{path}: is a checkpoint of version {version!r}; allowed: {VERSION}")
        if not isinstance(plain, dict) or not isinstance(names, list) or file.names != {_HEAD, *map(str, names)}:
            raise Unreadable(f"{path}: is a damaged checkpoint: it holds {sorted(file.names)}")
        arrays = {str(name): file[str(name)] for name in names}
        if _checksum(head, arrays) != head.get("sha256"):
            raise Unreadable(f"{path}: is a damaged checkpoint: its contents have another checksum")
    return plain | arrays


def _checksum(head: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    said = {name: value for name, value in head.items() if name != "sha256"}
    digest.update(json.dumps(said, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(repr((name, array.dtype.str, arrays[name].shape)).encode())
        digest.update(array.reshape(-1).view(np.uint8).data if array.size else b"")
    return digest.hexdigest()


def read_interval(value: Any, what: str) -> tuple[int | None, float | None]:
    """Read how often to write: after so many iterations, say, or after a time such as ``"30 s"``; the other is None.

    Examples
    --------
    >>> read_interval(100, "iterations"), read_interval("2 min", "iterations")
    ((100, None), (None, 120.0))
    """
    allowed = f"a whole number of {what} of at least 1, or a time such as '30 s', '5 min', '1 h'"
    if isinstance(value, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(s|min|h)\s*", value)
        require(found is not None, "checkpoint_every", value, allowed)
        assert found is not None
        return None, float(found[1]) * _UNITS[found[2]]
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    require_kind(whole, "checkpoint_every", value, allowed)
    require(value >= 1, "checkpoint_every", value, allowed)
    return int(value), None


def read_path(path: Any) -> str:
    """Return a path at which a checkpoint can be written."""
    require_kind(isinstance(path, str | os.PathLike), "checkpoint", path, "None or a path")
    name = os.fsdecode(path)
    folder = os.path.dirname(os.path.realpath(name))
    writable = os.path.isdir(folder) and not os.path.isdir(name) and os.access(folder, os.W_OK)
    require(writable, "checkpoint", name, "a path in a folder that can be written to")
    return name
