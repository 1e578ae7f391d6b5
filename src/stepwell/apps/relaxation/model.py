"""A quantity at given points: the compiled model that is fitted, its bounds, and how its parameters become maps."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stepwell.apps.files.sidecar import shown
from stepwell.apps.relaxation.quantities import COMMON, QUANTITIES, Quantity
from stepwell.common.checks import meant, read_choice, read_real, read_switch, require, require_kind
from stepwell.fit import models

#: Seconds above which a repetition time of a spoiled sequence must be in another unit.
LONGEST_TR = 5.0


@dataclasses.dataclass(frozen=True)
class RelaxationModel:
    """What is mapped, and where it was measured.

    Parameters
    ----------
    quantity : {"t2star", "t2", "t1", "t1-vfa", "adc", "ivim"}
        T2*, T2, T1 by inversion recovery, T1 by variable flip angles (spoiled gradient echo), the apparent diffusion
        coefficient, or intravoxel incoherent motion.
    points : sequence of float
        Echo or inversion times in seconds, flip angles in degrees, or b-values in s/mm²: one per image.
    tr : float, optional
        Repetition time in seconds, for "t1-vfa".
    offset : bool, default False
        Whether "t2star" and "t2" have a constant beside the decay, for the noise floor of magnitudes.
    signed : bool, default False
        Whether images of "t1" have their sign; of magnitudes, the points before the least are tried with both.
    bounds : dict of pairs, optional
        Where parameters may lie, by the names of their maps: ``{"T2star": (0.001, 0.2)}``.

    Examples
    --------
    >>> model = RelaxationModel("t2star", [0.005, 0.010, 0.020])
    >>> model.parameters, model.bounds_of("T2star")
    (('T2star', 'S0'), (0.0005, 1.0))
    >>> model.signal(T2star=0.02, S0=100.0).round(1)
    array([77.9, 60.7, 36.8])
    """

    quantity: str
    points: tuple[float, ...]
    tr: float | None = None
    offset: bool = False
    signed: bool = False
    bounds: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read the arguments."""
        read_choice("quantity", self.quantity, QUANTITIES)
        held = functools.partial(object.__setattr__, self)
        held("points", _read_points(self.about, self.points))
        for name, allowed in (("offset", ("t2star", "t2")), ("signed", ("t1",))):
            held(name, read_switch(name, getattr(self, name)))
            good = not getattr(self, name) or self.quantity in allowed
            require(good, name, True, f"False, or quantity {' or '.join(allowed)}")
        if self.quantity == "t1-vfa":
            require(self.tr is not None, "tr", None, "the repetition time, seconds")
            held("tr", read_real("tr", self.tr, above=0))
            require(self.tr <= LONGEST_TR, "tr", self.tr, f"seconds, at most {LONGEST_TR:g}")  # type: ignore[operator]
        else:
            require(self.tr is None, "tr", self.tr, "None, or quantity t1-vfa")
        held("bounds", {name: self._read_bound(name, pair) for name, pair in _items(self.bounds)})
        distinct = len(set(self.points))
        free = len(self.curve.parameters)
        require(distinct >= free, "points", self.points, f"at least {free} that differ, as many as parameters")

    def _read_bound(self, name: str, pair: Any) -> tuple[float, float]:
        known = [*self.about.bounds, *(["offset"] if self.offset else [])]
        require(name in known, "bounds", name, ", ".join(known) + meant(name, known))
        require_kind(isinstance(pair, Sequence) and len(pair) == 2, f"bounds[{name!r}]", pair, "(lower, upper)")
        low, high = (read_real(f"bounds[{name!r}]", end, infinite=True) for end in pair)
        least = 0.0 if name not in self._inverses() else np.finfo(float).tiny
        require(least <= low < high, f"bounds[{name!r}]", pair, "lower < upper, not below 0")
        return low, high

    @property
    def about(self) -> Quantity:
        """What the quantity is."""
        return QUANTITIES[self.quantity]

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the maps that a voxel's parameters make."""
        return (*self.about.maps, *(["offset"] if self.offset else []))

    @property
    def maps(self) -> dict[str, str]:
        """Every map by name, with its meaning."""
        meanings = {**self.about.maps} | ({"offset": "constant beside the decay"} if self.offset else {})
        errors = {f"{name}_se": f"standard error of {name}; NaN where it is at a bound" for name in meanings}
        return meanings | errors | COMMON

    def bounds_of(self, name: str) -> tuple[float, float]:
        """Return where a parameter may lie."""
        return self.bounds.get(name, self.about.bounds.get(name, (0.0, math.inf)))

    @functools.cached_property
    def curve(self) -> models.CompiledModel:
        """The compiled model: of rates rather than times, whose curves are the same."""
        if self.quantity == "ivim":
            return models.ivim()
        if self.quantity == "t1-vfa":
            recovered = f"exp(-{self.tr!r}*k)"
            return models.expression(f"a*sin(x)*(1 - {recovered})/(1 - cos(x)*{recovered})", "x")
        return models.exponentials(1, offset=self.offset or self.quantity == "t1")

    @property
    def abscissa(self) -> np.ndarray:
        """The points as the compiled model takes them: angles in radians."""
        points = np.asarray(self.points)
        return np.radians(points) if self.quantity == "t1-vfa" else points

    def _inverses(self) -> tuple[str, ...]:
        """Maps that are one over a rate."""
        return tuple(name for name in ("T1", "T2", "T2star") if name in self.about.maps)

    def limits(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the bounds of the compiled model's parameters."""
        pairs = {"S0": self.bounds_of("S0"), "f": self.bounds_of("f")}
        if self.quantity == "ivim":
            pairs |= {name: self.bounds_of(name) for name in ("Dstar", "D")}
        else:
            time = next(iter(self._inverses()), None)
            low, high = self.bounds_of(time) if time else self.bounds_of("ADC")
            pairs["k"] = (1 / high, 1 / low) if time else (low, high)
            pairs["a"], pairs["c"] = self.bounds_of("S0"), self.bounds_of("offset")
            if self.quantity == "t1":  # c - |a| exp(-t k)
                pairs["a"], pairs["c"] = (-math.inf, 0.0), self.bounds_of("S0")
        chosen = [pairs[name] for name in self.curve.parameters]
        return np.array([low for low, _ in chosen]), np.array([high for _, high in chosen])

    def read_off(self, x: np.ndarray, errors: np.ndarray, pcov: np.ndarray | None) -> dict[str, np.ndarray]:
        """Return the maps of parameters, with their standard errors, from those of the compiled model."""
        at = dict(zip(self.curve.parameters, range(x.shape[-1]), strict=True))
        names = {"S0": "c" if self.quantity == "t1" else "a", "offset": "c", "ADC": "k"}
        found: dict[str, np.ndarray] = {}
        with np.errstate(all="ignore"):
            for name in self.parameters:
                if name == "inversion":
                    assert pcov is not None
                    a, c = x[:, at["a"]], x[:, at["c"]]
                    slope = np.stack([-1 / c, a / c**2], axis=-1)
                    block = pcov[:, [at["a"], at["c"]]][:, :, [at["a"], at["c"]]]
                    found[name] = -a / c
                    found[f"{name}_se"] = np.sqrt(np.einsum("bi,bij,bj->b", slope, block, slope))
                elif name in self._inverses():
                    k = x[:, at["k"]]
                    found[name], found[f"{name}_se"] = 1 / k, errors[:, at["k"]] / k**2
                else:
                    j = at[name if name in at else names[name]]
                    found[name], found[f"{name}_se"] = x[:, j], errors[:, j]
        return found

    def signal(self, points: Any = None, **maps: Any) -> np.ndarray:
        """Return the signal of parameters, which broadcast, along a last axis of points (default: the model's own)."""
        x = self.abscissa if points is None else np.asarray(points, dtype=float)
        given = {name: np.asarray(value, dtype=float)[..., None] for name, value in maps.items()}
        if self.quantity == "ivim":
            return np.asarray(self.curve(x, *(given[name] for name in self.curve.parameters)))
        time = next(iter(self._inverses()), None)
        k = 1 / given[time] if time else given["ADC"]
        a = given["S0"]
        if self.quantity == "t1":
            return np.asarray(self.curve(x, -given["inversion"] * a, k, a))
        return np.asarray(self.curve(x, *((a, k, given["offset"]) if self.offset else (a, k))))

    def as_dict(self) -> dict[str, Any]:
        """Return everything that the maps depend on."""
        used = {name: self.bounds_of(name) for name in self.parameters if name in self.about.bounds or name == "offset"}
        return dataclasses.asdict(self) | {"bounds": used}


def _items(bounds: Any) -> list[tuple[str, Any]]:
    require_kind(isinstance(bounds, Mapping), "bounds", bounds, "a dict of pairs by the names of maps")
    return list(bounds.items())


def _read_points(about: Quantity, points: Any) -> tuple[float, ...]:
    """Check points: as many as there are images, in the unit that is meant."""
    array = np.asarray(points, dtype=object)
    require(array.ndim == 1 and array.size > 0, "points", points, f"{about.axis}, one per image, in {about.unit}")
    found = tuple(read_real("points", one, at_least=0) for one in array.tolist())
    low, high = about.range
    told = f"{about.axis} in {about.unit}, the largest from {low:g} to {high:g}"
    if about.unit == "s" and high < max(found) < 1000 * high:
        told += f" (did you mean {max(found) / 1000:g}?)"
    require(low <= max(found) <= high, "points", shown(found), told)
    return found
