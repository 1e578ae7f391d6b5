"""A series of images as one: four axes in one file, or three in each of several; its points from what lies beside."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stepwell.apps.files.nifti import require_same_space
from stepwell.apps.files.sidecar import find_beside, read_fields, shown
from stepwell.apps.images import Image, open_image
from stepwell.apps.relaxation.quantities import Quantity
from stepwell.common.array_files import read_numbers
from stepwell.common.files import Unreadable

Paths = Sequence[str | os.PathLike[str]]
#: Share by which points may differ from those of a sidecar, as they are printed with few digits.
ROUNDED = 0.02


def open_series(paths: Paths, variable: str | None, scratch: str) -> Image:
    """Open one image (x, y, z, points), or several (x, y, z) whose order is that of the points."""
    if len(paths) == 1:
        one = open_image(paths[0], axes=4, name=variable, scratch=scratch)
        if len(one.shape) != 4:
            raise Unreadable(
                f"{one.path}: has shape {one.shape}; allowed: four axes, the measurements last; of one slice "
                "(x, y, 1, measurements); or several images of three axes"
            )
        return one
    images = [_of_three_axes(open_image(path, channels=False, name=variable, scratch=scratch)) for path in paths]
    first = images[0]
    for other in images[1:]:
        if other.shape != first.shape:
            raise Unreadable(f"{other.path}: has shape {other.shape}; allowed: {first.shape}, as {first.path}")
        if first.kind == other.kind == "nifti":
            require_same_space(first.about, other.about, other.path, "image")

    def get(where: tuple[slice, ...]) -> np.ndarray:
        return np.stack([one.get(where[:-1]) for one in images], axis=-1)[..., where[-1]]

    return dataclasses.replace(first, shape=(*first.shape, len(images)), get=get)


def _of_three_axes(image: Image) -> Image:
    """Return an image with three axes, or one with a fourth of length 1, as one with three."""
    get = image.get
    if len(image.shape) == 4 and image.shape[-1] == 1:
        return dataclasses.replace(image, shape=image.shape[:-1], get=lambda where: get((*where, slice(None)))[..., 0])
    if len(image.shape) != 3:
        raise Unreadable(f"{image.path}: has shape {image.shape}; allowed: three axes, of several images")
    return image


def points_beside(about: Quantity, paths: Paths) -> tuple[tuple[float, ...], list[Path]]:
    """Return the points that sidecars or ``.bval`` files beside images have, and these files; else nothing."""
    found: list[float] = []
    files: list[Path] = []
    for path in paths:
        if about.field:
            fields = read_fields(path, (about.field,))
            values = () if fields is None else fields.values[about.field]
            file = None if fields is None else fields.path
        else:
            file = find_beside(path, ".bval")
            values = () if file is None else tuple(read_numbers(file).tolist())
        if file is None or not values or (len(paths) > 1 and len(values) != 1):
            return (), []
        found += values
        files.append(file)
    return tuple(found), files


def settle_points(
    about: Quantity, given: Any, count: int, paths: Paths, sidecar: bool
) -> tuple[tuple[float, ...], list[str]]:
    """Return the points of a series and what a person should know; contradictions raise."""
    told, files = points_beside(about, paths) if sidecar else ((), [])
    names = ", ".join(file.name for file in files[:2]) + (", ..." if len(files) > 2 else "")
    what = about.field or "b-values"
    if given is None:
        if not told:
            raise ValueError(f"points is None; allowed: the {about.axis} in {about.unit}, as no sidecar has them")
        if len(told) != count:
            raise Unreadable(f"{files[0]}: has {len(told)} of {what}; allowed: {count}, one per image; or --no-sidecar")
        return told, [f"{about.axis} are {shown(told)} {about.unit}, the {what} of {names}"]
    points = tuple(float(one) for one in np.atleast_1d(np.asarray(given, dtype=float)))
    if len(points) != count:
        raise ValueError(f"points is {shown(points)}, {len(points)} of them; allowed: {count}, one per image")
    if len(told) == count:
        near = np.abs(np.subtract(told, points)) <= ROUNDED * np.maximum(np.abs(told), np.abs(points))
        if not near.all():
            raise Unreadable(
                f"{files[0]}: {what} is {shown(told)}, and {about.axis} are {shown(points)} {about.unit}; allowed: "
                "the same; or --no-sidecar"
            )
    return points, []


def repetition_beside(paths: Paths) -> tuple[float | None, list[str]]:
    """Return the repetition time of the first image's sidecar in seconds, and a note that says so."""
    names = ("RepetitionTimeExcitation", "RepetitionTime")
    fields = read_fields(paths[0], names)
    for name in names:
        if fields is not None and fields.values[name]:
            return fields.values[name][0], [f"tr is {fields.values[name][0]:g} s, the {name} of {fields.path.name}"]
    return None, []
