"""The symmetric heap and its allocators."""

from .allocators import BaseAllocator, TorchAllocator, VMemAllocator
from .errors import HeapOutOfMemory
from .symmetric_heap import SymmetricHeap

__all__ = ["BaseAllocator", "HeapOutOfMemory", "SymmetricHeap", "TorchAllocator", "VMemAllocator"]
