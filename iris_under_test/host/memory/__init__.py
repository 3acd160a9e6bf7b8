"""The symmetric heap."""

from .allocator import BumpAllocator
from .symmetric_heap import SymmetricHeap

__all__ = ["BumpAllocator", "SymmetricHeap"]
