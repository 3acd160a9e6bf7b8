"""The page about the architecture names only paths that exist."""

import re

import pytest

from tests.package.test_layers import MAY_IMPORT, ROOT

PAGE = ROOT / "docs" / "architecture.md"
PLACES = ("", "harness", "iris_under_test")
ELSEWHERE = {"requirements.toml"}
"""Files that the reader of the page creates."""


def missing(text):
    """Return the paths in backquotes that do not exist in the repository."""
    paths = set(re.findall(r"`([a-z_][a-z_./-]*(?:\.py|\.toml|/))`", text)) - ELSEWHERE
    assert len(paths) > 30  # sanity check
    return sorted(path for path in paths if not any((ROOT / place / path).exists() for place in PLACES))


def test_every_path_on_the_page_exists():
    assert missing(PAGE.read_text(encoding="utf-8")) == []


def test_a_missing_path_is_detected():
    text = PAGE.read_text(encoding="utf-8").replace("`fixtures/rig.py`", "`fixtures/gone.py`")
    assert missing(text) == ["fixtures/gone.py"]


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_every_package_is_a_room_on_the_page(package):
    assert f"`{package}/`" in PAGE.read_text(encoding="utf-8")
