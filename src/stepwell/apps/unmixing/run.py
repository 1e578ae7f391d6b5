"""A whole image: read a few lines at a time, unmixed, and written as one ENVI cube; a run that was stopped goes on."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stepwell.apps.files import envi, raster
from stepwell.apps.files.named import open_named
from stepwell.apps.images import Image, fill, open_image
from stepwell.apps.images.presenting import Mapped
from stepwell.apps.images.running import MapRun, told
from stepwell.apps.images.work import STEP_BYTES, identity
from stepwell.apps.unmixing.library import WAVELENGTHS, SpectralLibrary, read_library
from stepwell.apps.unmixing.pixels import NOT_SOLVED, Unmixing, unmix_pixels
from stepwell.apps.unmixing.scale import Scale, settle_scale, told_by_header
from stepwell.apps.unmixing.target import Target
from stepwell.arrays import Array
from stepwell.arrays.presenting import labelled
from stepwell.common.array_files import read_numbers
from stepwell.common.files import Unreadable
from stepwell.common.progress import as_told, with_bar


@dataclasses.dataclass(frozen=True)
class UnmixRun(Mapped):
    """What was made of an image.

    Attributes
    ----------
    files : list of Path
        What was written.
    names : list of str
        What the abundances are of; the first bands of the cube.
    bands : list of str
        All bands of the cube.
    pixels, solved, converged : int
        All pixels, those that were unmixed, and those that converged.
    means : dict of float
        Mean of each band over the converged pixels.
    scale : float
        What the image was divided by.
    used : bool array
        Which bands of the image were used.
    plan : Unmixing
        With the library at these bands.
    notes : list of str
        What a person should know: bands left out, a scale that was found.
    resumed : int
        Lines that an earlier run had done.
    seconds : float
    """

    files: list[Path]
    names: list[str]
    bands: list[str]
    pixels: int
    solved: int
    converged: int
    means: dict[str, float]
    scale: float
    used: np.ndarray
    plan: Unmixing
    notes: list[str]
    resumed: int
    seconds: float

    def to_xarray(self) -> Any:
        """Return the cube as an ``xarray.DataArray`` in memory, (line, sample, band), with coordinates; needs xarray.

        Of a GeoTIFF lines and samples have the coordinates y and x of their centres, in its coordinate system.
        """
        opened = open_image(self.files[0])
        cube = opened.read(0, opened.shape[0], 0)
        coordinates: dict[str, Any] = {"band": self.bands}
        place = opened.about.place if isinstance(opened.about, raster.RasterInfo) else None
        if place is not None and not (place.transform[1] or place.transform[3]):
            across, _, left, _, down, top = place.transform
            coordinates |= {"y": ("line", top + down * (np.arange(cube.shape[0]) + 0.5))}
            coordinates |= {"x": ("sample", left + across * (np.arange(cube.shape[1]) + 0.5))}
        about = {} if place is None else {"crs": place.wkt}
        return labelled({"abundances": (("line", "sample", "band"), cube)}, coordinates, about)["abundances"]


@with_bar("lines")
def unmix_image(
    image: str | os.PathLike[str],
    library: str | os.PathLike[str] | SpectralLibrary,
    output: str | os.PathLike[str],
    *,
    wavelengths: Sequence[float] | np.ndarray | None = None,
    exclude: Sequence[tuple[float, float]] = (),
    scale: Scale = None,
    bands_first: bool = False,
    noise: str | os.PathLike[str] | np.ndarray | None = None,
    class_column: str | None = None,
    variable: str | None = None,
    restart: bool = False,
    overwrite: bool = False,
    like: Array | None = None,
    threads: int | None = None,
    progress: Callable[[int, int], object] | bool | None = None,
    step_bytes: int = STEP_BYTES,
    **options: Any,
) -> UnmixRun:
    """Unmix every pixel of an image.

    Parameters
    ----------
    image : path
        ENVI (a header and a binary file in any interleave), GeoTIFF and other rasters (needs the extra ``geo``), .npy,
        .npz or MATLAB: (lines, samples, bands), or (pixels, bands).
    library : path or SpectralLibrary
        See :func:`read_library`. Brought to the bands of the image by straight lines.
    output : path
        ``NAME``: ENVI, ``NAME.hdr`` and ``NAME.img``; ``NAME.tif``: GeoTIFF; ``NAME.npy``: (lines, samples, bands).
        ``NAME_means.csv`` has the mean of each material, ``NAME.json`` the account. Until all is done the lines lie in
        ``NAME.unfinished``; the same call goes on with them.
    wavelengths : array, optional
        Of the image's bands, where its file has none; without any the library must have the image's bands.
    exclude : pairs of float, optional
        Ranges of wavelengths, in nanometres, to leave out beside the header's bad bands (``bbl``).
    scale : float or "auto", optional
        What the image is divided by, to have the unit of the library; by default the header's reflectance scale factor,
        or nothing. Where the brightest pixels then do not fit the library, that is an error which names factors that
        do; ``"auto"`` takes the best of these, and says so in `notes`.
    bands_first : bool, default False
        Whether the first axis of an .npy, .npz or MATLAB image is that of the bands.
    noise : path or array, optional
        Standard deviation of each band of the image (.npy, or text), as weights.
    class_column, variable
        Column of the library with the classes; which array of an .npz or .mat image.
    restart : bool, default False
        Discard what an unfinished run has left.
    overwrite : bool, default False
        Write over the answer of a finished run with other settings or another input.
    like : array, optional
        An array on the CUDA device where the systems are to be solved; by default the host.
    threads, progress, step_bytes
        CPU threads; ``progress(lines done, lines)``, or True for a bar; about how much memory one step may take.
    **options
        Of :class:`Unmixing`: total, lower, upper, by_class, draws, subset, best, seed.

    Examples
    --------
    >>> import tempfile
    >>> from stepwell.apps import unmixing
    >>> scene = unmixing.simulate(6, 8, bands=30)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/image.npy", scene.image)
    ...     bands = scene.library.wavelengths
    ...     run = unmix_image(f"{folder}/image.npy", scene.library, f"{folder}/shares.npy", wavelengths=bands, scale=1)
    ...     np.load(f"{folder}/shares.npy").shape[:2]
    (6, 8)
    """
    target = Target(output)
    others = (target.means.name, target.picture.name, target.endmembers.name)
    shell = MapRun(target.account, *others, restart=restart, overwrite=overwrite)
    with shell.begun() as scratch:
        source = as_lines(open_image(image, name=variable, scratch=scratch), bands_first)
        header = source.about if isinstance(source.about, envi.Header) else None
        given = library if isinstance(library, SpectralLibrary) else read_library(library, class_column)
        notes: list[str] = []
        found = wavelengths_of(image, source.about, wavelengths)
        used, at_bands = _choose_bands(source, header, given, found, exclude, notes)
        factor = settle_scale(source, told_by_header(header), at_bands, used, scale, notes)
        deviations = _deviations(noise, source.shape[-1])
        plan = Unmixing(at_bands, noise=None if deviations is None else deviations[used], **options)
        bands = _band_names(plan)
        ignored = None if header is None else header.numbers("data ignore value")
        settings = {
            "plan": {field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)
                     if field.name not in ("library", "noise")},
            "noise": None if plan.noise is None else plan.noise.tolist(),
            "spectra": [list(map(float, one)) for one in at_bands.spectra],
            "library": hashlib.sha256(np.ascontiguousarray(at_bands.spectra).tobytes()).hexdigest(),
            "classes": at_bands.classes,
            "bands": np.flatnonzero(used).tolist(),
            "scale": factor,
            "image": identity(envi.find_pair(image)[1] if header is not None else image),
        }  # fmt: skip
        shell.settle(settings, "spectra")  # (In the account a digest stands for the spectra.)
        lines, samples = source.shape[:2]
        shape = (lines, len(bands), samples)  # interleaved by line, as the file will be
        work = shell.start(target.unfinished, {"cube": (shape, "<f4")}, lines)

        def make(block: np.ndarray, start: int, stop: int) -> dict[str, np.ndarray]:
            pixels = block.reshape(-1, source.shape[-1])[:, used]
            if ignored is not None:
                pixels = np.where((pixels == ignored[0]).all(axis=1, keepdims=True), np.nan, pixels)
            answer = unmix_pixels(plan, pixels / factor, like=like, threads=threads, line=start, samples=samples)
            return {"cube": _as_cube(plan, answer, stop - start, samples)}

        fill(source, work, make, progress=as_told(progress), step_bytes=step_bytes, small_steps=like is None)
        shell.replace()
        counts, means = _statistics(work.arrays["cube"], bands)
        files = target.write(work.arrays["cube"], bands, source)
        if not target.keeps_place(source):
            notes.append("the georeference of the image is not kept in this format; allowed for it: NAME.tif")
        if counts[1]:
            files.append(target.write_means(plan.names, means, counts[1]))
        run = UnmixRun(files, plan.names, bands, lines * samples, *counts, means, factor, used, plan, notes,
                       work.resumed, shell.seconds)  # fmt: skip
        shell.end(told(run, "bands", "pixels", "solved", "converged", "means", "notes", "seconds"))
        files.append(target.account)
        return run


def as_lines(source: Image, bands_first: bool) -> Image:
    """Return the image with axes (line, sample, band), read in lines."""
    if bands_first and len(source.shape) in (2, 3):
        given = source.get
        turned = (*source.shape[1:], source.shape[0])
        source = dataclasses.replace(
            source, shape=turned, get=lambda where: np.moveaxis(given((where[-1], *where[:-1])), 0, -1)
        )
    if len(source.shape) == 2:  # pixels by bands: a line each
        get = source.get
        shape = (source.shape[0], 1, source.shape[1])
        return dataclasses.replace(source, shape=shape, axis=0, get=lambda where: get((where[0], where[2]))[:, None])
    if len(source.shape) != 3:
        raise Unreadable(
            f"{source.path}: has shape {source.shape}; allowed: (lines, samples, bands) or (pixels, bands)"
        )
    return dataclasses.replace(source, axis=0)


def wavelengths_of(image: Any, about: Any, given: Any) -> np.ndarray | None:
    """Return the centres of the image's bands in nanometres, from wherever they are told."""
    if given is not None:
        return envi.in_nm(np.asarray(given, dtype=float))
    if isinstance(about, envi.Header):
        return envi.wavelengths_in_nm(about)
    if isinstance(about, raster.RasterInfo):
        return about.wavelengths
    if Path(image).suffix.lower() in (".npz", ".mat"):
        with open_named(image) as held:
            name = held.first(WAVELENGTHS)
            if name is not None:
                return envi.in_nm(held[name].astype(float).ravel())
    return None


