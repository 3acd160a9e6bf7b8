"""Files are replaced in one step, and links are not followed."""

from __future__ import annotations

import os
import stat

import pytest

from harness.errors import UsageError
from harness.files import write_whole


def test_the_old_file_stays_when_writing_fails(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    write_whole(path, "old")
    monkeypatch.setattr(os, "fsync", lambda descriptor: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["report.html"], "nothing temporary is left"


def test_a_link_is_refused_and_its_target_stays(tmp_path):
    (tmp_path / "elsewhere").write_text("precious")
    (tmp_path / "report.html").symlink_to("elsewhere")
    with pytest.raises(UsageError, match="symbolic link"):
        write_whole(tmp_path / "report.html", "new")
    assert (tmp_path / "elsewhere").read_text() == "precious"


def test_the_umask_decides_who_may_read(tmp_path):
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "junit.xml", "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "junit.xml").stat().st_mode) == 0o640
