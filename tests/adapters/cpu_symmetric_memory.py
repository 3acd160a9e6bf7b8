"""Stand-in for torch's symmetric memory on a CPU build: the same functions of torch, over memory files.

The adapter under test is the shipped one. ``CpuSymmetricMemory`` replaces what torch lacks here: ``empty``,
``rendezvous`` and CPU kernels of three ops. ``IRIS_TEST_SYMMETRIC_BUG`` names a bug to plant.
"""

from __future__ import annotations

import ctypes
import functools
import os
import time
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

from fixtures.adapters import ProvidedHeap
from fixtures.adapters.symmetric_memory import SymmetricMemory
from tests.adapters.heaps import MappedHeap

BUG = os.environ.get("IRIS_TEST_SYMMETRIC_BUG", "")
PADS = 4096
"""Bytes of signal pads after each buffer."""


class CpuSymmetricMemory(SymmetricMemory):
    """The shipped adapter, on the stand-in."""

    name = "cpu-symmetric-memory"
    gpus_only = False

    def make_heap(self, size: int) -> ProvidedHeap:
        _install()
        return super().make_heap(size)


_handles: dict[int, Handle] = {}


class Handle:
    """Result of ``rendezvous``."""

    multicast_ptr = 0

    def __init__(self, tensor: torch.Tensor) -> None:
        self.size = tensor.numel()
        self.heap: MappedHeap = tensor._heap  # type: ignore[attr-defined]
        self.rank, self.world_size = self.heap.rank, self.heap.world_size
        self.buffer_ptrs = self.heap.bases.tolist()

    def barrier(self, channel: int = 0, timeout_ms: int = 0) -> None:
        dist.barrier()

    def get_buffer(
        self, rank: int, sizes: tuple[int, ...], dtype: torch.dtype, storage_offset: int = 0
    ) -> torch.Tensor:
        return self.at(rank, storage_offset * dtype.itemsize, sizes[0], dtype)

    def put_signal(self, dst_rank: int, channel: int = 0, timeout_ms: int = 0) -> None:
        pad = self._pad(dst_rank, self.rank)
        _poll(lambda: pad.value == 0)
        pad.value = 1

    def wait_signal(self, src_rank: int, channel: int = 0, timeout_ms: int = 0) -> None:
        pad = self._pad(self.rank, src_rank)
        if BUG != "signal does not wait":
            _poll(lambda: pad.value == 1)
        pad.value = 0

    def at(self, rank: int, start: int, count: int, dtype: torch.dtype) -> torch.Tensor:
        memory = (ctypes.c_ubyte * (count * dtype.itemsize)).from_address(self.buffer_ptrs[rank] + start)
        return torch.frombuffer(memory, dtype=dtype)

    def _pad(self, rank: int, sender: int) -> Any:
        return ctypes.c_int32.from_address(self.buffer_ptrs[rank] + -(-self.size // 64) * 64 + 4 * sender)


def _poll(over: Any) -> None:
    while not over():
        time.sleep(0.0005)


def _empty(size: int, *, dtype: torch.dtype, device: Any) -> torch.Tensor:
    heap = MappedHeap(size + PADS)
    memory = (ctypes.c_ubyte * size).from_address(heap.base)
    tensor = torch.frombuffer(memory, dtype=dtype)
    tensor._heap = heap  # type: ignore[attr-defined]
    return tensor


def _rendezvous(tensor: torch.Tensor, group: Any) -> Handle:
    handle = _handles[tensor.untyped_storage().data_ptr()] = Handle(tensor)
    return handle


def _sum(tensor: torch.Tensor) -> torch.Tensor:
    handle = _handles[tensor.untyped_storage().data_ptr()]
    start = tensor.data_ptr() - handle.buffer_ptrs[handle.rank]
    ranks = range(1 if BUG == "one_shot skips rank 0" else 0, handle.world_size)
    handle.barrier()
    total = sum(handle.at(rank, start, tensor.numel(), tensor.dtype).double() for rank in ranks)
    handle.barrier()
    assert isinstance(total, torch.Tensor)
    return total.to(tensor.dtype)


def _one_shot(tensor: torch.Tensor, reduce_op: str, group_name: str) -> torch.Tensor:
    return _sum(tensor)


def _two_shot(tensor: torch.Tensor, reduce_op: str, group_name: str) -> torch.Tensor:
    total = _sum(tensor)
    tensor.copy_(total)
    return tensor


@functools.cache
def _install() -> torch.library.Library:
    symm_mem.empty, symm_mem.rendezvous = _empty, _rendezvous  # type: ignore[assignment]
    library = torch.library.Library("symm_mem", "IMPL", "CPU")
    library.impl("one_shot_all_reduce", _one_shot)
    library.impl("two_shot_all_reduce_", _two_shot)
    return library
