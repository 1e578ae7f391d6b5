"""Tomography: projection matrices of parallel and fan beams, a phantom and real scans.

Slices of a volume share one projection matrix, so a volume is one system with many right-hand sides; or, where its
slices are to be smooth from one to the next, or lie over ranks, one right-hand side with many unknowns.
"""

from __future__ import annotations

from stepwell.apps.tomography.axis import find_axis
from stepwell.apps.tomography.phantom import shepp_logan_3d
from stepwell.apps.tomography.projector import default_detectors, fan_beam, parallel_beam
from stepwell.apps.tomography.scan import Scan, line_integrals, load_scan, sinograms
from stepwell.apps.tomography.simulate import add_noise, largest_singular_value, signal_to_noise
from stepwell.apps.tomography.volume import project_slices, slices_of_rank, volume_gradient

__all__ = [
    "Scan",
    "add_noise",
    "default_detectors",
    "fan_beam",
    "find_axis",
    "largest_singular_value",
    "line_integrals",
    "load_scan",
    "parallel_beam",
    "project_slices",
    "shepp_logan_3d",
    "signal_to_noise",
    "sinograms",
    "slices_of_rank",
    "volume_gradient",
]
