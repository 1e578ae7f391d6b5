"""The documentation site: its pages are all in the table of contents, its reference has every public name.

`scripts/docs` builds the whole site, warnings being errors; that takes minutes and is not part of the tests.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import stepwell
from stepwell.common.status import SolverStatus
from stepwell.quasi_newton.options import Options, read_options

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
EXAMPLES = sorted((ROOT / "examples" / "gallery").glob("*/*.py"))


def extension(name="generated_tables"):
    pytest.importorskip("docutils")
    found = importlib.util.spec_from_file_location(name, DOCS / "extensions" / f"{name}.py")
    assert found
    assert found.loader
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def reference() -> dict[str, set[str]]:
    """Read the names of the API pages, by module."""
    names: dict[str, set[str]] = {}
    module, inside = "", False
    lines = (line for page in sorted((DOCS / "reference").glob("*.rst")) for line in page.read_text().splitlines())
    for line in lines:
        if begins := re.match(r"\.\. currentmodule:: (\S+)", line):
            module = begins[1]
        if line and not line.startswith(" "):
            inside = line.startswith(".. autosummary::")
        elif inside and (name := re.match(r"   (\w+)$", line)):
            names.setdefault(module, set()).add(name[1])
    return names


def test_every_public_name_is_in_the_api_reference():
    names = reference()["stepwell"]
    modules = {
        name for name in stepwell.__all__ if f"stepwell.{name}" in reference() or name in ("apps", "__version__")
    }
    assert names | modules == set(stepwell.__all__)


@pytest.mark.parametrize("module", [name for name in reference() if name != "stepwell"])
def test_the_api_reference_has_what_a_module_offers(module):
    if module == "stepwell.torch" or module.startswith("stepwell.plugs."):
        pytest.importorskip(module.rpartition(".")[2])
    offered = importlib.import_module(module)
    listed = reference()[module]
    for name in listed:
        assert hasattr(offered, name), f"{module} has no {name}"
    for name in getattr(offered, "__all__", listed):
        assert name in listed or name in stepwell.__all__, f"{module}.{name} is on no page of docs/reference"


@pytest.mark.parametrize("module", list(reference()))
def test_every_function_has_an_example(module):
    if module == "stepwell.torch" or module.startswith("stepwell.plugs."):
        pytest.importorskip(module.rpartition(".")[2])
    offered = importlib.import_module(module)
    for name in reference()[module]:
        found = getattr(offered, name)
        if inspect.isfunction(found):
            assert ">>> " in (inspect.getdoc(found) or ""), f"{module}.{name} has no example"


def test_every_status_is_on_the_page_of_statuses():
    page = (DOCS / "reference" / "statuses.md").read_text()
    enums = [
        name
        for name in stepwell.__all__
        if isinstance(value := getattr(stepwell, name), type) and issubclass(value, SolverStatus)
    ]
    tables = {getattr(stepwell, name) for name in re.findall(r"\{statuses\} stepwell\.(\w+)", page)}
    for name in enums:  # two names may be of one class
        assert name == "SolverStatus" or (f"`stepwell.{name}`" in page and getattr(stepwell, name) in tables)


def test_tables_are_made_from_the_package():
    tables = extension()
    rows = tables.status_rows(stepwell.Status)
    assert len(rows) == len(stepwell.Status)
    assert [stepwell.Status.GRADIENT.name, "1", "yes", "0", stepwell.Status.GRADIENT.message] in rows
    lines = tables.options_table(stepwell.minimize)
    named = set(re.findall(r"``(\w+)``", "\n".join(line[:26] for line in lines)))
    # SciPy's names for verbose are told in the guide.
    assert named == set(Options.__annotations__) - {"disp", "iprint"}


def test_defaults_of_the_options_are_what_is_documented():
    lines = "\n".join(extension().options_table(stepwell.minimize))
    settings = read_options(None, None).settings
    documented = dict(re.findall(r"^(``.*?``)  +(\S+)", lines, re.MULTILINE))
    assert float(documented["``maxcor``"]) == settings.m
    assert float(documented["``gtol``"]) == settings.gtol
    assert float(documented["``ftol``"]) == pytest.approx(settings.ftol, rel=0.01)
    assert float(documented["``maxiter``, ``maxfun``"]) == settings.maxiter == settings.maxfun
    assert documented["``cauchy``"].strip('`"') == settings.cauchy


def toctree(page: Path) -> list[str]:
    """Return the pages that a page lists in its tables of contents, as paths below docs/ without ending."""
    text = page.read_text()
    blocks = re.findall(r"^```\{toctree\}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    blocks += re.findall(r"^\.\. toctree::\n((?:[ ]{3}.*\n|\n)+)", text, re.MULTILINE)
    names = [name for block in blocks for name in re.findall(r"^ *(?:.* <)?([a-z][\w/-]+)>?$", block, re.MULTILINE)]
    return [str((page.parent / name).relative_to(DOCS)) for name in names]


def test_every_page_is_in_the_table_of_contents_once():
    """Five sections, and every page below one of them, so that each has a sidebar."""
    assert toctree(DOCS / "index.md") == ["start", "guide", "applications", "reference", "development"]
    found = [DOCS / "index.md", *DOCS.glob("*.md"), *DOCS.glob("reference/*.*"), *DOCS.glob("studies/*.md")]
    pages = {str(page.relative_to(DOCS).with_suffix("")): page for page in found}
    listed = [name for page in set(pages.values()) for name in toctree(page)]
    assert len(listed) == len(set(listed))
    assert set(pages) - {"index"} == set(listed) - {"gallery/index"}


def test_the_gallery_is_in_groups():
    folders = {script.parent.name for script in EXAMPLES}
    assert not list((ROOT / "examples" / "gallery").glob("*.py"))
    conf = ast.parse((DOCS / "conf.py").read_text())
    (groups,) = (
        ast.literal_eval(node.value)
        for node in conf.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "GROUPS"
    )
    assert set(groups) == folders
    for group in groups:
        assert (ROOT / "examples" / "gallery" / group / "README.txt").exists()


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.name)
def test_examples_begin_as_the_gallery_wants_them(script):
    text = ast.get_docstring(ast.parse(script.read_text()))
    assert text
    title, rule = text.splitlines()[:2]
    assert re.fullmatch("=+", rule), f"{script.name}: the docstring begins with a title, underlined by ="
    assert len(rule) >= len(title)


def test_the_configuration_loads():
    pytest.importorskip("sphinx_gallery")
    code = "import conf; assert conf.release and conf.sphinx_gallery_conf['examples_dirs']"
    subprocess.run([sys.executable, "-c", code], cwd=DOCS, check=True, timeout=60)


def test_examples_that_lack_a_package_are_shown_and_the_build_says_so():
    pytest.importorskip("sphinx_gallery")
    code = (
        "import importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'botorch' else find(name, *rest)\n"
        "import conf; assert 'botorch' not in conf.sphinx_gallery_conf['filename_pattern']"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=DOCS, check=True, timeout=60, capture_output=True, text=True)
    assert "botorch_restarts.py is shown, not run: botorch not installed" in run.stdout


def formulas() -> list[str]:
    """Return the formulas of the pages as LaTeX."""
    found = []
    for page in [*DOCS.glob("*.md"), *DOCS.glob("studies/*.md")]:
        text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        text = re.sub(r"`[^`$]*`", "", text)
        found += [block or line for block, line in re.findall(r"\$\$(.+?)\$\$|\$([^$]+)\$", text, re.DOTALL)]
    return found


def test_formulas_become_elements():
    pytest.importorskip("latex2mathml")
    mathml = extension("formulas").mathml
    for latex in formulas():
        ElementTree.fromstring(mathml(latex))
    norm = ElementTree.fromstring(mathml(r"\lVert x \rVert^2")).find(".//{*}msup")
    assert [part.tag.rpartition("}")[2] for part in norm] == ["mrow", "mn"]  # all of the norm is squared
    assert [part.text for part in norm[0].iter() if part.text] == ["‖", "x", "‖"]
    assert ">TV</mi>" in mathml(r"\mathrm{TV}(x)")
    with pytest.raises(ValueError, match="latex2mathml knows"):
        mathml(r"\nothing x")


def test_arrows_of_the_sidebar_have_names():
    pytest.importorskip("sphinx")
    named = extension("readable").named_toggles
    sidebar = '<a class="reference" href="a.html">Fits</a><details open="open"><summary><i></i></summary></details>'
    assert '<summary aria-label="Pages below Fits">' in named(sidebar)
    assert named("<a>One page</a>") == "<a>One page</a>"


def test_types_have_their_names():
    pytest.importorskip("sphinx")
    plain = extension("readable").plain_types
    assert (
        plain("(A: TypeAliasForwardRef('Array') | None) -> TypeAliasForwardRef('Array')")
        == "(A: Array | None) -> Array"
    )


def test_pages_load_nothing_from_elsewhere():
    conf = (DOCS / "conf.py").read_text()
    assert 'html_math_renderer = "mathml"' in conf
    assert "html_js_files" not in conf
    assert not list((DOCS / "static").glob("*.js"))
