"""Heap providers over memory files, as an author of one would write it: a correct one, and one for each planted bug."""

from __future__ import annotations

import ctypes
import mmap
import os
import uuid

import torch
import torch.distributed as dist

PAGE = mmap.PAGESIZE


class MappedHeap:
    """A memory file of each rank, mapped by all ranks of this machine."""

    def __init__(self, size: int) -> None:
        if not 0 < size < 1 << 40:
            raise ValueError(f"the size of a heap must be from 1 to 2**40 bytes, got {size}")
        self.rank, self.world_size, self.size = dist.get_rank(), dist.get_world_size(), size
        file = os.memfd_create("heap")
        os.ftruncate(file, self.file_size())
        places: list[str] = [""] * self.world_size
        dist.all_gather_object(places, self.place_of(file))
        self._maps = [self._map(place) for place in places]
        dist.barrier()
        os.close(file)
        addresses = [ctypes.addressof(ctypes.c_char.from_buffer(each)) for each in self._maps]
        self.base = self.base_of(addresses[self.rank])
        self.bases = self.table_of(addresses)
        self.closed = False

    def _map(self, place: str) -> mmap.mmap:
        descriptor = os.open(place, os.O_RDWR)
        try:
            return mmap.mmap(descriptor, self.file_size())
        finally:
            os.close(descriptor)

    def barrier(self) -> None:
        if self.closed:
            raise RuntimeError("the heap is closed")
        dist.barrier()

    def close(self) -> None:
        self.closed = True

    def contains(self, address: int) -> bool:
        return self.base <= address < self.base + self.size

    # What the planted bugs change.

    def place_of(self, file: int) -> str:
        return f"/proc/{os.getpid()}/fd/{file}"

    def file_size(self) -> int:
        return self.size

    def base_of(self, address: int) -> int:
        return address

    def table_of(self, addresses: list[int]) -> torch.Tensor:
        return torch.tensor(addresses, dtype=torch.int64)


class FileHeap(MappedHeap):
    """A file of each rank in the folder that HEAP_FILES names, which ranks on other nodes see too."""

    spans_nodes = True

    def place_of(self, file: int) -> str:
        path = f"{os.environ['HEAP_FILES']}/{uuid.uuid4()}"
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        os.truncate(path, self.file_size())
        return path


class SwappedFiles(FileHeap):
    """The bases of the last two ranks are swapped."""

    def table_of(self, addresses: list[int]) -> torch.Tensor:
        *first, one, other = addresses
        return torch.tensor([*first, other, one], dtype=torch.int64)


class Swapped(MappedHeap):
    """The bases of the last two ranks are swapped."""

    def table_of(self, addresses: list[int]) -> torch.Tensor:
        *first, one, other = addresses
        return torch.tensor([*first, other, one], dtype=torch.int64)


class SwappedForOne(MappedHeap):
    """Rank 0 has the bases of two peers swapped; its own entry is right. Needs three ranks."""

    def table_of(self, addresses: list[int]) -> torch.Tensor:
        if self.rank == 0 and len(addresses) > 2:
            addresses[1], addresses[2] = addresses[2], addresses[1]
        return torch.tensor(addresses, dtype=torch.int64)


class Stale(MappedHeap):
    """The table is made once, for the first heap, and returned for every further one."""

    _first: torch.Tensor | None = None

    def table_of(self, addresses: list[int]) -> torch.Tensor:
        if Stale._first is None:
            Stale._first = torch.tensor(addresses, dtype=torch.int64)
            Stale._kept = self
        return Stale._first


class NoBarrier(MappedHeap):
    """The barrier does not wait."""

    def barrier(self) -> None:
        if self.closed:
            raise RuntimeError("the heap is closed")


class Short(MappedHeap):
    """The memory is one page shorter than the heap."""

    def file_size(self) -> int:
        return max(self.size - PAGE, 1)


class Narrow(MappedHeap):
    """The table has 32-bit entries."""

    def table_of(self, addresses: list[int]) -> torch.Tensor:
        return torch.tensor([address & 0x7FFFFFFF for address in addresses], dtype=torch.int32)


class Misaligned(MappedHeap):
    """Heaps start eight bytes into their memory."""

    def file_size(self) -> int:
        return self.size + 8

    def base_of(self, address: int) -> int:
        return address + 8

    def table_of(self, addresses: list[int]) -> torch.Tensor:
        return torch.tensor([address + 8 for address in addresses], dtype=torch.int64)


class Plain:
    """A correct heap without the optional methods."""

    def __init__(self, size: int) -> None:
        self._heap = MappedHeap(size)
        self.base, self.bases = self._heap.base, self._heap.bases
        self.rank, self.world_size = self._heap.rank, self._heap.world_size

    def barrier(self) -> None:
        self._heap.barrier()
