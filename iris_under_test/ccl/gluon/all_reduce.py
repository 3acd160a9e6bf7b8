"""The Gluon kernels of all_reduce that ``move`` does not do. See ``ccl.all_reduce_steps`` and ``ccl.push_steps``.

A tile, or of the ring a slice, is one flat 1-D block whose fastest index runs along N; the layout gives each lane up to
16 bytes.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from iris_under_test.ccl.all_reduce_steps import accumulate, ring
from iris_under_test.ccl.push_steps import push

__all__ = ["accumulate_kernel", "push_kernel", "ring_kernel"]


# Not specialised: what differs between ranks and groups, so that all ranks run one binary.
@gluon.jit(do_not_specialize=["member"])
def accumulate_kernel(
    context, pads, bases, input_ptr, output_ptr, M, N, in_m, in_n, out_m, out_n, member,
    OP: gl.constexpr, LOCKED: gl.constexpr, SIZE: gl.constexpr, ALIGNMENT: gl.constexpr,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr,
    GROUP_M: gl.constexpr, NUM_XCDS: gl.constexpr, CHUNK: gl.constexpr,
    ELEMENTS_PER_LANE: gl.constexpr, LANES: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """See ``all_reduce_steps.accumulate``."""
    layout: gl.constexpr = gl.BlockedLayout([ELEMENTS_PER_LANE], [LANES], [WARPS], [0])
    lanes = gl.arange(0, BLOCK_M * BLOCK_N, layout=layout)
    accumulate(
        context, pads, bases, input_ptr, output_ptr, lanes, M, N, in_m, in_n, out_m, out_n, member,
        OP, LOCKED, SIZE, ALIGNMENT, BLOCK_M, BLOCK_N, GROUP_M, NUM_XCDS, CHUNK,
    )  # fmt: skip


@gluon.jit(do_not_specialize=["member"])
def ring_kernel(
    pads, bases, input_ptr, output_ptr, M, N, in_m, in_n, out_m, out_n, member, flag_bytes, slot_bytes,
    OP: gl.constexpr, SIZE: gl.constexpr, RINGS: gl.constexpr,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, SLICE: gl.constexpr, GROUP_M: gl.constexpr,
    ELEMENTS_PER_LANE: gl.constexpr, LANES: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """See ``all_reduce_steps.ring``."""
    layout: gl.constexpr = gl.BlockedLayout([ELEMENTS_PER_LANE], [LANES], [WARPS], [0])
    lanes = gl.arange(0, BLOCK_M * SLICE, layout=layout)
    ring(
        pads, bases, input_ptr, output_ptr, lanes, M, N, in_m, in_n, out_m, out_n, member, flag_bytes, slot_bytes,
        OP, SIZE, RINGS, BLOCK_M, BLOCK_N, SLICE, GROUP_M,
    )  # fmt: skip


@gluon.jit(do_not_specialize=["member"])
def push_kernel(
    context, pads, bases, input_ptr, output_ptr, M, N, in_m, in_n, out_m, out_n, member,
    OP: gl.constexpr, SIZE: gl.constexpr, ALIGNMENT: gl.constexpr,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, GROUP_M: gl.constexpr,
    ELEMENTS_PER_LANE: gl.constexpr, LANES: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """See ``push_steps.push``."""
    layout: gl.constexpr = gl.BlockedLayout([ELEMENTS_PER_LANE], [LANES], [WARPS], [0])
    lanes = gl.arange(0, BLOCK_M * BLOCK_N, layout=layout)
    push(
        context, pads, bases, input_ptr, output_ptr, lanes, M, N, in_m, in_n, out_m, out_n, member,
        OP, SIZE, ALIGNMENT, BLOCK_M, BLOCK_N, GROUP_M,
    )  # fmt: skip