def _turned(source: Image, bands: int) -> str:
    """Return what to say where another axis than the last one has as many entries as there should be bands."""
    sizes = [size for size in source.shape[:-1] if size > 1]
    if bands not in sizes:
        return ""
    which = "first" if sizes[0] == bands else "second"
    advice = "give --bands-first, or " if which == "first" else ""
    return f"; it looks transposed, as its {which} axis has {bands}: {advice}save it as (lines, samples, bands)"


def _choose_bands(
    source: Image,
    header: envi.Header | None,
    library: SpectralLibrary,
    waves: np.ndarray | None,
    exclude: Sequence[tuple[float, float]],
    notes: list[str],
) -> tuple[np.ndarray, SpectralLibrary]:
    """Return which bands are used, and the library at these."""
    count = source.shape[-1]
    used = np.ones(count, dtype=bool) if header is None else envi.good_bands(header, count)
    if not used.all():
        notes.append(f"{count - used.sum()} of {count} bands are bad by the header's bbl")
    if waves is None:
        if library.spectra.shape[1] != count:
            raise Unreadable(
                f"{source.path}: has {count} bands without wavelengths, the library {library.spectra.shape[1]}; "
                f"allowed: as many, or wavelengths (in the header, or given){_turned(source, library.spectra.shape[1])}"
            )
        if exclude:
            raise ValueError("exclude is given, but the image has no wavelengths; allowed: none then")
        at_bands = library
    else:
        if waves.size != count:
            hint = _turned(source, waves.size)
            raise Unreadable(
                f"{source.path}: has {count} bands and {waves.size} wavelengths; allowed: one per band{hint}"
            )
        at_bands = library.at(waves)
        for low, high in exclude:
            used &= ~((waves >= low) & (waves <= high))
    beyond = used & ~np.isfinite(at_bands.spectra).all(axis=0)
    if beyond.any():
        notes.append(f"{beyond.sum()} bands are left out, where the library has no numbers")
        used &= ~beyond
    if used.sum() < 2:
        raise Unreadable(f"{source.path}: shares {used.sum()} good bands with the library; allowed: at least 2")
    kept = None if at_bands.wavelengths is None else at_bands.wavelengths[used]
    return used, dataclasses.replace(
        at_bands, spectra=np.ascontiguousarray(at_bands.spectra[:, used]), wavelengths=kept
    )


