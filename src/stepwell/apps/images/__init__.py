"""Images that are too large for memory: read in slabs, worked on in slabs, written as they come, resumed if stopped.

| file | what it holds |
|---|---|
| `sources.py` | `open_image`: every format of `stepwell.apps.files`, a slab at a time |
| `mapping.py`, `regions.py` | images beside it, files of maps, counts and means; means by region |
| `work.py` | `Work`: maps on the disk that grow slab by slab; `fill`: the loop |
| `commands.py` | what the commands that map images share |
"""

from __future__ import annotations

from stepwell.apps.images.sources import Image, open_image
from stepwell.apps.images.work import Work, fill

__all__ = ["Image", "Work", "fill", "open_image"]
