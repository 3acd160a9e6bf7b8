"""The Gluon kernel of the "ll" protocol. See ``ccl.flagged_steps``.

The words of a piece are one flat 1-D block, neighbours in neighbouring lanes: each access is 8 bytes of a lane.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from iris_under_test.ccl.flagged_steps import give_and_take

__all__ = ["flagged_kernel"]


# Not specialised: what differs between ranks and groups, so that all ranks run one binary.
@gluon.jit(do_not_specialize=["M", "tiles_m", "tiles_n", "member", "root"])
def flagged_kernel(
    slots, bases, input_ptr, output_ptr, M, N, in_m, in_n, out_m, out_n, in_step, out_step, tiles_m, tiles_n,
    member, root,
    FROM: gl.constexpr, TO: gl.constexpr, OP: gl.constexpr, SHARED: gl.constexpr, STRIDING: gl.constexpr,
    SIZE: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, GROUP_M: gl.constexpr, ORDER: gl.constexpr,
    WORDS: gl.constexpr, IN_WIDE: gl.constexpr, OUT_WIDE: gl.constexpr, LANES: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """See ``flagged_steps.give_and_take``."""
    layout: gl.constexpr = gl.BlockedLayout([1], [LANES], [WARPS], [0])
    words = gl.arange(0, WORDS, layout=layout)
    give_and_take(
        slots, bases, input_ptr, output_ptr, words, M, N, in_m, in_n, out_m, out_n, in_step, out_step,
        tiles_m, tiles_n, member, root, FROM, TO, OP, SHARED, STRIDING, SIZE, BLOCK_M, BLOCK_N, GROUP_M, ORDER,
        WORDS, IN_WIDE, OUT_WIDE,
    )  # fmt: skip
