"""A matrix product fused with a collective."""

from __future__ import annotations

from dataclasses import dataclass

from harness.cases.dtypes import DType
from harness.cases.registry import case_type


@case_type
@dataclass(frozen=True)
class FusedCase:
    """Several calls of a fused product on one set of tensors and one workspace.

    Each of the ``calls`` has different values, and no call waits for the previous one. ``m``, ``n`` and ``k`` are the
    rows, columns and inner elements of one rank's product; for all_gather_matmul a rank's shard is ``m`` x ``k``.
    ``pad`` is the number of unused elements between the rows of all matrices and between the values of the bias.
    ``shift``: the tensor that other ranks access, or else the result, starts that many elements after an aligned place.
    ``turned`` stores all matrices transposed. ``tf32`` allows rounding fp32 inputs to TF32. ``xcds`` is the number of
    dies over which programs are distributed, in chunks of 2. ``sms`` is the maximum of programs. ``skewed`` is the rank
    that is delayed by ``skew_ms`` before each call (-1: none).
    """

    op: str
    dtype: DType = "fp16"
    m: int = 1
    n: int = 1
    k: int = 1
    block_m: int = 16
    block_n: int = 32
    block_k: int = 16
    group_m: int = 1
    sms: int = 2
    variant: str = "two_shot"
    biased: bool = False
    pad: int = 0
    shift: int = 0
    turned: bool = False
    tf32: bool = True
    xcds: int = 1
    calls: int = 1
    async_op: bool = False
    skewed: int = -1
    skew_ms: int = 0
