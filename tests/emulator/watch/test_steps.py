"""Steps that other ranks can notice: which accesses they are, and that the function comes before each of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import triton
import triton.language as tl

from harness import emulator
from harness.emulator.watch.steps import Steps


@pytest.fixture
def driver() -> Iterator[emulator.EmulatedDriver]:
    yield emulator.activate()
    emulator.deactivate()


@triton.jit
def announce(source, inbox, flag, mine, BLOCK: tl.constexpr):
    """Copy a block to a peer and raise its flag, then wait for a flag of this rank; both at system scope."""
    lanes = tl.arange(0, BLOCK)
    tl.store(inbox + lanes, tl.load(source + lanes))
    tl.atomic_xchg(flag, 1, sem="release", scope="sys")
    while tl.atomic_add(mine, 0, sem="acquire", scope="sys") == 0:
        pass


def memory(driver: emulator.EmulatedDriver) -> tuple[torch.Tensor, ...]:
    """Return a source, an inbox and a flag in a peer's memory, and a flag of this rank."""
    heap = torch.zeros(64 + 16, dtype=torch.int32)
    driver.register_memory(heap.data_ptr(), heap.nbytes, "heap of rank 1", peer=1)
    return torch.arange(1, 65, dtype=torch.int32), heap[:64], heap[64:65], torch.zeros(1, dtype=torch.int32)


def test_a_transfer_a_flag_and_a_poll_are_one_step_each(driver: emulator.EmulatedDriver) -> None:
    """The load of the source is none. What memory holds before each step shows that the step has not taken place."""
    source, inbox, flag, mine = memory(driver)
    seen = []

    def before(number: int) -> None:
        seen.append((number, int(inbox.sum()), int(flag), int(mine)))

    def polled() -> None:
        mine[0] = 1

    driver.polled = polled
    watch = Steps(before)
    with driver.watched(watch):
        announce[(1,)](source, inbox, flag, mine, 64, num_warps=1)
    moved = int(source.sum())
    assert seen == [(1, 0, 0, 0), (2, moved, 0, 0), (3, moved, 1, 0)]
    assert watch.count == 3
    driver.unregister_memory(inbox.data_ptr())


def test_a_poll_is_one_step_however_often_it_is_repeated(driver: emulator.EmulatedDriver) -> None:
    source, inbox, flag, mine = memory(driver)
    polls = []

    def polled() -> None:
        polls.append(1)
        mine[0] = len(polls) >= 50

    driver.polled = polled
    watch = Steps(lambda number: None)
    with driver.watched(watch):
        announce[(1,)](source, inbox, flag, mine, 64, num_warps=1)
    assert len(polls) >= 50
    assert watch.count == 3
    driver.unregister_memory(inbox.data_ptr())


def test_each_launch_begins_with_a_step_of_its_own(driver: emulator.EmulatedDriver) -> None:
    """The last access of one launch, a poll, is a new step in the next one."""
    source, inbox, flag, mine = memory(driver)
    mine[0] = 1
    watch = Steps(lambda number: None)
    with driver.watched(watch):
        announce[(1,)](source, inbox, flag, mine, 64, num_warps=1)
        announce[(1,)](source, inbox, flag, mine, 64, num_warps=1)
        assert watch.count == 6
        watch.restart(None)
        announce[(1,)](source, inbox, flag, mine, 64, num_warps=1)
    assert watch.count == 3
    driver.unregister_memory(inbox.data_ptr())


def test_memory_of_this_rank_alone_has_no_steps(driver: emulator.EmulatedDriver) -> None:
    source, inbox, _, _ = memory(driver)
    watch = Steps(lambda number: pytest.fail("a step"))

    @triton.jit
    def copy(source, target):
        lanes = tl.arange(0, 64)
        tl.store(target + lanes, tl.load(source + lanes))

    target = torch.zeros(64, dtype=torch.int32)
    with driver.watched(watch):
        copy[(1,)](source, target, num_warps=1)
    assert torch.equal(source, target)
    driver.unregister_memory(inbox.data_ptr())
