"""How the documentation is built. `make docs` builds it; a warning is an error."""

from __future__ import annotations

import sys
from importlib.metadata import version as installed_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "modelsup"
author = "The modelsup authors"
release = version = installed_version("modelsup")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_click",
    "settings_table",
]
exclude_patterns = ["_build", "_ext"]
smartquotes = False  # "--flag" stays as it is typed
html_theme = "furo"
html_title = f"modelsup {version}"

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
default_role = "code"  # docstrings name things in single backticks
