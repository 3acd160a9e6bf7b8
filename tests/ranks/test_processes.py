"""Descriptions of how processes ended, and the clipping of text for a report."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from harness import children
from harness.ranks import processes, stacks


@pytest.mark.parametrize(
    ("status", "words"),
    [(0, "exit status 0"), (3 << 8, "exit status 3"), (6, "signal 6 (SIGABRT)"), (128 | 11, "signal 11 (SIGSEGV)")],
)
def test_wait_statuses_in_words(status: int, words: str) -> None:
    assert children.describe_exit(status) == words


def test_a_real_time_signal_has_a_number_only() -> None:
    assert children.describe_signal(40) == "signal 40"


def test_the_status_of_a_zombie_can_be_read_and_that_of_others_not() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"])
    descriptor = processes.open_pidfd(child.pid)
    try:
        assert processes.wait_readable([descriptor], 60) == {descriptor}
    finally:
        os.close(descriptor)
    status = processes.exit_status(child.pid)
    assert status is not None
    assert children.describe_exit(status) == "signal 9 (SIGKILL)"
    assert child.wait() == -signal.SIGKILL
    assert processes.exit_status(child.pid) is None
    assert processes.exit_status(os.getpid()) is None


def test_a_process_whose_child_is_runnable_is_not_idle() -> None:
    """On a busy machine such a child may use no core for many seconds: so its use of cores proves nothing."""
    code = "import os, time\nif (child := os.fork()): os.waitpid(child, 0); time.sleep(600)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", code]) as parent:
        try:
            below = psutil.Process(parent.pid)
            wait_until(lambda: below.children() and below.status() == psutil.STATUS_SLEEPING)
            assert processes.cpu_ticks(parent.pid) is None
            below.children()[0].kill()
            wait_until(lambda: not below.children() and below.status() == psutil.STATUS_SLEEPING)
            assert processes.cpu_ticks(parent.pid) is not None
        finally:
            for process in [*below.children(), below]:
                process.kill()


def wait_until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_dump_loses_the_machinery_and_nothing_else() -> None:
    dump = """words of the rank
Thread 0x1 (most recent call first):
  File "/x/harness/ranks/stacks.py", line 48 in watch
  File "/lib/threading.py", line 982 in run

Thread 0x2 (most recent call first):
  File "/x/other.py", line 1 in other

Current thread 0x3 (most recent call first):
  File "/x/case.py", line 10 in hang
  File "/x/harness/ranks/worker.py", line 91 in _execute_calls
  File "/x/harness/ranks/worker.py", line 41 in main

Extension modules: a, b
"""
    lines = [line.strip() for line in stacks.trim(dump).splitlines() if line.strip()]
    assert lines == [
        "words of the rank",
        "Thread 0x2 (most recent call first):",
        'File "/x/other.py", line 1 in other',
        "Current thread 0x3 (most recent call first):",
        'File "/x/case.py", line 10 in hang',
    ]


def test_text_is_read_from_its_end() -> None:
    descriptor = os.memfd_create("test")
    try:
        os.write(descriptor, b"0123456789")
        assert stacks.read_from(descriptor, 0) == "0123456789"
        assert stacks.read_from(descriptor, 4) == "456789"
        assert stacks.read_from(descriptor, 0, limit=3) == "789"
        assert stacks.read_from(descriptor, 99) == "0123456789", "the file was cut since"
    finally:
        os.close(descriptor)
