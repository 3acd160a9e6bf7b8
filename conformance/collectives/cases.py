"""The case type of collectives."""

from __future__ import annotations

from dataclasses import dataclass

from harness.cases.dtypes import DType
from harness.cases.registry import case_type


@case_type
@dataclass(frozen=True)
class CollectiveCase:
    """One or several calls of a collective. (m, n) is the shape of the smaller of input and output: see
    ``operations.Collective.shapes``.

    ``reduce`` is the reduction, as "sum". ``variant``, ``protocol``, ``distribution`` and ``rings`` are fields of
    Config; an empty variant or protocol leaves Config's default. ``group`` is one of ``GROUPS``; ``root`` is an index
    into the group, modulo its size.

    ``in_pad`` and ``out_pad`` are the unused elements between the rows of input and output. ``shift`` is the number of
    elements by which both start after a multiple of 1024 bytes. ``turned`` ("", "in", "out" or "both") names the
    tensors that are stored transposed, so that the padding is between columns. ``in_place``: the output is the input.
    ``reuse``: all ``calls`` use the same tensors, and each next input is enqueued after the call that reads the
    previous one; otherwise each call has its own tensors. No call waits for the previous one, unless ``async_op`` is
    false.

    ``skewed`` is the rank that is delayed by ``skew_ms`` before each call (-1: none). ``default``: no Config is passed,
    so that the library chooses the block size and the rest. ``comm_sms`` is the number of work-groups (per member of
    the group for the variant "partitioned"), ``warps`` the wavefronts of each. ``gluon`` selects the Gluon kernel
    instead of Triton's.
    """

    op: str = "all_gather"
    dtype: DType = "fp32"
    reduce: str = "sum"
    m: int = 1
    n: int = 1
    block_m: int = 8
    block_n: int = 64
    warps: int = 1
    comm_sms: int = 2
    swizzle: int = 4
    in_pad: int = 0
    out_pad: int = 0
    shift: int = 0
    turned: str = ""
    in_place: bool = False
    group: str = "world"
    root: int = 0
    calls: int = 1
    reuse: bool = False
    async_op: bool = False
    skewed: int = -1
    skew_ms: int = 0
    default: bool = False
    gluon: bool = False
    variant: str = ""
    protocol: str = ""
    distribution: int = 1
    rings: int = 1
