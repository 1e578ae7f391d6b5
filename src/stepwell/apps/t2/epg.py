"""Decays of spin echoes whose refocusing pulses are not 180°: extended phase graphs.

Hennig (1988); in the notation of Weigel, *Extended phase graphs: dephasing, RF pulses, and echoes* (J. Magn. Reson.
Imaging 41, 2015): magnetisation is a sum of states F⁺_k, F⁻_k (transverse, dephased by k half intervals between
echoes) and Z_k (stored). Between pulses states relax and dephase by one; a pulse of angle α about the axis along which
the spins lie (Carr, Purcell, Meiboom and Gill) mixes the three of each k.
"""

from __future__ import annotations

import numpy as np

from stepwell.arrays.checks import read_array, require_each
from stepwell.common.checks import read_real, read_whole, require_memory, require_shape


def echo_decays(echoes: int, te: float, t2: np.ndarray, angles: np.ndarray, t1: float = 1.0) -> np.ndarray:
    """Signal at every echo of a CPMG train, for many T2 and flip angles.

    Parameters
    ----------
    echoes : int
        Number of echoes.
    te : float
        Time between echoes, in seconds (or any unit, the same for T1 and T2).
    t2 : array, (bins,)
        Decay times.
    angles : array, (angles,)
        Refocusing angles in degrees. The excitation is scaled with them: half as large, 90° for 180°.
    t1 : float, default 1.0
        Longitudinal relaxation time.

    Returns
    -------
    array, (angles, echoes, bins)

    Examples
    --------
    With pulses of 180° the signal is a plain decay:

    >>> decays = echo_decays(3, 0.01, np.array([0.02]), np.array([180.0]))
    >>> bool(np.allclose(decays[0, :, 0], np.exp(-0.01 * np.arange(1, 4) / 0.02)))
    True
    """
    echoes = read_whole("echoes", echoes, 1)
    te, t1 = read_real("te", te, above=0), read_real("t1", t1, above=0)
    t2, angles = (np.atleast_1d(read_array(name, one)).astype(float) for name, one in (("t2", t2), ("angles", angles)))
    for name, one in (("t2", t2), ("angles", angles)):
        require_shape(one.ndim == 1, name, one, "a number or a list of them")
    require_memory("echoes", echoes, 4 * (echoes + 2) * angles.size * t2.size)
    require_each(np.isfinite(t2) & (t2 > 0), "t2", t2, "finite numbers above 0")
    require_each(np.isfinite(angles), "angles", angles, "finite numbers")
    alpha = np.deg2rad(angles)[:, None]
    toward, back = np.cos(alpha / 2) ** 2, np.sin(alpha / 2) ** 2
    sine, cosine = np.sin(alpha), np.cos(alpha)
    lost2, lost1 = np.exp(-0.5 * te / t2)[None, :], np.exp(-0.5 * te / t1)

    # States that are dephased further than there are half intervals left never come back: `echoes` orders suffice.
    shape = (echoes + 2, angles.size, t2.size)
    plus, minus, stored = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    plus[0] = minus[0] = np.sin(alpha / 2)
    signal = np.empty((angles.size, echoes, t2.size))
    for echo in range(echoes):
        for half in (0, 1):
            if half:  # the pulse
                before_plus, before_minus = plus, minus
                plus = toward * before_plus + back * before_minus + sine * stored
                minus = back * before_plus + toward * before_minus - sine * stored
                stored = 0.5 * sine * (before_minus - before_plus) + cosine * stored
            plus, minus = _dephased(plus * lost2, minus * lost2)
            stored = stored * lost1
        signal[:, echo] = plus[0]
    return signal


def _dephased(plus: np.ndarray, minus: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shift transverse states by one half interval: F⁺ up, F⁻ down, through F⁺_0 = F⁻_0."""
    up, down = np.empty_like(plus), np.empty_like(minus)
    up[1:], up[0] = plus[:-1], minus[1]
    down[:-1], down[-1] = minus[1:], 0.0
    down[0] = up[0]
    return up, down
