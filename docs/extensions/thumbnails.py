"""Square thumbnails of the gallery, drawn for their size: one panel alone, without titles and labels.

The scraper of matplotlib saves whole figures, which would be unreadable strips at 160 pixels. This one keeps the
figures of each example. When the gallery is made, the panel that `PANELS` names (else the largest of the last one) is
drawn again, over the whole of a square.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

SIDE = 320
#: Example -> number of its figure and of the panel in it, from 0; negative numbers count from the end.
PANELS: dict[str, tuple[int, int]] = {
    "t2_mapping": (-1, 1),
    "unmixing": (0, 0),
    "stippling": (0, 1),
    "full_waveform_inversion": (0, 2),
    "curve_fit_projection": (0, 0),
    "curve_fit_robust": (0, 0),
    "curve_fit_spots": (0, 1),
    "curve_fit_torch": (0, 0),
    "curve_fit_waveforms": (0, 0),
    "tv_denoising": (0, 2),
    "tomography": (0, 1),
}

_figures: dict[Path, list[Any]] = {}


def scraper(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """Save the figures as sphinx-gallery does, and remember them."""
    import matplotlib.pyplot as plt
    from sphinx_gallery.scrapers import matplotlib_scraper

    found = [plt.figure(number) for number in plt.get_fignums()]
    text: str = matplotlib_scraper(block, block_vars, gallery_conf)
    _figures.setdefault(Path(block_vars["src_file"]), []).extend(found)
    return text


def panel_alone(figure: Any, panel: int | None, path: Path) -> None:
    """Draw one panel of a figure over the whole of a square picture."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    panels = [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]
    chosen = panels[panel] if panel is not None else max(panels, key=_area)
    figure.set_layout_engine("none")
    figure.set_size_inches(3.2, 3.2)
    for axes in figure.axes:
        axes.set_visible(axes is chosen)
    for text in [*figure.texts, *([figure._suptitle] if figure._suptitle else [])]:
        text.set_visible(False)
    chosen.set_title("")
    chosen.set(xlabel="", ylabel="")
    chosen.tick_params(labelbottom=False, labelleft=False, length=0, which="both")
    if legend := chosen.get_legend():
        legend.remove()
    for line in chosen.lines:
        line.set_linewidth(max(2.5, line.get_linewidth()))
        line.set_markersize(max(10.0, line.get_markersize()))
    for image in chosen.images:
        _show_middle(chosen, image)
    filled = chosen.images or not chosen.axison
    chosen.set_position((0, 0, 1, 1) if filled else (0.04, 0.04, 0.92, 0.92))
    FigureCanvasAgg(figure)
    figure.savefig(path, dpi=SIDE / 3.2)


def _show_middle(axes: Any, image: Any) -> None:
    """Cut an image to a square, and spread its colours over what is common in it, not over its few brightest pixels."""
    import numpy as np

    left, right, bottom, top = image.get_extent()
    half = min(abs(right - left), abs(top - bottom)) / 2
    x, y = (left + right) / 2, (bottom + top) / 2
    axes.set(xlim=(x - half, x + half) if left < right else (x + half, x - half))
    axes.set(ylim=(y - half, y + half) if bottom < top else (y + half, y - half))
    values = image.get_array()
    if values.ndim == 2:
        low, high = np.nanpercentile(np.ma.filled(values.astype(float), np.nan), (1, 99))
        image.set_clim((low, high) if low < high else None)


def _area(axes: Any) -> float:
    box = axes.get_position()
    return float(box.width * box.height)


def draw_all(app: Any) -> None:
    """Put the thumbnails in the place of those of sphinx-gallery."""
    for script, figures in _figures.items():
        number, panel = PANELS.get(script.stem, (-1, None))
        gallery = Path(app.srcdir) / "gallery" / script.parent.name
        place = gallery / "images" / "thumb" / f"sphx_glr_{script.stem}_thumb.png"
        if figures and place.exists():
            panel_alone(figures[number], panel, place)
    for place in Path(app.srcdir).glob("gallery/*/images/thumb/sphx_glr_*_thumb.png"):
        if place.stem.removeprefix("sphx_glr_").removesuffix("_thumb") not in {script.stem for script in _figures}:
            _say_that_it_was_not_run(place)
    _figures.clear()


def _say_that_it_was_not_run(path: Path) -> None:
    """In the place of the mark of sphinx-gallery, which looks like a picture that is missing."""
    from matplotlib.figure import Figure

    figure = Figure((3.2, 3.2))
    figure.text(0.5, 0.5, "shown,\nnot run", ha="center", va="center", fontsize=22)
    figure.savefig(path, dpi=SIDE / 3.2)


def setup(app: Any) -> dict[str, Any]:
    """Come after sphinx-gallery, which makes the gallery when the builder has begun."""
    app.connect("builder-inited", draw_all, priority=900)
    return {"parallel_read_safe": True, "version": "1"}
