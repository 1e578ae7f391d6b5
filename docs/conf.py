"""Configuration of the documentation site; `scripts/docs` builds it."""

from __future__ import annotations

import importlib
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


def public_classes() -> dict[str, str]:
    """Return where the classes are that docstrings name as types."""
    from numpydoc.xref import DEFAULT_LINKS

    import stepwell

    places = dict.fromkeys(stepwell.__all__, "stepwell")
    for module in ("t2", "relaxation", "waveform", "decomposition", "unmixing", "tomography", "voronoi"):
        held = importlib.import_module(f"stepwell.apps.{module}")
        places |= {name: held.__name__ for name in held.__all__ if name not in places}
    found = {word: word for word in DEFAULT_LINKS}  # Python's own words lead to no other site
    for name, module in places.items():
        if name[0].isupper() and not name.isupper() and name != "Options":
            found[name] = found[f"stepwell.{name}"] = f"{module}.{name}"
    return found


extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
    "formulas",
    "generated_tables",
    "readable",
    "thumbnails",
]
root_doc = "index"
exclude_patterns = ["extensions", "templates", "images", "notes", "_build"]
templates_path = ["templates"]
# numpydoc links an attribute that a base class has as a property by its bare name, which several classes may have.
suppress_warnings = ["ref.python"]
nitpicky = False  # numpydoc types such as "array of float64" are words, not names of classes

# Pages are Markdown as the code host shows it; headings have its anchors.
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4

autosummary_generate = True
#: Packages of `stepwell.torch` and `stepwell.plugs`: what is not installed is stood in for.
autodoc_mock_imports = [
    name for name in ("torch", "botorch", "sklearn", "cil") if importlib.util.find_spec(name) is None
]
autodoc_typehints = "signature"
autodoc_type_aliases = {name: name for name in ("ArrayLike", "OperatorLike", "BoundsLike", "NumberOrArray", "Array")}
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
autodoc_default_options = {"member-order": "bysource"}
numpydoc_show_class_members = False  # the template lists methods with their texts
# Types in docstrings that are classes of the package become links to them; all others are words.
numpydoc_xref_param_type = True
numpydoc_xref_ignore = "all"
numpydoc_xref_aliases = public_classes()

# `scripts/docs --links`. Journals turn programs away (403), and the code host makes anchors by a script.
linkcheck_timeout = 20
linkcheck_retries = 2
linkcheck_ignore = [r"https://doi\.org/"]
linkcheck_anchors_ignore_for_url = [r"https://github\.com/"]

html_theme = "pydata_sphinx_theme"
html_title = f"Stepwell {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"  # of docs/extensions/formulas.py
html_sidebars = {"index": [], "search": []}
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "navbar_align": "left",
    "show_toc_level": 2,
    "header_links_before_dropdown": 6,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": True,
    "collapse_navigation": True,
    "logo": {"text": "Stepwell"},
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}

EXAMPLES = HERE.parent / "examples" / "gallery"
#: What an example says it needs, and the package that this is.
NEEDED = {"needs PyTorch": "torch", "needs BoTorch": "botorch", "needs JAX": "jax"}
#: The folders of the gallery, in the order in which it shows them.
GROUPS = ("mri", "remote_sensing", "imaging", "spectroscopy", "learning", "computing")


def runnable() -> list[str]:
    """Return the examples whose packages are installed; the others are shown without their output, and named here."""
    chosen = []
    for script in sorted(EXAMPLES.glob("*/*.py")):
        text = script.read_text(encoding="utf-8")
        missing = [name for says, name in NEEDED.items() if says in text and importlib.util.find_spec(name) is None]
        if missing:
            print(f"gallery: {script.name} is shown, not run: {' and '.join(missing)} not installed")
        else:
            chosen.append(script.name)
    return chosen


sphinx_gallery_conf = {
    "examples_dirs": ["../examples/gallery"],
    "gallery_dirs": ["gallery"],
    "filename_pattern": "|".join(rf"/{re.escape(name)}$" for name in runnable()),
    "ignore_pattern": r"__init__\.py",
    "subsection_order": [f"../examples/gallery/{group}" for group in GROUPS],
    "nested_sections": True,
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "write_computation_times": False,
    "min_reported_time": 30,
    "abort_on_example_error": True,
    "plot_gallery": os.environ.get("STEPWELL_DOCS_GALLERY", "run") == "run",
    "backreferences_dir": None,
    "image_scrapers": ("thumbnails.scraper",),
    "thumbnail_size": (320, 320),
    "reset_modules": ("matplotlib",),
}
