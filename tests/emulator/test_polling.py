"""Loops that wait for others are counted apart, so that all other counts are the same however long the wait takes."""

import threading
import time

import pytest
import torch
import triton
import triton.language as tl

from harness import emulator
from harness.emulator.driver import driver as drivers
from harness.emulator.execution.records import added

SOME = 64


@triton.jit
def waiting(flag, data, out, n, BLOCK: tl.constexpr):
    """Wait for flag to be 1, then add up n blocks of data: the sum of 2 blocks [1, 2] and [3, 4] is 10."""
    while tl.atomic_add(flag, 0, sem="acquire", scope="sys") != 1:
        pass
    total = tl.zeros((BLOCK,), tl.int32)
    for i in range(n):
        total += tl.load(data + i * BLOCK + tl.arange(0, BLOCK))
    tl.store(out, tl.sum(total))


@triton.jit
def counting(counter, n):
    """Add 1 to the counter n times: the loop has an atomic, and waits for no other wavefront."""
    for _ in range(n):
        tl.atomic_add(counter, 1, sem="relaxed", scope="sys")


@triton.jit
def taking_turns(flags, n):
    """Wait for n flags in turn: the outer loop contains a wait and is not one itself."""
    for i in range(n):
        while tl.atomic_add(flags + i, 0, sem="acquire", scope="sys") != 1:
            pass
        tl.atomic_xchg(flags + i, 2, sem="release", scope="sys")


@triton.jit
def asking_where_it_runs(flag, out):
    """Wait for flag to be 1, and read where the wait runs before what was read is compared."""
    value = 0
    place = 0
    while value != 1:
        value = tl.atomic_add(flag, 0, sem="acquire", scope="sys")
        place = tl.inline_asm_elementwise(
            "s_getreg_b32 $0, hwreg(HW_REG_XCC_ID, 0, 4) ; $1", "=s,v", [value], tl.int32, False, 1
        )
    tl.store(out, place)


def exact(record):
    return {klass: count - record.polled.get(klass, 0) for klass, count in record.instructions.items()}


def waited(seconds):
    """The record of a launch whose flag is set ``seconds`` after it begins to poll; 0: before."""
    device = emulator.activate()
    flag, out = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    data = torch.arange(4 * SOME, dtype=torch.int32)
    if not seconds:
        flag[0] = 1

    def release():
        end = time.monotonic() + 60
        while "polling" not in drivers.describe() and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(seconds)
        flag[0] = 1

    thread = threading.Thread(target=release)
    if seconds:
        thread.start()
    waiting[(1,)](flag, data, out, 4, SOME)
    if seconds:
        thread.join()
    assert out.item() == int(data.sum())
    (record,) = device.drain_launches()
    return record


def test_a_long_wait_changes_only_what_is_counted_apart():
    short, long = waited(0), waited(0.3)
    assert sum(long.polled.values()) > 2 * sum(short.polled.values()) > 0
    assert exact(long) == exact(short)
    assert short.instructions != long.instructions
    for one in (short, long):
        polls = [access for access in one.accesses if access.polled]
        assert [access.kind for access in polls] == ["atomic"]
        assert all(not access.polled for access in one.accesses if access.kind != "atomic")


def test_a_loop_with_an_atomic_that_does_not_wait_is_not_counted_apart():
    device = emulator.activate()
    counter = torch.zeros(1, dtype=torch.int32)
    counting[(1,)](counter, 5)
    (record,) = device.drain_launches()
    assert counter.item() == 5
    assert record.polled == {}
    assert not any(access.polled for access in record.accesses)


def test_only_the_inner_loop_is_a_wait():
    device = emulator.activate()
    flags = torch.ones(6, dtype=torch.int32)
    taking_turns[(1,)](flags, 3)
    taking_turns[(1,)](flags[3:], 2)
    three, two = device.drain_launches()
    assert flags.tolist() == [2, 2, 2, 2, 2, 1]
    assert sum(exact(three).values()) > sum(exact(two).values())  # a turn of the outer loop counts
    assert [access.executions for access in three.accesses if not access.polled] == [3]


def test_a_wait_that_reads_a_hardware_register_is_one():
    device = emulator.activate()
    flag, out = torch.ones(1, dtype=torch.int32), torch.ones(1, dtype=torch.int32)
    asking_where_it_runs[(1,)](flag, out)
    (record,) = device.drain_launches()
    assert out.item() == 0
    assert [access.kind for access in record.accesses if access.polled] == ["atomic"]


def test_sums_of_records_keep_what_was_polled():
    first, second = waited(0), waited(0.1)
    both = added(first, second)
    assert sum(both.polled.values()) == sum(first.polled.values()) + sum(second.polled.values())
    assert exact(both) == {klass: 2 * count for klass, count in exact(first).items()}


@pytest.mark.parametrize("mode", ["check", "weak", "race", "trace"])
def test_watched_modes_count_it_too(mode):
    device = emulator.activate(mode=mode)
    flag, out = torch.ones(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    waiting[(1,)](flag, torch.ones(SOME, dtype=torch.int32), out, 1, SOME)
    (record,) = device.drain_launches()
    assert out.item() == SOME
    assert 0 < sum(record.polled.values()) < sum(record.instructions.values())
