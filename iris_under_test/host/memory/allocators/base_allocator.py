"""The allocators' interface to the symmetric heap, and what both allocators share."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch

from iris_under_test.host.memory.errors import HeapOutOfMemory
from iris_under_test.host.memory.placement import Placement
from iris_under_test.host.platform import SharedMemory

__all__ = ["DEFAULT_ALIGNMENT", "BaseAllocator", "span_bytes"]

DEFAULT_ALIGNMENT = 1024
"""Bytes."""


class BaseAllocator(ABC):
    """One rank's part of the heap: its memory, and where its peers' is mapped in this process.

    ``bases[rank]`` is the address of that rank's heap here; it never changes. Which offset an allocation gets depends
    on nothing but the earlier calls, so ranks that make the same calls get the same offsets. ``SymmetricHeap`` sees to
    it that they do: its ``allocate`` and ``free`` are the collective forms of what is done here for one rank.
    Not thread-safe.
    """

    bases: list[int]

    def __init__(self, rank: int, heap_size: int, range_size: int) -> None:
        """The first ``heap_size`` bytes of a range of ``range_size`` bytes of addresses may be allocated."""
        self._rank = rank
        self.heap_size = heap_size
        self._placement = Placement(range_size)
        self._addresses_only: dict[int, int] = {}  # offset of an allocation -> bytes of it that are not of the heap

    # For one rank

    def allocate(self, num_elements: int, dtype: torch.dtype, alignment: int = DEFAULT_ALIGNMENT) -> torch.Tensor:
        """A 1-D tensor of ``num_elements`` on this rank; its bytes are unspecified.

        Not collective: peers reach it when all have allocated the same and called ``connect``. 0 elements take the room
        of one.

        Raises:
            HeapOutOfMemory: there is no room. Then nothing has changed.
        """
        offset = self.reserve(self.rounded(num_elements, dtype), alignment)
        return self.view(offset, num_elements, dtype)

    def rounded(self, num_elements: int, dtype: torch.dtype) -> int:
        """The bytes that an allocation takes: those of one element, and the allocator's minimum, at least."""
        return max(num_elements * dtype.itemsize, dtype.itemsize, self.get_minimum_allocation_size())

    def reserve(self, num_bytes: int, alignment: int) -> int:
        """The offset of a new allocation, in memory that this rank can use. HeapOutOfMemory if there is no room."""
        fits = num_bytes <= self.free_bytes()
        offset = self._placement.find(num_bytes, alignment, below=self.heap_size) if fits else None
        if offset is None:
            raise HeapOutOfMemory(
                f"Heap out of memory: {num_bytes} bytes requested, {self.free_bytes()} of {self.heap_size} free, "
                f"{self._placement.largest_hole(self.heap_size)} in one piece"
            )
        self._placement.take(offset, num_bytes)
        return offset

    def release(self, offset: int) -> None:
        """Free the allocation at ``offset``, on this rank."""
        self._placement.release(offset)
        self._addresses_only.pop(offset, None)

    def share(self, tensor: torch.Tensor) -> SharedMemory | None:
        """The memory under ``tensor`` for ``reserve_shared``; None where it cannot be mapped a second time."""
        return None

    def reserve_shared(self, shared: SharedMemory, tensor: torch.Tensor) -> int:
        """The offset of a new allocation that is a second mapping; called only with what ``share(tensor)`` gave."""
        raise NotImplementedError

    @abstractmethod
    def view(self, offset: int, num_elements: int, dtype: torch.dtype) -> torch.Tensor:
        """A 1-D tensor over an allocation; ``offset`` in bytes, a multiple of the element size."""

    # Collective

    @abstractmethod
    def connect(self) -> None:
        """Map what the ranks have reserved since the last call on every rank. Collective; raises on every rank."""

    @abstractmethod
    def close(self) -> None:
        """Unmap the peers' memory; this rank's goes with the last tensor on it. Idempotent, not collective."""

    # Queries

    def get_base_address(self) -> int:
        """Return the address of this rank's heap."""
        return self.bases[self._rank]

    @abstractmethod
    def get_device(self) -> torch.device:
        """Return the device of its tensors."""

    def get_minimum_allocation_size(self) -> int:
        """Bytes that every allocation takes at least."""
        return 0

    @property
    def heap_offset(self) -> int:
        """The first byte after the highest allocation, from the heap's start."""
        return self._placement.end

    def free_bytes(self) -> int:
        """Bytes of the heap outside every allocation."""
        return max(0, self.heap_size - self._used_bytes())

    def _used_bytes(self) -> int:
        """Return the bytes of all allocations, without what is mapped around second mappings."""
        return self._placement.size - self._placement.free - sum(self._addresses_only.values())

    def owns_tensor(self, tensor: torch.Tensor) -> bool:
        """Return True if all of the tensor lies in this rank's heap, or if it has no elements."""
        if tensor.numel() == 0:
            return True
        first, base = tensor.data_ptr(), self.get_base_address()
        return base <= first and first + span_bytes(tensor) <= base + self._placement.size


def span_bytes(tensor: torch.Tensor) -> int:
    """Bytes from the start of the tensor's first element to the end of its last one, 0 without elements."""
    if tensor.numel() == 0:
        return 0
    steps = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (steps + 1) * tensor.element_size()
