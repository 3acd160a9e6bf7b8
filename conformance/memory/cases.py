"""The case type of histories: sequences of allocations on one symmetric heap."""

from __future__ import annotations

from dataclasses import dataclass

from harness.cases.registry import case_type


@case_type
@dataclass(frozen=True)
class HeapCase:
    """Steps on a heap of ``heap`` bytes with that allocator, the same on every rank.

    A step is ("allocate", number of int32 elements), ("free", index of a live allocation, modulo their number) or
    ("share", number of int32 elements), which calls as_symmetric with an ordinary tensor.
    """

    allocator: str = "torch"
    heap: int = 1 << 20
    steps: tuple[tuple[str, int], ...] = ()
