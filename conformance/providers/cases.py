"""Case types of heap providers."""

from __future__ import annotations

from dataclasses import dataclass

from harness.cases.registry import case_type


@case_type
@dataclass(frozen=True)
class BlockCase:
    """Every rank moves ``n`` elements of ``dtype`` between itself and the ranks ``distance`` after it.

    The block starts ``offset`` elements after the start of its slot. The rank ``late`` starts ``late_ms`` later.
    """

    n: int = 1
    dtype: str = "int32"
    offset: int = 0
    distance: int = 1
    late: int = 0
    late_ms: int = 0


@case_type
@dataclass(frozen=True)
class SizeCase:
    """A heap of ``size`` bytes."""

    size: int


@case_type
@dataclass(frozen=True)
class BarrierCase:
    """``rounds`` barriers for each rank. Before each barrier all ranks store to all ranks, one of them last, when the
    others are at the barrier: first the rank ``late``, then the ranks after it."""

    late: int = 0
    rounds: int = 1
