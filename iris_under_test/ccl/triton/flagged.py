"""The Triton kernel of the "ll" protocol. See ``ccl.flagged_steps``."""

from __future__ import annotations

import triton
import triton.language as tl

from iris_under_test.ccl.flagged_steps import give_and_take

__all__ = ["flagged_kernel"]


# Not specialised: what differs between ranks and groups, so that all ranks run one binary.
@triton.jit(do_not_specialize=["M", "tiles_m", "tiles_n", "member", "root"])
def flagged_kernel(
    slots, bases, input_ptr, output_ptr, M, N, in_m, in_n, out_m, out_n, in_step, out_step, tiles_m, tiles_n,
    member, root,
    FROM: tl.constexpr, TO: tl.constexpr, OP: tl.constexpr, SHARED: tl.constexpr, STRIDING: tl.constexpr,
    SIZE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr, ORDER: tl.constexpr,
    WORDS: tl.constexpr, IN_WIDE: tl.constexpr, OUT_WIDE: tl.constexpr,
):  # fmt: skip
    """See ``flagged_steps.give_and_take``."""
    words = tl.arange(0, WORDS)
    give_and_take(
        slots, bases, input_ptr, output_ptr, words, M, N, in_m, in_n, out_m, out_n, in_step, out_step,
        tiles_m, tiles_n, member, root, FROM, TO, OP, SHARED, STRIDING, SIZE, BLOCK_M, BLOCK_N, GROUP_M, ORDER,
        WORDS, IN_WIDE, OUT_WIDE,
    )  # fmt: skip
