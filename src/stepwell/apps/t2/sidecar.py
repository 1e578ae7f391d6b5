"""The BIDS sidecar of an image: what the scanner says of echo times, held against what the caller says."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np

from stepwell.apps.files.sidecar import read_fields, shown
from stepwell.common.files import Unreadable

#: Seconds above which an echo time must be in another unit.
LONGEST_TE = 0.5
#: What no scanner reaches between two echoes, in seconds.
SHORTEST_TE = 1e-5
#: Seconds above which a repetition time must be in another unit.
LONGEST_TR = 60.0
#: Share of the spacing by which echo times may differ, as they are printed with few digits.
ROUNDED = 0.02


@dataclasses.dataclass(frozen=True)
class Sidecar:
    """Echo times and repetition time of a sidecar, in the unit that it has: seconds, by BIDS."""

    path: Path
    echo_times: tuple[float, ...]
    repetition_time: float | None


def read_sidecar(image: str | os.PathLike[str]) -> Sidecar | None:
    """Read the sidecar of an image; None where there is none, or where it says nothing of echoes."""
    found = read_fields(image, ("EchoTime", "RepetitionTime"))
    if found is None or not any(found.values.values()):
        return None
    repetition = found.values["RepetitionTime"]
    return Sidecar(found.path, found.values["EchoTime"], repetition[0] if repetition else None)


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
    repetition = sidecar.repetition_time
    if repetition is not None and repetition > LONGEST_TR:
        raise Unreadable(
            f"{sidecar.path}: RepetitionTime is {repetition:g}; allowed: seconds, at most {LONGEST_TR:g} (did it mean "
            f"{repetition / 1000:g}?); or --no-sidecar"
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
                f"{sidecar.path}: EchoTime is {shown(times)}, {len(times)} echoes; allowed: {echoes} of them, evenly "
                f"spaced by te = {te:g} s from it on; or --no-sidecar"
            )
    elif times:
        order = max(1, min(echoes, round(times[0] / te)))  # of merged images, any one of the echoes may be told
        if abs(times[0] - order * te) > ROUNDED * te:
            raise Unreadable(
                f"{sidecar.path}: EchoTime is {times[0]:g} s, and te is {te:g} s; allowed: a te of which it is a whole "
                "multiple; or --no-sidecar"
            )
    if repetition is not None and echoes * te > repetition:
        raise Unreadable(
            f"{sidecar.path}: RepetitionTime is {repetition:g} s, and {echoes} echoes of te = {te:g} s "
            f"take {echoes * te:g} s; allowed: a train that is shorter; or --no-sidecar"
        )
    return te, notes
