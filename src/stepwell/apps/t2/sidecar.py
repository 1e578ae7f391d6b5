"""The BIDS sidecar of an image: what the scanner says of echo times, held against what the caller says."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from stepwell.apps.files.packages import ending_of
from stepwell.common.files import Unreadable, read_text

#: Bytes that a sidecar may have.
LARGEST = 2**24
#: Seconds above which an echo time must be in another unit.
LONGEST_TE = 0.5
#: Share of the spacing by which echo times may differ, as they are printed with few digits.
ROUNDED = 0.02


@dataclasses.dataclass(frozen=True)
class Sidecar:
    """Echo times and repetition time of a sidecar, in the unit that it has: seconds, by BIDS."""

    path: Path
    echo_times: tuple[float, ...]
    repetition_time: float | None


def find_sidecar(image: str | os.PathLike[str]) -> Path | None:
    """Return the ``.json`` beside a NIfTI image, None where there is none."""
    ending = ending_of(image)
    if ending not in (".nii", ".nii.gz"):
        return None
    beside = Path(os.fspath(image)[: -len(ending)] + ".json")
    return beside if beside.is_file() else None


def read_sidecar(image: str | os.PathLike[str]) -> Sidecar | None:
    """Read the sidecar of an image; None where there is none, or where it says nothing of echoes."""
    path = find_sidecar(image)
    if path is None:
        return None
    try:
        held = json.loads(read_text(path, LARGEST, encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"{path}: is no JSON: {error}; allowed: a BIDS sidecar, or --no-sidecar") from None
    if not isinstance(held, dict):
        raise Unreadable(f"{path}: holds no fields; allowed: a BIDS sidecar, or --no-sidecar")
    times = _numbers(path, "EchoTime", held.get("EchoTime"))
    repetition = _numbers(path, "RepetitionTime", held.get("RepetitionTime"))
    if not times and not repetition:
        return None
    return Sidecar(path, times, repetition[0] if repetition else None)


def settle_spacing(te: float | None, echoes: int, sidecar: Sidecar | None) -> tuple[float, list[str]]:
    """Return the seconds between echoes and what a person should know; contradictions raise.

    Parameters
    ----------
    te : float or None
        What the caller says; None: what the sidecar says.
    echoes : int
        Echoes of the image.
    sidecar : Sidecar or None

    Examples
    --------
    >>> settle_spacing(None, 3, Sidecar(Path("a.json"), (0.01,), 2.5))
    (0.01, ['te is 0.01 s, the EchoTime of a.json'])
    """
    notes: list[str] = []
    if sidecar is None:
        if te is None:
            raise ValueError("te is None; allowed: the seconds between echoes, as no sidecar has an EchoTime")
        return te, notes
    name, times = sidecar.path.name, sidecar.echo_times
    if times and max(times) > LONGEST_TE:
        raise Unreadable(
            f"{sidecar.path}: EchoTime is {max(times):g}; allowed: seconds, at most {LONGEST_TE:g} (did it mean "
            f"{max(times) / 1000:g}?); or --no-sidecar"
        )
    if te is None:
        if not times:
            raise ValueError(f"te is None; allowed: the seconds between echoes, as {name} has no EchoTime")
        te = times[0]
        notes.append(f"te is {te:g} s, the EchoTime of {name}")
    if len(times) > 1:
        expected = te * np.arange(1, len(times) + 1)
        if len(times) != echoes or np.abs(np.array(times) - expected).max() > ROUNDED * te:
            raise Unreadable(
                f"{sidecar.path}: EchoTime is {_shown(times)}, {len(times)} echoes; allowed: {echoes} of them, evenly "
                f"spaced by te = {te:g} s from it on; or --no-sidecar"
            )
    elif times:
        order = max(1, min(echoes, round(times[0] / te)))  # of merged images, any one of the echoes may be told
        if abs(times[0] - order * te) > ROUNDED * te:
            raise Unreadable(
                f"{sidecar.path}: EchoTime is {times[0]:g} s, and te is {te:g} s; allowed: a te of which it is a whole "
                "multiple; or --no-sidecar"
            )
    if sidecar.repetition_time is not None and echoes * te > sidecar.repetition_time:
        raise Unreadable(
            f"{sidecar.path}: RepetitionTime is {sidecar.repetition_time:g} s, and {echoes} echoes of te = {te:g} s "
            f"take {echoes * te:g} s; allowed: a train that is shorter; or --no-sidecar"
        )
    return te, notes


def _numbers(path: Path, name: str, value: Any) -> tuple[float, ...]:
    """Return a field that is a number or a list of such."""
    if value is None:
        return ()
    listed = value if isinstance(value, list) else [value]
    good = all(isinstance(one, int | float) and not isinstance(one, bool) and 0 < one < float("inf") for one in listed)
    if not listed or not good:
        raise Unreadable(f"{path}: {name} is {str(value)[:60]}; allowed: seconds, above 0; or --no-sidecar")
    return tuple(float(one) for one in listed)


def _shown(times: tuple[float, ...]) -> str:
    return ", ".join(f"{time:g}" for time in times[:4]) + (", ..." if len(times) > 4 else "")
