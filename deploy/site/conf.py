"""The pages of dpdist: ``python -m sphinx deploy/site deploy/site/_build/html`` (``pip install ".[docs]"``)."""

from __future__ import annotations

import importlib
import sys
from importlib.metadata import version as installed
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "extensions"))
importlib.import_module("reference").write(HERE / "api.rst")

project, author = "dpdist", "The dpdist developers"
version = release = installed("dpdist")
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "executed",
    "gallery",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build"]
html_theme = "pydata_sphinx_theme"
html_title = "dpdist"
html_theme_options = {
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "navbar_align": "left",
    "secondary_sidebar_items": ["page-toc"],
}
html_show_sourcelink = False
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
suppress_warnings = [
    "myst.xref_missing",  # README and the contributing guide name files of the source, which are no pages
    "myst.header",
    "docutils",  # docstrings, those that are inherited from scikit-learn and refer to its pages as well
    "ref.ref",
    "ref.term",
    "ref.python",
]
autosummary_generate = True
autodoc_default_options = {"members": True, "inherited-members": "BaseEstimator"}
autodoc_typehints = "none"
napoleon_google_docstring = False
napoleon_use_ivar = True
