"""What the programs of all_reduce's "two_shot_push" do: the body of a kernel in Triton and of one in Gluon.

Reads cross a link slower than writes: their requests take room in the other direction. Here no peer is read from.
"""

import triton
import triton.language as tl

from iris_under_test.ccl.reductions import combined, widened
from iris_under_test.ccl.tiles import triton_grouped_tile
from iris_under_test.device.signals import behind, first_turn, signal, wait
from iris_under_test.device.triton.address import translate

__all__ = ["push"]


@triton.jit
def push(
    context, pads, bases, input_ptr, output_ptr, lanes, M, N, in_m, in_n, out_m, out_n, member,
    OP: tl.constexpr, SIZE: tl.constexpr, ALIGNMENT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """W tiles at a time, one for each member to reduce. A member writes its elements of each tile into that owner's
    workspace, they meet, and the owner reduces what it has got, in the members' order, and writes it to every output.

    ``lanes``: 0 to elements of a tile - 1; the fastest index runs along N. ``bases``: int64 (W,), where each member's
    workspace is mapped here: for each program two sets of W slots, one per member, of a tile each. The sets are used in
    turn: who meets the others again has read the one before. All inputs of W tiles are read before any of their outputs
    is written, so the output may be the input.

    Example: W = 2, tiles a and b. Member 0 writes its b into slot 0 of member 1, its a into slot 0 of its own; member 1
    likewise into slots 1. They meet. Member 0 adds slots 0 and 1, the sum of a, and writes it to both outputs.
    """
    pid = tl.program_id(0)
    turn = first_turn(pads, member, SIZE, pid)
    signal(pads, member, SIZE, pid, turn)
    heap_bases = context + 2
    slot_bytes: tl.constexpr = BLOCK_M * BLOCK_N * (input_ptr.dtype.element_ty.primitive_bitwidth // 8)
    first_slot = pid.to(tl.int64) * (2 * SIZE * slot_bytes)
    slots, outputs = (), ()
    for other in tl.static_range(SIZE):
        # Starting with the next one, so that at any time the members write to different ones; the own one is last.
        peer = behind(member, 1 + other, SIZE)
        slots += (tl.load(bases + peer) + first_slot,)
        outputs += (translate(output_ptr, heap_bases, member, peer, ALIGNMENT),)
    wait(pads, member, SIZE, pid, turn)

    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    tiles = tiles_m * tiles_n
    half = 0
    for begin in range(pid * SIZE, tiles, tl.num_programs(0) * SIZE):
        given = ()
        for other in tl.static_range(SIZE):
            rows, columns, mask = _tile(
                begin + behind(member, 1 + other, SIZE), tiles, tiles_m, tiles_n, M, N, lanes, BLOCK_M, BLOCK_N, GROUP_M
            )
            given += (tl.load(input_ptr + (rows * in_m + columns * in_n), mask=mask),)
        for other in tl.static_range(SIZE):
            slot = _slot(slots[other], half * SIZE + member, slot_bytes, input_ptr.dtype)
            tl.store(slot + lanes, given[other])  # remote
        turn += 1
        signal(pads, member, SIZE, pid, turn)
        wait(pads, member, SIZE, pid, turn)
        got = ()
        for other in tl.static_range(SIZE):
            got += (tl.load(_slot(slots[SIZE - 1], half * SIZE + other, slot_bytes, input_ptr.dtype) + lanes),)
        total = widened(got[0])
        for other in tl.static_range(SIZE - 1):
            total = combined(total, widened(got[other + 1]), OP)
        data = total.to(output_ptr.dtype.element_ty)
        rows, columns, mask = _tile(begin + member, tiles, tiles_m, tiles_n, M, N, lanes, BLOCK_M, BLOCK_N, GROUP_M)
        for other in tl.static_range(SIZE):
            tl.store(outputs[other] + (rows * out_m + columns * out_n), data, mask=mask)  # remote
        half = 1 - half
    signal(pads, member, SIZE, pid, turn + 1)
    wait(pads, member, SIZE, pid, turn + 1)


@triton.jit
def _tile(
    index, tiles, tiles_m, tiles_n, M, N, lanes, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr
):
    """Rows and columns (int64) of a tile, and which of them there are: none behind the last tile."""
    tile_m, tile_n = triton_grouped_tile(tl.minimum(index, tiles - 1), tiles_m, tiles_n, GROUP_M)
    rows = tile_m.to(tl.int64) * BLOCK_M + lanes // BLOCK_N
    columns = tile_n.to(tl.int64) * BLOCK_N + lanes % BLOCK_N
    return rows, columns, (rows < M) & (columns < N) & (index < tiles)


@triton.jit
def _slot(first, index, slot_bytes: tl.constexpr, POINTER: tl.constexpr):
    return tl.multiple_of((first + index * slot_bytes).to(POINTER), 16)
