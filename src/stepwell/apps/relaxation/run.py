"""A whole series: read in slabs, fitted, and written in its own space; a run that was stopped goes on."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stepwell.apps.images import Image, Work
from stepwell.apps.images.mapping import FORMATS, Beside, Format, account_of_maps, inputs, map_voxels, maps_in_space
from stepwell.apps.images.presenting import Mapped
from stepwell.apps.images.regions import REGIONS
from stepwell.apps.images.running import MapRun, told
from stepwell.apps.images.work import STEP_BYTES
from stepwell.apps.relaxation.fit import fit_voxels
from stepwell.apps.relaxation.model import RelaxationModel
from stepwell.apps.relaxation.quantities import QUANTITIES
from stepwell.apps.relaxation.series import open_series, repetition_beside, settle_points
from stepwell.arrays import Array
from stepwell.common.checks import read_choice, read_real, require
from stepwell.common.progress import with_bar

#: The account of a run.
ACCOUNT = "relax.json"
#: What the command draws.
PICTURE = "maps.png"


@dataclasses.dataclass(frozen=True)
class RelaxationRun(Mapped):
    """What was made of a series.

    Attributes
    ----------
    files : dict of Path
        The map files by name.
    model : RelaxationModel
    voxels, fitted, converged : int
        All voxels, those that were fitted, and those whose fit converged.
    at_bound : int
        Voxels of which a parameter is at a bound.
    means : dict of float
        Mean of each real map over the converged voxels.
    resumed : int
        Slabs that an earlier run had done.
    seconds : float
    notes : list of str
        What a person should know: points that a sidecar has told.
    """

    files: dict[str, Path]
    model: RelaxationModel
    voxels: int
    fitted: int
    converged: int
    at_bound: int
    means: dict[str, float]
    resumed: int
    seconds: float
    notes: list[str] = dataclasses.field(default_factory=list)

    def to_xarray(self) -> Any:
        """Return the maps as an ``xarray.Dataset`` in memory, with coordinates; needs xarray.

        Axes are x, y and z, in millimetres along the axes of a NIfTI image, else voxels.
        """
        return maps_in_space(self.files, self.model.maps, {"quantity": self.model.quantity})


@with_bar("slabs")
def map_series(
    image: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    quantity: str,
    points: Sequence[float] | None = None,
    *,
    sidecar: bool = True,
    tr: float | None = None,
    offset: bool = False,
    signed: bool = False,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    mask: str | os.PathLike[str] | None = None,
    b1: str | os.PathLike[str] | None = None,
    labels: str | os.PathLike[str] | None = None,
    threshold: float = 0.0,
    format: Format = "auto",
    variable: str | None = None,
    restart: bool = False,
    overwrite: bool = False,
    like: Array | None = None,
    threads: int | None = None,
    progress: Callable[[int, int], object] | bool | None = None,
    step_bytes: int = STEP_BYTES,
) -> RelaxationRun:
    """Map a quantity in every voxel of a series of images.

    Parameters
    ----------
    image : path, or sequence of paths
        One image of four axes, the measurements last, or one of three axes for each of them: NIfTI in any orientation,
        .npy, .npz or MATLAB (NIfTI needs the extra ``nifti``, MATLAB 7.3 ``matlab``).
    output : folder
        One file per map, named as in ``RelaxationModel.maps``, and ``relax.json``. Until all is done the maps lie in
        ``.unfinished`` there; the same call goes on with them.
    quantity : {"t2star", "t2", "t1", "t1-vfa", "adc", "ivim"}
        As in :class:`RelaxationModel`.
    points : sequence of float, optional
        Echo or inversion times, flip angles or b-values; by default EchoTime, InversionTime or FlipAngle of the BIDS
        sidecars, the ``.json`` beside NIfTI images, and b-values of the ``.bval`` beside them.
    sidecar : bool, default True
        Whether these are read; what contradicts `points` is then an error.
    tr, offset, signed, bounds
        As in :class:`RelaxationModel`; `tr` by default from the sidecar.
    mask : path, optional
        Voxels other than zero are fitted; of the shape of one image. Of NIfTI images the affines must agree.
    b1 : path, optional
        Relative flip angles (1: as they should be), for "t1-vfa".
    labels : path, optional
        Whole numbers in the image's space: ``regions.csv`` gets means and standard deviations of every map by region.
    threshold : float, default 0
        Voxels whose largest signal is not above it are left out.
    format : {"auto", "nii.gz", "nii", "npy"}
        By default .nii.gz for NIfTI images, else .npy.
    variable : str, optional
        Which array of an .npz or .mat file.
    restart : bool, default False
        Discard what an unfinished run has left.
    overwrite : bool, default False
        Write over the maps of a finished run with other settings or another input.
    like : array, optional
        An array on the CUDA device where voxels are to be fitted; by default the host.
    threads, progress
        CPU threads; ``progress(slabs done, slabs)``, or True for a bar.
    step_bytes : int
        About how much memory one step may take.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     echoes = np.exp(-np.array([0.01, 0.02, 0.04, 0.08]) / 0.03) * np.full((4, 4, 1, 1), 500.0)
    ...     np.save(f"{folder}/echoes.npy", echoes)
    ...     run = map_series(f"{folder}/echoes.npy", f"{folder}/maps", "t2star", [0.01, 0.02, 0.04, 0.08])
    ...     round(float(np.load(f"{folder}/maps/T2star.npy")[0, 0, 0]), 4)
    0.03
    """
    about = QUANTITIES[read_choice("quantity", quantity, QUANTITIES)]
    read_choice("format", format, FORMATS)
    threshold = read_real("threshold", threshold)
    require(b1 is None or quantity == "t1-vfa", "b1", b1, "None, or quantity t1-vfa")
    paths = [image] if isinstance(image, str | os.PathLike) else list(image)
    require(len(paths) > 0, "image", image, "a path, or several")
    shell = MapRun(Path(output) / ACCOUNT, REGIONS, PICTURE, restart=restart, overwrite=overwrite)
    with shell.begun() as scratch:
        source = open_series(paths, variable, scratch)
        points, notes = settle_points(about, points, source.shape[-1], paths, sidecar)
        if quantity == "t1-vfa" and tr is None and sidecar:
            tr, more = repetition_beside(paths)
            notes += more
        model = RelaxationModel(quantity, points, tr=tr, offset=offset, signed=signed, bounds=bounds or {})
        given = {"mask": mask, "b1": b1, "labels": labels}
        beside = Beside.of(given, source, scratch)
        shell.settle({"model": model.as_dict(), "threshold": threshold, "inputs": inputs(paths, given)})
        maps = {name: (source.shape[:-1], "i2" if name in ("status", "bound") else "f4") for name in model.maps}

        def fit(signals: np.ndarray, field: np.ndarray | None) -> dict[str, np.ndarray]:
            return fit_voxels(model, signals, field, like=like, threads=threads)

        done = map_voxels(
            shell, source, beside, maps, fit, level=lambda signals: signals.max(axis=1, initial=-np.inf),
            threshold=threshold, converged=_converged, format=format, progress=progress, step_bytes=step_bytes,
            small_steps=like is None,
        )  # fmt: skip
        held = _held(shell.work, source)
        run = RelaxationRun(done.files, model, done.voxels, done.fitted, done.converged, held, done.means,
                            shell.work.resumed, shell.seconds, notes)  # fmt: skip
        counts = told(run, "voxels", "fitted", "converged", "at_bound", "means")
        shell.end({**counts, "maps": account_of_maps(run.files, model.maps), "seconds": run.seconds})
        return run


def _converged(status: np.ndarray) -> np.ndarray:
    return np.asarray(status > 0)


def _held(work: Work, source: Image) -> int:
    """Count the voxels with a parameter at a bound, slab by slab."""
    return sum(
        int(np.count_nonzero(np.take(work.arrays["bound"], slab, axis=source.axis) > 0)) for slab in range(work.slabs)
    )
