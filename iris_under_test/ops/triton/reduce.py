"""matmul_all_reduce and matmul_reduce_scatter in Triton.

In the first half of the kernel a program computes its tiles and delivers each *part* (one member's tile) to whoever
sums it up; in the second half it sums the tiles of the same numbers that are this member's to sum. Between the halves
it waits for the programs of its own number on the other members. So a program depends on no other number than its own:
of the unfinished programs the lowest runs on every member, has the parts that it waits for computed by its equals,
which run as well, and ends. Progress needs no more than that a device starts programs in the order of their numbers,
however few it holds at once.

How parts are delivered and summed, HOW:
  "slots"   each part is written to a slot of its own at the summing member, in the result's dtype; slots are summed in
            the order of members, in float32: the same bits every time, and on every member.
  "atomic"  parts are added to one float32 tile by atomics, in no particular order.
  "lock"    parts are added to one float32 tile by who holds the tile's lock, in no particular order.
Who sums, OWNED: each tile has one summing member, its owner, or every member sums every tile.
Who gets the sum, PUSHED: every member, or only who has summed it.

Float32 tiles are zero between calls: who has read one clears it.
"""

import triton
import triton.language as tl

from iris_under_test.ccl.tiles import triton_spread_over_xcds
from iris_under_test.device.locks import give_back, take
from iris_under_test.device.signals import first_turn, signal, wait
from iris_under_test.device.triton import translate

from .tile import add_product, everywhere, place_of_tile, tiles_of

__all__ = ["matmul_and_reduce"]


@triton.jit
def owner_of(tile, share, SIZE: tl.constexpr):
    """Owner r has tiles [r * share, (r + 1) * share), the last one also the rest: all tiles where ``share`` is 0.

    Example: 7 tiles, 3 members: share 2 gives them 2, 2 and 3 tiles, share 3 gives them 3, 3 and 1.
    """
    owner = tile // tl.maximum(share, 1)
    if share == 0:
        owner = owner * 0 + SIZE - 1
    return tl.minimum(owner, SIZE - 1)


@triton.jit(do_not_specialize=["member", "M", "share", "slots"])
def matmul_and_reduce(
    context_tensor, pads, member, a, b, c, bias, parts, locks, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, stride_bias, share, slots,
    HOW: tl.constexpr, OWNED: tl.constexpr, PUSHED: tl.constexpr,
    SIZE: tl.constexpr, BIASED: tl.constexpr, ALIGNMENT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, EVEN_K: tl.constexpr,
    GROUP_M: tl.constexpr, NUM_XCDS: tl.constexpr, CHUNK: tl.constexpr,
    CACHE_A: tl.constexpr, CACHE_B: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """``c`` = the sum of all members' ``a @ b``, plus ``bias`` of who sums. At most one program per tile.

    ``slots``: tiles that a member sums at most. ``parts``: (SIZE, slots, BLOCK_M, BLOCK_N) of c's dtype for "slots",
    (slots, BLOCK_M, BLOCK_N) float32 else. ``locks``: int32 (slots,), see ``device.locks``. ``share``: see
    ``owner_of``.

    Example: SIZE 2, 3 tiles, OWNED, share 1: member 0 sums tile 0, member 1 tiles 1 and 2, in its slots 0 and 1.
    """
    program, programs = tl.program_id(0), tl.num_programs(0)
    heap_bases = context_tensor + 2
    tiles = tiles_of(M, N, BLOCK_M, BLOCK_N)
    first = triton_spread_over_xcds(program, programs, NUM_XCDS, CHUNK)
    inside = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]

    turn = first_turn(pads, member, SIZE, program)
    signal(pads, member, SIZE, program, turn)  # I am done with the parts of the call before
    # Each member begins with the tiles of the one behind it, or all would write to one owner at a time.
    count = (tiles - first + programs - 1) // programs
    begin = tiles // programs * (member + 1) // SIZE if OWNED else 0
    for step in range(count):
        tile = first + (begin + step) % count * programs
        rows, columns = place_of_tile(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        total = add_product(
            total, a, b, rows, columns, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
            BLOCK_K, EVEN_K, CACHE_A, CACHE_B, PRECISION,
        )  # fmt: skip
        if step == 0:
            wait(pads, member, SIZE, program, turn)
        if OWNED:
            owner = owner_of(tile, share, SIZE)
            slot = tile - owner * share
            theirs = translate(parts, heap_bases, member, owner, 16)
            if HOW == "slots":
                # As one row: a store of the product itself would be 8 bytes wide on AMD GPUs, as the units that compute
                # it hold it.
                row = tl.reshape(total.to(parts.dtype.element_ty), (BLOCK_M * BLOCK_N,))
                place = (member.to(tl.int64) * slots + slot) * (BLOCK_M * BLOCK_N) + tl.arange(0, BLOCK_M * BLOCK_N)
                tl.store(theirs + place, row)  # remote
            else:
                lock = translate(locks, heap_bases, member, owner) + slot
                places = theirs + slot.to(tl.int64) * (BLOCK_M * BLOCK_N) + inside
                take(lock)
                tl.store(places, tl.load(places) + total)  # remote
                give_back(lock)
        else:
            everyones = everywhere(context_tensor, parts, member, SIZE, 16)
            for other in tl.static_range(SIZE):
                if HOW == "slots":
                    place = (member.to(tl.int64) * slots + tile) * (BLOCK_M * BLOCK_N) + inside
                    tl.store(everyones[other] + place, total.to(parts.dtype.element_ty))  # remote
                else:
                    place = tile.to(tl.int64) * (BLOCK_M * BLOCK_N) + inside
                    tl.atomic_add(everyones[other] + place, total, sem="relaxed", scope="sys")  # remote

    signal(pads, member, SIZE, program, turn + 1)  # my parts are there
    wait(pads, member, SIZE, program, turn + 1)
    for tile in range(first, tiles, programs):
        mine, slot = True, tile
        if OWNED:
            mine = owner_of(tile, share, SIZE) == member
            slot = tile - member * share
        if mine:
            rows, columns = place_of_tile(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
            place = slot.to(tl.int64) * (BLOCK_M * BLOCK_N) + inside
            if HOW == "slots":
                total = tl.load(parts + place).to(tl.float32)
                for other in tl.static_range(1, SIZE):
                    total += tl.load(parts + slots.to(tl.int64) * (other * BLOCK_M * BLOCK_N) + place).to(tl.float32)
            else:
                total = tl.load(parts + place)
            if BIASED:
                total += tl.load(bias + rows * stride_bias, mask=rows < M, other=0.0).to(tl.float32)
            value = total.to(c.dtype.element_ty)
            places, mask = rows * stride_cm + columns * stride_cn, (rows < M) & (columns < N)
            if PUSHED:
                outputs = everywhere(context_tensor, c, member, SIZE, ALIGNMENT)
                for other in tl.static_range(SIZE):
                    tl.store(outputs[other] + places, value, mask=mask)  # remote
            else:
                tl.store(c + places, value, mask=mask)
            if HOW != "slots":
                # Behind a barrier, and when the sums have been used: the compiler may let other lanes clear an element
                # than the one that loads it.
                tl.debug_barrier()
                tl.store(parts + place, tl.zeros_like(total))
    if PUSHED:
        signal(pads, member, SIZE, program, turn + 2)  # my share of everybody's c is there
        wait(pads, member, SIZE, program, turn + 2)
