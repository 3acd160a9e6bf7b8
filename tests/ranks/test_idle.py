"""Ranks that wait on the host are a hang before the deadline, also where others poll; ranks that use a core, or sleep
briefly, are not."""

import pytest

from harness.ranks import RankGroup, RankHang, idle, processes
from harness.ranks.idle import FIRST, SECONDS, SHARE, Idle
from harness.standstill import Polling


@pytest.fixture
def clock(monkeypatch):
    """The time that an ``Idle`` sees, as a list of one number."""
    now = [100.0]
    monkeypatch.setattr(idle.time, "monotonic", lambda: now[0])
    return now


def test_processes_are_idle_if_they_used_almost_no_core_for_long(clock):
    used = {7: 500, 8: 20}
    one = Idle(used.__getitem__)
    assert not one.lap([7, 8]), "too early"
    clock[0] += FIRST
    assert not one.lap([7, 8]), "the first look"
    clock[0] += SECONDS - 0.1
    assert not one.lap([7, 8]), "too early for another look"
    clock[0] += 0.1
    used[8] += int(SHARE * SECONDS * processes.TICKS) + 1
    assert not one.lap([7, 8]), "process 8 used a core"
    clock[0] += SECONDS
    used[7] += int(SHARE * SECONDS * processes.TICKS)
    assert one.lap([7, 8])


def test_a_process_that_is_runnable_is_not_idle_and_another_start_begins_again(clock):
    used = {7: 500, 8: None}
    one = Idle(used.__getitem__)
    for _ in range(3):
        clock[0] += SECONDS
        assert not one.lap([7, 8]), "process 8 is runnable"
    used[8] = 3
    clock[0] += SECONDS
    assert not one.lap([7, 8]), "it was runnable at the last look"
    one.begin()
    clock[0] += SECONDS
    assert not one.lap([7]), "the first look again"
    clock[0] += SECONDS
    assert one.lap([7])


@pytest.mark.parametrize(
    ("before", "now", "used", "idle"),
    [
        ({1: Polling(3, 10)}, {1: Polling(3, 12)}, 0, True),
        ({1: Polling(3, 10)}, {1: Polling(3, 11)}, 0, False),  # it has confirmed it once
        ({1: Polling(3, 10)}, {1: Polling(5, 99)}, 0, False),  # it went on in between
        ({}, {1: Polling(3, 99)}, 0, False),  # it began to poll meanwhile
        ({1: Polling(3, 10)}, {}, 0, False),
        ({1: Polling(3, 10), 2: Polling(1, 4)}, {1: Polling(3, 12), 2: Polling(1, 5)}, 0, False),
        ({1: Polling(3, 10)}, {1: Polling(3, 12)}, 100, False),  # the one that does not poll works
    ],
)
def test_a_rank_that_polls_in_vain_does_not_make_another_one_busy(clock, before, now, used, idle):
    ticks = {7: 500}
    one = Idle(ticks.__getitem__)
    clock[0] += FIRST
    assert not one.lap([7], before), "the first look"
    clock[0] += SECONDS
    ticks[7] += used
    assert one.lap([7], now) is idle


def test_other_processes_begin_the_time_again(clock):
    one = Idle({7: 500, 8: 20}.__getitem__)
    clock[0] += FIRST
    assert not one.lap([7, 8])
    clock[0] += SECONDS
    assert not one.lap([7]), "process 8 polls now"
    clock[0] += SECONDS
    assert one.lap([7])


@pytest.mark.slow
def test_a_barrier_that_a_rank_does_not_enter_is_a_hang_before_the_deadline(monkeypatch):
    monkeypatch.setattr(idle, "SECONDS", 1.0)
    with RankGroup(2) as group:
        with pytest.raises(RankHang) as caught:
            group.call("tests.ranks.targets:hangs_in_receive", deadline=300.0)
        assert caught.value.standstill == "ranks [1] wait on the host and use no core"
        assert group.call("tests.ranks.targets:rank_of") == [0, 1]
