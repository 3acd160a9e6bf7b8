"""A launch that has ended is freed at once: searches for garbage are rare in ranks, and a launch has megabytes."""

import gc
import weakref

import pytest
import torch

from harness import emulator
from harness.emulator.driver import single
from harness.emulator.execution.launch import Launch
from harness.emulator.watch import Seeded
from tests.emulator import schedule_kernels as kernels

LAUNCHES = 4


@pytest.fixture
def alive(monkeypatch):
    """The launches that something still refers to, while Python searches for no garbage."""
    launches: weakref.WeakSet[Launch] = weakref.WeakSet()
    plain = Launch.__init__

    def begin(launch, *arguments, **options):
        launches.add(launch)
        plain(launch, *arguments, **options)

    monkeypatch.setattr(Launch, "__init__", begin)
    gc.disable()
    yield launches
    gc.enable()


def increment(driver):
    lock, counter = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    kernels.locked_increments[(2,)](lock, counter, 2, num_warps=1)
    driver.drain_launches()
    return counter


@pytest.mark.parametrize("mode", ["fast", "check", "trace", "weak", "race"])
@pytest.mark.parametrize("is_native", [False, True])
def test_launches_are_freed(alive, monkeypatch, mode, is_native):
    if not is_native:
        monkeypatch.setattr(single.Heat, "_decide", lambda heat, spent: None)
    driver = emulator.activate(mode=mode, choices=Seeded(3) if mode in ("weak", "race") else None)
    try:
        for _ in range(LAUNCHES):
            assert increment(driver).item() == 4
        # A program keeps the memory of its last launch for the next one.
        assert len(alive) <= 1, f"{len(alive)} of {LAUNCHES} launches"
    finally:
        emulator.deactivate()


def test_deferred_launches_are_freed(alive):
    driver = emulator.activate()
    try:
        for _ in range(LAUNCHES):
            with emulator.concurrent_ranks(driver) as ranks, ranks.rank(0):
                counter = increment(driver)
            assert counter.item() == 4
        assert len(alive) <= 1, f"{len(alive)} of {LAUNCHES} launches"
    finally:
        emulator.deactivate()
