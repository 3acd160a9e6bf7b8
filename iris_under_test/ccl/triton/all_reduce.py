"""The Triton kernels of all_reduce that ``move`` does not do. See ``ccl.all_reduce_steps`` and ``ccl.push_steps``."""

from __future__ import annotations

import triton
import triton.language as tl

from iris_under_test.ccl.all_reduce_steps import accumulate, ring
from iris_under_test.ccl.push_steps import push

__all__ = ["accumulate_kernel", "push_kernel", "ring_kernel"]


# Not specialised: what differs between ranks and groups, so that all ranks run one binary.
@triton.jit(do_not_specialize=["member"])
def accumulate_kernel(
    context, pads, bases, input_ptr, output_ptr, M, N, in_m, in_n, out_m, out_n, member,
    OP: tl.constexpr, LOCKED: tl.constexpr, SIZE: tl.constexpr, ALIGNMENT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    GROUP_M: tl.constexpr, NUM_XCDS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """See ``all_reduce_steps.accumulate``."""
    lanes = tl.arange(0, BLOCK_M * BLOCK_N)
    accumulate(
        context, pads, bases, input_ptr, output_ptr, lanes, M, N, in_m, in_n, out_m, out_n, member,
        OP, LOCKED, SIZE, ALIGNMENT, BLOCK_M, BLOCK_N, GROUP_M, NUM_XCDS, CHUNK,
    )  # fmt: skip


@triton.jit(do_not_specialize=["member"])
def ring_kernel(
    pads, bases, input_ptr, output_ptr, M, N, in_m, in_n, out_m, out_n, member, flag_bytes, slot_bytes,
    OP: tl.constexpr, SIZE: tl.constexpr, RINGS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SLICE: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """See ``all_reduce_steps.ring``."""
    lanes = tl.arange(0, BLOCK_M * SLICE)
    ring(
        pads, bases, input_ptr, output_ptr, lanes, M, N, in_m, in_n, out_m, out_n, member, flag_bytes, slot_bytes,
        OP, SIZE, RINGS, BLOCK_M, BLOCK_N, SLICE, GROUP_M,
    )  # fmt: skip


@triton.jit(do_not_specialize=["member"])
def push_kernel(
    context, pads, bases, input_ptr, output_ptr, M, N, in_m, in_n, out_m, out_n, member,
    OP: tl.constexpr, SIZE: tl.constexpr, ALIGNMENT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """See ``push_steps.push``."""
    lanes = tl.arange(0, BLOCK_M * BLOCK_N)
    push(
        context, pads, bases, input_ptr, output_ptr, lanes, M, N, in_m, in_n, out_m, out_n, member,
        OP, SIZE, ALIGNMENT, BLOCK_M, BLOCK_N, GROUP_M,
    )  # fmt: skip
