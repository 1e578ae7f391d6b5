"""What can be mapped: along which axis it is measured, which parameters a voxel has, their units and usual bounds."""

from __future__ import annotations

import dataclasses
import math

#: Maps that every fit has, with their meaning.
COMMON = {
    "residual": "standard deviation of what the fit leaves, in units of the image",
    "distance": "how far the minimum is, in standard errors",
    "bound": "how many parameters are at a bound",
    "status": "how the fit ended, the number of a stepwell.FitStatus: positive where it converged; -1: not fitted",
}
_ANY = (0.0, math.inf)
_S0 = "signal without decay, in units of the image"


@dataclasses.dataclass(frozen=True)
class Quantity:
    """Something that a series of images tells of each voxel.

    Attributes
    ----------
    name, title : str
        Its name in calls, and in words.
    axis, unit : str
        What differs between the images, and in which unit.
    field : str
        The field of a BIDS sidecar that has it.
    range : pair of float
        Within which the largest point must lie: outside it is in another unit.
    maps : dict of str
        The parameters, in the order of pictures, with their meaning.
    bounds : dict of pairs
        Where each parameter may lie, unless the caller says otherwise.
    default : tuple of float
        Points of simulated images.
    """

    name: str
    title: str
    axis: str
    unit: str
    field: str
    range: tuple[float, float]
    maps: dict[str, str]
    bounds: dict[str, tuple[float, float]]
    default: tuple[float, ...]


def _decay(name: str, title: str, map_name: str, bounds: tuple[float, float], echoes: tuple[float, ...]) -> Quantity:
    maps = {map_name: f"{title}, seconds", "S0": _S0}
    return Quantity(
        name, title, "echo times", "s", "EchoTime", (1e-3, 2.0), maps, {map_name: bounds, "S0": _ANY}, echoes
    )


_B = (0, 10, 20, 40, 80, 110, 140, 170, 200, 300, 400, 500, 600, 700, 800, 900)

QUANTITIES: dict[str, Quantity] = {
    one.name: one
    for one in (
        _decay("t2star", "T2*", "T2star", (5e-4, 1.0), tuple(0.004 * k for k in range(1, 13))),
        _decay("t2", "T2", "T2", (5e-3, 3.0), tuple(0.010 * k for k in range(1, 17))),
        Quantity(
            "t1",
            "T1 by inversion recovery",
            "inversion times",
            "s",
            "InversionTime",
            (0.05, 30.0),
            {"T1": "T1, seconds", "S0": _S0, "inversion": "share by which the pulse inverts: 2 is all of it"},
            {"T1": (0.05, 6.0), "S0": _ANY},
            (0.05, 0.1, 0.2, 0.4, 0.7, 1.1, 1.6, 2.4, 3.4, 5.0),
        ),
        Quantity(
            "t1-vfa",
            "T1 by variable flip angles",
            "flip angles",
            "degrees",
            "FlipAngle",
            (1.0, 180.0),
            {"T1": "T1, seconds", "S0": _S0},
            {"T1": (0.05, 6.0), "S0": _ANY},
            (2.0, 4.0, 7.0, 11.0, 16.0, 22.0),
        ),
        Quantity(
            "adc",
            "apparent diffusion coefficient",
            "b-values",
            "s/mm²",
            "",
            (20.0, 2e4),
            {"ADC": "apparent diffusion coefficient, mm²/s", "S0": _S0},
            {"ADC": (0.0, 0.01), "S0": _ANY},
            (0.0, 50.0, 100.0, 200.0, 400.0, 600.0, 800.0),
        ),
        Quantity(
            "ivim",
            "intravoxel incoherent motion",
            "b-values",
            "s/mm²",
            "",
            (20.0, 2e4),
            {
                "f": "perfusion fraction",
                "D": "diffusion coefficient of tissue, mm²/s",
                "Dstar": "pseudo-diffusion coefficient of blood, mm²/s",
                "S0": _S0,
            },
            {"S0": _ANY, "f": (0.0, 1.0), "Dstar": (0.005, 0.2), "D": (0.0, 0.005)},
            tuple(map(float, _B)),
        ),
    )
}
