"""Lidar waveforms: the surfaces that a laser pulse met, from the waveform that came back.

`deconvolution` has the model and the solving, `gedi` reads granules of GEDI, `plots` draws, `command` is
`stepwell deconvolve`.
"""

from stepwell.apps.waveform.deconvolution import (
    Deconvolution,
    Shots,
    convolve,
    deconvolve,
    find_returns,
    gedi_shots,
    load_shots,
    noise_threshold,
    save_shots,
    synthetic_shots,
)

__all__ = [
    "Deconvolution",
    "Shots",
    "convolve",
    "deconvolve",
    "find_returns",
    "gedi_shots",
    "load_shots",
    "noise_threshold",
    "save_shots",
    "synthetic_shots",
]
