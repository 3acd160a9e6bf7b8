"""Each requirement of the suite names a section of docs/spec, and each section is required or listed with a reason."""

from __future__ import annotations

import importlib.metadata
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from email.message import Message
from pathlib import Path

import pytest

from fixtures.tables import SUITE
from harness.evidence import Requirement, read, read_table
from reports import html
from reports.spec_links import SECTION, published_documentation, section_link
from tests.evidence import samples

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "spec"
INDEX = PAGES / "index.md"
LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchor_of(heading: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def headings(page: Path) -> list[str]:
    return re.findall(r"^#{2,6} (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)


def sections() -> set[str]:
    """Return every section of the specification, as a requirement's source names it."""
    return {f"docs/spec/{page.name}#{anchor_of(text)}" for page in PAGES.glob("*.md") for text in headings(page)}


def broken(requirements: Iterable[Requirement], existing: set[str]) -> list[str]:
    """Return the ids of requirements whose source is not an existing section."""
    return [each.id for each in requirements if not SECTION.fullmatch(each.source) or each.source not in existing]


def unexplained(cited: set[str], existing: set[str], listed: set[str]) -> dict[str, set[str]]:
    """Return sections that neither a requirement nor the list names, and list entries that are superfluous."""
    return {"lacks a requirement or a reason": existing - cited - listed, "superfluous": listed - (existing - cited)}


def undescribed(requirements: Iterable[Requirement], pages: Mapping[str, str]) -> set[str]:
    """Return the covered names that are on no page that a source of their requirements links to.

    A page describes a name if the name's last part is in it as a word.
    """
    sources: dict[str, set[str]] = defaultdict(set)
    for each in requirements:
        for name in each.covers:
            sources[name].add(each.source.partition("#")[0])
    return {
        name
        for name, linked in sources.items()
        if not any(re.search(rf"(?<!\w){re.escape(name.rpartition('.')[2])}(?!\w)", pages[page]) for page in linked)
    }


def page_texts() -> dict[str, str]:
    return {f"docs/spec/{page.name}": page.read_text(encoding="utf-8") for page in PAGES.glob("*.md")}


def listed_without_requirement() -> set[str]:
    """Return the sections in the index page's list of those that no requirement cites, each with its reason."""
    table = INDEX.read_text(encoding="utf-8").partition("## Sections without a requirement")[2]
    rows = re.findall(r"^\| \[[^\]]+\]\(([^)]+)\) \| (.+) \|$", table, re.MULTILINE)
    assert rows, "docs/spec/index.md has no list of sections without a requirement"
    assert all(len(reason.split()) > 3 for _, reason in rows)
    return {f"docs/spec/{target}" for target, _ in rows}


def test_every_requirement_links_to_a_section() -> None:
    assert broken(read_table(SUITE).values(), sections()) == []


@pytest.mark.parametrize(
    "source",
    [
        "docs/spec/rma.md#pull",
        "docs/spec/none.md#put",
        "docs/spec/rma.md",
        "rma.md#put",
        "Iris API, section 7",
        "see docs/spec/rma.md#put",
    ],
)
def test_a_broken_link_is_found(source: str) -> None:
    whole = Requirement("X-1", "put copies elements.", "docs/spec/rma.md#put")
    assert broken([whole, Requirement("X-2", "put copies elements.", source)], sections()) == ["X-2"]


def test_every_section_is_required_or_has_a_reason() -> None:
    cited = {each.source for each in read_table(SUITE).values()}
    own = {f"docs/spec/index.md#{anchor_of(text)}" for text in headings(INDEX)}
    difference = unexplained(cited, sections() - own, listed_without_requirement())
    assert not any(difference.values()), difference


def test_a_section_without_requirement_or_reason_is_found() -> None:
    difference = unexplained({"a"}, {"a", "b", "c"}, {"a", "c"})
    assert difference == {"lacks a requirement or a reason": {"b"}, "superfluous": {"a"}}


def test_every_covered_name_is_on_a_page_of_its_requirements() -> None:
    assert undescribed(read_table(SUITE).values(), page_texts()) == set()


def test_a_covered_name_without_description_is_found() -> None:
    pages = {"docs/spec/a.md": "`put(pointer)` copies.", "docs/spec/b.md": "`putter`, `get`"}
    table = [
        Requirement("X-1", "put copies.", "docs/spec/a.md#put", covers=("put", "Context.put", "get")),
        Requirement("X-2", "get copies.", "docs/spec/b.md#get", covers=("Context.put", "Context.get", "pointer")),
        Requirement("X-3", "put copies.", "docs/spec/b.md#put", covers=("other.put",)),
    ]
    assert undescribed(table, pages) == {"get", "pointer", "other.put"}


def test_anchors_are_the_same_on_github_and_on_the_site() -> None:
    """docutils makes ids of letters, digits and single hyphens; GitHub keeps more. Words alone give the same."""
    odd = {
        f"{page.name}: {text}"
        for page in PAGES.glob("*.md")
        for text in headings(page)
        if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", anchor_of(text))
    }
    assert not odd
    for page in PAGES.glob("*.md"):
        assert len(set(map(anchor_of, headings(page)))) == len(headings(page)), f"{page.name} has a heading twice"


def test_links_between_the_pages_lead_somewhere() -> None:
    existing, wrong = sections(), []
    for page in PAGES.glob("*.md"):
        for target in LINK.findall(page.read_text(encoding="utf-8")):
            name, _, anchor = target.partition("#")
            file = (PAGES / name).resolve() if name else page
            if not file.is_file() or (anchor and f"docs/spec/{file.name}#{anchor}" not in existing):
                wrong.append(f"{page.name}: {target}")
    assert wrong == []


def test_every_page_is_in_the_index() -> None:
    listed = {target.partition("#")[0] for target in LINK.findall(INDEX.read_text(encoding="utf-8"))}
    assert {page.name for page in PAGES.glob("*.md")} - {"index.md"} <= listed


@pytest.mark.parametrize("site", [None, "https://docs.example"])
def test_the_page_shows_a_source_as_a_link_where_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: str | None
) -> None:
    source = "docs/spec/rma.md#put"
    plan = replace(samples.plan(), requirements=(Requirement(samples.PUT, "put copies.", source),))
    path = samples.write(tmp_path / "evidence.jsonl", [samples.run(), plan])
    monkeypatch.setattr(html, "published_documentation", lambda: site)
    page = html.render_html(read(path))
    link = f'<a href="https://docs.example/docs/spec/rma.html#put">{source}</a>'
    assert source in page and (link in page) == (site is not None)


def test_only_sections_of_a_published_site_become_links(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "docs/spec/rma.md#put"
    assert section_link(source, "https://docs.example") == "https://docs.example/docs/spec/rma.html#put"
    assert section_link(source, None) is None
    for other in ("README of their_lib", 'docs/spec/rma.md#put" onclick="x', "docs/spec/../rma.md#put"):
        assert section_link(other, "https://docs.example") is None

    metadata = Message()
    monkeypatch.setattr(importlib.metadata, "metadata", lambda name: metadata)
    assert published_documentation() is None
    metadata["Project-URL"] = "Documentation, javascript:alert(1)"
    assert published_documentation() is None
    metadata["Project-URL"] = "Documentation, https://docs.example/"
    assert published_documentation() == "https://docs.example"
