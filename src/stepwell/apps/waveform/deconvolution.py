"""Lidar waveform deconvolution: where a laser pulse met something, from the light that came back.

A received waveform is the transmitted pulse, shifted and scaled by every surface it met, plus background and noise.
The surfaces are the non-negative solution of a least-squares problem whose matrix is the convolution with the pulse
(Luo & Duraiswami, section 6). Every shot has a pulse of its own, so every shot has a matrix of its own.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from stepwell.api.lsq import nnls
from stepwell.arrays import Array, host_copy, is_container
from stepwell.arrays.checks import read_numpy
from stepwell.arrays.over_systems import over_systems
from stepwell.arrays.presenting import Told
from stepwell.common.array_files import open_arrays, write_arrays
from stepwell.common.checks import (
    read_real,
    read_seed,
    read_whole,
    require,
    require_function,
    require_instance,
    require_memory,
    require_shape,
)
from stepwell.common.files import Unreadable, replacing
from stepwell.common.progress import as_told, with_bar
from stepwell.lsq import Convolution, NNLSResult


@dataclasses.dataclass(frozen=True)
class Shots:
    """Waveforms with their pulses.

    Attributes
    ----------
    waveforms : array, shape (shots, samples)
        What was received.
    pulses : array, shape (shots, length)
        What was sent; sample `origin` stands for zero delay.
    origin : int
    background : array, shape (shots,)
        The level of each waveform without any return.
    truth : array, shape (shots, samples), optional
        The amplitudes that synthetic shots were made from.
    start : array, shape (shots,), optional
        Where the first sample of each waveform lies in the record that it was cut from.
    noise : array, shape (shots,), optional
        Standard deviation of the noise of each waveform, where the file says so.
    about : dict of arrays, optional
        What else is known of each shot, such as ``beam``, ``shot_number`` and where its record begins and ends.
    """

    waveforms: np.ndarray
    pulses: np.ndarray
    origin: int
    background: np.ndarray
    truth: np.ndarray | None = None
    start: np.ndarray | None = None
    noise: np.ndarray | None = None
    about: dict[str, np.ndarray] | None = None

    def part(self, rows: slice | np.ndarray) -> Shots:
        """Return some of the shots."""
        held: dict[str, Any] = {
            name: None if (value := getattr(self, name)) is None else value[rows]
            for name in ("waveforms", "pulses", "background", "truth", "start", "noise")
        }
        about = None if self.about is None else {name: value[rows] for name, value in self.about.items()}
        return dataclasses.replace(self, **held, about=about)

    def __len__(self) -> int:
        return len(self.waveforms)

    def matrix(self) -> Convolution:
        """Return the matrices of all shots, by their pulses."""
        return Convolution(self.pulses, self.waveforms.shape[1], origin=self.origin)


@dataclasses.dataclass(frozen=True)
class Deconvolution(Told):
    """Shots, the amplitudes recovered from them, and the waveforms these amplitudes explain."""

    shots: Shots
    result: NNLSResult
    amplitudes: np.ndarray
    fit: np.ndarray

    def returns(self, shot: int, least: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """Return arrival times (in samples) and amplitudes of one shot; see :func:`find_returns`."""
        if isinstance(least, float) and np.isnan(least):  # the threshold of a shot that is not finite: no return
            least = np.inf
        return find_returns(self.amplitudes[shot], least)

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Draw the first four shots, and save the picture where `path` says; needs matplotlib."""
        from stepwell.apps.waveform.plots import plot_shots

        return plot_shots(self, path)


def synthetic_shots(
    count: int, *, samples: int = 432, returns: int = 12, noise: float = 3.0, background: float = 14.0, seed: int = 0
) -> Shots:
    """Make shots like those of NASA's LVIS: Gaussian-like pulses 15 to 25 samples wide, a few returns, noise.

    Parameters
    ----------
    count : int
        Number of shots.
    samples : int
        Samples of a waveform.
    returns : int
        Surfaces that each shot met.
    noise : float
        Standard deviation of the noise, whose magnitude is added; amplitudes lie between 10 and 200.
    background : float
        Constant level.
    seed : int
        Seed of the random numbers.

    Examples
    --------
    >>> shots = synthetic_shots(3, samples=100, returns=2)
    >>> shots.waveforms.shape, shots.pulses.shape
    ((3, 100), (3, 25))
    """
    count, samples = read_whole("count", count, 0), read_whole("samples", samples, 60)
    returns = read_whole("returns", returns, 0, samples - 40)
    noise, background = read_real("noise", noise, at_least=0), read_real("background", background)
    rng = np.random.default_rng(read_seed(seed))
    require_memory("count", count, 3 * count * 60)
    require_memory("samples", samples, 3 * count * samples)
    time = np.arange(25)
    width = rng.uniform(3.0, 4.5, count)
    pulses = np.exp(-0.5 * ((time - 12) / width[:, None]) ** 2)
    truth = np.zeros((count, samples))
    for shot in range(count):
        at = 20 + rng.choice(samples - 40, returns, replace=False)
        truth[shot, at] = rng.uniform(10, 200, returns)
    shots = Shots(np.zeros((count, samples)), pulses, 12, np.full(count, float(background)), truth)
    waveforms = convolve(shots, truth) + np.abs(rng.normal(0, noise, (count, samples))) + background
    return dataclasses.replace(shots, waveforms=waveforms)


