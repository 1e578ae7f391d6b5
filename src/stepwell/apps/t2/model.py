"""What is measured and what is looked for: echo times, T2 bins, flip angles, penalty, and the windows of the maps."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from stepwell.apps.t2.epg import echo_decays
from stepwell.apps.t2.sidecar import LONGEST_TE, SHORTEST_TE
from stepwell.common.checks import read_choice, read_real, read_reals, read_whole, require, require_memory

#: How λ is chosen, where it is not a number.
LamRule: TypeAlias = Literal["chi2", "gcv", "lcurve", "discrepancy"]
LAM_RULES: tuple[str, ...] = get_args(LamRule)
#: Penalties ‖Lx‖: of the size of the distribution, of its slope, of its curvature.
Smoothness: TypeAlias = Literal["I", "L1", "L2"]

#: Seconds above which a T2 of tissue, or a T1, must be in another unit.
LONGEST_T2, LONGEST_T1 = 5.0, 30.0


@dataclasses.dataclass(frozen=True)
class T2Model:
    """A multi-echo measurement and how its voxels are to be read.

    Parameters
    ----------
    echoes : int
        Echoes of the image.
    te : float
        Seconds between echoes, which is also the time of the first one; at most 0.5.
    bins : int, default 40
        T2 values, evenly spaced in the logarithm.
    t2 : pair of float, default (0.010, 2.0)
        The smallest and largest of them, in seconds.
    angles : tuple, default (50, 180, 64)
        Smallest and largest refocusing angle in degrees and how many are tried. With one, as (180, 180, 1), the angle
        is known.
    t1 : float, default 1.0
        T1 in seconds, which matters little.
    lam : float or str, default "chi2"
        Weight λ of λ‖Lx‖, or the rule that chooses one in each voxel: ``"chi2"``, ``"gcv"``, ``"lcurve"``,
        ``"discrepancy"`` (needs `noise`). 0: plain NNLS.
    chi2 : float, default 1.02
        By how much the squared residual may exceed the one without penalty, for ``"chi2"``.
    noise : float, optional
        Standard deviation of the noise, in units of the image, for ``"discrepancy"``.
    smooth : {"I", "L1", "L2"}, default "I"
        L: the identity, first or second differences.
    myelin : pair of float, default (0.010, 0.025)
        Window of myelin water, in seconds.
    middle : float, default 0.2
        Upper end of the window of intra- and extracellular water, which begins where myelin's ends.

    Examples
    --------
    >>> model = T2Model(echoes=32, te=0.010, angles=(180, 180, 1))
    >>> model.dictionary.shape, model.t2_times[[0, -1]]
    ((1, 32, 40), array([0.01, 2.  ]))
    """

    echoes: int
    te: float
    bins: int = 40
    t2: tuple[float, float] = (0.010, 2.0)
    angles: tuple[float, float, int] = (50.0, 180.0, 64)
    t1: float = 1.0
    lam: float | LamRule = "chi2"
    chi2: float = 1.02
    noise: float | None = None
    smooth: Smoothness = "I"
    myelin: tuple[float, float] = (0.010, 0.025)
    middle: float = 0.2

    def __post_init__(self) -> None:
        read_whole("echoes", self.echoes, 2)
        _require_seconds("te", read_real("te", self.te, above=0), LONGEST_TE)
        require(self.te >= SHORTEST_TE, "te", self.te, f"seconds, at least {SHORTEST_TE:g}")
        read_whole("bins", self.bins, 2)
        require_memory("echoes", self.echoes, 4 * (self.echoes + 2))
        require_memory("bins", self.bins, 4 * (self.echoes + 2) * self.bins)
        low, high = read_reals("t2", self.t2, 2, meaning="the smallest and the largest T2", above=0)
        require(low < high, "t2", self.t2, "a smaller and a larger number")
        _require_seconds("t2", low, LONGEST_T2)
        first, last, count = read_reals("angles", self.angles, 3, meaning="smallest, largest, how many")
        for end in (first, last):
            require(0 < read_real("angles", end) <= 360, "angles", end, "degrees above 0, up to 360")
        read_whole("angles", count, 1, as_float=True)
        require_memory("angles", self.angles, int(4 * (self.echoes + 2) * self.bins * count))
        require(first < last or (first == last and count == 1), "angles", self.angles, "(smallest, largest, how many)")
        _require_seconds("t1", read_real("t1", self.t1, above=0), LONGEST_T1)
        if isinstance(self.lam, str):
            read_choice("lam", self.lam, LAM_RULES)
        else:
            read_real("lam", self.lam, at_least=0)
        require(
            self.lam != "discrepancy" or self.noise is not None, "noise", self.noise, "a number, with 'discrepancy'"
        )
        if self.noise is not None:
            read_real("noise", self.noise, above=0)
        read_real("chi2", self.chi2, above=1)
        read_choice("smooth", self.smooth, get_args(Smoothness))
        start, stop = read_reals("myelin", self.myelin, 2, meaning="from where to where in seconds", above=0)
        require(start < stop, "myelin", self.myelin, "a smaller and a larger number of seconds")
        _require_seconds("myelin", stop, LONGEST_T2)
        require(stop < read_real("middle", self.middle, above=0), "middle", self.middle, f"more than myelin's {stop:g}")

    @functools.cached_property
    def t2_times(self) -> np.ndarray:
        """T2 of every bin, in seconds."""
        return np.geomspace(*self.t2, self.bins)

    @functools.cached_property
    def flip_angles(self) -> np.ndarray:
        """The angles of the dictionary, in degrees."""
        first, last, count = self.angles
        return np.linspace(first, last, count)

    @functools.cached_property
    def dictionary(self) -> np.ndarray:
        """Decays of every flip angle and bin, (angles, echoes, bins)."""
        return echo_decays(self.echoes, self.te, self.t2_times, self.flip_angles, self.t1)

    @functools.cached_property
    def penalty(self) -> np.ndarray | None:
        """L as a matrix, None for the identity."""
        n = self.bins
        if self.smooth == "I":
            return None
        if self.smooth == "L1":
            return np.eye(n) - np.eye(n, k=-1)
        return 2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)

    @functools.cached_property
    def windows(self) -> dict[str, np.ndarray]:
        """Bins of myelin water, of the middle, and of free water."""
        times, hair = self.t2_times, 1 + 1e-12  # the ends of a window belong to it, whatever rounding says
        start, stop, middle = self.myelin[0] / hair, self.myelin[1] * hair, self.middle * hair
        return {
            "myelin": (times >= start) & (times <= stop),
            "middle": (times > stop) & (times <= middle),
            "free": times > middle,
        }

    def as_dict(self) -> dict[str, Any]:
        """Return the settings, for a record."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


def _require_seconds(argument: str, value: float, most: float) -> None:
    """Raise for a time that must be in milliseconds, with what was probably meant."""
    require(value <= most, argument, value, f"seconds, at most {most:g}; did you mean {value / 1000:g}?")
