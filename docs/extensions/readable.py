"""What Sphinx and the theme write, made readable: names and elements for screen readers, types by their names."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.writers.html5 import HTML5Translator

#: A link of the sidebar, and what opens and closes the pages below it: an arrow without words.
_TOGGLE = re.compile(r"(<a [^>]*>)([^<]*)(</a>\s*<details[^>]*>\s*<summary)>")
#: Sphinx writes the arguments of a long signature as definitions without terms.
_LINES = {"<dl>": "<div>", "</dl>": "</div>", "<dd>": '<div class="signature-line">', "</dd>": "</div>"}


def named_toggles(sidebar: str) -> str:
    """Return the sidebar with a name for every arrow.

    >>> named_toggles('<a href="a.html">Fits</a><details><summary><i></i></summary></details>')
    '<a href="a.html">Fits</a><details><summary aria-label="Pages below Fits"><i></i></summary></details>'
    """
    return _TOGGLE.sub(r'\1\2\3 aria-label="Pages below \2">', sidebar)


def name_toggles(app: Any, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """Put it into the place of the theme's function for the sidebar."""
    make = context.get("generate_toctree_html")
    if make is not None:
        context["generate_toctree_html"] = lambda kind, **settings: (
            named_toggles(str(make(kind, **settings))) if kind == "sidebar" else make(kind, **settings)
        )


def plain_types(text: str) -> str:
    """Return a signature in which aliases of types stand by their names.

    >>> plain_types("(x0: TypeAliasForwardRef('ArrayLike') | None)")
    '(x0: ArrayLike | None)'
    """
    return re.sub(r"TypeAliasForwardRef\('(\w+)'\)", r"\1", text)


def name_types(
    app: Any, what: str, name: str, member: Any, options: Any, arguments: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Do so in every signature."""
    return arguments and plain_types(arguments), returned and plain_types(returned)


class SignatureLines(HTML5Translator):
    """Writes the arguments of a long signature as lines."""

    def visit_desc_parameterlist(self, node: nodes.Element) -> None:
        """Remember where the signature begins."""
        self._signature = len(self.body)
        super().visit_desc_parameterlist(node)

    def depart_desc_parameterlist(self, node: nodes.Element) -> None:
        """Write other elements in the place of Sphinx's."""
        super().depart_desc_parameterlist(node)
        written = "".join(self.body[self._signature :])
        for sphinx, ours in _LINES.items():
            written = written.replace(sphinx, ours)
        self.body[self._signature :] = [written]


def setup(app: Any) -> dict[str, Any]:
    """Come after the theme, and before it extends the translator."""
    app.set_translator("html", SignatureLines)
    app.connect("html-page-context", name_toggles, priority=900)
    app.connect("autodoc-process-signature", name_types)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
