"""Every public name is documented, every example in docs and docstrings runs, every link leads somewhere."""

from __future__ import annotations

import ast
import doctest
import importlib
import importlib.util
import pkgutil
import re
from pathlib import Path

import numpy as np
import pytest

import stepwell

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
REFERENCE = ROOT / "docs" / "reference"
STUDIES = sorted((ROOT / "docs" / "studies").glob("*.md"))
NOTES = sorted((ROOT / "docs" / "notes").glob("*.md"))
EXAMPLES = sorted((ROOT / "examples" / "gallery").glob("*/*.py"))
#: Python blocks of a page run, one after the other in one namespace.
RUN = [page for page in PAGES if "```python" in page.read_text()]
#: Modules that cannot be imported without an optional package.
OPTIONAL = {"torch", "cupy", "jax", "cuda", "matplotlib", "dask", "xarray"} | {
    "botorch",
    "sklearn",
    "cil",
    "pylops",
    "optuna",
    "deepinv",
}


def modules() -> list[str]:
    return [
        info.name
        for info in pkgutil.walk_packages(stepwell.__path__, "stepwell.")
        if not info.name.endswith(("__main__", "._core"))
    ]


@pytest.mark.parametrize("name", list(stepwell.__all__))
def test_public_name_is_documented(name):
    text = "\n".join(page.read_text() for page in PAGES)
    assert re.search(rf"`[^`\n]*\b{re.escape(name)}\b[^`\n]*`", text), f"{name} is on no page of docs/"


def test_public_names_exist():
    for name in stepwell.__all__:
        assert getattr(stepwell, name) is not None


#: Modules whose examples take seconds.
SLOW = {"stepwell.lab.studies", "stepwell.lab.studies.nnls_updates"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in modules()]
)
def test_docstring_examples_run(name):
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        if (error.name or "").split(".")[0] not in OPTIONAL:
            raise
        pytest.skip(f"{name} needs {error.name}")
    with np.printoptions(legacy=False):
        outcome = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert outcome.failed == 0


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_page_runs(page):
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert blocks
    namespace: dict[str, object] = {}
    for block in blocks:
        try:
            exec(compile(block, page.name, "exec"), namespace)
        except ImportError as error:
            if (error.name or "").split(".")[0] not in OPTIONAL | {"torchvision"}:
                raise
            pytest.skip(f"could not import {error.name!r}: a block of {page.name} needs it")


def test_some_page_runs():
    assert {"getting-started.md", "migration.md", "quasi-newton.md", "nnls.md"} <= {page.name for page in RUN}


def test_every_picture_is_made_and_shown():
    """By docs/pictures.py when the site is built; the checkout has the README's."""
    pytest.importorskip("PIL")
    found = importlib.util.spec_from_file_location("pictures", ROOT / "docs" / "pictures.py")
    pictures = importlib.util.module_from_spec(found)
    found.loader.exec_module(pictures)
    shown = {name for page in PAGES for name in re.findall(r"images/([\w-]+)\.png", page.read_text())}
    in_readme = set(re.findall(r"images/([\w-]+)\.png", (ROOT / "README.md").read_text()))
    assert shown | in_readme == set(pictures.NAMES)
    assert in_readme == {pictures.OVERVIEW}
    for name in in_readme:
        picture = ROOT / "docs" / "images" / f"{name}.png"
        assert picture.read_bytes().startswith(b"\x89PNG\r\n")
        assert picture.stat().st_size <= 400_000  # a page should load at once


