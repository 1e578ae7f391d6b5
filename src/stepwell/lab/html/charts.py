"""Line charts as SVG whose colours come from the page's style, so that one drawing serves light and dark."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

#: How a series is drawn: a line, a dashed line, a wide pale line, dots, lines from zero with a dot, or plus signs.
MARKS = ("line", "dashed", "band", "dots", "stems", "crosses")
#: Number of colours in the page's style: ``var(--tone-0)`` and so on.
TONES = 4
#: More points than this cannot be told apart on a screen.
_MOST_POINTS = 500
#: Narrow enough that the letters are of readable size on a phone, where a unit is about 0.9 of a pixel.
_WIDTH, _HEIGHT = 360.0, 236.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 10.0, 10.0, 40.0
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Series:
    """One line of a chart.

    Attributes
    ----------
    name : str
        For the legend; empty for a line that belongs to another.
    x, y : sequence of float
        Points that cannot be shown (not finite, or not positive on a logarithmic axis) are left out.
    tone : int
        Which of the page's colours.
    mark : str
        One of ``MARKS``.
    """

    name: str
    x: Any
    y: Any
    tone: int = 0
    mark: str = "line"

    def __post_init__(self) -> None:
        if self.mark not in MARKS:
            raise ValueError(f"mark: got {self.mark!r}; allowed: {', '.join(MARKS)}")
        if len(self.x) != len(self.y):
            raise ValueError(f"y: got {len(self.y)} values for {len(self.x)} of x; they must be as many")


@dataclass(frozen=True)
class _Axis:
    """Maps values to places along one side of the chart."""

    low: float
    high: float
    begin: float
    end: float
    log: bool

    def place(self, values: np.ndarray) -> np.ndarray:
        """Return the places of values."""
        values = np.log10(values) if self.log else values
        return self.begin + (values - self.low) / (self.high - self.low) * (self.end - self.begin)

    def at(self, value: float) -> float:
        """Return the place of one value."""
        return float(self.place(np.array([value]))[0])

    def ticks(self) -> list[tuple[float, str]]:
        """Places and labels."""
        if self.log:
            first, last = math.ceil(self.low - 1e-9), math.floor(self.high + 1e-9)
            if self.high - self.low < 2:
                # Too few powers of ten to read values by: two and five times each as well.
                values = [(factor, power) for power in range(first - 1, last + 1) for factor in (1, 2, 5)]
                inside = [
                    (f * 10.0**p, p) for f, p in values if self.low <= math.log10(f) + p + 1e-9 <= self.high + 2e-9
                ]
                return [(self.at(value), f"{value:.{max(0, -power)}f}") for value, power in inside]
            stride = max(1, math.ceil((last - first + 1) / 6))
            powers = range(first + (-first % stride), last + 1, stride)
            return [(self.at(10.0**power), _power(power)) for power in powers]
        step = _step((self.high - self.low) / 5)
        count = np.arange(math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9) + 1)
        digits = max(0, -math.floor(math.log10(step) + 1e-9))
        plain = digits <= 4 and max(abs(self.low), abs(self.high)) < 1e6
        form = f",.{digits}f" if plain else ".4g"
        return [(self.at(k * step), f"{k * step:{form}}") for k in count.tolist()]


def chart(
    series: Sequence[Series],
    alt: str,
    *,
    x_label: str,
    y_label: str,
    x_log: bool = False,
    y_log: bool = False,
    y_from_zero: bool = False,
    levels: Sequence[tuple[float, str]] = (),
) -> str:
    """Draw a chart and its legend as HTML.

    Parameters
    ----------
    series : sequence of Series
    alt : str
        What the chart shows, for those who do not see it.
    x_label, y_label : str
        Names of the axes.
    x_log, y_log : bool, default False
        Whether the axes are logarithmic.
    y_from_zero : bool, default False
        Whether a linear y axis begins at zero.
    levels : sequence of (float, str)
        Horizontal lines with their names, such as a tolerance.

    Returns
    -------
    str
        An ``svg`` element without colours of its own, followed by a legend.

    Examples
    --------
    >>> drawing = chart([Series("f", [1, 2, 3], [1.0, 0.1, 0.01])], "f falls", x_label="step", y_label="f", y_log=True)
    >>> drawing.startswith('<svg class="chart" viewBox="0 0 360 236" role="img" aria-label="f falls">')
    True
    >>> "10⁻¹" in drawing
    True
    """
    shown = [(one, *_visible(one, x_log, y_log)) for one in series]
    across = [x for _, x, _ in shown]
    if not x_log and any(x.size for x in across):
        low, high = min(x.min(initial=np.inf) for x in across), max(x.max(initial=-np.inf) for x in across)
        if 0 < low < 0.15 * high:
            across.append(np.zeros(1))  # so near that the axis may as well begin there
    x_axis = _axis(across, _LEFT, _WIDTH - _RIGHT, x_log)
    heights = [np.array([value for value, _ in levels if value > 0 or not y_log]), *(y for _, _, y in shown)]
    if not y_log and (y_from_zero or any(one.mark == "stems" for one in series)):
        heights.append(np.zeros(1))
    y_axis = _axis(heights, _HEIGHT - _BOTTOM, _TOP, y_log, margin=0.04)
    body = [*_grid(x_axis, y_axis), *_labels(x_label, y_label)]
    for value, name in levels:
        if value > 0 or not y_log:
            at = _number(y_axis.at(value))
            body.append(f'<path class="level" d="M{_number(_LEFT)} {at}H{_number(_WIDTH - _RIGHT)}"/>')
            body.append(
                f'<text class="level" x="{_number(_WIDTH - _RIGHT)}" y="{at}" dy="-4">{html.escape(name)}</text>'
            )
    for one, x, y in shown:
        base = 0.0 if y_axis.log else max(0.0, y_axis.low)
        foot = y_axis.begin if y_axis.log else y_axis.at(base)
        body.append(_draw(one, x_axis.place(x), y_axis.place(y), foot))
    frame = f'<svg class="chart" viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" role="img" aria-label="{html.escape(alt)}">'
    return f"{frame}{''.join(body)}</svg>{_legend(series)}"


def _visible(one: Series, x_log: bool, y_log: bool) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.asarray(one.x, dtype=np.float64), np.asarray(one.y, dtype=np.float64)
    keep = np.isfinite(x) & np.isfinite(y)
    with np.errstate(invalid="ignore"):
        keep &= (x > 0) | (not x_log)
        keep &= (y > 0) | (not y_log)
    x, y = x[keep], y[keep]
    if len(x) > _MOST_POINTS and one.mark in ("line", "dashed", "band"):
        few = np.unique(np.linspace(0, len(x) - 1, _MOST_POINTS).round().astype(int))
        x, y = x[few], y[few]
    return x, y


def _axis(values: list[np.ndarray], begin: float, end: float, log: bool, margin: float = 0.0) -> _Axis:
    """Make an axis that holds all values; one without any, or with a single one, still has a length."""
    together = np.concatenate([*values, np.zeros(0)])
    if not together.size:
        together = np.array([1.0, 10.0])
    if log:
        together = np.log10(together)
    low, high = float(together.min()), float(together.max())
    if high - low < (1.0 if log else 1e-9 * max(1.0, abs(high))):
        # Within rounding, or within a decade: wide enough for ticks.
        spread = 0.5 if log else max(0.5, 0.1 * abs(high))
        low, high = low - spread, high + spread
    room = margin * (high - low)
    return _Axis(low - (room if log or low != 0 else 0.0), high + room, begin, end, log)


def _step(least: float) -> float:
    """Return the least of 1, 2, 5 times a power of ten that is not below `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= least * (1 - 1e-9))


def _power(power: int) -> str:
    return {0: "1", 1: "10"}.get(power, f"10{str(power).translate(_SUPERSCRIPTS)}")


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _grid(x_axis: _Axis, y_axis: _Axis) -> list[str]:
    left, right, top, bottom = (_number(v) for v in (_LEFT, _WIDTH - _RIGHT, _TOP, _HEIGHT - _BOTTOM))
    lines, texts = [], []
    for place, label in x_axis.ticks():
        lines.append(f"M{_number(place)} {top}V{bottom}")
        texts.append(f'<text class="below" x="{_number(place)}" y="{bottom}" dy="15">{label}</text>')
    for place, label in y_axis.ticks():
        lines.append(f"M{left} {_number(place)}H{right}")
        texts.append(f'<text class="beside" x="{left}" y="{_number(place)}" dx="-5" dy="4">{label}</text>')
    frame = f'<path class="axis" d="M{left} {top}V{bottom}H{right}"/>'
    return [f'<path class="grid" d="{"".join(lines)}"/>', frame, *texts]


def _labels(x_label: str, y_label: str) -> list[str]:
    across, down = _number((_LEFT + _WIDTH - _RIGHT) / 2), _number((_TOP + _HEIGHT - _BOTTOM) / 2)
    return [
        f'<text class="name" x="{across}" y="{_number(_HEIGHT - 6)}">{html.escape(x_label)}</text>',
        f'<text class="name" transform="translate(11 {down}) rotate(-90)">{html.escape(y_label)}</text>',
    ]


def _draw(one: Series, x: np.ndarray, y: np.ndarray, foot: float) -> str:
    points = [f"{_number(a)} {_number(b)}" for a, b in zip(x.tolist(), y.tolist())]
    style = f'class="{one.mark} tone-{one.tone % TONES}"'
    if not points:
        return ""
    if one.mark in ("line", "dashed", "band"):
        return f'<path {style} d="M{"L".join(points)}"/>'
    if one.mark == "crosses":
        return f'<path {style} d="{"".join(f"M{point}m-4 0h8m-4 -4v8" for point in points)}"/>'
    dots = f'<path {style} d="{"".join(f"M{point}h0" for point in points)}"/>'
    if one.mark == "dots":
        return dots
    stems = "".join(f"M{_number(a)} {_number(foot)}V{_number(b)}" for a, b in zip(x.tolist(), y.tolist()))
    return f'<path class="line tone-{one.tone % TONES}" d="{stems}"/>{dots}'


def _legend(series: Sequence[Series]) -> str:
    named = [one for one in series if one.name]
    if len(named) < 2:
        return ""
    items = "".join(
        f'<li class="{one.mark} tone-{one.tone % TONES}"><span aria-hidden="true"></span>{html.escape(one.name)}</li>'
        for one in named
    )
    return f'<ul class="legend">{items}</ul>'
