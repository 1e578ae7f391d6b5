"""Chapter: a map of myelin water from the echoes of an MRI scan, as `stepwell t2map` makes it."""

from __future__ import annotations

import numpy as np

from stepwell.apps.t2 import T2Model, fit_voxels, simulate
from stepwell.lab.html import Block, Figure, Gallery, Series, Text, chart, grey, png_image
from stepwell.lab.tour.chapter import Account, Chapter, Clock, Comparison, Stage, duration

#: Voxels along a side: for the tour, and for a quick one.
SIDES = (64, 12)
ECHOES, TE = 32, 0.010
#: Water between layers of myelin has a T2 up to this, in seconds.
MYELIN = 0.040
#: Fractions are shown up to this one.
BRIGHTEST = 0.3
#: Mean error of the fraction that noise and the penalty explain.
EXPECTED = 0.03


def run(stage: Stage) -> Account:
    """Find the T2 distribution of every voxel and compare the share of myelin water with the truth."""
    side = SIDES[stage.quick]
    stage.tell("a slice", 0.0)
    phantom = simulate((side, side, 1), echoes=ECHOES, te=TE, seed=3)
    model = T2Model(echoes=ECHOES, te=TE, myelin=(0.010, MYELIN))
    signals = phantom.signal[phantom.mask]
    stage.tell(f"{len(signals):,} voxels", 0.2)
    with Clock() as clock:
        maps = fit_voxels(model, signals, errors=False)
    truth = phantom.truth["sfr"][phantom.mask]
    error = float(np.mean(np.abs(maps["sfr"] - truth)))
    comparison = Comparison(
        f"T2 distribution, refocusing angle and λ of a voxel of {ECHOES} echoes, one of {len(signals):,}",
        clock.seconds / len(signals),
        f"myelin water differs by {error:.3f} from the truth on average",
        bool(np.all(np.isfinite(maps["sfr"]))) and error <= EXPECTED,
    )
    middle = int(np.argmax(truth))
    found = _figure(phantom.mask, maps["sfr"], "Myelin water, as found")
    blocks: list[Block] = [
        Text(
            "A scanner measures echoes that decay. Water between layers of myelin decays within 40 ms, other water "
            f"slower. For each of {len(signals):,} voxels of a simulated slice, three things were found in "
            f"{duration(clock.seconds)}: the refocusing angle, the non-negative distribution of T2, and how much to "
            "smooth it. From the shell that is stepwell t2map, which reads NIfTI and MATLAB files. The established "
            "program for this is DECAES, in Julia; it is not run here."
        ),
        Gallery([_figure(phantom.mask, truth, "Myelin water, the truth"), found], small=True),
        Figure(
            chart(
                [Series("found", 1e3 * model.t2_times, maps["t2dist"][middle], 0, "line")],
                f"The T2 distribution of the voxel with the most myelin water, {maps['sfr'][middle]:.2f} of all.",
                x_label="T2 (ms)",
                y_label="amplitude",
            ),
            f"The distribution of T2 in one voxel. Below 40 ms lies myelin water: {maps['sfr'][middle]:.2f} of all; "
            f"the truth is {truth[middle]:.2f}.",
        ),
    ]
    return Account([comparison], blocks, found)


def _figure(mask: np.ndarray, values: np.ndarray, caption: str) -> Figure:
    picture = np.zeros(mask.shape)
    picture[mask] = values
    drawing = png_image(grey(picture[..., 0], 0.0, BRIGHTEST), f"{caption}: bright where there is much of it.")
    return Figure(drawing, f"{caption}: 0 black, {BRIGHTEST:g} white.")


CODE = """from stepwell.apps import t2

phantom = t2.simulate((64, 64, 1), echoes=32, te=0.010)
model = t2.T2Model(echoes=32, te=0.010, myelin=(0.010, 0.040))
maps = t2.fit_voxels(model, phantom.signal[phantom.mask])  # maps["sfr"]: myelin water"""
CHAPTER = Chapter("myelin", "A map of myelin water", run, CODE, "t2map")
