"""T2 distributions and myelin water from multi-echo MRI: extended phase graphs, NNLS in every voxel, maps.

| file | what it holds |
|---|---|
| `epg.py` | decays of a train of imperfect refocusing pulses |
| `model.py` | `T2Model`: echo times, T2 bins, flip angles, the dictionary, λ and windows |
| `fit.py` | `fit_voxels`: flip angle, distribution and maps of many voxels |
| `maps.py` | the numbers that are read off a distribution |
| `simulate.py` | a phantom with truth |
| `run.py` | `map_image`: a whole image, in slabs, resumable |
| `plots.py`, `command.py` | pictures of maps; `stepwell t2map` |
"""

from __future__ import annotations

from stepwell.apps.t2.epg import echo_decays
from stepwell.apps.t2.fit import fit_voxels
from stepwell.apps.t2.maps import MAPS
from stepwell.apps.t2.model import T2Model
from stepwell.apps.t2.run import T2Run, map_image
from stepwell.apps.t2.simulate import Phantom, simulate

__all__ = ["MAPS", "Phantom", "T2Model", "T2Run", "echo_decays", "fit_voxels", "map_image", "simulate"]
