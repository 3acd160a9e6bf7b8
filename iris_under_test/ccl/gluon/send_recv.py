"""The Gluon kernel of send, recv and sendrecv. See ``ccl.message_steps``.

A tile is one flat 1-D block whose fastest index runs along N; the layout gives each lane 16 bytes.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from iris_under_test.ccl.message_steps import exchange

__all__ = ["exchange_kernel"]

# Not specialised: one binary for all ranks and shapes, since who receives says at run time what it has.
_PLAIN = [
    "M", "N", "source_m", "source_n", "rows", "columns", "target_m", "target_n", "dst", "src", "tag", "source_kind",
    "target_kind",
]  # fmt: skip


@gluon.jit(do_not_specialize=_PLAIN)
def exchange_kernel(
    context, boxes, source_ptr, target_ptr, report, M, N, source_m, source_n, rows, columns, target_m, target_n,
    dst, src, tag, source_kind, target_kind, SEND: gl.constexpr, RECV: gl.constexpr,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr,
    ELEMENTS_PER_LANE: gl.constexpr, LANES: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """See ``message_steps.exchange``."""
    layout: gl.constexpr = gl.BlockedLayout([ELEMENTS_PER_LANE], [LANES], [WARPS], [0])
    exchange(
        context, boxes, source_ptr, target_ptr, report, gl.arange(0, BLOCK_M * BLOCK_N, layout=layout), M, N, source_m,
        source_n, rows, columns, target_m, target_n, dst, src, tag, source_kind, target_kind, SEND, RECV, BLOCK_M,
        BLOCK_N,
    )  # fmt: skip
