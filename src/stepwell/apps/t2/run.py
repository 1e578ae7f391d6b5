"""A whole image: read in slabs, mapped, and written in its own space; a run that was stopped goes on."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from stepwell.apps.images import Image, open_image
from stepwell.apps.images.mapping import FORMATS, Beside, Format, account_of_maps, inputs, map_voxels, maps_in_space
from stepwell.apps.images.presenting import Mapped
from stepwell.apps.images.regions import REGIONS
from stepwell.apps.images.running import MapRun, told
from stepwell.apps.images.work import STEP_BYTES
from stepwell.apps.t2.echoes import require_echoes
from stepwell.apps.t2.fit import fit_voxels
from stepwell.apps.t2.maps import MAPS
from stepwell.apps.t2.model import T2Model
from stepwell.apps.t2.sidecar import read_sidecar, settle_spacing
from stepwell.arrays import Array
from stepwell.common.checks import read_choice, read_real
from stepwell.common.files import Unreadable
from stepwell.common.progress import with_bar
from stepwell.lsq import NNLSStatus

#: A field of flip angles with larger numbers is in degrees, else relative to 180°.
DEGREES = 10.0
#: Other names under which maps are written too.
ALIASES = {"mwf": "sfr"}
#: The account of a run.
ACCOUNT = "t2map.json"
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
        times = ("T2", self.model.t2_times, {"units": "s"})
        about = {"te": self.model.te, "echoes": self.model.echoes}
        return maps_in_space(self.files, _meanings(self.files), about, ("t2dist", "T2", times))


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
    read_choice("format", format, FORMATS)
    threshold = read_real("threshold", threshold)
    shell = MapRun(Path(output) / ACCOUNT, REGIONS, *PICTURES, restart=restart, overwrite=overwrite)
    with shell.begun() as scratch:
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
        beside = Beside.of(given, source, scratch)
        left_out = {"t2dist": not distribution, "sfr_se": not errors}
        kept = [name for name in MAPS if not left_out.get(name)]
        settings = {"model": model.as_dict(), "threshold": threshold, "maps": kept, "inputs": inputs(image, given)}
        shell.settle(settings)
        turn = 1.0 if beside.b1 is None or _largest(beside.b1) > DEGREES else 180.0

        def fit(signals: np.ndarray, field: np.ndarray | None) -> dict[str, np.ndarray]:
            angles = None if field is None else turn * field
            if angles is not None:
                angles = np.where(angles > 180, 360 - angles, angles)  # more than 180° refocuses as less does
            return fit_voxels(model, signals, angles, errors=errors, like=like, threads=threads)

        done = map_voxels(
            shell, source, beside, {name: _map_shape(name, spatial, model.bins) for name in kept}, fit,
            level=lambda signals: signals[:, 0], threshold=threshold, converged=_converged, aliases=ALIASES,
            format=format, progress=progress, step_bytes=step_bytes, small_steps=like is None,
        )  # fmt: skip
        run = T2Run(done.files, model, done.voxels, done.fitted, done.converged, done.means, shell.work.resumed,
                    shell.seconds, notes)  # fmt: skip
        maps = account_of_maps(run.files, _meanings(run.files))
        counts = told(run, "voxels", "fitted", "converged", "means")
        shell.end({"t2_times": model.t2_times, **counts, "maps": maps, "seconds": run.seconds})
        return run


def _meanings(names: Iterable[str]) -> dict[str, str]:
    return {name: MAPS[ALIASES.get(name, name)] for name in names}


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


def _converged(status: np.ndarray) -> np.ndarray:
    return np.asarray(status == NNLSStatus.CONVERGED)