@pytest.mark.parametrize("page", [*PAGES, *REFERENCE.glob("*.md"), *STUDIES, *NOTES], ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for file, anchor in re.findall(r"\]\(([^)#:]*)#?([^):]*)\)", page.read_text()):
        target = page if not file else page.parent / file
        if file.startswith("gallery/"):  # made from the examples when the site is built
            made = (ROOT / "examples" / file).with_suffix("")
            target = made.parent / "README.txt" if made.name == "index" else made.with_suffix(".py")
        if file.removeprefix("../").startswith("images/"):  # made then, too; which they are is tested above
            target = ROOT / "docs" / "pictures.py"
        assert target.exists(), f"{page.name} links to {file}"
        if anchor:
            heads = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
            assert anchor in slugs, f"{page.name} links to {file}#{anchor}"


def prose(text: str) -> str:
    """Return what a reader reads one word after the other: tables, addresses and blocks of code are looked up."""
    text = re.sub(r"^```.*?^```$|^(?: {4}.*\n)+|^\|.*$|<!--.*?-->", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"\]\([^)]*\)", "]", text)


def words(text: str) -> int:
    """Count them."""
    return len(prose(text).split())


def sentences(text: str) -> list[str]:
    """Return the sentences of paragraphs and items of lists; code and formulas count as one word each."""
    text = re.sub(r"`[^`]*`|\$[^$]+\$", "CODE", re.sub(r"\$\$.*?\$\$", "\n\n", prose(text), flags=re.DOTALL))
    blocks = re.split(r"\n\s*\n|\n(?= *(?:[-*:] |\d+\. |#|:::))", text)
    read = [" ".join(block.split()) for block in blocks if not block.lstrip().startswith(("#", ":::"))]
    return [one for block in read for one in re.split(r"(?<=[.!?])[)*\"_]*\s+", block)]


@pytest.mark.parametrize(
    "page", [page for page in [*PAGES, *STUDIES] if page.stem != "design"], ids=lambda page: page.name
)
def test_pages_are_short(page):
    """Guides 1,500 words; performance and studies 800; details 2,000. Tables and blocks of code are not counted."""
    limit = 800 if page in STUDIES or page.stem == "performance" else 2000 if "-details" in page.stem else 1500
    assert words(page.read_text()) <= limit


def text_of_example(script: Path) -> str:
    """Return what a page of the gallery says, its code left out."""
    text = script.read_text()
    comments = re.findall(r"^# %%\n((?:# .*\n)+)", text, re.MULTILINE)
    told = [ast.get_docstring(ast.parse(text)) or "", *(re.sub("^# ", "", one, flags=re.MULTILINE) for one in comments)]
    return re.sub(r"::\n\n(?: +.*\n|\n)+", ":\n\n", "\n\n".join(told) + "\n").replace("``", "`")


@pytest.mark.parametrize(
    "page", [*PAGES, *STUDIES, *REFERENCE.glob("*.md"), ROOT / "README.md", *EXAMPLES], ids=lambda page: page.name
)
def test_sentences_are_short(page):
    """At most 25 words, signs alone not counted."""
    text = text_of_example(page) if page.suffix == ".py" else page.read_text()
    counted = {one: sum(bool(re.search(r"\w", word)) for word in one.split()) for one in sentences(text)}
    assert not {one: count for one, count in counted.items() if count > 25}


def test_sentences_are_found():
    prose = "# A head\n\nOne `call(1. 2)` here. Two:\n- three (four)\n- $a. b$ five!"
    found = sentences(f"{prose}\n\n| cell | cell |\n```\ncode. code\n```\n")
    assert [one for one in found if one] == ["One CODE here.", "Two:", "- three (four)", "- CODE five!"]


def test_notes_are_short():
    """What was tried and measured is kept in 9,500 words, all counted, and is not on the site."""
    assert sum(len(page.read_text().split()) for page in NOTES) <= 9500
    assert '"notes"' in (ROOT / "docs" / "conf.py").read_text()


@pytest.mark.parametrize("page", [*PAGES, *STUDIES, ROOT / "README.md"], ids=lambda page: page.name)
def test_links_have_titles(page):
    assert not re.findall(r"\[`?[\w/.-]+\.(?:md|rst)`?\]\(", page.read_text())


@pytest.mark.parametrize("page", [*PAGES, *STUDIES], ids=lambda page: page.name)
def test_columns_have_heads(page):
    """A reader of the screen hears them."""
    for head in re.findall(r"^(\|.*)\n\|[-|: ]+\|$", page.read_text(), re.MULTILINE):
        assert all(cell.strip() for cell in head.strip()[1:-1].split("|")), f"{page.name}: {head}"
