"""Images that are too large for memory: read in slabs, worked on in slabs, written as they come, resumed if stopped.

| file | what it holds |
|---|---|
| `sources.py` | `open_image`: every format of `stepwell.apps.files`, a slab at a time |
| `mapping.py`, `regions.py` | `map_voxels`: voxels fitted into maps, images beside it, counts, means; means by region |
| `running.py` | `MapRun`: the shell of every run that makes maps, from its settings to its account |
| `work.py` | `Work`: maps on the disk that grow slab by slab; `fill`: the loop |
| `presenting.py` | how the result of a run is drawn |
| `commands.py` | what the commands that map images share |
"""

from __future__ import annotations

from stepwell.apps.images.sources import Image, open_image
from stepwell.apps.images.work import Work, fill

__all__ = ["Image", "Work", "fill", "open_image"]
