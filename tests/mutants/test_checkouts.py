"""Copies of the checkout that are used again: what a trial has changed in one is not there for the next."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from command_line.mutants import checkouts
from command_line.mutants.checkouts import Checkouts
from mutants import planting


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of three files."""
    root = tmp_path / "root"
    for name in ("a.py", "package/b.py", "package/__pycache__/b.nbi", ".git/config", "out/report.html"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    (root / "package" / "link").symlink_to("b.py")
    monkeypatch.setattr(planting, "ROOT", root)
    return root


@pytest.fixture
def copies(small: Path) -> Iterator[Checkouts]:
    held = Checkouts()
    yield held
    held.close()


def contents(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() if path.is_file() else "" for path in folder.rglob("*")}


def in_place(path: Path) -> None:
    """Change a byte, and set the times back, so that size, inode and time of modification are those of before."""
    before = path.stat()
    path.write_text(path.read_text()[:-1] + "?")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES = {
    "nothing": lambda copy: None,
    "a file in place": lambda copy: in_place(copy / "a.py"),
    "a file replaced": lambda copy: (copy / "new").write_text("?") and os.replace(copy / "new", copy / "a.py"),
    "a file removed": lambda copy: (copy / "a.py").unlink(),
    "a new file": lambda copy: (copy / "package" / "c.py").write_text("?"),
    "a new folder in another": lambda copy: os.makedirs(copy / "one" / "two"),
    "a new folder with a file": lambda copy: shutil.copytree(copy / "package", copy / ".hypothesis"),
    "a folder removed": lambda copy: shutil.rmtree(copy / "package"),
    "a link to elsewhere": lambda copy: (copy / "package" / "link").unlink() or os.symlink("?", copy / "package/link"),
    "a link to a folder": lambda copy: os.symlink(copy / "package", copy / "again"),
    "a file in place of a folder": lambda copy: shutil.rmtree(copy / "package") or (copy / "package").write_text("?"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_the_next_trial_has_what_the_first_one_had(copies, small, change):
    copy = copies.take()
    first = contents(copy)
    assert sorted(first) == ["a.py", "package", "package/__pycache__", "package/__pycache__/b.nbi", "package/b.py",
                             "package/link"]  # fmt: skip
    change(copy)
    copies.give_back(copy)
    assert copies.take() == copy, "it is the same folder"
    assert contents(copy) == first
    assert (copy / "a.py").stat().st_mtime_ns == (small / "a.py").stat().st_mtime_ns, "compiled modules stay valid"


def test_two_trials_at_a_time_have_copies_of_their_own(copies):
    one, other = copies.take(), copies.take()
    (one / "a.py").write_text("?")
    assert one != other and (other / "a.py").read_text() == "a.py"


def test_a_copy_of_files_that_are_gone_is_replaced(copies, small):
    copy = copies.take()
    (copy / "a.py").write_text("?")
    (small / "a.py").unlink()
    copies.give_back(copy)
    assert not copy.exists() and "a.py" not in contents(copies.take())


def test_no_copy_is_left(small, tmp_path, monkeypatch):
    monkeypatch.setattr(checkouts.tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    held = Checkouts()
    held.give_back(held.take())
    held.take(), held.take()
    held.close()
    held.close()
    assert not list((tmp_path / "temporary").iterdir())
