"""Configuration of the documentation site: ``make docs`` builds it.

The source folder is the repository's root, so a relative link of a page leads to the same file on the site as in a
checkout: to another page, to an example, to the contributors' guide. API pages are made from docstrings; the code is
read, never imported.
"""

from __future__ import annotations

import builtins
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes

ROOT = Path(__file__).resolve().parents[1]

project = "iris-harness"
author = "The iris-harness authors"

extensions = ["myst_parser", "autoapi.extension", "sphinx.ext.napoleon", "sphinx_copybutton"]
root_doc = "docs/index"
include_patterns = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/**.md", "examples/**README.md"]
exclude_patterns = [".*", "out", "build", "*.egg-info"]

# Pages. External links are not fetched: the build needs no network.
myst_heading_anchors = 4
myst_enable_extensions = ["tasklist"]
html_theme = "furo"
html_title = "iris-harness"
html_extra_path = ["site/index.html"]  # the top of the site leads to docs/index.html
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False

# API pages: docs/reference names the modules. Packages that no page names are left out: reading them would take most of
# the build.
autoapi_dirs = [str(ROOT / package) for package in ("iris_under_test", "harness", "fixtures")]
autoapi_ignore = [
    *(f"*/harness/emulator/{room}/*" for room in ("commands", "native", "operations", "program", "watch", "wavefront")),
    *(f"*/harness/{room}/*" for room in ("devices", "isa", "ranks", "telemetry")),
]
autoapi_generate_api_docs = False
autoapi_add_toctree_entry = False
autoapi_member_order = "bysource"
autoapi_python_class_content = "both"
suppress_warnings = ["autoapi.python_import_resolution"]  # of constants, and of the packages left out above
napoleon_numpy_docstring = False
napoleon_use_ivar = True
add_module_names = False
python_use_unqualified_type_names = True
maximum_signature_line_length = 100


SECTIONS = re.compile(r"(Args|Arguments|Attributes|Examples?|Notes?|Raises|Returns|Warnings?|Yields):$")
"""Headings of docstring sections, which napoleon reads."""


def setup(app: Any) -> None:
    """Register the hooks below; Sphinx calls this."""
    app.connect("autodoc-skip-member", skip_what_is_not_public)
    app.connect("autodoc-process-docstring", mark_indented_blocks, priority=100)  # before napoleon
    app.connect("doctree-read", unlink_builtins)


def skip_what_is_not_public(app: Any, kind: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Skip what a module only imports, and what its ``__all__`` leaves out."""
    if kind != "apimodule":
        return None
    module = app.env.autoapi_all_objects.get(member.id.rpartition(".")[0])
    unlisted = module is not None and module.all is not None and name not in module.all
    return True if member.imported or unlisted else None


def mark_indented_blocks(app: Any, kind: str, name: str, member: Any, options: Any, lines: list[str]) -> None:
    """Mark the docstrings' indented blocks for reStructuredText.

    A block after an empty line is code; a block directly below a line of text is a list.
    """
    marked: list[str] = []
    block = None  # what the block that we are in is: "code", "list", "section", or None outside
    for line in lines:
        indented = line.startswith("    ")
        if block is None and re.match(r"    \S", line):
            previous = marked[-1] if marked else ""
            block = "code" if not previous else "section" if SECTIONS.match(previous) else "list"
            marked += {"code": ["::", ""], "list": [""], "section": []}[block]
        elif line and not indented:
            if block == "list" and marked[-1]:
                marked.append("")
            block = None
        if block == "list" and indented and line.strip():
            marked.append(f"- {line[4:]}" if line[4] != " " else f"  {line.strip()}")
        else:
            marked.append(line)
    lines[:] = marked


def unlink_builtins(app: Any, doctree: Any) -> None:
    """Leave Python's own names in signatures unlinked: ``bytes`` would lead to an attribute of that name."""
    for reference in list(doctree.findall(addnodes.pending_xref)):
        if reference.get("refdomain") == "py" and hasattr(builtins, reference["reftarget"]):
            reference.replace_self(nodes.Text(reference["reftarget"]))