def _deviations(noise: Any, bands: int) -> np.ndarray | None:
    """Read the standard deviations of the image's bands."""
    if noise is None:
        return None
    if isinstance(noise, np.ndarray):
        values = noise.astype(float)
    else:
        values = read_numbers(noise)
    if values.shape != (bands,):
        raise ValueError(f"noise has shape {values.shape}; allowed: ({bands},), one a band of the image")
    return np.asarray(values, dtype=float)


def _band_names(plan: Unmixing) -> list[str]:
    last = {"one": ["rmse", "sum"], "most": ["rmse", "sum", "shade"], "free": ["rmse", "sum"]}[plan.total]
    errors = [] if plan.best else [f"{name} error" for name in plan.names]
    return [*plan.names, *last, *errors, "status"]


def _as_cube(plan: Unmixing, answer: dict[str, np.ndarray], lines: int, samples: int) -> np.ndarray:
    """Put the answers of some lines in the order of the bands, (lines, bands, samples)."""
    parts = [answer["abundances"], answer["rmse"][:, None], answer["sum"][:, None]]
    if plan.total == "most":
        parts.append(1 - answer["sum"][:, None])
    if not plan.best:
        parts.append(answer["error"])
    parts.append(answer["status"][:, None])
    joined = np.concatenate(parts, axis=1).reshape(lines, samples, -1)
    return np.ascontiguousarray(joined.transpose(0, 2, 1))


def _statistics(cube: np.ndarray, bands: list[str]) -> tuple[tuple[int, int], dict[str, float]]:
    """Count pixels and average the bands over the converged ones, line by line."""
    solved = converged = 0
    sums = np.zeros(len(bands))
    for line in cube:
        status = line[-1]
        good = status == 0
        solved += int(np.count_nonzero(status != NOT_SOLVED))
        converged += int(np.count_nonzero(good))
        sums += line[:, good].sum(axis=1, dtype=float)
    return (solved, converged), dict(zip(bands, (sums / converged if converged else sums * math.nan).tolist()))
