"""The frame of a page: sections of text, tables and figures, assembled to one HTML file that needs nothing else."""

from __future__ import annotations

import html
import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import resources

#: Nothing may be loaded from anywhere: style and pictures are in the file, and there are no scripts.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
#: Steps that lead down to water.
_ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><path fill="#b4783c" d="M0 2h4v3h3v3h3v3h6v5H0z"/>'
    '<path fill="#2f7fc1" d="M10 9h6v3h-6z"/></svg>'
)


@dataclass(frozen=True)
class Text:
    """A paragraph of plain text."""

    text: str

    def html(self) -> str:
        """Return the element."""
        return f"<p>{html.escape(self.text, quote=False)}</p>"


@dataclass(frozen=True)
class Aside:
    """Preformatted text that is folded away until asked for; `alarm` marks what went wrong."""

    title: str
    text: str
    alarm: bool = False

    def html(self) -> str:
        """Return the element."""
        kind = ' class="alarm"' if self.alarm else ""
        return (
            f"<details{kind}><summary>{html.escape(self.title, quote=False)}</summary>"
            f"<pre>{html.escape(self.text, quote=False)}</pre></details>"
        )


@dataclass(frozen=True)
class Code:
    """A few lines of a program, and the page that says more about them."""

    text: str
    guide: str = ""
    address: str = ""

    def html(self) -> str:
        """Return the element."""
        link = f'<p class="guide"><a href="{html.escape(self.address)}">{html.escape(self.guide, quote=False)}</a></p>'
        return f"<pre><code>{html.escape(self.text, quote=False)}</code></pre>{link if self.address else ''}"


@dataclass(frozen=True)
class Figure:
    """A chart, drawing or picture with a caption below it.

    Attributes
    ----------
    drawing : str
        HTML, as `chart` and `png_image` make it.
    caption : str
        Plain text.
    paper : bool
        Whether the drawing lies on white paper also in dark mode.
    """

    drawing: str
    caption: str
    paper: bool = False

    def html(self) -> str:
        """Return the element."""
        kind = ' class="paper"' if self.paper else ""
        return f"<figure{kind}>{self.drawing}<figcaption>{html.escape(self.caption, quote=False)}</figcaption></figure>"


@dataclass(frozen=True)
class Gallery:
    """Figures side by side where there is room. `small` ones stay three abreast on a phone."""

    figures: Sequence[Figure]
    small: bool = False

    def html(self) -> str:
        """Return the element."""
        kind = "gallery small" if self.small else "gallery"
        return f'<div class="{kind}">{"".join(figure.html() for figure in self.figures)}</div>'


@dataclass(frozen=True)
class Numbers:
    """A few figures in large letters, each with what it counts below it."""

    pairs: Sequence[tuple[str, str]]

    def html(self) -> str:
        """Return the element."""
        items = "".join(
            f"<div><dd>{html.escape(figure, quote=False)}</dd><dt>{html.escape(words, quote=False)}</dt></div>"
            for figure, words in self.pairs
        )
        return f'<dl class="counts">{items}</dl>'


@dataclass(frozen=True)
class Table:
    """Rows of text under a head.

    Attributes
    ----------
    head : sequence of str
        Names of the columns.
    rows : sequence of sequences of str
        Cells.
    caption : str
    numbers : bool
        Columns after the first hold numbers and are set flush right.
    dense : bool
        On a phone the letters are small, so that many digits fit.
    cards : bool
        On a phone every row becomes a card, so that many columns fit.
    marked : sequence of int
        Rows that tell of trouble.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    numbers: bool = False
    dense: bool = False
    cards: bool = False
    marked: Sequence[int] = field(default=())

    def html(self) -> str:
        """Return the element."""
        for row in self.rows:
            if len(row) != len(self.head):
                raise ValueError(f"rows: got {len(row)} cells under {len(self.head)} heads; they must be as many")
        kinds = " ".join(name for name in ("numbers", "dense", "cards") if getattr(self, name))
        caption = f"<caption>{html.escape(self.caption, quote=False)}</caption>" if self.caption else ""
        head = "".join(f'<th scope="col">{html.escape(cell, quote=False)}</th>' for cell in self.head)
        rows = "".join(self._row(number, row) for number, row in enumerate(self.rows))
        # Browsers may drop the roles of a table whose rows are laid out as blocks, so they are named.
        return (
            f'<table role="table" class="{kinds}">{caption}<thead role="rowgroup"><tr role="row">{head}</tr></thead>'
            f'<tbody role="rowgroup">{rows}</tbody></table>'
        )

    def _row(self, number: int, row: Sequence[str]) -> str:
        alarm = ' class="alarm"' if number in self.marked else ""
        first, *others = (html.escape(cell, quote=False) for cell in row)
        cells = "".join(
            f'<td role="cell" data-name="{html.escape(name)}">{cell}</td>' for name, cell in zip(self.head[1:], others)
        )
        return f'<tr role="row"{alarm}><th scope="row">{first}</th>{cells}</tr>'


Block = Text | Aside | Code | Figure | Gallery | Numbers | Table


@dataclass(frozen=True)
class Section:
    """A part of the page: `key` is its anchor, `badge` a word beside its title, `alarm` marks one that failed."""

    key: str
    title: str
    blocks: Sequence[Block]
    badge: str = ""
    alarm: bool = False

    def html(self) -> str:
        """Return the element."""
        badge = f" <small>{html.escape(self.badge, quote=False)}</small>" if self.badge else ""
        kind = ' class="alarm"' if self.alarm else ""
        return (
            f'<section id="{html.escape(self.key)}"{kind}><h2>{html.escape(self.title, quote=False)}{badge}</h2>'
            f"{''.join(block.html() for block in self.blocks)}</section>"
        )


def render_page(title: str, lead: str, sections: Sequence[Section], *, footer: str = "") -> str:
    """Return a whole page.

    Parameters
    ----------
    title, lead : str
        The heading, and the paragraph below it.
    sections : sequence of Section
        The first comes before the list of the others.
    footer : str, optional
        A last line.

    Returns
    -------
    str
        HTML with its style inside; it loads nothing.

    Examples
    --------
    >>> page = render_page("Wells", "Two of them.", [Section("depth", "Depth", [Text("30 m < 40 m")])])
    >>> "<h1>Wells</h1>" in page, "30 m &lt; 40 m" in page, "<script" in page
    (True, True, False)
    """
    style = resources.files("stepwell.lab.html").joinpath("page.css").read_text(encoding="utf-8")
    links = "".join(f'<a href="#{html.escape(one.key)}">{html.escape(one.title)}</a>' for one in sections[1:])
    nav = f'<nav aria-label="Chapters">{links}</nav>' if links else ""
    first, others = "".join(one.html() for one in sections[:1]), "".join(one.html() for one in sections[1:])
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{html.escape(title)}</title>\n"
        f'<link rel="icon" href="data:image/svg+xml,{urllib.parse.quote(_ICON)}">\n'
        f"<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        f"<header><h1>{html.escape(title, quote=False)}</h1>{Text(lead).html()}</header>\n{first}\n{nav}\n{others}\n"
        f"</main>\n{f'<footer>{html.escape(footer, quote=False)}</footer>' if footer else ''}\n</body>\n</html>\n"
    )
