"""Lidar waveforms: the surfaces that a laser pulse met, from the waveform that came back.

`deconvolution` has the model and the solving, `significance` tells returns from noise. `gedi` reads granules of GEDI,
`published` what is published of their shots. `table` says where returns lie, `plots` draws, `command` is
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
from stepwell.apps.waveform.gedi import load_gedi
from stepwell.apps.waveform.published import load_gedi_l2a
from stepwell.apps.waveform.significance import significant_returns
from stepwell.apps.waveform.table import relative_heights, return_table

__all__ = [
    "Deconvolution",
    "Shots",
    "convolve",
    "deconvolve",
    "find_returns",
    "gedi_shots",
    "load_gedi",
    "load_gedi_l2a",
    "load_shots",
    "noise_threshold",
    "relative_heights",
    "return_table",
    "save_shots",
    "significant_returns",
    "synthetic_shots",
]
