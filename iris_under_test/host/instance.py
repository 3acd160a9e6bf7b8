"""``Instance``: what collectives and fused ops need of an ``Iris``, which stands above them and holds them.

A Protocol, so that they do not import ``Iris``, and so that anything with these members can stand in for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
import torch.distributed as dist

from .groups import Members, Scratch

__all__ = ["Heap", "Instance"]


class Heap(Protocol):
    """The part of the symmetric heap that collectives use."""

    def get_heap_bases(self) -> Sequence[int]:
        """The address of each rank's heap in this process."""


class Instance(Protocol):
    """One rank's instance. ``Iris`` documents each member; ``gpu_id`` is the ordinal of the rank's device."""

    @property
    def cur_rank(self) -> int: ...
    @property
    def num_ranks(self) -> int: ...
    @property
    def gpu_id(self) -> int: ...
    @property
    def heap(self) -> Heap: ...

    def get_rank(self) -> int: ...
    def get_device(self) -> torch.device: ...
    def get_device_context(self) -> torch.Tensor: ...
    def is_symmetric(self, tensor: torch.Tensor) -> bool: ...

    def empty(self, *size: int, dtype: torch.dtype | None = None) -> torch.Tensor: ...
    def free(self, tensor: torch.Tensor) -> None: ...

    def barrier(self, stream: Any = None, group: dist.ProcessGroup | None = None) -> None: ...
    def members(self, group: dist.ProcessGroup | None = None) -> Members: ...
    def mailboxes(self) -> torch.Tensor: ...
    def scratch(self, members: Members, use: str, num_bytes: int) -> Scratch: ...
