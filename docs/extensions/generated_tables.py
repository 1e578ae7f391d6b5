"""Directives whose tables come from the package itself, so that they cannot differ from it.

``{statuses} stepwell.Status`` is a table of an enum's members: name, code, success, SciPy's number, message.
``{options} stepwell.minimize`` is the table of options in a function's docstring.
``{line-search-info}`` is what the info codes of a failed line search mean.
"""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList


def named(path: str) -> Any:
    """Return the object that ``stepwell.name`` names."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def table(head: list[str], rows: list[list[str]], code: set[int]) -> nodes.table:
    """Make a table of plain text; the columns in `code` are set as code."""
    group = nodes.tgroup(cols=len(head))
    group += [nodes.colspec(colwidth=max(len(row[k]) for row in [head, *rows])) for k in range(len(head))]

    def line(words: list[str], literal: set[int]) -> nodes.row:
        row = nodes.row()
        for k, word in enumerate(words):
            text = nodes.literal(text=word) if k in literal else nodes.Text(word)
            row += nodes.entry("", nodes.paragraph("", "", text))
        return row

    group += nodes.thead("", line(head, set()))
    group += nodes.tbody("", *[line(row, code) for row in rows])
    return nodes.table("", group)


def status_rows(status: Any) -> list[list[str]]:
    """Return name, code, whether it is a success, SciPy's number and message of every member."""
    return [[one.name, str(one.value), "yes" if one.success else "no", str(one.scipy), one.message] for one in status]


def options_table(function: Any) -> list[str]:
    """Return the lines of the table of options in a function's docstring."""
    lines = inspect.cleandoc(function.__doc__).splitlines()
    rules = [k for k, line in enumerate(lines) if re.fullmatch(r"\s*=+(\s+=+)+", line)]
    if len(rules) != 3:
        raise ValueError(f"the docstring of {function.__name__} has {len(rules)} rules of tables; allowed: 3")
    return inspect.cleandoc("\n".join(lines[rules[0] : rules[2] + 1])).splitlines()


class Statuses(Directive):
    """``{statuses} stepwell.Status``."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Make the table."""
        rows = status_rows(named(self.arguments[0]))
        return [table(["member", "value", "success", "SciPy's status", "message"], rows, {0})]


class LineSearchInfo(Directive):
    """``{line-search-info}``."""

    def run(self) -> list[nodes.Node]:
        """Make the table."""
        from stepwell.quasi_newton.status import LINE_SEARCH_INFO

        return [table(["info", "meaning"], [[str(code), text] for code, text in LINE_SEARCH_INFO.items()], set())]


class OptionsTable(Directive):
    """``{options} stepwell.minimize``."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Parse the table of the docstring as reStructuredText, also within a Markdown page."""
        from docutils.core import publish_doctree

        tree = publish_doctree("\n".join(StringList(options_table(named(self.arguments[0])), source="docstring")))
        for role in list(tree.findall(nodes.title_reference)):
            role.replace_self(nodes.literal(text=role.astext()))
        return list(tree.children)


def setup(app: Any) -> dict[str, Any]:
    """Tell Sphinx of the directives."""
    app.add_directive("statuses", Statuses)
    app.add_directive("options", OptionsTable)
    app.add_directive("line-search-info", LineSearchInfo)
    return {"version": "1", "parallel_read_safe": True}
