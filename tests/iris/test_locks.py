"""Locks of the device: programs that contend for one, each of one wavefront and of several."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from harness import emulator
from harness.emulator.faults import DataRace
from iris_under_test.device.locks import acquire, release

ELEMENTS, TIMES, PROGRAMS = 256, 3, 5


@triton.jit
def count_up(lock, counts, TIMES: tl.constexpr, ELEMENTS: tl.constexpr, LOCKED: tl.constexpr):
    """Add 1 to each of ``counts``, ``times`` times in every program.

    Example: 2 programs, TIMES 3: counts are 6, and less without the lock.
    """
    places = counts + tl.arange(0, ELEMENTS)
    for _ in range(TIMES):
        if LOCKED:
            acquire(lock)
        tl.store(places, tl.load(places) + 1)
        if LOCKED:
            release(lock)


def counted(warps, locked=True):
    """The lock and the counts afterwards."""
    lock, counts = torch.zeros(1, dtype=torch.int32), torch.zeros(ELEMENTS, dtype=torch.int32)
    count_up[(PROGRAMS,)](lock, counts, TIMES, ELEMENTS, locked, num_warps=warps)
    return lock.item(), set(counts.tolist())


@pytest.mark.parametrize("warps", [1, 4])
def test_one_holds_it_at_a_time(warps):
    emulator.activate()
    assert counted(warps) == (0, {PROGRAMS * TIMES})
    emulator.activate(mode="race", choices=0)
    assert counted(warps) == (0, {PROGRAMS * TIMES}), "wavefronts in an order of their own"


def test_without_it_additions_are_lost():
    emulator.activate(mode="race", choices=0)
    with pytest.raises(DataRace, match="argument counts"):
        counted(4, locked=False)
