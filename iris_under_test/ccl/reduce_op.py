"""How reductions combine elements."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["ReduceOp"]


class ReduceOp(IntEnum):
    """The codes that kernels receive. Only SUM is meant for use; collectives refuse the others with ValueError."""

    SUM = 0
    PRODUCT = 1
    MIN = 2
    MAX = 3
    BAND = 4
    BOR = 5
    BXOR = 6
