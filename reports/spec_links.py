"""Links from a requirement's source to the published specification."""

from __future__ import annotations

import importlib.metadata
import re

SECTION = re.compile(r"(?P<page>docs/spec/[a-z0-9-]+)\.md#(?P<anchor>[a-z0-9-]+)")
"""How a requirement of the suite names the section that it comes from, relative to the repository."""

_PACKAGE, _LABEL = "iris-harness", "documentation"


def published_documentation() -> str | None:
    """Return the address of the documentation site, or None.

    It is the project URL labelled "Documentation" in the metadata of the installed package.
    """
    try:
        urls = importlib.metadata.metadata(_PACKAGE).get_all("Project-URL") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    for url in urls:
        label, address = (part.strip() for part in str(url).partition(",")[::2])
        if label.lower() == _LABEL and address.startswith(("https://", "http://")):
            return address.rstrip("/")
    return None


def section_link(source: str, site: str | None) -> str | None:
    """Return the address of the section that ``source`` names on ``site``; None for any other source, or no site."""
    section = SECTION.fullmatch(source)
    return f"{site}/{section['page']}.html#{section['anchor']}" if section and site else None