def gedi_shots(
    tx: np.ndarray,
    rx: np.ndarray,
    rx_count: np.ndarray,
    noise_mean: np.ndarray,
    samples: int = 512,
    noise_std: np.ndarray | None = None,
) -> Shots:
    """Make shots from arrays of NASA's GEDI L1B product.

    Parameters
    ----------
    tx : array, shape (shots, length)
        Transmitted pulses. Their median is taken off, what is then negative is cut, the peak becomes 1.
    rx : array, shape (shots, longest)
        Received waveforms, of which `rx_count` samples are valid.
    rx_count, noise_mean : array, shape (shots,)
        Valid samples; mean background.
    samples : int
        Length of the window round the peak of each waveform.
    noise_std : array, shape (shots,), optional
        Standard deviation of the background, by which returns are told from noise.

    Examples
    --------
    >>> tx = np.exp(-0.5 * ((np.arange(32) - 16) / 3.0) ** 2)[None]
    >>> rx = np.zeros((1, 100))
    >>> rx[0, 34:66] = 20 * tx[0]
    >>> gedi_shots(tx, rx, np.array([100]), np.array([0.0]), samples=64).waveforms.shape
    (1, 64)
    """
    tx, rx, rx_count = read_numpy("tx", tx).astype(float), read_numpy("rx", rx), read_numpy("rx_count", rx_count)
    noise_mean = read_numpy("noise_mean", noise_mean).astype(float)
    require_shape(tx.ndim == 2 and 0 not in tx.shape, "tx", tx, "(shots, length), at least one of each")
    require_shape(rx.ndim == 2 and len(rx) == len(tx), "rx", rx, f"({len(tx)}, longest), a row a pulse of tx")
    for name, array in (("rx_count", rx_count), ("noise_mean", noise_mean)):
        require_shape(array.shape == (len(tx),), name, array, f"({len(tx)},), one a pulse of tx")
    counted = rx_count.dtype.kind in "iu" and rx_count.max() <= rx.shape[1]
    require(counted, "rx_count", rx_count, f"integers up to {rx.shape[1]}, the length of rx")
    samples, shortest = read_whole("samples", samples, 1), int(np.min(rx_count))
    require(samples <= shortest, "samples", samples, f"up to {shortest}, the valid samples of the shortest waveform")
    pulses = np.clip(tx - np.median(tx, axis=1, keepdims=True), 0, None)
    flat = np.flatnonzero(pulses.max(axis=1) == 0)
    if flat.size:
        raise ValueError(f"tx is flat in shot {flat[0]}; allowed: pulses that rise above their median")
    pulses /= pulses.max(axis=1, keepdims=True)
    peaks = pulses.argmax(axis=1)
    origin = int(peaks.max())
    aligned = np.zeros((len(tx), tx.shape[1] + origin - int(peaks.min())))
    waveforms, starts = np.empty((len(tx), samples)), np.empty(len(tx), dtype=np.int64)
    for shot, peak in enumerate(peaks):
        aligned[shot, origin - peak : origin - peak + tx.shape[1]] = pulses[shot]
        received = rx[shot, : rx_count[shot]].astype(float)
        start = min(max(int(np.argmax(received)) - samples // 2, 0), len(received) - samples)
        waveforms[shot], starts[shot] = received[start : start + samples], start
    noise = None if noise_std is None else read_numpy("noise_std", noise_std).astype(float)
    if noise is not None:
        require_shape(noise.shape == (len(tx),), "noise_std", noise, f"({len(tx)},), one per pulse of tx")
    return Shots(waveforms, aligned, origin, noise_mean, start=starts, noise=noise)


def load_shots(path: str | os.PathLike[str], samples: int = 512) -> Shots:
    """Read shots from an npz file: of :func:`save_shots`, or arrays ``tx rx rx_count noise_mean`` of GEDI L1B.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_shots(f"{folder}/shots.npz", synthetic_shots(3, samples=80))
    ...     load_shots(f"{folder}/shots.npz").waveforms.shape
    (3, 80)
    """
    with open_arrays(path) as file:
        names = file.names
        if {"tx", "rx", "rx_count", "noise_mean"} <= names:
            noise = file["noise_std"] if "noise_std" in names else None
            return gedi_shots(file["tx"], file["rx"], file["rx_count"], file["noise_mean"], samples, noise)
        if {"waveforms", "pulses"} <= names:
            return _given_shots({name: file[name] for name in names})
    raise Unreadable(
        f"{os.fspath(path)}: the file holds {', '.join(sorted(names)) or 'nothing'}; allowed: 'waveforms' and "
        "'pulses', or GEDI's 'tx', 'rx', 'rx_count' and 'noise_mean'"
    )


def _given_shots(held: dict[str, np.ndarray]) -> Shots:
    waveforms, pulses = (read_numpy(name, held[name]).astype(float) for name in ("waveforms", "pulses"))
    good = waveforms.ndim == 2 and 0 not in waveforms.shape
    require_shape(good, "waveforms", waveforms, "(shots, samples), at least one of each")
    count = len(waveforms)
    good = pulses.ndim == 1 or (pulses.ndim == 2 and len(pulses) in (1, count))
    require_shape(good, "pulses", pulses, f"(length,) or ({count}, length), one a waveform")
    pulses = np.broadcast_to(pulses, (count, pulses.shape[-1]))
    empty = np.flatnonzero(~pulses.any(axis=1))
    if empty.size:
        raise ValueError(f"pulses is zero throughout in shot {empty[0]}; allowed: pulses that are not")
    background = read_numpy("background", held.get("background", np.array(0.0))).astype(float)
    good = background.shape in ((), (1,), (count,))
    require_shape(good, "background", background, f"one number or ({count},), one a waveform")
    origin = read_whole("origin", held.get("origin", 0), 0, pulses.shape[-1] - 1)
    for name, shape in (("truth", waveforms.shape), ("start", (count,)), ("noise", (count,))):
        if name in held:
            require_shape(held[name].shape == shape, name, held[name], shape)
    return Shots(
        waveforms,
        pulses,
        origin,
        np.array(np.broadcast_to(background, count)),
        held.get("truth"),
        held.get("start"),
        held.get("noise"),
    )


def save_shots(path: str | os.PathLike[str], shots: Shots) -> None:
    """Write shots to an npz file that :func:`load_shots` reads.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_shots(f"{folder}/shots.npz", synthetic_shots(3, samples=80))
    ...     len(load_shots(f"{folder}/shots.npz").waveforms)
    3
    """
    require_instance("shots", shots, Shots)
    fields = {field.name: getattr(shots, field.name) for field in dataclasses.fields(shots) if field.name != "about"}
    values = {name: value for name, value in fields.items() if value is not None}
    with replacing(path) as file:
        write_arrays(file, values, compressed=True)


@with_bar("shots")
def deconvolve(
    shots: Shots,
    *,
    lam: float = 0.0,
    progress: Callable[[int, int], object] | bool | None = None,
    dim: str | None = None,
    threads: int | None = None,
    put: Callable[[np.ndarray], Array] | None = None,
) -> Deconvolution:
    """Recover the amplitudes of all shots.

    Parameters
    ----------
    shots : Shots
        Where its waveforms or pulses are arrays of dask or xarray, so is everything that is returned, and nothing is
        computed yet of arrays of dask.
    lam : float, default 0
        λ of λ²‖x‖², in units of the pulse.
    progress : callable or True, optional
        True shows a bar. A callable is called as ``progress(done, shots)``. None with arrays of dask and xarray.
    dim : str, optional
        The dimension along which the samples of a waveform lie, where the waveforms are a DataArray.
    threads : int, optional
        CPU threads; by default all.
    put : callable, optional
        Copies an array to another library or a device, on which the systems are then solved; `result` is of that
        library, amplitudes and fit are NumPy arrays.

    Examples
    --------
    >>> done = deconvolve(synthetic_shots(2, samples=100, returns=2, noise=0.0))
    >>> bool(np.all(np.abs(done.amplitudes - done.shots.truth) < 1e-6))
    True
    """
    require_instance("shots", shots, Shots)
    require_function("put", put)
    if is_container(shots.waveforms, shots.pulses, shots.background) or dim is not None:
        require(progress is None, "progress", progress, "None with arrays of dask and xarray, which dask watches")
        found = over_systems(
            functools.partial(_deconvolved, origin=shots.origin, lam=lam),
            {"waveforms": (shots.waveforms, "s"), "pulses": (shots.pulses, "p"), "background": (shots.background, "")},
            dict.fromkeys(("x", "dual", "state", "amplitudes", "fit"), "s"),
            dim=dim,
            names={"p": "pulse"},
        )
        return Deconvolution(shots, **found)
    names = ("waveforms", "pulses", "background")
    held: dict[str, Any] = {name: read_numpy(f"shots.{name}", getattr(shots, name)) for name in names}
    shots = dataclasses.replace(shots, **held)
    observed = shots.waveforms - shots.background[:, None]
    if put is None:
        result = nnls(shots.matrix(), observed, lam=lam, progress=as_told(progress), threads=threads)
    else:
        matrix = Convolution(put(shots.pulses), observed.shape[1], origin=shots.origin)
        result = nnls(matrix, put(observed), lam=lam, progress=as_told(progress), threads=threads)
    found = host_copy(result.x)
    amplitudes = np.where(np.isfinite(found), found, 0.0)
    return Deconvolution(shots, result, amplitudes, convolve(shots, amplitudes) + shots.background[:, None])


def _deconvolved(
    waveforms: np.ndarray, pulses: np.ndarray, background: np.ndarray, *, origin: int, lam: float
) -> dict[str, Any]:
    """What one block of shots gives, by the names of the fields of a `Deconvolution`."""
    count = len(waveforms)
    shots = Shots(
        waveforms,
        np.broadcast_to(pulses, (count, pulses.shape[-1])),
        origin,
        np.array(np.broadcast_to(background, count), dtype=float),
    )
    done = deconvolve(shots, lam=lam)
    return {"result": done.result, "amplitudes": done.amplitudes, "fit": done.fit}


def convolve(shots: Shots, amplitudes: np.ndarray) -> np.ndarray:
    """Return the waveforms, without background, that amplitudes would give.

    Examples
    --------
    >>> shots = synthetic_shots(2, samples=80, returns=2)
    >>> convolve(shots, np.zeros((2, 80))).shape
    (2, 80)
    """
    require_instance("shots", shots, Shots)
    samples, amplitudes = shots.waveforms.shape[1], np.asarray(read_numpy("amplitudes", amplitudes))
    require_shape(amplitudes.shape == (len(shots), samples), "amplitudes", amplitudes, (len(shots), samples))
    full = [np.convolve(x, pulse) for x, pulse in zip(amplitudes, shots.pulses)]
    return np.array([wave[shots.origin : shots.origin + samples] for wave in full]).reshape(-1, samples)


def noise_threshold(done: Deconvolution, factor: float = 8.0) -> np.ndarray:
    """Return, for each shot, the amplitude below which noise alone explains a return.

    The noise of a shot is the median absolute deviation of what its fit leaves, as a standard deviation. An isolated
    return has an error of noise/‖pulse‖; a deconvolution gathers noise into fewer and larger returns, so that several
    times this is asked for.

    Parameters
    ----------
    done : Deconvolution
    factor : float, default 8
        How many errors of an isolated return are asked for. Of simulated shots with 12 surfaces, 8 leaves 14 to 15
        returns, of which 13 lie at a surface, and misses 0.03 to 0.3 surfaces a shot.

    Returns
    -------
    array, shape (shots,)

    Examples
    --------
    >>> done = deconvolve(synthetic_shots(2, returns=12, seed=1))
    >>> least = noise_threshold(done)
    >>> [len(done.returns(shot)[0]) for shot in (0, 1)], [len(done.returns(shot, least[shot])[0]) for shot in (0, 1)]
    ([48, 55], [13, 16])
    """
    require_instance("done", done, Deconvolution)
    factor = read_real("factor", factor, at_least=0)
    left = done.shots.waveforms - done.fit
    deviation = np.abs(left - np.median(left, axis=1, keepdims=True))
    noise = np.median(deviation, axis=1) / 0.6745  # of a normal distribution, its standard deviation
    return np.asarray(factor * noise / np.linalg.norm(done.shots.pulses, axis=1))


def find_returns(amplitudes: np.ndarray, least: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Join neighbouring positive samples to returns: their centroid is the arrival time, their sum the amplitude.

    A surface between two samples shows as two positive neighbours. Returns below `least` are left out.

    Examples
    --------
    >>> times, sizes = find_returns(np.array([0.0, 1.0, 3.0, 0.0, 0.0, 2.0]))
    >>> times, sizes
    (array([1.75, 5.  ]), array([4., 2.]))
    """
    amplitudes, least = np.asarray(read_numpy("amplitudes", amplitudes)), read_real("least", least, infinite=True)
    require_shape(amplitudes.ndim == 1, "amplitudes", amplitudes, "(samples,), those of one shot")
    positive = np.flatnonzero(amplitudes > 0)
    if len(positive) == 0:
        return np.zeros(0), np.zeros(0)
    groups = np.split(positive, np.flatnonzero(np.diff(positive) > 1) + 1)
    sizes = np.array([amplitudes[group].sum() for group in groups])
    times = np.array([np.average(group, weights=amplitudes[group]) for group in groups])
    keep = sizes >= least
    return times[keep], sizes[keep]
