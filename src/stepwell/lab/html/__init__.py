"""Self-contained HTML pages: one file with style, charts and pictures inside, for light and dark, wide and narrow."""

from __future__ import annotations

from stepwell.lab.html.charts import Series, chart
from stepwell.lab.html.page import Aside, Block, Code, Figure, Gallery, Numbers, Section, Table, Text, render_page
from stepwell.lab.html.pictures import diverging, grey, png_bytes, png_image, svg_image

__all__ = [
    "Aside",
    "Block",
    "Code",
    "Figure",
    "Gallery",
    "Numbers",
    "Section",
    "Series",
    "Table",
    "Text",
    "chart",
    "diverging",
    "grey",
    "png_bytes",
    "png_image",
    "render_page",
    "svg_image",
]
