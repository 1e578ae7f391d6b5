"""Formulas as MathML, made when the site is built: browsers draw them and screen readers read them without a script."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes

#: Bars that open or close a norm or a value: as a pair they are read as one, and an exponent belongs to all of it.
_BARS = re.compile(r"(?<!\\left)(?<!\\right)\\([lr])([vV]ert)(?![a-zA-Z])")
#: The sign of a transposed matrix is a name, round which no space is left.
_TRANSPOSED = ("<mo>&#x022A4;</mo>", '<mi mathvariant="normal">&#x022A4;</mi>')
#: Letters of one upright word, each an element.
_WORD = re.compile(r'(?:<mi mathvariant="normal">\w</mi>){2,}')


def mathml(latex: str, display: str = "inline") -> str:
    r"""Return the element of a formula.

    >>> mathml(r"\lVert x \rVert_1").endswith("</mrow><mn>1</mn></msub></mrow></math>")
    True
    """
    from latex2mathml.converter import convert

    paired = _BARS.sub(lambda bar: (r"\left" if bar[1] == "l" else r"\right") + bar[0], latex)
    element: str = convert(paired, display=display).replace(*_TRANSPOSED)
    if "\\" in element:
        raise ValueError(f"the formula is {latex!r}; allowed: commands that latex2mathml knows")
    return _WORD.sub(lambda word: f"<mi>{re.sub('<[^>]*>', '', word[0])}</mi>", element)


def visit_inline(translator: Any, node: nodes.Element) -> None:
    """Write a formula within a line."""
    translator.body.append(mathml(node.astext()))
    raise nodes.SkipNode


def visit_block(translator: Any, node: nodes.Element) -> None:
    """Write a formula of its own; where it is wider than the window it scrolls, by keys, too."""
    translator.body.append('<div class="formula" role="group" aria-label="formula" tabindex="0">')
    translator.body.append(mathml(node.astext(), "block") + "</div>\n")
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, Any]:
    """Tell Sphinx of the renderer, which `html_math_renderer` names."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
