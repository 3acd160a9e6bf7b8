"""Kernels that are confined to some tensors of a heap: in every mode, each other access to the heap is a fault."""

import mmap
from contextlib import ExitStack

import pytest
import torch

from harness import emulator
from harness.emulator.faults import MemoryFault
from tests.emulator.watch import check_kernels as kernels

BYTES = 2 * mmap.PAGESIZE


@pytest.fixture(params=["fast", "weak", "check"])
def driver(request):
    with ExitStack() as stack:
        stack.callback(emulator.deactivate)
        yield emulator.activate(mode=request.param)


@pytest.fixture
def heaps(driver):
    """Two ranks' segments of one symmetric heap, as rank 0 maps them: float32, 2,048 elements each."""
    memory = [mmap.mmap(-1, BYTES) for _ in range(2)]
    tensors = [torch.frombuffer(m, dtype=torch.float32) for m in memory]
    for rank, heap in enumerate(tensors):
        driver.register_memory(heap.data_ptr(), BYTES, f"heap of rank {rank}", peer=rank or None)
        heap.copy_(torch.arange(heap.numel()))
    yield tensors
    for heap in tensors:
        driver.unregister_memory(heap.data_ptr())


def copied(heap, target, count):
    """Copy ``count`` elements from the start of a heap to element ``target``."""
    kernels.put[(1,)](heap, heap[target:], count, count, 64)
    return heap[target : target + count].tolist()


def test_only_the_tensors_are_accessible_on_every_heap(driver, heaps):
    own = heaps[0]
    with driver.confined(own[:1536], [own[1024:1100], own[:60]]):
        for heap in heaps:
            assert copied(heap, 1024, 60) == list(range(60))
            with pytest.raises(MemoryFault, match=r"0 bytes past the end of heap of rank \d from byte 0"):
                copied(heap, 1024, 61)
            with pytest.raises(MemoryFault, match=r"4 bytes before heap of rank \d from byte 4096"):
                copied(heap, 1023, 60)
            assert copied(heap, 1536, 60) == list(range(60)), "the rest of the heap"
    for heap in heaps:
        assert copied(heap, 1023, 64) == list(range(64)), "after the body"


def test_a_strided_tensor_ends_after_its_last_element(driver, heaps):
    own = heaps[0]
    with driver.confined(own, [own[:90].view(3, 30)[:, :20], own[1024:]]):
        assert copied(own, 1024, 64) == list(range(64)), "what lies between rows"
        with pytest.raises(MemoryFault, match="0 bytes past the end"):
            kernels.put[(1,)](own[20:], own[1024:], 61, 61, 64)


def test_it_is_checked_what_is_confined(driver, heaps):
    elsewhere = torch.zeros(8)
    with pytest.raises(ValueError, match="cannot confine"), driver.confined(elsewhere, []):
        pass
    driver.carve(heaps[0].data_ptr(), 64, "tile")
    with pytest.raises(ValueError, match="cannot confine"), driver.confined(heaps[0], []):
        pass
