"""Chapter: surfaces from lidar waveforms, very many non-negative least-squares systems, beside SciPy's one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import optimize
from scipy.linalg import toeplitz

from stepwell.api.lsq import nnls
from stepwell.apps.waveform import Shots, convolve, find_returns, synthetic_shots
from stepwell.lab.html import Block, Figure, Gallery, Series, Text, chart
from stepwell.lab.tour.chapter import PATIENCE, Account, Chapter, Clock, Comparison, Stage, duration
from stepwell.lsq import Convolution

#: Shots that we solve, and those of them that SciPy solves too: for the tour, and for a quick one.
COUNTS = ((1000, 20), (40, 4))
#: Samples of a waveform.
SAMPLES = (432, 120)
RETURNS = (12, 3)
#: Amplitude of the faintest surface that synthetic shots have; what is recovered below it is noise.
FAINTEST = 10.0
#: Largest scaled violation of the optimality conditions that counts as rounding.
ROUNDING = 1e-12


def run(stage: Stage) -> Account:
    """Deconvolve all shots; solve a few of them with SciPy."""
    count, few = COUNTS[stage.quick]
    stage.tell("making shots", 0.0)
    shots = synthetic_shots(count, samples=SAMPLES[stage.quick], returns=RETURNS[stage.quick], seed=4)
    observed = shots.waveforms - shots.background[:, None]
    place = stage.place
    pulses, b = place.put(shots.pulses), place.put(observed)
    stage.tell(f"{count:,} shots", 0.2)

    def progress(done: int, total: int) -> None:
        stage.tell(f"{done:,} of {total:,} shots", 0.2 + 0.5 * done / max(1, total))

    with Clock() as clock:
        result = nnls(Convolution(pulses, b.shape[1], origin=shots.origin), b, progress=progress)
        place.wait()
    x = place.fetch(result.x)
    violation = float(np.max(place.fetch(result.violation)))
    converged = int(np.sum(place.fetch(result.success)))
    matrices = [dense_matrix(shots, shot) for shot in range(few)]
    peer_x = np.empty((few, x.shape[1]))
    with Clock() as peer_clock:
        for shot in range(few):
            with peer_clock.pause():
                stage.tell(f"SciPy: shot {shot + 1} of {few}", 0.7 + 0.3 * shot / few)
            peer_x[shot], _ = optimize.nnls(matrices[shot], observed[shot])
            if peer_clock.now() > PATIENCE:
                few = shot + 1
                break
    peer_x = peer_x[:few]
    gap = float(np.max(np.abs(x[:few] - peer_x)) / np.max(peer_x))
    comparison = Comparison(
        f"deconvolution of a shot of {x.shape[1]} samples, one of a structured batch of {count:,}",
        clock.seconds / count,
        f"amplitudes differ by {gap:.0e}; optimality violated by {violation:.0e}",
        # The amplitudes carry the rounding of the residual times the condition of the positive columns.
        converged == count and violation <= ROUNDING and gap <= 1e-6,
        "SciPy nnls, a loop over dense matrices",
        peer_clock.seconds / few,
        gap=gap,
    )
    found = [len(find_returns(row, FAINTEST)[0]) for row in x[:200]]
    blocks: list[Block] = [
        Text(
            f"A laser pulse meets {RETURNS[stage.quick]} surfaces; what comes back is the sum of its echoes, with "
            f"noise. How much each delay contributes cannot be negative: min ‖Ax − b‖ with x >= 0, where A is the "
            f"convolution with the pulse that was sent, so every shot has a matrix of its own. {converged:,} of "
            f"{count:,} shots were solved to rounding in {duration(clock.seconds)}, and each answer carries its own "
            f"certificate. SciPy was given {few} of them as dense matrices, one after the other: it knows neither "
            "batches nor that the matrix is a convolution, which is most of the difference. The summary has the time "
            "of one shot."
        ),
        Gallery([_figure(shots, x, shot) for shot in (0, 1)]),
        Text(
            f"Neighbouring positive samples are joined to one return, and returns below {FAINTEST:g}, fainter than any "
            f"surface, are left out as noise: {np.mean(found):.1f} per shot remain. Surfaces closer than the pulse is "
            f"wide can merge into one."
        ),
    ]
    return Account([comparison], blocks)


def dense_matrix(shots: Shots, shot: int) -> np.ndarray:
    """Return the convolution matrix of one shot, as SciPy wants it.

    Examples
    --------
    >>> shots = synthetic_shots(1, samples=80, returns=2)
    >>> x = np.random.default_rng(0).random((1, 80))
    >>> bool(np.allclose(dense_matrix(shots, 0) @ x[0], convolve(shots, x)[0]))
    True
    """
    samples, pulse = shots.waveforms.shape[1], shots.pulses[shot]
    column, row = np.zeros(samples), np.zeros(samples)
    after, before = pulse[shots.origin :], pulse[: shots.origin + 1][::-1]
    column[: len(after)], row[: len(before)] = after, before
    matrix: np.ndarray = toeplitz(column, row)
    return matrix


def _figure(shots: Shots, x: Any, shot: int) -> Figure:
    times, sizes = find_returns(x[shot], FAINTEST)
    truth = np.zeros(0) if shots.truth is None else shots.truth[shot]
    where = np.flatnonzero(truth)
    samples = np.arange(shots.waveforms.shape[1])
    alone = Shots(shots.waveforms[[shot]], shots.pulses[[shot]], shots.origin, shots.background[[shot]])
    fit = convolve(alone, x[[shot]])[0] + shots.background[shot]
    return Figure(
        chart(
            [
                Series("received", samples, shots.waveforms[shot], 0, "band"),
                Series("fit", samples, fit, 0, "line"),
                Series("recovered", times, sizes, 1, "stems"),
                Series("truth", where, truth[where], 2, "crosses"),
            ],
            f"A received waveform of {len(samples)} samples, its fit, {len(times)} recovered returns and the "
            f"{len(where)} true ones.",
            x_label="time (samples)",
            y_label="signal, amplitude",
        ),
        f"Shot {shot + 1}: the waveform as received, the one the answer explains, and the surfaces.",
    )


CODE = """import stepwell
from stepwell.apps import waveform

shots = waveform.synthetic_shots(1000)
matrices = stepwell.Convolution(shots.pulses, n=432, origin=shots.origin)
result = stepwell.nnls(matrices, shots.waveforms - shots.background[:, None])"""
CHAPTER = Chapter("waveforms", "Surfaces from lidar waveforms", run, CODE, "lidar")
