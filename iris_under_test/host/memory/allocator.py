"""Where on the heap an allocation goes."""

from __future__ import annotations

import torch

__all__ = ["BumpAllocator"]


class BumpAllocator:
    """Hands out consecutive pieces of a pool; there is no free.

    ``place`` decides and ``take`` commits, so that ranks can compare their decisions before any of them moves on.
    """

    def __init__(self, pool: torch.Tensor) -> None:
        """``pool``: 1-D uint8 tensor."""
        self._pool = pool
        self._base = pool.data_ptr()
        self._size = pool.numel()
        self.heap_offset = 0

    def place(self, num_bytes: int, alignment: int) -> int | None:
        """The offset at which ``num_bytes`` would go, None if they do not fit."""
        offset = -(-self.heap_offset // alignment) * alignment
        return offset if offset + num_bytes <= self._size else None

    def view(self, offset: int, num_elements: int, dtype: torch.dtype) -> torch.Tensor:
        """A 1-D tensor over the pool; ``offset`` in bytes, a multiple of the element size."""
        return self._pool[offset : offset + num_elements * dtype.itemsize].view(dtype)

    def take(self, offset: int, num_bytes: int) -> None:
        """Commits a placement."""
        self.heap_offset = offset + num_bytes

    def get_base_address(self) -> int:
        return self._base

    def get_device(self) -> torch.device:
        return self._pool.device

    def free_bytes(self) -> int:
        """Bytes after the cursor."""
        return self._size - self.heap_offset

    def owns_tensor(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor starts inside the pool; every tensor without elements counts as inside."""
        if tensor.numel() == 0:
            return True
        return self._base <= tensor.data_ptr() < self._base + self._size
