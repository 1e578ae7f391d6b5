"""Chapter: a million curve fits within bounds, beside SciPy's one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import optimize

from stepwell import models
from stepwell.api.fit import curve_fit
from stepwell.lab.html import Block, Figure, Gallery, Series, Text, chart, grey, png_image
from stepwell.lab.tour.chapter import PATIENCE, Account, Chapter, Clock, Comparison, Stage, duration

#: Pixels along a side, each with a curve, and curves that SciPy fits too: for the tour, and for a quick one.
SIDES, FEW = (1000, 14), (100, 5)
#: Pixels along a side of the picture that is shown.
SHOWN = 125
POINTS, NOISE = 16, 0.01
#: Both stop where rounding lets them, so that their answers can be compared.
TOL = 1e-13


def decay(t: np.ndarray, size: Any, rate: Any) -> np.ndarray:
    """Return the model as SciPy wants it."""
    return np.asarray(size * np.exp(-rate * t))


def slopes(t: np.ndarray, size: Any, rate: Any) -> np.ndarray:
    """Return the derivatives of the model, a column per parameter."""
    falls = np.exp(-rate * t)
    return np.stack([falls, -size * t * falls], axis=-1)


def run(stage: Stage) -> Account:
    """Fit every curve; fit a few of them with SciPy."""
    side, few = SIDES[stage.quick], FEW[stage.quick]
    count = side**2
    stage.tell("making curves", 0.0)
    rng = np.random.default_rng(7)
    t = np.linspace(0.0, 3.0, POINTS)
    across, down = np.meshgrid(*2 * [np.linspace(-1.0, 1.0, side)])
    rings = 2.25 + 1.75 * np.cos(9 * np.hypot(across, down) + np.arctan2(down, across))
    truth = np.column_stack([rng.uniform(0.5, 2.0, count), rings.ravel()])
    y = decay(t, truth[:, :1], truth[:, 1:]) + NOISE * rng.standard_normal((count, POINTS))
    place = stage.place
    times, curves, start = place.put(t), place.put(y), place.put(np.ones(2))
    stage.tell(f"{count:,} curves", 0.2)
    with Clock() as clock:
        result = curve_fit(models.exponentials(1), times, curves, start, bounds=(0, 50), ftol=TOL, xtol=TOL, gtol=TOL)
        place.wait()
    x, converged = place.fetch(result.x), int(np.sum(place.fetch(result.success)))
    peer_x = np.empty((few, 2))
    # MINPACK, with derivatives, is SciPy's fastest way. It knows no bounds, and here none is active.
    how: dict[str, Any] = {"method": "lm", "jac": slopes, "ftol": TOL, "xtol": TOL, "gtol": TOL}
    with Clock() as peer_clock:
        for curve in range(few):
            with peer_clock.pause():
                stage.tell(f"SciPy: curve {curve + 1} of {few}", 0.6 + 0.4 * curve / few)
            peer_x[curve] = optimize.curve_fit(decay, t, y[curve], np.ones(2), **how)[0]
            if peer_clock.now() > PATIENCE:
                few = curve + 1
                break
    gap = float(np.max(np.abs(x[:few] - peer_x[:few]) / peer_x[:few]))
    comparison = Comparison(
        f"a fit of a decay of {POINTS} points within bounds, one of a batch of {count:,}",
        clock.seconds / count,
        f"parameters differ by {gap:.0e}",
        # The gradient is known to rounding, and the normal equations of these curves have a condition below 100.
        converged == count and gap <= 1e-6,
        "SciPy curve_fit by MINPACK with derivatives, a loop over curves",
        peer_clock.seconds / few,
        gap=gap,
    )
    step = -(-side // SHOWN)
    rates = x[:, 1].reshape(side, side)[::step, ::step]
    picture = Figure(
        png_image(grey(rates, 0.0, 4.5), "Rates of decay as fitted in every pixel: a spiral of light and dark rings."),
        f"Fitted rates, {'per pixel' if step == 1 else 'every ' + str(step) + 'th pixel'}",
    )
    blocks: list[Block] = [
        Text(
            f"{converged:,} of {count:,} noisy decays were fitted within bounds in {duration(clock.seconds)}: a curve "
            "per pixel, with size and rate of a compiled exponential, and a status per curve. SciPy's fastest way, "
            f"MINPACK with derivatives and without bounds, was given {few}, one by one. It is made for one curve "
            "and any Python function; most of its time is Python's, and it knows no batches. "
            "Models of your own are compiled from a formula (stepwell.models.expression)."
        ),
        Gallery([picture, _figure(t, y, x)]),
    ]
    return Account([comparison], blocks, picture, [(f"{count:,}", f"curves fitted in {duration(clock.seconds)}")])


def _figure(t: np.ndarray, y: np.ndarray, x: np.ndarray) -> Figure:
    fine = np.linspace(0.0, t[-1], 100)
    shown = np.argsort(x[:200, 1])[[5, -5]]
    series = [
        one
        for tone, curve in enumerate(shown)
        for one in (
            Series(f"curve {tone + 1}", t, y[curve], tone, "dots"),
            Series(f"fit {tone + 1}", fine, decay(fine, *x[curve]), tone, "line"),
        )
    ]
    rates = " and ".join(f"{x[curve, 1]:.2f}" for curve in shown)
    text = f"Two of the measured decays and their fits, with rates {rates}."
    return Figure(chart(series, text, x_label="time", y_label="signal"), text)


CODE = """import numpy as np
import stepwell

t = np.linspace(0, 3, 16)
curves = 2 * np.exp(-1.5 * t) + 0.01 * np.random.default_rng(0).standard_normal((1_000_000, 16))
fit = stepwell.curve_fit(stepwell.models.exponentials(1), t, curves, [1, 1], bounds=(0, 50))"""
CHAPTER = Chapter("fits", "A million curve fits", run, CODE, "curve-fitting")
