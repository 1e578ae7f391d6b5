"""Lidar waveforms as sums of Gaussians: position, width and energy of each return, with their uncertainties.

| file | what it holds |
|---|---|
| `starts.py` | how many Gaussians and where: from the curvature of the waveform, or from a deconvolution |
| `fitting.py` | `decompose`: fits of all shots, and returns that noise explains left out |
| `table.py` | `decomposition_table`: where on the earth each return lies |
| `simulate.py` | waveforms with truth |
| `run.py` | `decompose_file`: a whole file, in parts, resumable |
| `plots.py`, `command.py` | pictures of shots; `stepwell decompose` |

Readers of files are those of `stepwell.apps.waveform`.
"""

from __future__ import annotations

from stepwell.apps.decomposition.fitting import Decomposition, decompose
from stepwell.apps.decomposition.run import DecompositionRun, decompose_file
from stepwell.apps.decomposition.simulate import SimulatedReturns, simulate
from stepwell.apps.decomposition.table import decomposition_table

__all__ = [
    "Decomposition",
    "DecompositionRun",
    "SimulatedReturns",
    "decompose",
    "decompose_file",
    "decomposition_table",
    "simulate",
]
