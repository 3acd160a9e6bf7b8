"""Virtual memory of the emulated device: memory files mapped into ranges that are reserved without access.

A handle is the descriptor of a memory file. The driver knows what is mapped and nothing else, so that a kernel which
leaves it faults; chunks that touch are one segment to it, as an access may cross from one into the next.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from iris_under_test.host.platform.base import SharedMemory

from . import mappings

__all__ = ["EmulatedVirtualMemory"]


class EmulatedVirtualMemory:
    """See ``base.VirtualMemory``."""

    granularity = 64 << 10
    largest_chunk: int | None = None

    def __init__(self, rank: int, num_ranks: int, driver: Any) -> None:
        self._rank = rank
        self._num_ranks = num_ranks
        self._segments = _Segments(rank, driver)

    def reserve(self, size: int, owner: int) -> int:
        return mappings.reserve(size, mappings.heap_address(size, self._rank, owner, self._num_ranks))

    def release(self, address: int, size: int) -> None:
        mappings.unmap(address, size)

    def create(self, size: int) -> int:
        return mappings.memory_file(size, self._rank)

    def destroy(self, handle: int) -> None:
        os.close(handle)

    def export(self, handle: int) -> int:
        return os.dup(handle)

    def adopt(self, descriptor: int, size: int) -> int:
        return os.dup(descriptor)

    def map(self, address: int, size: int, handle: int, owner: int) -> None:
        mappings.place(handle, size, address)
        self._segments.add(address, size, owner)

    def unmap(self, address: int, size: int) -> None:
        self._segments.remove(address, size)
        mappings.vacate(address, size)

    def tensor(self, address: int, size: int, owner: object) -> torch.Tensor:
        return mappings.tensor_over(address, size, owner)

    def share(self, tensor: torch.Tensor) -> SharedMemory | None:
        """Moves the tensor's storage into a memory file first, as ``Tensor.share_memory_`` does; views move with it."""
        storage = tensor.untyped_storage()
        if not storage.resizable():
            return None  # another owner's memory, such as an array's: moving it would part the two
        try:
            descriptor, _ = storage._share_fd_cpu_()  # stays torch's
        except RuntimeError:
            return None  # no room: torch takes it from /dev/shm, of which containers often have little
        size = -(-storage.nbytes() // self.granularity) * self.granularity
        handle = os.dup(descriptor)
        # Whole granules: beyond a file's end a mapping faults.
        os.ftruncate(handle, size)
        return SharedMemory(handle, size, tensor.data_ptr() - storage.data_ptr(), lambda: os.close(handle))


class _Segments:
    """The segments registered with the driver: address -> (size, owner)."""

    def __init__(self, rank: int, driver: Any) -> None:
        self._rank = rank
        self._driver = driver if hasattr(driver, "register_memory") else None
        self._known: dict[int, tuple[int, int]] = {}

    def add(self, address: int, size: int, owner: int) -> None:
        """Joins it with what it touches."""
        before = next((start for start, (length, _) in self._known.items() if start + length == address), None)
        if before is not None:
            size += self._forget(before)
            address = before
        if address + size in self._known:
            size += self._forget(address + size)
        self._register(address, size, owner)

    def remove(self, address: int, size: int) -> None:
        """Remove the range from its segment."""
        start = next(start for start, (length, _) in self._known.items() if start <= address < start + length)
        owner = self._known[start][1]
        stop = start + self._forget(start)
        if start < address:
            self._register(start, address - start, owner)
        if address + size < stop:
            self._register(address + size, stop - address - size, owner)

    def _register(self, address: int, size: int, owner: int) -> None:
        self._known[address] = (size, owner)
        if self._driver is not None:
            peer = None if owner == self._rank else owner
            self._driver.register_memory(address, size, f"symmetric heap of rank {owner}", peer=peer)

    def _forget(self, address: int) -> int:
        if self._driver is not None:
            self._driver.unregister_memory(address)
        return self._known.pop(address)[0]
