"""Waits for a core extend a deadline, and nothing else does."""

import os
import subprocess
import sys
import time

import pytest

from harness.ranks import RankGroup, RankHang, starved
from harness.ranks.starved import Starved, run_delays

SECOND = 10**9


@pytest.fixture
def clock(monkeypatch):
    """The time that a ``Starved`` sees, as a list of one number."""
    now = [100.0]
    monkeypatch.setattr(starved.time, "monotonic", lambda: now[0])
    return now


def test_the_longest_wait_of_a_thread_counts_within_the_limit(clock):
    delays = {7: 5 * SECOND, 8: 0}
    one = Starved([7], lambda pids: dict(delays))
    one.begin(limit=3.0)
    assert one.lap() == 0, "too early"
    clock[0] += 2
    assert one.lap() == 0, "the first look"
    clock[0] += 0.5
    delays[7] += SECOND
    assert one.lap() == 0, "too early for another look"
    clock[0] += 1.5
    delays[8] += SECOND // 2
    assert one.lap() == 1.0
    clock[0] += 1
    delays[8] += 9 * SECOND
    assert one.lap() == 1.0, "no more than the time that passed"
    clock[0] += 4
    delays[9] = 9 * SECOND
    assert one.lap() == 1.0, "no more than is left"
    clock[0] += 4
    delays[9] += 4 * SECOND
    assert one.lap() == 0 and one.seconds == 3.0
    one.begin(limit=1.0)
    clock[0] += 2
    assert one.lap() == 0
    clock[0] += 2
    assert one.lap() == 0, "nothing waited"


def test_the_threads_of_descendants_are_read():
    child = subprocess.Popen([sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"], stdout=-1)
    try:
        child.stdout.readline()
        delays = run_delays([os.getpid()])
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
    assert delays[os.getpid()] >= 0 and delays[child.pid] >= 0
    assert run_delays([child.pid]) == {}, "it ended"


@pytest.mark.parametrize("busy", [True, False])
def test_a_rank_that_gets_no_core_has_more_time(monkeypatch, busy):
    """The rank sleeps, which stands for work; the machine's answer is planted."""
    waited = [0]

    def delays(pids):
        waited[0] += 10 * SECOND * busy
        return dict.fromkeys(pids, waited[0])

    monkeypatch.setattr(starved, "run_delays", delays)
    with RankGroup(1, setup="tests.ranks.targets:setup") as group:
        group.start()
        started = time.monotonic()
        if busy:
            group.call("tests.ranks.targets:sleeps", 5.0, deadline=3.5)
            assert time.monotonic() - started >= 5.0
        else:
            with pytest.raises(RankHang):
                group.call("tests.ranks.targets:sleeps", 60.0, deadline=3.5)
