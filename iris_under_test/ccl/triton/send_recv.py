"""The Triton kernel of send, recv and sendrecv. See ``ccl.message_steps``."""

from __future__ import annotations

import triton
import triton.language as tl

from iris_under_test.ccl.message_steps import exchange

__all__ = ["exchange_kernel"]

# Not specialised: one binary for all ranks and shapes, since who receives says at run time what it has.
_PLAIN = [
    "M", "N", "source_m", "source_n", "rows", "columns", "target_m", "target_n", "dst", "src", "tag", "source_kind",
    "target_kind",
]  # fmt: skip


@triton.jit(do_not_specialize=_PLAIN)
def exchange_kernel(
    context, boxes, source_ptr, target_ptr, report, M, N, source_m, source_n, rows, columns, target_m, target_n,
    dst, src, tag, source_kind, target_kind, SEND: tl.constexpr, RECV: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """See ``message_steps.exchange``."""
    exchange(
        context, boxes, source_ptr, target_ptr, report, tl.arange(0, BLOCK_M * BLOCK_N), M, N, source_m, source_n,
        rows, columns, target_m, target_n, dst, src, tag, source_kind, target_kind, SEND, RECV, BLOCK_M, BLOCK_N,
    )  # fmt: skip
