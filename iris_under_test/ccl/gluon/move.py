"""The Gluon kernel that moves tiles between the members of a group. See ``ccl.move_steps``.

A tile is one flat 1-D block; the layout gives each lane up to 16 bytes. The compiler proves accesses 16 bytes wide if
the strides along M and the pointers are multiples of 16 and the strides along N are 1 (Triton specialises on these).
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from iris_under_test.ccl.move_steps import move

__all__ = ["move_kernel"]


# Not specialised: what differs between ranks and groups, so that all ranks run one binary.
@gluon.jit(do_not_specialize=["M", "tiles_m", "tiles_n", "member", "root"])
def move_kernel(
    context, pads, input_ptr, output_ptr, M, N, in_m, in_n, out_m, out_n, in_step, out_step, tiles_m, tiles_n,
    member, root,
    FROM: gl.constexpr, TO: gl.constexpr, OP: gl.constexpr, SHARED: gl.constexpr, STRIDING: gl.constexpr,
    IN_PLACE: gl.constexpr, SIZE: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr,
    GROUP_M: gl.constexpr, NUM_XCDS: gl.constexpr, CHUNK: gl.constexpr,
    IN_ALIGNMENT: gl.constexpr, OUT_ALIGNMENT: gl.constexpr, RUN: gl.constexpr,
    ELEMENTS_PER_LANE: gl.constexpr, LANES: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """See ``move_steps.move``."""
    lanes = gl.arange(0, BLOCK_M * BLOCK_N, layout=gl.BlockedLayout([ELEMENTS_PER_LANE], [LANES], [WARPS], [0]))
    move(
        context, pads, input_ptr, output_ptr, lanes, M, N, in_m, in_n, out_m, out_n, in_step, out_step,
        tiles_m, tiles_n, member, root, FROM, TO, OP, SHARED, STRIDING, IN_PLACE, SIZE, BLOCK_M, BLOCK_N,
        GROUP_M, NUM_XCDS, CHUNK, IN_ALIGNMENT, OUT_ALIGNMENT, RUN,
    )  # fmt: skip
