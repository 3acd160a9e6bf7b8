"""``iris_capabilities.toml``: what it may hold, the error of one line for everything else, and what it changes."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from fixtures.capabilities import declaration
from harness.errors import UsageError
from tests.capabilities.libraries import NAMES, queried, word, write


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    return tmp_path


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("format = 1", "it declares nothing: expected api, offers, or both"),
        ("", "format: expected 1, got None"),
        ("format = 2\napi = 'published'", "format: expected 1, got 2"),
        ("format = true\napi = 'published'", "format: expected 1, got True"),
        ("format = '1'", "format: expected 1, got '1'"),
        ("format = 1\napi = 'all'", "api: expected published or extended, got 'all'"),
        ("format = 1\napi = ''", "api: expected published or extended, got ''"),
        ("format = 1\napi = ['published']", "api: expected published or extended, got ['published']"),
        ("format = 1\nhas = []", "unknown key 'has'; the keys are format, api, offers, lacks"),
        ("format = 1\noffers = 'put'", "offers: expected a list of names, such as [\"ccl.broadcast\"], got 'put'"),
        ("format = 1\noffers = [1]", "offers: expected a list of names"),
        ("format = 1\noffers = ['ccl.brodcast']", "offers: 'ccl.brodcast' is not a capability; similar are ccl."),
        ("format = 1\noffers = ['xyz.*']", "offers: 'xyz.*' is not a capability"),
        ("format = 1\noffers = ['*']", "offers: '*' is not a capability; iris-harness capabilities lists the names"),
        ("format = 1\napi = 'published'\nlacks = ['put']", "lacks: expected a table of names with reasons, got ['"),
        ("format = 1\napi = 'published'\n[lacks]\nput = 3", "lacks: put: expected the reason as text, got 3"),
        ("format = 1\napi = 'published'\n[lacks]\nput = ' '", "lacks: put: expected the reason as text, got ' '"),
        ("format = 1\napi = 'published'\n[lacks]\nputs = 'no'", "lacks: 'puts' is not a capability; similar are put"),
        ("format = 1\noffers = ['put']\n[lacks]\nput = 'no'", "lacks: put is in offers too; remove one of them"),
        ("format = ", "cannot be read: "),
        ("format = 1\nformat = 1", "cannot be read: "),
    ],
)  # fmt: skip
def test_a_wrong_file_is_one_line_that_names_file_key_value_and_what_is_allowed(
    tmp_path: Path, text: str, wanted: str
) -> None:
    path = tmp_path / "small_iris" / declaration.FILE
    path.parent.mkdir()
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as refused:
        declaration.read(path, NAMES)
    message = str(refused.value)
    assert message.startswith("small_iris/iris_capabilities.toml") and wanted in message and "\n" not in message, (
        message
    )


def test_a_file_that_is_no_text_and_one_that_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    (tmp_path / "folder.toml").mkdir()
    for name in ("bytes.toml", "folder.toml"):
        with pytest.raises(UsageError, match="cannot be read: "):
            declaration.read(tmp_path / name, NAMES)


def test_what_is_not_declared_is_not_offered_and_the_table_says_so(folder: Path) -> None:
    answer = queried(
        write(folder, declared="format = 1\noffers = ['Iris.*']\n[lacks]\nput = 'planned for release 2'\n")
    )
    assert answer.states["put"] == "missing: planned for release 2, though it is there"
    assert answer.states["ccl.all_gather"] == "missing: iris_capabilities.toml does not declare it, though it is there"
    assert answer.states["get"] == "missing: iris_capabilities.toml does not declare it"
    assert word(answer, "Iris.zeros") == "present"
    assert answer.lacking(["put"]) == "needs put: planned for release 2, though it is there"


def test_what_is_declared_and_absent_is_judged_and_a_failure(folder: Path) -> None:
    """Planted: ``get`` is declared by its API, and ``ccl.broadcast`` by name; neither is there."""
    answer = queried(write(folder, declared="format = 1\napi = 'published'\noffers = ['ccl.broadcast']\n"))
    assert answer.problems == (
        "iris_capabilities.toml declares ccl.broadcast, which is not there",
        "iris_capabilities.toml declares get, which is not there",
    )
    assert answer.lacking(["get"]) is None and answer.lacking(["ccl.broadcast"]) is None, "judged, not unsupported"
    assert answer.states["Iris.free"].startswith("missing: iris_capabilities.toml does not declare it")


def test_a_declaration_that_is_true_has_no_problem(folder: Path) -> None:
    declared = "format = 1\napi = 'published'\n[lacks]\nget = 'no reads'\n"
    answer = queried(write(folder, declared=declared))
    assert answer.problems == ()
    assert answer.lacking(["get"]) == "needs get: no reads"


def test_keys_without_quotes_name_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text('format = 1\napi = "extended"\n[lacks]\nccl.broadcast = "no"\n"Iris.free" = "no"\n', "utf-8")
    declared = declaration.read(path, NAMES)
    assert dict(declared.lacks) == {"ccl.broadcast": "no", "Iris.free": "no"}
    assert not declared.states("ccl.broadcast", NAMES) and declared.states("put", NAMES)
