"""A group leaves no process, no file, no shared memory and no socket behind, however the controller ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from harness.ranks import RankGroup, RankHang

TARGETS = "tests.ranks.targets"
PLAIN = {"compile_once": False}
ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("own_keepers")
LIMIT = 60
"""Seconds within which everything must be gone; it takes a few hundredths."""


def _shared(run_id: str) -> list[str]:
    return sorted(name for name in os.listdir("/dev/shm") if run_id in name)


@pytest.fixture
def private_temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The test's own temporary directory, so that files of other processes do not count."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield folder
    assert sorted(folder.iterdir()) == []


def _start(mode: str) -> tuple[subprocess.Popen[str], list[psutil.Process], str]:
    """A separate controller, all processes that it started, and the group's run id."""
    controller = subprocess.Popen(
        [sys.executable, "-m", "tests.ranks.controller", mode],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert controller.stdout is not None
    run_id, *pids = controller.stdout.readline().split()
    return controller, [psutil.Process(int(pid)) for pid in pids], run_id


def _finish(controller: subprocess.Popen[str], below: list[psutil.Process]) -> tuple[int, str]:
    assert len(below) == 4, "two ranks, their agent, their keeper"
    output, _ = controller.communicate(timeout=LIMIT)
    _, alive = psutil.wait_procs(below, timeout=LIMIT)
    assert not alive
    return controller.returncode, output


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["idle", "hangs_in_python", "hangs_with_the_interpreter"])
def test_a_killed_controller_leaves_nothing(mode: str, private_temporary: Path) -> None:
    controller, below, run_id = _start(mode)
    assert len(_shared(run_id)) == 2
    controller.kill()
    status, _ = _finish(controller, below)
    assert status == -signal.SIGKILL
    assert _shared(run_id) == []


def test_ctrl_c_ends_the_group_and_reaches_the_controller(private_temporary: Path) -> None:
    controller, below, _ = _start("hangs_in_sleep")
    os.killpg(controller.pid, signal.SIGINT)  # as a terminal does: to the whole foreground group
    assert _finish(controller, below) == (130, "interrupted\n")


@pytest.mark.slow
def test_a_controller_whose_keeper_was_killed_leaves_nothing(private_temporary: Path) -> None:
    controller, below, run_id = _start("idle")
    keepers = [process for process in below if process.ppid() == controller.pid]
    assert len(keepers) == 1
    try:
        keepers[0].kill()
        controller.kill()
        _finish(controller, below)
    finally:
        for name in _shared(run_id):  # of the group no process is left that could remove it
            Path("/dev/shm", name).unlink()


@pytest.mark.slow
def test_ctrl_c_in_a_call_leaves_a_usable_group() -> None:
    with RankGroup(2, options=PLAIN) as group:
        group.start()
        old = group.pids
        previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(KeyboardInterrupt):
                group.call(f"{TARGETS}:hangs_in_sleep", deadline=3600)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)
        assert not [pid for pid in old if psutil.pid_exists(pid)]
        assert group.call(f"{TARGETS}:rank_of") == [0, 1]


def test_ctrl_c_while_the_group_starts_leaves_a_usable_group() -> None:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with RankGroup(2, f"{TARGETS}:hanging_setup", PLAIN) as group:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(KeyboardInterrupt):
                group.start()
            assert {child.pid for child in psutil.Process().children(recursive=True)} <= before
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def test_shared_memory_named_after_a_killed_rank_is_removed() -> None:
    """As torch and the CUDA driver name it; that of a process which is not of the group stays."""
    mine = Path("/dev/shm", f"torch_{os.getpid()}_1_0")
    try:
        mine.touch()
        with RankGroup(2, options=PLAIN) as group:
            group.start()
            left = [Path("/dev/shm", f"torch_{pid}_1_0") for pid in group.pids]
            left += [Path("/dev/shm", f"cuda.shm.{os.getuid()}.{pid:x}.1") for pid in group.pids]
            for path in left:
                path.touch()
            with pytest.raises(RankHang):
                group.call(f"{TARGETS}:hangs_in_sleep", deadline=0.2)
            assert not [path for path in left if path.exists()]
        assert mine.exists()
    finally:
        mine.unlink()


@pytest.mark.slow
def test_two_groups_at_once_share_nothing(private_temporary: Path) -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    children = set(psutil.Process().children())
    with RankGroup(2, options=PLAIN) as one, RankGroup(2, options=PLAIN) as two:
        first = one.call(f"{TARGETS}:describe")
        second = two.call(f"{TARGETS}:describe")
        assert first[0]["elastic"] != second[0]["elastic"]
        run_ids = [group.call(f"{TARGETS}:touches_shared_memory")[0] for group in (one, two)]
        assert [len(_shared(run_id)) for run_id in run_ids] == [2, 2]
        assert not set(one.pids) & set(two.pids)
        with pytest.raises(RankHang):
            one.call(f"{TARGETS}:hangs_in_sleep", deadline=0.2)
        assert two.call(f"{TARGETS}:sum_of_ranks", 3) == [7, 7]
        assert two.generation == 1
        assert one.call(f"{TARGETS}:sum_of_ranks", 4) == [9, 9]
    assert set(psutil.Process().children()) <= children
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert [_shared(run_id) for run_id in run_ids] == [[], []]
