"""Scheduling: a wavefront that polls memory lets the one that it waits for run, in any work-group or process."""

import mmap
import multiprocessing
import os

import pytest
import torch

from harness import emulator
from harness.emulator.driver import schedule
from tests.emulator import schedule_kernels as kernels


@pytest.fixture(autouse=True)
def device():
    yield emulator.activate()
    emulator.deactivate()


@pytest.mark.parametrize("warps", [1, 4])
@pytest.mark.parametrize("groups", [1, 16, 70])
def test_a_lock_is_passed_on_among_work_groups(groups, warps):
    """Only the elected wavefront of a spinning work-group jumps backwards; the lock's holder must not starve."""
    lock, counter = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    kernels.locked_increments[(groups,)](lock, counter, 3, num_warps=warps)
    assert counter.item() == 3 * groups
    assert lock.item() == 0


@pytest.mark.parametrize("producers_first", [True, False])
@pytest.mark.parametrize(("groups", "warps"), [(2, 1), (2, 4), (64, 4), (600, 1)])
def test_consumers_wait_for_producers_of_the_same_grid(groups, warps, producers_first):
    """This includes producers in later work-groups, in chunks that have not started."""
    assert groups * warps <= schedule.RESIDENT_WAVES
    block, half = 64 * warps, groups // 2
    data, out = (torch.zeros(half * block, dtype=torch.int32) for _ in range(2))
    flags = torch.zeros(half, dtype=torch.int32)
    kernels.produce_consume[(groups,)](data, flags, out, block, warps, producers_first, num_warps=warps)
    expected = torch.arange(half, dtype=torch.int32)[:, None] * 1000 + torch.arange(block, dtype=torch.int32)
    assert torch.equal(data.view(half, block), expected)
    assert torch.equal(out.view(half, block), expected * 2)
    assert not flags.any()


@pytest.mark.slow
def test_two_processes_take_turns():
    """A kernel that spins on memory of another process yields the processor to it."""
    rounds = 50
    fd = os.memfd_create("ping-pong")
    os.ftruncate(fd, mmap.PAGESIZE)
    context = multiprocessing.get_context("spawn")
    players = [context.Process(target=play, args=(f"/proc/{os.getpid()}/fd/{fd}", me, rounds)) for me in (0, 1)]
    try:
        for player in players:
            player.start()
        for player in players:
            player.join(timeout=120)
        assert [player.exitcode for player in players] == [0, 0]
        assert int.from_bytes(os.pread(fd, 4, 0), "little") == 2 * rounds
    finally:
        for player in players:
            player.kill()
        os.close(fd)


def play(path: str, me: int, rounds: int) -> None:
    """One of the two processes."""
    torch.set_num_threads(1)
    driver = emulator.activate()
    with open(path, "r+b") as file:
        memory = mmap.mmap(file.fileno(), mmap.PAGESIZE)
    word = torch.frombuffer(memory, dtype=torch.int32)
    driver.register_memory(word.data_ptr(), mmap.PAGESIZE, "the word both count up")
    kernels.ping_pong[(1,)](word, me, rounds, num_warps=1)
