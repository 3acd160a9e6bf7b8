"""The Triton kernel that moves tiles between the members of a group. See ``ccl.move_steps``."""

from __future__ import annotations

import triton
import triton.language as tl

from iris_under_test.ccl.move_steps import move

__all__ = ["move_kernel"]


# Not specialised: what differs between ranks and groups, so that all ranks run one binary.
@triton.jit(do_not_specialize=["M", "tiles_m", "tiles_n", "member", "root"])
def move_kernel(
    context, pads, input_ptr, output_ptr, M, N, in_m, in_n, out_m, out_n, in_step, out_step, tiles_m, tiles_n,
    member, root,
    FROM: tl.constexpr, TO: tl.constexpr, OP: tl.constexpr, SHARED: tl.constexpr, STRIDING: tl.constexpr,
    IN_PLACE: tl.constexpr, SIZE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    GROUP_M: tl.constexpr, NUM_XCDS: tl.constexpr, CHUNK: tl.constexpr,
    IN_ALIGNMENT: tl.constexpr, OUT_ALIGNMENT: tl.constexpr, RUN: tl.constexpr,
):  # fmt: skip
    """See ``move_steps.move``."""
    lanes = tl.arange(0, BLOCK_M * BLOCK_N)
    move(
        context, pads, input_ptr, output_ptr, lanes, M, N, in_m, in_n, out_m, out_n, in_step, out_step,
        tiles_m, tiles_n, member, root, FROM, TO, OP, SHARED, STRIDING, IN_PLACE, SIZE, BLOCK_M, BLOCK_N,
        GROUP_M, NUM_XCDS, CHUNK, IN_ALIGNMENT, OUT_ALIGNMENT, RUN,
    )  # fmt: skip
