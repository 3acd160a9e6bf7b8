"""``ReduceOp``: operations that combine elements in a reduction."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["ReduceOp"]


class ReduceOp(IntEnum):
    """Operation of ``all_reduce``, ``reduce`` and ``reduce_scatter``; the values are the codes that kernels receive.

    They differ from ``torch.distributed.ReduceOp``, which is refused. The bitwise ones are for integers and bool; for
    bool, SUM is "or" and PRODUCT is "and". For floats, MIN and MAX ignore a NaN if another member has a number, except
    in ``all_reduce`` with "atomic".
    """

    SUM = 0
    PRODUCT = 1
    MIN = 2
    MAX = 3
    BAND = 4
    BOR = 5
    BXOR = 6
