"""A matrix product fused with a collective."""

from __future__ import annotations

from dataclasses import dataclass

from harness.cases.dtypes import DType
from harness.cases.registry import case_type


@case_type
@dataclass(frozen=True)
class FusedCase:
    """``calls`` products on one set of tensors and one workspace, each with other values; nothing waits in between.

    ``m`` rows, ``n`` columns and ``k`` inner elements of what one rank multiplies: its shard for all_gather_matmul has
    ``m`` x ``k``. ``pad`` elements lie between the rows of all matrices and between the values of the bias, ``turned``
    swaps rows and columns of all matrices in memory. ``tf32``: inputs of fp32 may be cut. ``xcds``: over which programs
    are spread, in chunks of 2. ``skewed`` delays that rank (-1: none) for ``skew_ms`` before each call. ``sms``
    programs at most.
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
    turned: bool = False
    tf32: bool = True
    xcds: int = 1
    calls: int = 1
    async_op: bool = False
    skewed: int = -1
    skew_ms: int = 0
