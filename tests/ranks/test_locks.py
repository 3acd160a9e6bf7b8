"""Locks of one user's processes: private, bounded, and a wait names the holder."""

from __future__ import annotations

import logging
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from harness import locks
from harness.errors import HarnessError, UsageError

ROOT = Path(__file__).parents[2]
LIMIT = 60

HOLD = """
import sys
from pathlib import Path
from harness import locks
with locks.held(Path(sys.argv[1]), 10, "a test"):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return locks.in_cache(tmp_path, "one.lock")


@pytest.fixture
def other(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process, which holds the lock until it reads a line."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate(timeout=LIMIT)


def wait_for(path: Path, limit: float) -> None:
    with locks.held(path, limit, "the compilation of copy"):
        pass


def test_a_wait_is_bounded_and_names_the_holder(
    path: Path, other: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(locks, "WARN_AFTER", 0.1)
    assert locks.holder(path) == other.pid
    with caplog.at_level(logging.WARNING, "harness.locks"), pytest.raises(HarnessError) as caught:
        wait_for(path, 0.3)
    for text in (caplog.text, str(caught.value)):
        assert f"pid {other.pid} ({sys.executable} -c" in text and str(path) in text
        assert "the compilation of copy" in text
    assert "was not free within 0.3 s" in str(caught.value)
    assert len(caplog.records) == 1, "reported once"


def test_a_stopped_holder_is_named_and_a_killed_one_blocks_nobody(path: Path, other: subprocess.Popen[str]) -> None:
    other.send_signal(signal.SIGSTOP)
    os.waitpid(other.pid, os.WUNTRACED)
    assert psutil.Process(other.pid).status() == psutil.STATUS_STOPPED
    with pytest.raises(HarnessError, match=rf"pid {other.pid} \(stopped: .* holds it: let that process end, or end it"):
        wait_for(path, 0.1)
    other.kill()
    other.wait(LIMIT)
    assert path.exists() and locks.holder(path) is None
    wait_for(path, 10)
    assert not path.exists(), "the lock that it left is taken over, and removed"


def test_a_lock_is_held_once_and_only_this_user_can_open_it(path: Path) -> None:
    first, second = locks.FileLock(path), locks.FileLock(path)
    assert first.take() and not second.take()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    first.release()
    assert second.take() and locks.holder(path) == os.getpid()
    second.release()


def test_a_file_that_its_holder_removed_is_no_lock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The holder frees the lock between another process's opening of the file and its locking."""
    first, second = locks.FileLock(path), locks.FileLock(path)
    assert first.take()
    real = locks._lock

    def late(descriptor: int) -> bool:
        first.release()
        return real(descriptor)

    monkeypatch.setattr(locks, "_lock", late)
    assert second.take()
    monkeypatch.setattr(locks, "_lock", real)
    assert not locks.FileLock(path).take(), "the second holds the file that lies there"
    second.release()


def test_a_folder_of_another_user_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = locks.user_name(os.getuid())
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    with pytest.raises(UsageError, match=f"{path.parent} belongs to user {owner}; locks need a folder of user 54321"):
        locks.private_folder(path.parent)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda place: place.symlink_to("/tmp"), "is not a folder"),
        (lambda place: place.write_text(""), "is not a folder"),
        (lambda place: (place.mkdir(), place.chmod(0o777)), "has mode 0777, so other users can write to it"),
    ],
)
def test_a_folder_that_others_can_write_is_refused(tmp_path: Path, make, message: str) -> None:
    make(tmp_path / "place")
    with pytest.raises(UsageError, match=message):
        locks.private_folder(tmp_path / "place")


def test_a_folder_that_cannot_be_made_is_the_machines_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HarnessError, match="cannot be created: Not a directory"):
        locks.in_cache(tmp_path / "file" / "cache", "one.lock")
