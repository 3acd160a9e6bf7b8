"""How reductions combine elements."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["ReduceOp"]


class ReduceOp(IntEnum):
    """What ``all_reduce``, ``reduce`` and ``reduce_scatter`` do; the values are the codes that kernels receive.

    They are not those of ``torch.distributed.ReduceOp``, which is refused. The bitwise ones are for integers and bool;
    of bool, SUM is "or" and PRODUCT is "and". Of floats, MIN and MAX ignore a NaN where another member has a number,
    not so ``all_reduce``'s "atomic".
    """

    SUM = 0
    PRODUCT = 1
    MIN = 2
    MAX = 3
    BAND = 4
    BOR = 5
    BXOR = 6
