"""What `stepwell reconstruct` is to reconstruct: a phantom, or a scan with its geometry."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import click
import numpy as np

from stepwell.apps.tomography.angles import AngleUnit
from stepwell.apps.tomography.axis import find_axis
from stepwell.apps.tomography.phantom import shepp_logan_3d
from stepwell.apps.tomography.projector import fan_beam, parallel_beam
from stepwell.apps.tomography.scan import Order, Scan, load_scan, sinograms
from stepwell.apps.tomography.simulate import add_noise
from stepwell.cli.inputs import file_trouble
from stepwell.common.checks import require


@dataclass
class Task:
    """What is to be reconstructed: sinograms as columns, the projection matrix, and the truth where it is known.

    `center` is the detector column of the rotation axis; `axis` says so in words; `notes` are what a person should
    know.
    """

    name: str
    A: Any
    B: np.ndarray
    shape: tuple[int, int]
    first: int
    truth: np.ndarray | None
    center: float | None = None
    notes: list[str] = field(default_factory=list)
    axis: str = ""

    def piece(self, begin: int, end: int) -> Task:
        """Return the task of some of the slices."""
        truth = None if self.truth is None else self.truth[begin:end]
        return replace(self, B=np.ascontiguousarray(self.B[:, begin:end]), truth=truth)


def phantom_task(size: int, angles: int, relative_noise: float, slices: str | None) -> Task:
    """Project slices of the three-dimensional Shepp–Logan head, and add noise."""
    A = parallel_beam(size, angles=np.arange(angles) * (180.0 / angles))
    volume = shepp_logan_3d(size)
    first, last = slice_range(slices, size)
    truth = volume[first:last]
    B = add_noise(A @ truth.reshape(last - first, -1).T, relative_noise)
    return Task("Shepp–Logan phantom", A, B, (size, size), first, truth, (A.shape[0] // angles - 1) / 2)


@dataclass(frozen=True)
class Geometry:
    """How a scan is read and where its rays run.

    Attributes
    ----------
    order, angle_range, angle_unit
        As in `load_scan`.
    center : float, "auto" or None
        Detector column of the rotation axis, counted from 0; None: the file's, or the middle; "auto": found from
        opposite projections.
    pixel_size : float
        Width of a detector pixel.
    fan : pair of float or None
        Distances of axis and detector from the source; None: parallel rays.
    """

    order: Order
    angle_range: float
    angle_unit: AngleUnit | None
    center: float | Literal["auto"] | None
    pixel_size: float
    fan: tuple[float, float] | None


def scan_task(source: str, slices: str | None, geometry: Geometry) -> Task:
    """Read a scan and make its projection matrix."""
    with file_trouble(source):
        try:
            scan = load_scan(
                source, order=geometry.order, angle_range=geometry.angle_range, angle_unit=geometry.angle_unit
            )
        except ImportError as error:
            raise click.BadParameter(str(error), param_hint="SOURCE") from None
    detectors = scan.integrals.shape[2]
    first, last = slice_range(slices, scan.integrals.shape[1])
    with file_trouble(source):
        middle, said = _axis(scan, geometry)
    rays: dict[str, Any] = {"angles": scan.angles, "detectors": detectors, "center": middle}
    pixel_size, fan = geometry.pixel_size, geometry.fan
    if fan is None:
        A = pixel_size * parallel_beam(detectors, **rays)
    else:  # a pixel of the image is what one of the detector sees at the axis
        pixel = pixel_size * fan[0] / fan[1]
        lengths: dict[str, Any] = {"source": fan[0] / pixel, "detector": fan[1] / pixel, "spacing": pixel_size / pixel}
        A = pixel * fan_beam(detectors, **rays, **lengths)
    if not A.nnz:
        raise ValueError(f"{source}: no ray meets the image, with a rotation axis at column {middle:g}")
    B = sinograms(scan.integrals[:, first:last])
    return Task(Path(source).name, A, B, (detectors, detectors), first, None, middle, scan.notes, said)


def _axis(scan: Scan, geometry: Geometry) -> tuple[float, str]:
    """Return the column of the rotation axis, and where it comes from in words."""
    middle = (scan.integrals.shape[2] - 1) / 2
    where = "columns count from 0 at their centres; the axis goes through the middle of the image"
    if geometry.center == "auto":
        if geometry.fan is not None:
            raise ValueError("a centre that is found needs parallel rays; allowed: its column with --fan")
        found = find_axis(scan.integrals, scan.angles)
        return found, f"rotation axis at detector column {found:.2f}, found from opposite projections ({where})"
    if geometry.center is not None:
        return geometry.center, f"rotation axis at detector column {geometry.center:g}, as given ({where})"
    if scan.center is not None:
        return scan.center, f"rotation axis at detector column {scan.center:g}, from the file ({where})"
    return middle, f"rotation axis at detector column {middle:g}, the middle ({where}); --center auto looks for it"


def slice_range(slices: str | None, count: int) -> tuple[int, int]:
    """Read FIRST:LAST of so many slices; both may be left out."""
    if slices is None:
        return 0, count
    try:
        parts = [int(part) if part else None for part in slices.split(":")]
        first, last, _ = slice(*parts).indices(count)
    except (TypeError, ValueError):
        first = last = 0
    require(slices.count(":") == 1 and first < last, "--slices", slices, f"FIRST:LAST, some of 0:{count}")
    return first, last
