"""A run in a folder: one checkpoint for each rank's piece, and a manifest, written last, that names them.

Until the manifest is replaced, the files of the run saved before are complete and are the ones that it names. A run is
read by any number of ranks: each reads the files that overlap its own piece.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import secrets
from pathlib import Path
from typing import Any

import numpy as np

from stepwell.common.files import Unreadable, damage_told, own_names, read_text, write_text
from stepwell.distributed import Layout, split
from stepwell.quasi_newton import checkpoint
from stepwell.quasi_newton.ranks.setup import Share, together
from stepwell.quasi_newton.run import Run
from stepwell.quasi_newton.saved_state import Saved

MANIFEST = "manifest.json"
_VERSION = 1
#: Bytes that a manifest may have: some hundred for each rank.
_LARGEST = 2**26
_PATTERN = "piece-*.ckpt"
#: Arrays that are the same on all ranks.
_COMMON = ("states", "small")


def save_pieces(folder: Any, run: Run, share: Share) -> None:
    """Write this rank's piece of a run; all ranks call it, and all raise where one cannot write."""
    ranks, pieces = share.ranks, share.pieces
    path = Path(folder)
    token = ranks.gather_texts(secrets.token_hex(8))[0]  # the first rank's: files of two runs never mix
    name = f"piece-{token}-{ranks.rank:05d}.ckpt"

    def write() -> None:
        path.mkdir(parents=True, exist_ok=True)
        checkpoint.write(path / name, run, {"token": token, "begin": pieces.begin})

    together(ranks, write)
    rows = [json.loads(text) for text in ranks.gather_texts(json.dumps(run.variables.shape[1:]))]
    names = [f"piece-{token}-{rank:05d}.ckpt" for rank in range(ranks.size)]
    manifest = {
        "version": _VERSION,
        "n": pieces.n,
        "align": pieces.align if isinstance(pieces, Layout) else 1,
        "chunk": pieces.chunk if isinstance(pieces, Layout) else 0,
        "row": rows[0] if all(row == rows[0] for row in rows) else [],
        "borders": list(pieces.borders),
        "token": token,
        "files": names,
    }

    def conclude() -> None:
        if ranks.rank == 0:
            with own_names(path):
                write_text(path / MANIFEST, json.dumps(manifest, indent=1) + "\n")
            for old in set(path.glob(_PATTERN)) - {path / name for name in names}:
                with contextlib.suppress(OSError):
                    old.unlink()

    together(ranks, conclude)


def _comparable(saved: Saved) -> Any:
    return dataclasses.replace(saved.settings, threads=None)  # each rank may have its own


@dataclasses.dataclass(frozen=True)
class Folder:
    """A saved run, as its manifest describes it; or one file, of a run without ranks."""

    n: int
    align: int
    row: tuple[int, ...]  #: the shape of a row of the variables, if they had one
    borders: tuple[int, ...]
    files: tuple[Path, ...]
    token: str | None  #: which all files have
    chunk: int = 0  #: as the layout had it; 0: the rule's

    @classmethod
    def of(cls, path: Any) -> Folder:
        """Read a manifest and check it."""
        path = Path(path)
        if not path.is_dir():
            shape = checkpoint.read(path)[0].shape
            n = math.prod(shape)
            return cls(n, 1, shape[1:], (0, n), (path,), None)
        place = path / MANIFEST
        with damage_told(place):
            found = json.loads(read_text(place, _LARGEST))
            if not isinstance(found, dict) or found.get("version") != _VERSION:
                raise Unreadable(f"{os.fspath(place)}: is no manifest of version {_VERSION}")
            read = cls(
                int(found["n"]),
                int(found["align"]),
                tuple(map(int, found["row"])),
                tuple(map(int, found["borders"])),
                tuple(path / str(name) for name in found["files"]),
                str(found["token"]),
                int(found.get("chunk", 0)),
            )
        ends = (read.borders[:1], read.borders[-1:]) == ((0,), (read.n,))
        sound = ends and list(read.borders) == sorted(read.borders) and {file.parent for file in read.files} == {path}
        if not sound or len(read.files) != len(read.borders) - 1 or min(read.n, read.align, read.chunk + 1) < 1:
            raise Unreadable(f"{os.fspath(place)}: names pieces that do not make up {read.n} variables")
        return read

    def layout(self, comm: Any, *, on_device: bool) -> Layout:
        """Return the layout by which ranks go on, with the chunks that the run had."""
        if not isinstance(comm, Layout):
            # (A GPU sweeps whole chunks: see `split`.)
            return split(self.n, comm, self.align, chunk=self.chunk or None, whole_chunks=on_device)
        if (comm.n, comm.align, comm.chunk) != (self.n, self.align, self.chunk):
            given, had = (
                f"n={of.n}, align={of.align}" + (f", chunk={of.chunk}" if of.chunk else "") for of in (comm, self)
            )
            raise ValueError(
                f"comm is a layout of {given}; allowed: one of {had}, as the run was saved, or a communicator"
            )
        return comm

    def piece(self, begin: int, end: int) -> Saved:
        """Return the state of a run that has the variables from `begin` to `end`, from the files that overlap it."""
        spans = list(zip(self.files, self.borders, self.borders[1:]))
        wanted = [span for span in spans if span[1] < end and span[2] > begin] or spans[:1]
        cut = [self._cut(*span, begin, end) for span in wanted]
        first = cut[0]
        for (file, *_), other in zip(wanted, cut):
            same = all(np.array_equal(first.arrays[key], other.arrays[key]) for key in _COMMON)
            if not same or _comparable(other) != _comparable(first):
                raise Unreadable(f"{os.fspath(file)}: is not of the same run as the others")
        arrays = {
            key: first.arrays[key] if key in _COMMON else np.concatenate([one.arrays[key] for one in cut], axis=-1)
            for key in first.arrays
        }
        joined: dict[str, Any] = {
            key: None if getattr(first, key) is None else np.concatenate([getattr(one, key) for one in cut], axis=-1)
            for key in ("lower", "upper", "weights")
        }
        shape: tuple[int, ...] = (end - begin,)
        row = math.prod(self.row)
        if self.row and row and (end - begin) % row == 0:
            shape = ((end - begin) // row, *self.row)
        return dataclasses.replace(first, shape=shape, arrays=arrays, **joined)

    def _cut(self, file: Path, first: int, last: int, begin: int, end: int) -> Saved:
        """Return what a file that has the variables from `first` to `last` has of those from `begin` to `end`."""
        saved, more = checkpoint.read(file)
        known = self.token is None or (more.get("token"), more.get("begin")) == (self.token, first)
        if not known or saved.arrays["x"].shape[-1] != last - first:
            raise Unreadable(f"{os.fspath(file)}: is not the file that the manifest names")
        part = slice(min(max(begin - first, 0), last - first), max(min(end, last) - first, 0))
        arrays_cut = {
            key: array if key in _COMMON else np.ascontiguousarray(array[..., part])
            for key, array in saved.arrays.items()
        }
        cut: dict[str, Any] = {
            key: None if value is None else np.ascontiguousarray(_of_each(value, last - first)[..., part])
            for key in ("lower", "upper", "weights")
            for value in [getattr(saved, key)]
        }
        return dataclasses.replace(saved, arrays=arrays_cut, **cut)


def _of_each(values: np.ndarray, size: int) -> np.ndarray:
    """Return bounds of every variable: those that are a number repeated."""
    return np.broadcast_to(values, (size,)) if values.shape == (1,) else values
