"""A whole image: read in slabs, mapped, and written in its own space; a run that was stopped goes on."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from stepwell.apps.files.tables import write_table
from stepwell.apps.images import Image, Work, fill, open_image
from stepwell.apps.images.mapping import FORMATS, UNFINISHED, Format, open_beside, put_back, statistics, write_maps
from stepwell.apps.images.presenting import Mapped
from stepwell.apps.images.regions import REGIONS, region_table, require_labels
from stepwell.apps.images.work import STEP_BYTES, forget_finished, identity, make_folder, plain, refuse_other_settings
from stepwell.apps.t2.echoes import require_echoes
from stepwell.apps.t2.fit import fit_voxels
from stepwell.apps.t2.maps import MAPS
from stepwell.apps.t2.model import T2Model
from stepwell.apps.t2.sidecar import read_sidecar, settle_spacing
from stepwell.arrays import Array
from stepwell.arrays.presenting import labelled
from stepwell.common.checks import read_choice, read_real
from stepwell.common.files import Unreadable, write_text
from stepwell.common.progress import as_told, with_bar
from stepwell.common.temporary import scratch_folder
from stepwell.lsq import NNLSStatus

#: A field of flip angles with larger numbers is in degrees, else relative to 180°.
DEGREES = 10.0
#: Other names under which maps are written too.
ALIASES = {"mwf": "sfr"}
#: What the command draws.
PICTURES = ("maps.png", "mwf.png")


@dataclasses.dataclass(frozen=True)
class T2Run(Mapped):
    """What was made of an image.

    Attributes
    ----------
    files : dict of Path
        The map files by name.
    model : T2Model
    voxels, fitted, converged : int
        All voxels, those that were fitted, and those whose fit converged.
    means : dict of float
        Mean of each scalar map over the converged voxels.
    resumed : int
        Slabs that an earlier run had done.
    seconds : float
    notes : list of str
        What a person should know: an echo time that the sidecar has told.
    """

    files: dict[str, Path]
    model: T2Model
    voxels: int
    fitted: int
    converged: int
    means: dict[str, float]
    resumed: int
    seconds: float
    notes: list[str] = dataclasses.field(default_factory=list)

    def to_xarray(self) -> Any:
        """Return the maps as an ``xarray.Dataset`` in memory, with coordinates; needs xarray.

        Axes are x, y and z, in millimetres along the axes of a NIfTI image, else voxels; ``t2dist`` has T2 in seconds.
        """
        arrays: dict[str, Any] = {}
        spacing = [1.0, 1.0, 1.0]
        for name, path in self.files.items():
            opened = open_image(path, channels=name == "t2dist")
            values = opened.read(0, opened.shape[opened.axis])
            if opened.kind == "nifti":
                spacing = [float(size) for size in opened.about.header.get_zooms()[:3]]
            axes = ("x", "y", "z", "T2")[: values.ndim]
            arrays[name] = (axes, values, {"long_name": MAPS[ALIASES.get(name, name)]})
        shape = next(iter(arrays.values()))[1].shape
        coordinates: dict[str, Any] = {
            axis: step * np.arange(size) for axis, step, size in zip("xyz", spacing, shape, strict=False)
        }
        coordinates["T2"] = ("T2", self.model.t2_times, {"units": "s"})
        return labelled(arrays, coordinates, {"te": self.model.te, "echoes": self.model.echoes})


@with_bar("slabs")
def map_image(
    image: str | os.PathLike[str],
    output: str | os.PathLike[str],
    te: float | None = None,
    *,
    sidecar: bool = True,
    mask: str | os.PathLike[str] | None = None,
    b1: str | os.PathLike[str] | None = None,
    labels: str | os.PathLike[str] | None = None,
    threshold: float = 0.0,
    distribution: bool = True,
    errors: bool = True,
    format: Format = "auto",
    variable: str | None = None,
    restart: bool = False,
    overwrite: bool = False,
    like: Array | None = None,
    threads: int | None = None,
    progress: Callable[[int, int], object] | bool | None = None,
    step_bytes: int = STEP_BYTES,
    **options: Any,
) -> T2Run:
    """Map T2 in every voxel of an image.

    Parameters
    ----------
    image : path
        Four axes, the echo last: NIfTI in any orientation, .npy, .npz or MATLAB (NIfTI needs the extra ``nifti``,
        MATLAB 7.3 ``matlab``).
    output : folder
        One file per map, named as in :data:`MAPS`, ``mwf``, which is sfr again, and ``t2map.json``. Until all is done
        the maps lie in ``.unfinished`` there; the same call goes on with them.
    te : float, optional
        Seconds between echoes; by default the EchoTime of the BIDS sidecar, the ``.json`` beside a NIfTI image.
    sidecar : bool, default True
        Whether that sidecar is read; an EchoTime or RepetitionTime that contradicts `te` is then an error.
    mask : path, optional
        Voxels other than zero are fitted; of the image's shape without echoes, or without the axis of its only slice.
        Of two NIfTI images the affines must agree.
    b1 : path, optional
        Relative flip angle (1: as it should be), or degrees where its values are above 10: not looked for then.
    labels : path, optional
        Whole numbers in the image's space: ``regions.csv`` gets means and standard deviations of every map by region.
    threshold : float, default 0
        Voxels whose first echo is not above it are left out.
    distribution : bool, default True
        Whether the distributions themselves are kept, as "t2dist".
    errors : bool, default True
        Whether standard errors of the myelin water fraction are computed, "sfr_se".
    format : {"auto", "nii.gz", "nii", "npy"}
        By default .nii.gz for NIfTI images, else .npy.
    variable : str, optional
        Which array of an .npz or .mat file.
    restart : bool, default False
        Discard what an unfinished run has left.
    overwrite : bool, default False
        Write over the maps of a finished run with other settings or another input.
    like : array, optional
        An array on the CUDA device where the systems are to be solved; by default the host.
    threads, progress
        CPU threads; ``progress(slabs done, slabs)``, or True for a bar.
    step_bytes : int
        About how much memory one step may take.
    **options
        Of :class:`T2Model`: bins, t2, angles, t1, lam, chi2, noise, smooth, myelin, middle.

    Examples
    --------
    >>> import tempfile
    >>> from stepwell.apps import t2
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/image.npy", t2.simulate((6, 6, 1), echoes=16).signal)
    ...     run = t2.map_image(f"{folder}/image.npy", f"{folder}/maps", te=0.010, lam=0.0)
    ...     np.load(f"{folder}/maps/mwf.npy").shape
    (6, 6, 1)
    """
    began = time.perf_counter()
    read_choice("format", format, FORMATS)
    threshold = read_real("threshold", threshold)
    folder = Path(output)
    account = folder / "t2map.json"
    with make_folder(folder), scratch_folder(folder) as scratch:
        source = open_image(image, axes=4, name=variable, scratch=scratch)
        if len(source.shape) != 4:
            raise Unreadable(
                f"{source.path}: has shape {source.shape}; allowed: four axes, the echo last; of one slice "
                "(x, y, 1, echoes)"
            )
        require_echoes(source)
        spatial = source.shape[:-1]
        te, notes = settle_spacing(te, source.shape[-1], read_sidecar(image) if sidecar else None)
        model = T2Model(echoes=source.shape[-1], te=te, **options)
        given = {"mask": mask, "b1": b1, "labels": labels}
        beside = {name: open_beside(name, path, source, scratch) for name, path in given.items()}
        left_out = {"t2dist": not distribution, "sfr_se": not errors}
        kept = [name for name in MAPS if not left_out.get(name)]
        settings = {
            "model": model.as_dict(),
            "threshold": threshold,
            "maps": kept,
            "inputs": {name: identity(path) for name, path in ({"image": image} | given).items()},
        }
        replaced = refuse_other_settings(account, plain(settings), overwrite)
        if beside["labels"] is not None:
            require_labels(beside["labels"], source.axis)
        maps = {name: _map_shape(name, spatial, model.bins) for name in kept}
        work = Work(folder / UNFINISHED, plain(settings), maps, spatial[source.axis], restart=restart)

        turn = 1.0 if beside["b1"] is None or _largest(beside["b1"]) > DEGREES else 180.0

        def make(block: np.ndarray, start: int, stop: int) -> dict[str, np.ndarray]:
            read = {name: beside[name] for name in ("mask", "b1")}
            parts = {name: one if one is None else one.read(start, stop, source.axis) for name, one in read.items()}
            solving = {"errors": errors, "like": like, "threads": threads}
            angles = None if parts["b1"] is None else turn * parts["b1"]
            return _slab(model, block, threshold, parts["mask"], angles, solving)

        fill(source, work, make, progress=as_told(progress), step_bytes=step_bytes, small_steps=like is None)
        if replaced:
            forget_finished(account, REGIONS, *PICTURES)
        named = {name: work.arrays[held] for name, held in ALIASES.items()}
        written = write_maps({**work.arrays, **named}, source, folder, format)
        marks = beside["labels"]
        if marks is not None:
            write_table(folder / REGIONS, region_table(work.arrays, marks, source.axis, _converged))
        counts, means = statistics(work, source.axis, _converged)
        resumed = work.resumed
        seconds = time.perf_counter() - began
        run = T2Run(written, model, math.prod(spatial), *counts, means, resumed, seconds, notes)
        write_text(account, json.dumps(plain(_record(run, settings)), indent=1) + "\n")
        work.discard()
        return run


def _largest(field: Image) -> float:
    """Return the largest number of an image that is finite, slab by slab."""
    largest = 0.0
    for slab in range(field.shape[field.axis]):
        values = field.read(slab, slab + 1)
        largest = max(largest, float(np.max(values[np.isfinite(values)], initial=0.0)))
    return largest


def _map_shape(name: str, spatial: tuple[int, ...], bins: int) -> tuple[tuple[int, ...], str]:
    if name == "status":
        return spatial, "i2"
    return ((*spatial, bins) if name == "t2dist" else spatial), "f4"


def _slab(
    model: T2Model,
    block: np.ndarray,
    threshold: float,
    mask: np.ndarray | None,
    angles: np.ndarray | None,
    solving: dict[str, Any],
) -> dict[str, np.ndarray]:
    """Fit the voxels of some slabs; NaN in those left out leaves them so."""
    signals = block.reshape(-1, model.echoes)
    chosen = signals[:, 0] > threshold
    if mask is not None:
        chosen &= mask.ravel() != 0
    if angles is not None:
        angles = angles.ravel()
        angles = np.where(angles > 180, 360 - angles, angles)  # more than 180° refocuses as less does
    found = fit_voxels(model, signals[chosen], None if angles is None else angles[chosen], **solving)
    return put_back(found, chosen)


def _converged(status: np.ndarray) -> np.ndarray:
    return np.asarray(status == NNLSStatus.CONVERGED)


def _record(run: T2Run, settings: dict[str, Any]) -> dict[str, Any]:
    from stepwell import __version__

    return {
        "stepwell": __version__,
        "settings": settings,
        "t2_times": run.model.t2_times.tolist(),
        "voxels": run.voxels,
        "fitted": run.fitted,
        "converged": run.converged,
        "means": run.means,
        "maps": {
            name: {"file": path.name, "meaning": MAPS[ALIASES.get(name, name)]} for name, path in run.files.items()
        },
        "seconds": run.seconds,
    }
