"""``push``: the "two_shot_push" all-reduce.

Over a link, reads are slower than writes, because their requests occupy the other direction. This kernel reads no
peer's memory.
"""

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from .arguments import Group, Matrix, tiled
from .reductions import combined, widened

__all__ = ["push_gluon", "push_triton"]


@triton.jit
def push(group, bases, source, target, tiling, OP: tl.constexpr):
    """Reduce W tiles at a time, one tile per member.

    A member writes its elements of each tile into the workspace of the tile's owner; the members synchronise; the owner
    reduces the elements that it received, in the members' order, and writes the result to every output.

    ``bases``: int64 (W,), where each member's workspace is mapped in this process: for each program two sets of W
    slots, one per member, of a tile each. The sets are used alternately: when the members synchronise again, all have
    read the set before. At the end of a call all have read all slots, so the next call may write them at once. All
    inputs of W tiles are read before any of their outputs is written, so the output may be the input. The first output
    is written after the members have synchronised, when all have begun the call. Every program has a tile.

    Example: W = 2, tiles a and b. Member 0 writes its b into slot 0 of member 1, its a into its own slot 0; member 1
    writes into slots 1 in the same way. They synchronise. Member 0 adds slots 0 and 1, the sum of a, and writes it to
    both outputs.
    """
    pid = tl.program_id(0)
    SIZE: tl.constexpr = group.SIZE
    turn = group.first_turn(pid)
    slot_bytes: tl.constexpr = tiling.BLOCK_M * tiling.BLOCK_N * (source.ptr.dtype.element_ty.primitive_bitwidth // 8)
    first_slot = pid.to(tl.int64) * (2 * SIZE * slot_bytes)
    slots, outputs = (), ()
    for other in tl.static_range(SIZE):
        # Starting with the next member, so that the members write to different ones at any time; the caller is last.
        peer = group.behind(1 + other)
        slots += (tl.load(bases + peer) + first_slot,)
        outputs += (group.translate(target.ptr, peer, target.ALIGNMENT),)

    tiles = tiling.tiles_m * tiling.tiles_n
    half = 0
    for begin in range(pid * SIZE, tiles, tl.num_programs(0) * SIZE):
        given = ()
        for other in tl.static_range(SIZE):
            rows, columns, mask = tiling.elements(begin + group.behind(1 + other))
            given += (tl.load(source.ptr + source.offsets(rows, columns), mask=mask),)
        for other in tl.static_range(SIZE):
            slot = _slot(slots[other], half * SIZE + group.member, slot_bytes, source.ptr.dtype)
            tl.store(slot + tiling.lanes, given[other])
        group.signal(pid, turn)
        group.wait(pid, turn)
        turn += 1
        received = ()
        for other in tl.static_range(SIZE):
            received += (
                tl.load(_slot(slots[SIZE - 1], half * SIZE + other, slot_bytes, source.ptr.dtype) + tiling.lanes),
            )
        total = widened(received[0])
        for other in tl.static_range(SIZE - 1):
            total = combined(total, widened(received[other + 1]), OP)
        data = total.to(target.ptr.dtype.element_ty)
        rows, columns, mask = tiling.elements(begin + group.member)
        for other in tl.static_range(SIZE):
            tl.store(outputs[other] + target.offsets(rows, columns), data, mask=mask)
        half = 1 - half
    group.signal(pid, turn)
    group.wait(pid, turn)


@triton.jit
def _slot(first, index, slot_bytes: tl.constexpr, POINTER: tl.constexpr):
    return tl.multiple_of((first + index * slot_bytes).to(POINTER), 16)


@triton.jit(do_not_specialize=["member"])
def push_triton(
    context, pads, bases, input_ptr, output_ptr, M, N, in_m, in_n, out_m, out_n, member,
    OP: tl.constexpr, SIZE: tl.constexpr, ALIGNMENT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """See ``push``."""
    lanes = tl.arange(0, BLOCK_M * BLOCK_N)
    push(
        Group(context, pads, member, SIZE), bases, Matrix(input_ptr, in_m, in_n),
        Matrix(output_ptr, out_m, out_n, 0, ALIGNMENT), tiled(M, N, lanes, BLOCK_M, BLOCK_N, GROUP_M), OP,
    )  # fmt: skip


@gluon.jit(do_not_specialize=["member"])
def push_gluon(
    context, pads, bases, input_ptr, output_ptr, M, N, in_m, in_n, out_m, out_n, member,
    OP: gl.constexpr, SIZE: gl.constexpr, ALIGNMENT: gl.constexpr,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, GROUP_M: gl.constexpr,
    ELEMENTS_PER_LANE: gl.constexpr, LANES: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """See ``push``."""
    layout: gl.constexpr = gl.BlockedLayout([ELEMENTS_PER_LANE], [LANES], [WARPS], [0])
    lanes = gl.arange(0, BLOCK_M * BLOCK_N, layout=layout)
    push(
        Group(context, pads, member, SIZE), bases, Matrix(input_ptr, in_m, in_n),
        Matrix(output_ptr, out_m, out_n, 0, ALIGNMENT), tiled(M, N, lanes, BLOCK_M, BLOCK_N, GROUP_M), OP,
    )  # fmt: skip
