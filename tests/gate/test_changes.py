"""The base of a gate: git, its copy, and a base that does not build."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from command_line.gate import changes
from command_line.gate.units import Sources
from harness.errors import UsageError
from tests.gate import library

PREFIX = "iris-harness-base-"


@pytest.fixture
def folder(tmp_path):
    library.write(tmp_path / "repository", lib__core__kernels="x = 1\n", lib__core__host="y = 1\n")
    library.commit(tmp_path / "repository")
    return tmp_path / "repository"


def left_behind():
    return list(Path(tempfile.gettempdir()).glob(f"{PREFIX}{os.getpid()}-*"))


def test_files_and_lines_since_the_base(folder):
    library.edit(folder, "lib/core/helpers.py", "n < 10", "n < 11")
    (folder / "lib/core/new name.py").write_text("x = 1\n")
    (folder / "suite/test_get.py").unlink()
    base = changes.base_of("HEAD", folder / "lib")
    assert base.files == ("lib/core/helpers.py", "lib/core/new name.py", "suite/test_get.py")
    assert base.lines == {"lib/core/helpers.py": ((2, 2),)}
    assert base.library == Path("lib")


def test_committed_changes_count_too(folder):
    library.edit(folder, "lib/core/helpers.py", "n < 10", "n < 11")
    library.commit(folder)
    assert changes.base_of("HEAD~1", folder / "lib").files == ("lib/core/helpers.py",)
    assert changes.base_of("HEAD", folder / "lib").files == ()


@pytest.mark.parametrize(
    ("revision", "problem"),
    [
        ("nope", "has no revision 'nope'"),
        ("--help", "expected a revision"),
        ("", "expected a revision"),
        ("HEAD:lib", "has no revision"),
        ("$(touch x)", "has no revision"),
    ],
)
def test_a_wrong_revision_is_refused(folder, revision, problem):
    with pytest.raises(UsageError, match=problem.replace("(", r"\(")):
        changes.base_of(revision, folder / "lib")


def test_a_library_outside_of_git_is_refused(tmp_path):
    (tmp_path / "lib").mkdir()
    with pytest.raises(UsageError, match="is not in a git repository"):
        changes.base_of("HEAD", tmp_path / "lib")


def test_a_library_that_the_base_does_not_have_is_refused(folder):
    (folder / "other").mkdir()
    with pytest.raises(UsageError, match="other is not in that revision"):
        changes.base_of("HEAD", folder / "other")


def test_the_copy_has_the_base_and_is_removed(folder):
    base = changes.base_of("HEAD", folder / "lib")
    library.edit(folder, "lib/core/helpers.py", "n < 10", "n < 11")
    with changes.checked_out(base) as copy:
        assert "n < 10" in (copy / "lib/core/helpers.py").read_text()
        assert not (copy / "suite").exists()
    assert left_behind() == []
    assert library.git(folder, "status", "--porcelain").split() == ["M", "lib/core/helpers.py"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("def f(:\n", r"--base HEAD does not build: lib/core/helpers\.py:1 is not Python source"),
        ("import nothing_of_the_kind\n", r"--base HEAD does not build: lib/core/helpers\.py:1: ModuleNotFoundError"),
        ("1 / 0\n", r"--base HEAD does not build: lib/core/helpers\.py:1: ZeroDivisionError"),
    ],
)
def test_a_base_that_does_not_build_is_refused_with_the_place(folder, text, problem):
    (folder / "lib/core/helpers.py").write_text(text)
    (folder / "lib/__init__.py").write_text("from .core import helpers\n")
    library.commit(folder)
    base = changes.base_of("HEAD", folder / "lib")
    with pytest.raises(UsageError, match=problem) as raised, changes.checked_out(base):
        raise AssertionError("not reached")
    assert "\n" not in str(raised.value)
    assert left_behind() == []


def test_the_copy_is_removed_after_an_exception(folder):
    base = changes.base_of("HEAD", folder / "lib")
    with pytest.raises(KeyboardInterrupt), changes.checked_out(base):
        raise KeyboardInterrupt
    assert left_behind() == []


def test_what_a_killed_run_left_behind_is_removed(folder):
    ended = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True
    )
    stale = Path(tempfile.gettempdir()) / f"{PREFIX}{ended.stdout.strip()}-abc"
    stale.mkdir()
    with changes.checked_out(changes.base_of("HEAD", folder / "lib")):
        assert not stale.exists()


def test_units_that_differ_from_the_base(folder):
    library.edit(folder, "lib/core/helpers.py", "n < 10", "n < 11")
    (folder / "lib/core/more.py").write_text("def more():\n    return 1\n")
    (folder / "lib/core/host.py").unlink()
    (folder / "suite/test_get.py").unlink()
    base = changes.base_of("HEAD", folder / "lib")
    since = changes.units_since(base, Sources(folder / "lib").digests())
    assert {name: word for name, word in since.items() if not name.endswith(":<module>")} == {
        "lib/core/helpers.py:checked": "changed",
        "lib/core/more.py:more": "new",
        "lib/core/host.py:y": "removed",
    }
