"""Allocators: the memory of one rank's part of the symmetric heap.

``torch``: one pool that is there from the start. ``vmem``: a range of addresses into which memory is mapped on demand.
"""

from collections.abc import Callable

from .base_allocator import BaseAllocator
from .torch_allocator import TorchAllocator
from .vmem_allocator import VMemAllocator

__all__ = ["ALLOCATORS", "BaseAllocator", "TorchAllocator", "VMemAllocator"]

ALLOCATORS: dict[str, Callable[..., BaseAllocator]] = {"torch": TorchAllocator, "vmem": VMemAllocator}
