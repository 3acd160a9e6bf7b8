"""The allocator ``torch``: one pool per rank, mapped by every rank from the start."""

from __future__ import annotations

import torch

from iris_under_test.host.platform import Platform, current

from .base_allocator import BaseAllocator

__all__ = ["TorchAllocator"]


class TorchAllocator(BaseAllocator):
    """Allocator of pieces of a pool of ``heap_size`` bytes. Construction is collective; peers' addresses never change.

    Raises:
        ValueError: on each rank that cannot have the pool or map its peers'; RuntimeError naming those ranks elsewhere.
    """

    def __init__(
        self, heap_size: int, device_id: int, rank: int, world_size: int, *, platform: Platform | None = None
    ) -> None:
        """``device_id`` is the ordinal of the rank's device; the platform knows it too."""
        super().__init__(rank, heap_size, heap_size)
        self._memory = (platform or current()).map_symmetric_memory(heap_size, rank, world_size)
        self._pool = self._memory.pool
        self._device = self._pool.device
        self.bases = list(self._memory.bases)

    def view(self, offset: int, num_elements: int, dtype: torch.dtype) -> torch.Tensor:
        # ``data``: as a mere view of the pool it would share autograd's count of writes with every tensor of the heap,
        # and a write to any of them would spoil the gradients of all.
        return self._pool[offset : offset + num_elements * dtype.itemsize].view(dtype).data

    def get_device(self) -> torch.device:
        return self._device

    def connect(self) -> None:
        """Nothing to do: the whole pool is mapped by all."""

    def close(self) -> None:
        self._pool = self._pool[:0].clone()
        self._memory.close()
