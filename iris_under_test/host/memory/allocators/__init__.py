"""Allocators: where one rank's part of the symmetric heap has its memory from.

``torch``: one pool that is there from the start. ``vmem``: a range of addresses into which memory is mapped on demand.
"""

from .base_allocator import BaseAllocator
from .torch_allocator import TorchAllocator
from .vmem_allocator import VMemAllocator

__all__ = ["ALLOCATORS", "BaseAllocator", "TorchAllocator", "VMemAllocator"]

ALLOCATORS: dict[str, type[BaseAllocator]] = {"torch": TorchAllocator, "vmem": VMemAllocator}
