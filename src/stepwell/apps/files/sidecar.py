"""BIDS sidecars: numbers from the ``.json`` beside an image, and b-values from the ``.bval`` beside it."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stepwell.apps.files.packages import ending_of
from stepwell.common.files import Unreadable, read_text

#: Bytes that a sidecar may have.
LARGEST = 2**24


@dataclasses.dataclass(frozen=True)
class Fields:
    """Numbers of a sidecar by the names of their fields, in its units; empty where it does not have a field."""

    path: Path
    values: dict[str, tuple[float, ...]]


def find_beside(image: str | os.PathLike[str], suffix: str) -> Path | None:
    """Return the file of another ending beside a NIfTI image, None where there is none."""
    ending = ending_of(image)
    if ending not in (".nii", ".nii.gz"):
        return None
    beside = Path(os.fspath(image)[: -len(ending)] + suffix)
    return beside if beside.is_file() else None


def read_fields(image: str | os.PathLike[str], names: Sequence[str]) -> Fields | None:
    """Read fields of the sidecar of an image, numbers above 0 or lists of such; None where there is no sidecar."""
    path = find_beside(image, ".json")
    if path is None:
        return None
    try:
        held = json.loads(read_text(path, LARGEST, encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"{path}: is no JSON: {error}; allowed: a BIDS sidecar, or --no-sidecar") from None
    if not isinstance(held, dict):
        raise Unreadable(f"{path}: holds no fields; allowed: a BIDS sidecar, or --no-sidecar")
    return Fields(path, {name: _numbers(path, name, held.get(name)) for name in names})


def shown(numbers: Sequence[float]) -> str:
    """Return the first of some numbers, for a message."""
    return ", ".join(f"{number:g}" for number in numbers[:4]) + (", ..." if len(numbers) > 4 else "")


def _numbers(path: Path, name: str, value: Any) -> tuple[float, ...]:
    """Return a field that is a number or a list of such."""
    if value is None:
        return ()
    listed = value if isinstance(value, list) else [value]
    good = all(isinstance(one, int | float) and not isinstance(one, bool) and 0 < one < float("inf") for one in listed)
    if not listed or not good:
        raise Unreadable(f"{path}: {name} is {str(value)[:60]}; allowed: seconds, above 0; or --no-sidecar")
    return tuple(float(one) for one in listed)
