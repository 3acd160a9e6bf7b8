"""Planted faults: any fault of a case fails only that case, names its reason, and leaves no process."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator

import psutil
import pytest

from harness.errors import HarnessError
from harness.ranks import RankCrash, RankFailure, RankGroup, RankHang, processes

TARGETS = "tests.ranks.targets"
SHORT = 0.5
"""A deadline for calls that never answer. Calls that do answer are not given it."""


@pytest.fixture(scope="module")
def shared() -> Iterator[RankGroup]:
    with RankGroup(2) as group:
        yield group


@pytest.fixture
def group(shared: RankGroup) -> Iterator[RankGroup]:
    """The group before and after a fault: the old processes are gone, the next call has fresh ones."""
    shared.start()
    old, generation = shared.pids, shared.generation
    yield shared
    assert not [pid for pid in old if psutil.pid_exists(pid)]
    assert shared.pids == ()
    assert shared.call(f"{TARGETS}:sum_of_ranks", 1) == [3, 3]
    assert shared.generation == generation + 1
    assert not set(shared.pids) & set(old)


def test_one_rank_raises_and_the_other_waits_for_it(group: RankGroup) -> None:
    with pytest.raises(RankFailure) as caught:
        group.call(f"{TARGETS}:fails_beside_a_barrier", deadline=60)
    assert list(caught.value.errors) == [1]
    assert list(caught.value.stacks) == [0]
    assert "fails_beside_a_barrier" in caught.value.stacks[0]
    assert "planted next to a barrier" in str(caught.value)


@pytest.mark.parametrize(
    "target", ["hangs_in_python", "hangs_in_sleep", "hangs_in_receive", "hangs_with_the_interpreter"]
)
def test_a_hang_shows_where_each_rank_is(group: RankGroup, target: str) -> None:
    with pytest.raises(RankHang) as caught:
        group.call(f"{TARGETS}:{target}", deadline=SHORT)
    hang = caught.value
    assert (hang.deadline, hang.waiting) == (SHORT, (1,))
    assert list(hang.results) == [0], "what rank 0 had answered is kept"
    assert sorted(hang.stacks) == [0, 1]
    assert re.search(rf"targets\.py\", line \d+ in {target}", hang.stacks[1]), "faulthandler's witness"
    assert f"{target} (tests/ranks/targets.py" in hang.stacks[1] or "(py-spy" in hang.stacks[1], "py-spy's witness"
    assert target not in hang.stacks[0], "rank 0 had answered and waits for the next call"
    assert "launch_agent" not in hang.stacks[1], "frames of the machinery are left out"


def test_a_stopped_rank_is_a_hang(group: RankGroup) -> None:
    with pytest.raises(RankHang) as caught:
        group.call(f"{TARGETS}:stops", deadline=SHORT)
    assert "did not take the signal" in caught.value.stacks[1]


def test_ranks_that_ignore_signals_end_too(group: RankGroup) -> None:
    with pytest.raises(RankHang) as caught:
        group.call(f"{TARGETS}:ignores_signals", deadline=SHORT)
    assert caught.value.waiting == (0, 1)


def test_a_segmentation_fault_is_told_at_once(group: RankGroup) -> None:
    with pytest.raises(RankCrash) as caught:
        group.call(f"{TARGETS}:crashes", deadline=3600)
    assert caught.value.exits == {1: "signal 11 (SIGSEGV)"}
    assert "Fatal Python error: Segmentation fault" in caught.value.output[1]
    assert "in crashes" in caught.value.output[1]
    assert "_execute_calls" not in caught.value.output[1]


@pytest.mark.parametrize("status", [0, 7])
def test_a_rank_that_leaves_is_a_crash(group: RankGroup, status: int) -> None:
    with pytest.raises(RankCrash) as caught:
        group.call(f"{TARGETS}:leaves", status, deadline=3600)
    assert caught.value.exits == {1: f"exit status {status}"}


def test_ranks_that_the_agent_ended_for_another_are_not_told(group: RankGroup) -> None:
    group.call(f"{TARGETS}:rank_of")
    with pytest.raises(RankCrash) as caught:
        group.call(f"{TARGETS}:leaves_with_terminated_peers", [group.pids[0]], deadline=3600)
    assert caught.value.exits == {1: "exit status 5"}


def test_a_rank_that_is_terminated_is_a_crash(group: RankGroup) -> None:
    with pytest.raises(RankCrash) as caught:
        group.call(f"{TARGETS}:is_signalled", int(signal.SIGTERM), deadline=3600)
    assert caught.value.exits == {0: "signal 15 (SIGTERM)"}


def test_what_a_crashed_rank_started_ends_too(group: RankGroup) -> None:
    with pytest.raises(RankCrash) as caught:
        group.call(f"{TARGETS}:aborts_with_a_child", deadline=3600)
    assert caught.value.exits == {1: "signal 6 (SIGABRT)"}
    match = re.search(r"grandchild (\d+)", caught.value.output[1])
    assert match is not None
    assert not psutil.pid_exists(int(match[1]))


def test_shared_memory_of_killed_ranks_is_removed(group: RankGroup) -> None:
    with pytest.raises(RankHang) as caught:
        group.call(f"{TARGETS}:leaves_shared_memory", deadline=SHORT)
    names = [text.strip() for text in caught.value.output.values()]
    assert all(name.startswith("/dev/shm/heap-") for name in names)
    assert not [name for name in names if os.path.exists(name)]


def test_a_rank_that_ends_between_calls_costs_no_case(shared: RankGroup) -> None:
    shared.start()
    generation = shared.generation
    pid = shared.pids[1]
    ended = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    assert processes.wait_readable([ended], 60)
    os.close(ended)
    assert shared.call(f"{TARGETS}:rank_of") == [0, 1]
    assert shared.generation == generation + 1


def test_a_killed_keeper_is_no_verdict(shared: RankGroup) -> None:
    _, _, keeper = shared.call(f"{TARGETS}:pids_below")[0]
    old = shared.pids
    with pytest.raises(HarnessError, match="the keeper process ended"):
        shared.call(f"{TARGETS}:kills", keeper, deadline=3600)
    # Without their keeper it is for init to reap them, so here a zombie counts as ended.
    left = [psutil.Process(pid) for pid in old if psutil.pid_exists(pid)]
    assert not [process for process in left if process.status() != psutil.STATUS_ZOMBIE]
    assert shared.call(f"{TARGETS}:rank_of") == [0, 1]
