"""Errors of the heap."""

from __future__ import annotations

__all__ = ["HeapOutOfMemory"]


class HeapOutOfMemory(MemoryError, RuntimeError):  # noqa: N818 - as torch.OutOfMemoryError is named
    """The heap, or the device under it, has no room. Both bases, since users of upstream Iris catch either: there the
    torch allocator raises MemoryError and the vmem allocator RuntimeError."""
