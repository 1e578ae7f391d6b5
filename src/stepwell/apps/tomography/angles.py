"""Angles of projections: in degrees or radians, by the name they have, and refused where name and numbers disagree."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import numpy as np

from stepwell.common.checks import read_choice

#: Units of angles.
AngleUnit: TypeAlias = Literal["deg", "rad"]
#: Names of arrays, in small letters, that say their unit; and names that say none, which are degrees.
NAMED: dict[AngleUnit, tuple[str, ...]] = {
    "deg": ("angles_deg", "theta_deg", "angle_deg", "angles_degrees", "degrees"),
    "rad": ("angles_rad", "theta_rad", "angle_rad", "angles_radians", "radians"),
}
PLAIN = ("angles", "theta", "angle", "thetas")
#: All names, those that say a unit first.
NAMES = (*NAMED["deg"], *NAMED["rad"], *PLAIN)
#: So many angles within one turn in radians, and no more, are not a scan in degrees.
FEW = 10


def in_degrees(name: str, values: np.ndarray, told: str = "", given: AngleUnit | None = None) -> np.ndarray:
    """Return angles in degrees.

    Parameters
    ----------
    name : str
        Of the array.
    values : array
        Its numbers.
    told : str
        The unit that the file names beside it, such as ``"radians"``.
    given : {"deg", "rad"} or None
        The unit that the caller names; it must not contradict the name or the file.

    Examples
    --------
    >>> in_degrees("angles_rad", np.array([0.0, np.pi / 2])).tolist()
    [0.0, 90.0]
    """
    by_name = next((unit for unit, names in NAMED.items() if name.lower() in names), None)
    by_file: AngleUnit | None = (
        "rad" if told.lower().startswith("rad") else "deg" if told.lower().startswith("deg") else None
    )
    if given is not None:
        read_choice("angle_unit", given, tuple(NAMED))
    said = {
        f"the array is called {name!r}": by_name,
        f"the file says {told!r}": by_file,
        f"the angle unit is given as {given!r}": given,
    }
    units = {unit for unit in said.values() if unit is not None}
    if len(units) > 1:
        words = ", and ".join(text for text, unit in said.items() if unit is not None)
        raise ValueError(f"angles are in contradictory units: {words}; allowed: one unit")
    unit = units.pop() if units else "deg"
    span = float(np.ptp(values)) if values.size else 0.0
    if given is None:
        if unit == "deg" and values.size >= FEW and 1.0 < span <= 2 * math.pi + 0.1:
            raise ValueError(
                f"{name} runs over {span:.4g}, which as degrees is no scan and as radians {math.degrees(span):.4g} "
                "degrees; allowed: --angle-unit rad (or deg, if it is so), or a name such as angles_rad"
            )
        if unit == "rad" and span > 4 * math.pi + 0.1:
            raise ValueError(
                f"{name} runs over {span:.4g}, which as radians is {span / (2 * math.pi):.3g} turns; allowed: "
                "--angle-unit rad if it is so, or a name such as angles_deg"
            )
    return np.rad2deg(values) if unit == "rad" else values
