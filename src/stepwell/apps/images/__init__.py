"""Images that are too large for memory: read in slabs, worked on in slabs, written as they come, resumed if stopped.

| file | what it holds |
|---|---|
| `sources.py` | `open_image`: NIfTI, ENVI, .npy, .npz, MATLAB 7.3, a slab at a time |
| `envi.py` | ENVI headers: read, written |
| `work.py` | `Work`: maps on the disk that grow slab by slab; `fill`: the loop |
| `nifti.py` | maps as NIfTI files |
| `commands.py` | what the commands that map images share |
"""

from __future__ import annotations

from stepwell.apps.images.sources import Image, open_image
from stepwell.apps.images.work import Work, fill

__all__ = ["Image", "Work", "fill", "open_image"]
