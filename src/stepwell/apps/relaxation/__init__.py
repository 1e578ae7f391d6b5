"""Relaxation and diffusion from MRI series: T1, T2*, T2, ADC and IVIM maps by bounded curve fits in every voxel.

| file | what it holds |
|---|---|
| `quantities.py` | what can be mapped: its points, parameters, units and bounds |
| `model.py` | `RelaxationModel`: a quantity at given points, as a compiled model |
| `starts.py` | where fits start: linear least squares |
| `fit.py` | `fit_voxels`: parameters, uncertainties and statuses of many voxels |
| `series.py` | one image with four axes or several with three; points from BIDS sidecars |
| `simulate.py` | a phantom with truth |
| `run.py` | `map_series`: whole images, in slabs, resumable |
| `plots.py`, `command.py` | pictures of maps; `stepwell relax` |
"""

from __future__ import annotations

from stepwell.apps.relaxation.fit import fit_voxels
from stepwell.apps.relaxation.model import RelaxationModel
from stepwell.apps.relaxation.quantities import QUANTITIES, Quantity
from stepwell.apps.relaxation.run import RelaxationRun, map_series
from stepwell.apps.relaxation.simulate import RelaxationPhantom, simulate

__all__ = [
    "QUANTITIES",
    "Quantity",
    "RelaxationModel",
    "RelaxationPhantom",
    "RelaxationRun",
    "fit_voxels",
    "map_series",
    "simulate",
]
