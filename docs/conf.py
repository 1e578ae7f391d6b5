"""Configuration of the documentation site; `scripts/docs` builds it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "extensions"))
os.environ.setdefault("MPLBACKEND", "Agg")

project = "Stepwell"
author = "The Stepwell developers"
copyright = "The Stepwell developers"
release = version = importlib.metadata.version("stepwell")

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
    "generated_tables",
]
root_doc = "index"
exclude_patterns = ["extensions", "templates", "images", "_build"]
templates_path = ["templates"]
# numpydoc links an attribute that a base class has as a property by its bare name, which several classes may have.
suppress_warnings = ["ref.python"]
nitpicky = False  # numpydoc types such as "array of float64" are words, not names of classes

# Pages are Markdown as the code host shows it; headings have its anchors.
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

autosummary_generate = True
autodoc_mock_imports = [] if importlib.util.find_spec("torch") else ["torch"]
autodoc_typehints = "none"  # the docstrings have the types in words
autodoc_default_options = {"member-order": "bysource"}
numpydoc_show_class_members = False  # the template lists methods with their texts

# `scripts/docs --links`. Journals turn programs away (403), and the code host makes anchors by a script.
linkcheck_timeout = 20
linkcheck_retries = 2
linkcheck_ignore = [r"https://doi\.org/"]
linkcheck_anchors_ignore_for_url = [r"https://github\.com/"]

html_theme = "pydata_sphinx_theme"
html_title = f"Stepwell {release}"
html_static_path: list[str] = []
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "navbar_align": "left",
    "show_toc_level": 2,
    "header_links_before_dropdown": 6,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}

EXAMPLES = HERE.parent / "examples" / "gallery"
#: What an example says it needs, and the package that this is.
NEEDED = {"needs PyTorch": "torch", "needs BoTorch": "botorch"}


def runnable() -> list[str]:
    """Return the examples whose packages are installed; the others are shown without their output, and named here."""
    chosen = []
    for script in sorted(EXAMPLES.glob("*.py")):
        text = script.read_text(encoding="utf-8")
        missing = [name for says, name in NEEDED.items() if says in text and importlib.util.find_spec(name) is None]
        if missing:
            print(f"gallery: {script.name} is shown, not run: {' and '.join(missing)} not installed")
        else:
            chosen.append(script.name)
    return chosen


sphinx_gallery_conf = {
    "examples_dirs": [str(EXAMPLES)],
    "gallery_dirs": ["gallery"],
    "filename_pattern": "|".join(rf"/{re.escape(name)}$" for name in runnable()),
    "ignore_pattern": r"__init__\.py",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "min_reported_time": 30,
    "abort_on_example_error": True,
    "plot_gallery": os.environ.get("STEPWELL_DOCS_GALLERY", "run") == "run",
    "backreferences_dir": None,
    "image_scrapers": ("matplotlib",),
    "reset_modules": ("matplotlib",),
}
