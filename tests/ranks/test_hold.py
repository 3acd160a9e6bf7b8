"""Descriptors that a group holds open: a lock outlives its controller for as long as a rank lives, and no longer."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from harness.errors import UsageError
from harness.ranks import RankGroup, processes

ROOT = Path(__file__).parents[2]
LIMIT = 60

CONTROLLER = """
import socket, sys, time
from harness.ranks import RankGroup
lock = socket.socket(socket.AF_UNIX)
lock.bind("\\0" + sys.argv[1])
lock.listen()
group = RankGroup(2, options={"compile_once": False, "start": sys.argv[2]}, hold=[lock.fileno()])
pids = group.call("tests.ranks.targets:pids_below")
if sys.argv[3] == "release":
    lock.close()
print(*sorted({pid for row in pids for pid in row}), flush=True)
time.sleep(10_000)
"""


def _taken(name: str) -> bool:
    with socket.socket(socket.AF_UNIX) as lock:
        try:
            lock.bind("\0" + name)
        except OSError:
            return True
    return False


@contextlib.contextmanager
def _controller(name: str, start: str, mode: str) -> Iterator[tuple[subprocess.Popen[str], list[psutil.Process]]]:
    """A controller that holds the lock ``name`` with its group of two, and the processes below it, the keeper first."""
    command = [sys.executable, "-c", CONTROLLER, name, start, mode]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
    below: list[psutil.Process] = []
    try:
        assert process.stdout is not None
        below = [psutil.Process(int(pid)) for pid in process.stdout.readline().split()]
        assert len(below) == 4, "two ranks, their agent, their keeper"
        below.sort(key=lambda one: one.ppid() != process.pid)
        yield process, below
    finally:
        for one in below:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.resume()
        process.kill()
        process.communicate(timeout=LIMIT)
        assert not psutil.wait_procs(below, timeout=LIMIT)[1]


def _descriptors(process: psutil.Process, inode: int) -> bool:
    folder = f"/proc/{process.pid}/fd"
    return any(os.readlink(f"{folder}/{name}") == f"socket:[{inode}]" for name in os.listdir(folder))


def _inode(name: str) -> int:
    (line,) = [line for line in Path("/proc/net/unix").read_text().splitlines() if line.endswith("@" + name)]
    return int(line.split()[-2])


@pytest.mark.slow
@pytest.mark.parametrize("start", ["fork", pytest.param("exec", marks=pytest.mark.nightly)])
def test_keeper_agent_and_ranks_hold_a_lock(start: str) -> None:
    name = f"iris-harness-test-{secrets.token_hex(8)}"
    with _controller(name, start, "release") as (_, below):
        inode = _inode(name)
        assert [_descriptors(process, inode) for process in below] == [True] * 4
        assert _taken(name), "although its controller has closed it"
    assert not _taken(name)


@pytest.mark.slow
@pytest.mark.parametrize("start", ["fork", pytest.param("exec", marks=pytest.mark.nightly)])
def test_a_killed_controllers_lock_is_free_when_its_group_is_gone(start: str) -> None:
    name = f"iris-harness-test-{secrets.token_hex(8)}"
    with _controller(name, start, "keep") as (controller, below):
        below[0].suspend()  # the keeper, so that the group does not end at once
        ranks = below[1:]
        for process in ranks:
            process.suspend()
        controller.kill()
        controller.wait(LIMIT)
        time.sleep(0.2)
        assert _taken(name), "ranks live on and hold it"
        os.kill(below[0].pid, signal.SIGCONT)
        limit = time.monotonic() + LIMIT
        while _taken(name):
            assert time.monotonic() < limit
            time.sleep(0.01)
        assert not [process for process in ranks if process.is_running()], "the keeper has reaped them before it ended"


def test_a_lock_stays_after_a_restart_of_the_ranks() -> None:
    with socket.socket(socket.AF_UNIX) as lock:
        name = f"iris-harness-test-{secrets.token_hex(8)}"
        lock.bind("\0" + name)
        lock.listen()
        with RankGroup(2, options={"compile_once": False}, hold=[lock.fileno()]) as group:
            inode = _inode(name)
            for _ in range(2):
                group.start()
                assert all(_descriptors(psutil.Process(pid), inode) for pid in group.pids)
                ended = os.pidfd_open(group.pids[0])
                os.kill(group.pids[0], signal.SIGKILL)
                assert processes.wait_readable([ended], LIMIT)
                os.close(ended)
            assert group.generation == 2
    assert not _taken(name)


def test_a_closed_descriptor_is_refused() -> None:
    with pytest.raises(UsageError, match="got 987654, which is not open"):
        RankGroup(1, hold=[987654])
