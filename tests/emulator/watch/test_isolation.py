"""Mode ``weak`` keeps what others may have changed only if something else can change memory."""

import mmap
import threading

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from harness import emulator, standstill
from harness.emulator.driver import isolation


@triton.jit
def add_one(x, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + offsets, tl.load(x + offsets) + 1)


@pytest.fixture
def driver():
    yield emulator.activate(mode="weak", choices=3)
    emulator.deactivate()


def keeps_changes(driver, x: torch.Tensor) -> bool:
    """Launch a kernel on part of a tensor; return whether the model checked for changes by others."""
    before = x[:64].clone()
    add_one[(1,)](x, 64)
    assert torch.equal(x[:64], before + 1)
    return driver.watch.model.outside


LARGE = 1 << 20
"""Elements of 4 bytes."""


def test_private_memory_of_a_process_with_one_thread(driver):
    assert not keeps_changes(driver, torch.zeros(LARGE, dtype=torch.int32))


def test_shared_memory(driver):
    with mmap.mmap(-1, 4 * LARGE) as memory:
        x = torch.frombuffer(memory, dtype=torch.int32)
        assert keeps_changes(driver, x)
        del x


def test_another_thread(driver):
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        assert keeps_changes(driver, torch.zeros(LARGE, dtype=torch.int32))
    finally:
        over.set()
        thread.join()


def test_a_rank(driver, monkeypatch):
    monkeypatch.setattr(standstill, "reports", lambda: True)
    assert keeps_changes(driver, torch.zeros(LARGE, dtype=torch.int32))


def test_memory_that_is_copied_sooner(driver):
    assert keeps_changes(driver, torch.zeros(64, dtype=torch.int32))


def test_a_callback_of_the_driver(driver):
    driver.polled = lambda: None
    assert keeps_changes(driver, torch.zeros(LARGE, dtype=torch.int32))


@pytest.mark.parametrize("has_query", [True, False])
def test_a_mapping_that_ends_or_begins_within_an_allocation(monkeypatch, has_query):
    """Also where Linux lacks the query for one address."""
    if not has_query:
        monkeypatch.setattr(isolation, "_QUERY", 0)

    class Allocation:
        def __init__(self, address, size):
            self.address, self.end = address, address + size

    with mmap.mmap(-1, 1 << 16) as memory:
        shared = np.frombuffer(memory, np.uint8).ctypes.data
        assert not isolation.is_private([Allocation(shared + 100, 8)])
        assert not isolation.is_private([Allocation(shared - 100, 101)])
        assert not isolation.is_private([Allocation(shared + (1 << 16) - 1, 100)])
        own = np.zeros(1 << 16, np.uint8)
        assert isolation.is_private([Allocation(own.ctypes.data, own.nbytes)])
