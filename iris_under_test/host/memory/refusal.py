"""Let the other ranks know that this rank cannot take part in an allocation, so that they do not wait for it."""

from __future__ import annotations

import contextlib

import torch

from .symmetric_heap import SymmetricHeap

__all__ = ["refuse"]


def refuse(heap: SymmetricHeap) -> None:
    """Join the allocation of the other ranks with a negative count, which raises on every rank."""
    with contextlib.suppress(ValueError, RuntimeError):
        heap.allocate(-1, torch.uint8)
