"""A whole file of shots: read and taken apart in parts that are kept, so that a run that was stopped goes on."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from stepwell.apps.decomposition.fitting import Decomposition, Starts, decompose
from stepwell.apps.decomposition.table import decomposition_table
from stepwell.apps.files.named import HDF5
from stepwell.apps.files.points import write_points
from stepwell.apps.files.tables import write_table
from stepwell.apps.images.mapping import NOT_FITTED, UNFINISHED
from stepwell.apps.images.running import MapRun, told
from stepwell.apps.images.work import identity
from stepwell.apps.waveform import gedi
from stepwell.apps.waveform.deconvolution import Shots, load_shots
from stepwell.apps.waveform.significance import LEVEL
from stepwell.arrays import Array
from stepwell.arrays.presenting import Told
from stepwell.common.array_files import write_arrays
from stepwell.common.checks import read_choice, read_whole, require
from stepwell.common.files import replacing
from stepwell.common.progress import as_told, with_bar

#: Shots that are taken apart at a time; systems are independent, so the bits are the same.
PART = 2000
#: The account of a run, its arrays and its table.
ACCOUNT, ARRAYS, TABLE = "decompose.json", "decomposition.npz", "returns.csv"
GEOPACKAGE, PICTURE = "returns.gpkg", "shots.png"
_WIDE = ("position", "amplitude", "width", "position_se", "amplitude_se", "width_se")
_NARROW = ("background", "residual")


@dataclasses.dataclass(frozen=True)
class DecompositionRun(Told):
    """What was made of a file.

    Attributes
    ----------
    files : list of Path
        What was written.
    shots, done, converged, returns : int
        Shots of the file, those that could be used, those whose fit converged, and returns of all.
    beams : dict
        Of each beam, how many shots it has, how many were done, and how many were skipped for which reason.
    statuses : dict of int
        How many fits ended how, by the names of :class:`stepwell.FitStatus` in small letters.
    resumed : int
        Parts that an earlier run had done.
    seconds : float
    """

    files: list[Path]
    shots: int
    done: int
    converged: int
    returns: int
    beams: dict[str, dict[str, Any]]
    statuses: dict[str, int]
    resumed: int
    seconds: float


class Source:
    """Shots of a granule or of an npz file, a part at a time.

    Parameters
    ----------
    file : path or Shots
    beam, first, last, samples
        Of a granule, as in :func:`stepwell.apps.waveform.load_gedi`.
    """

    def __init__(self, file: Any, beam: str | None, first: int, last: int | None, samples: int) -> None:
        self._file, self._samples = file, read_whole("samples", samples, 1)
        self._shots: Shots | None = None
        first = read_whole("first", first, 0)
        if isinstance(file, Shots):
            self._shots = file
        elif Path(file).suffix.lower() not in HDF5:
            self._shots = load_shots(file, self._samples)
        if self._shots is not None:
            require(beam is None, "beam", beam, "None, or a GEDI granule")
            counts = {"": len(self._shots)}
        else:
            counts = gedi.shot_counts(file, beam)
        self.ranges: list[tuple[str, int, int]] = []
        for name, count in counts.items():
            end = count if last is None else min(count, last)
            self.ranges += [(name, begin, min(end, begin + PART)) for begin in range(first, end, PART)]
        require(bool(self.ranges), "first", first, "the number of a shot that the file has")

    @property
    def sizes(self) -> list[int]:
        """How many shots each part has, those that cannot be used included."""
        return [end - begin for _, begin, end in self.ranges]

    def read(self, part: int) -> gedi.Part:
        """Read one part."""
        beam, begin, end = self.ranges[part]
        if self._shots is not None:
            return gedi.Part("", self._shots.part(slice(begin, end)), end - begin, {}, 0)
        how: dict[str, Any] = {"first": begin, "last": end, "samples": self._samples}
        (found,) = gedi.read_parts(self._file, beam, **how)
        return found


@with_bar("shots")
def decompose_file(
    file: str | os.PathLike[str] | Shots,
    output: str | os.PathLike[str],
    *,
    beam: str | None = None,
    first: int = 0,
    last: int | None = None,
    samples: int = 512,
    starts: Starts = "peaks",
    most: int = 8,
    level: float = LEVEL,
    geopackage: bool = False,
    restart: bool = False,
    overwrite: bool = False,
    threads: int | None = None,
    put: Callable[[np.ndarray], Array] | None = None,
    progress: Callable[[int, int], object] | bool | None = None,
) -> DecompositionRun:
    """Take the waveforms of a file apart into Gaussians.

    Parameters
    ----------
    file : path or Shots
        A GEDI L1B granule as NASA distributes it (HDF5, needs h5py), or an npz file as
        :func:`stepwell.apps.waveform.load_shots` reads it.
    output : folder
        ``returns.csv`` has one row per return (:func:`decomposition_table`), ``decomposition.npz`` the arrays of a
        :class:`Decomposition`, ``decompose.json`` settings and counts. Until all is done the parts lie in
        ``.unfinished`` there; the same call goes on with them.
    beam, first, last, samples
        Beam of a granule (default: all), which shots of each, `last` not included, and the window round the peak.
    starts, most, level
        As in :func:`decompose`.
    geopackage : bool, default False
        Whether ``returns.gpkg`` is written too; needs pyogrio and a file with positions.
    restart : bool, default False
        Discard what an unfinished run has left.
    overwrite : bool, default False
        Write over what a finished run with other settings, or of another file, has left.
    threads, put, progress
        As in :func:`decompose`.

    Examples
    --------
    >>> import tempfile
    >>> from stepwell.apps import decomposition
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = decompose_file(decomposition.simulate(3, samples=120, returns=2).shots, f"{folder}/out")
    ...     with open(f"{folder}/out/returns.csv") as file:
    ...         file.readline().startswith("shot,number")
    True
    """
    shell = MapRun(Path(output) / ACCOUNT, TABLE, ARRAYS, GEOPACKAGE, PICTURE, restart=restart, overwrite=overwrite)
    read_choice("starts", starts, ("peaks", "deconvolve"))
    source = Source(file, beam, first, last, samples)
    tell, folder = as_told(progress), Path(output)
    named = None if isinstance(file, Shots) else identity(file)
    how = {"starts": starts, "most": most, "level": level}
    settings = how | {"beam": beam, "first": first, "last": last, "samples": samples, "input": named}
    if geopackage:
        _require_positions(file, beam)
    sizes = source.sizes
    total, ends = sum(sizes), np.cumsum([0, *sizes]).tolist()
    with shell.begun():
        shell.settle(settings)
        maps: dict[str, tuple[tuple[int, ...], str]] = dict.fromkeys(_WIDE, ((total, most), "f8"))
        maps |= dict.fromkeys(_NARROW, ((total,), "f8"))
        maps |= dict.fromkeys(("count", "status"), ((total,), "i2"))
        work = shell.start(folder / UNFINISHED, maps, total)
        resumed = 0
        for part, (begin, end) in enumerate(itertools.pairwise(ends)):
            if work.is_done(begin, end):
                resumed += 1
            else:
                work.put(0, begin, end, _taken_apart(source.read(part), how, most, threads, put))
            if tell is not None:
                tell(end, total)
        shell.replace()
        run = _finish(source, shell, ends, geopackage, resumed)
        shell.end(told(run, "shots", "done", "converged", "returns", "beams", "statuses", "seconds"))
        return run


def _require_positions(file: Any, beam: str | None) -> None:
    """Raise, before any work, where returns have no place on the earth."""
    if isinstance(file, Shots):
        without = [] if "elevation_bin0" in (file.about or {}) else ["these shots have no positions"]
    elif Path(file).suffix.lower() in HDF5:
        without = gedi.unplaced(file, beam)
    else:
        without = ["only GEDI granules (HDF5) have positions"]
    require(not without, "geopackage", True, f"False here; {next(iter(without), '')}")


def _taken_apart(
    part: gedi.Part, how: dict[str, Any], most: int, threads: int | None, put: Any
) -> dict[str, np.ndarray]:
    """Return the arrays of one part; shots that could not be used are rows at its end, with status -1."""
    held: dict[str, np.ndarray] = {name: np.full((part.total, most), np.nan) for name in _WIDE}
    held |= {name: np.full(part.total, np.nan) for name in _NARROW}
    held |= {"count": np.zeros(part.total, np.int16), "status": np.full(part.total, NOT_FITTED, np.int16)}
    if part.shots is not None and len(part.shots):
        done = decompose(part.shots, threads=threads, put=put, **how)
        for name, array in held.items():
            array[: len(part.shots)] = getattr(done, name)
    return held


def kept_part(source: Source, arrays: Any, part: int, begin: int) -> tuple[gedi.Part, Decomposition | None]:
    """Return one part of a file and, of its arrays, the decomposition of the shots that could be used."""
    read = source.read(part)
    if read.shots is None or not len(read.shots):
        return read, None
    rows = slice(begin, begin + len(read.shots))
    held = {name: np.array(arrays[name][rows]) for name in (*_WIDE, *_NARROW, "count", "status")}
    return read, Decomposition(read.shots, **held)


def _finish(source: Source, shell: MapRun, ends: list[int], geopackage: bool, resumed: int) -> DecompositionRun:
    """Write tables and arrays, part by part, and count."""
    from stepwell.fit.status import FitStatus

    folder = shell.account.parent

    tables: list[dict[str, np.ndarray]] = []
    arrays: dict[str, list[np.ndarray]] = {}
    beams: dict[str, dict[str, Any]] = {}
    done = 0
    for part, begin in enumerate(ends[:-1]):
        read, found = kept_part(source, shell.work.arrays, part, begin)
        if read.beam:
            held = beams.setdefault(read.beam, {"shots": 0, "done": 0, "skipped": {}})
            held["shots"] += read.total
            held["done"] += 0 if found is None else len(found.shots)
            for reason, number in read.skipped.items():
                held["skipped"][reason] = held["skipped"].get(reason, 0) + number
        if found is None:
            continue
        tables.append(decomposition_table(found, done))
        start = np.zeros(len(found.shots), np.int64) if found.shots.start is None else found.shots.start
        for name in (*_WIDE, *_NARROW, "count", "status"):
            arrays.setdefault(name, []).append(getattr(found, name))
        arrays.setdefault("window_start", []).append(start)
        done += len(found.shots)
    files = []
    whole = {name: np.concatenate(parts) for name, parts in arrays.items()}
    if done:
        names = [name for name in tables[0] if all(name in table for table in tables)]
        rows = {name: np.concatenate([table[name] for table in tables]) for name in names}
        write_table(folder / TABLE, rows)
        files.append(folder / TABLE)
        if geopackage:
            require("latitude" in rows, "geopackage", True, "False: the file has no geolocation")
            write_points(folder / GEOPACKAGE, rows)
            files.append(folder / GEOPACKAGE)
        with replacing(folder / ARRAYS) as opened:
            write_arrays(opened, whole, compressed=True)
        files.append(folder / ARRAYS)
    status = whole.get("status", np.zeros(0, int))
    statuses = {one.name.lower(): int(np.sum(status == int(one))) for one in FitStatus}
    return DecompositionRun(
        files,
        ends[-1],
        done,
        int(np.sum(status > 0)),
        int(np.sum(whole.get("count", 0))),
        beams,
        {name: number for name, number in statuses.items() if number},
        resumed,
        shell.seconds,
    )
