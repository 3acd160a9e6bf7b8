"""matmul_all_reduce and matmul_reduce_scatter in Triton.

In the first half of the kernel a program computes its tiles and delivers each *part* (one member's tile) to the member
that sums it; in the second half it sums the tiles of the same numbers for which this member is responsible. Between the
halves it waits for the programs of its own number on the other members. So a program depends only on programs with its
own number: the lowest unfinished program runs on every member, its counterparts, which run as well, compute the parts
that it waits for, and it ends. Progress only requires that a device starts programs in the order of their numbers,
however few are resident at once.

Delivery and summation of parts, HOW:
  "slots"   each part is written to its own slot at the summing member, in the result's dtype; slots are summed in
            the order of members, in float32: the same bits every time, and on every member.
  "atomic"  parts are added to one float32 tile by atomics, in no fixed order.
  "lock"    parts are added to one float32 tile by the member that holds the tile's lock, in no fixed order.
Summing member, OWNED: each tile has one summing member, its owner; otherwise every member sums every tile.
Receiver of the sum, PUSHED: every member; otherwise only the summing member.

Float32 tiles are zero between calls: the member that has read one clears it.
"""

import triton
import triton.language as tl

from iris_under_test.device.locks import acquire, release
from iris_under_test.device.signals import first_turn, signal, wait
from iris_under_test.device.triton.address import translate

from .arguments import Matrix
from .matmul import Inner, add_product, everywhere, place_of_tile, tiles_of, wide_product
from .tiles import spread_over_xcds

__all__ = ["matmul_and_reduce"]


@triton.jit
def owner_of(tile, share, SIZE: tl.constexpr):
    """Return the owner of a tile: r owns tiles [r * share, (r + 1) * share), the last one also the rest (all if
    ``share`` is 0).

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
    """Compute ``c`` = the sum of all members' ``a @ b``, plus the ``bias`` of the summing member. At most one program
    per tile.

    ``slots``: largest number of tiles that a member sums. ``parts``: (SIZE, slots, BLOCK_M, BLOCK_N) of c's dtype for
    "slots", else (slots, BLOCK_M, BLOCK_N) float32. ``locks``: int32 (slots,), see ``device.locks``. ``share``: see
    ``owner_of``.

    Example: SIZE 2, 3 tiles, OWNED, share 1: member 0 sums tile 0, member 1 tiles 1 and 2, in its slots 0 and 1.
    """
    program, programs = tl.program_id(0), tl.num_programs(0)
    heap_bases = context_tensor + 2
    tiles = tiles_of(M, N, BLOCK_M, BLOCK_N)
    first = spread_over_xcds(program, programs, NUM_XCDS, CHUNK)
    inside = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]

    turn = first_turn(pads, member, SIZE, program)
    signal(pads, member, SIZE, program, turn)  # I have finished with the parts of the previous call
    # Each member begins with the tiles of the next member, or all would write to one owner at a time.
    count = (tiles - first + programs - 1) // programs
    begin = tiles // programs * (member + 1) // SIZE if OWNED else 0
    for step in range(count):
        tile = first + (begin + step) % count * programs
        rows, columns = place_of_tile(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        total = add_product(
            total, Matrix(a, stride_am, stride_ak), Matrix(b, stride_bk, stride_bn), rows, columns, M, N, K,
            Inner(BLOCK_K, EVEN_K, CACHE_A, CACHE_B, PRECISION),
        )  # fmt: skip
        if step == 0:
            wait(pads, SIZE, program, turn)
        if OWNED:
            owner = owner_of(tile, share, SIZE)
            slot = tile - owner * share
            theirs = translate(parts, heap_bases, member, owner, 16)
            if HOW == "slots":
                # As one row: a store in the layout of the product itself would be only 8 bytes wide on AMD GPUs.
                row = tl.reshape(total.to(parts.dtype.element_ty), (BLOCK_M * BLOCK_N,))
                place = wide_product(member * slots + slot, BLOCK_M * BLOCK_N) + tl.arange(0, BLOCK_M * BLOCK_N)
                tl.store(theirs + place, row)
            else:
                lock = translate(locks, heap_bases, member, owner) + slot
                places = theirs + wide_product(slot, BLOCK_M * BLOCK_N) + inside
                acquire(lock)
                tl.store(places, tl.load(places) + total)
                release(lock)
        else:
            targets = everywhere(context_tensor, parts, member, SIZE, 16)
            for other in tl.static_range(SIZE):
                if HOW == "slots":
                    place = wide_product(member * slots + tile, BLOCK_M * BLOCK_N) + inside
                    tl.store(targets[other] + place, total.to(parts.dtype.element_ty))
                else:
                    place = wide_product(tile, BLOCK_M * BLOCK_N) + inside
                    tl.atomic_add(targets[other] + place, total, sem="relaxed", scope="sys")

    signal(pads, member, SIZE, program, turn + 1)  # my parts are complete
    wait(pads, SIZE, program, turn + 1)
    for tile in range(first, tiles, programs):
        mine, slot = True, tile
        if OWNED:
            mine = owner_of(tile, share, SIZE) == member
            slot = tile - member * share
        if mine:
            rows, columns = place_of_tile(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
            place = wide_product(slot, BLOCK_M * BLOCK_N) + inside
            if HOW == "slots":
                total = tl.load(parts + place).to(tl.float32)
                for other in tl.static_range(1, SIZE):
                    total += tl.load(parts + wide_product(slots, other * BLOCK_M * BLOCK_N) + place).to(tl.float32)
            else:
                total = tl.load(parts + place)
            if BIASED:
                total += tl.load(bias + rows * stride_bias, mask=rows < M, other=0.0).to(tl.float32)
            value = total.to(c.dtype.element_ty)
            places, mask = rows * stride_cm + columns * stride_cn, (rows < M) & (columns < N)
            if PUSHED:
                outputs = everywhere(context_tensor, c, member, SIZE, ALIGNMENT)
                for other in tl.static_range(SIZE):
                    tl.store(outputs[other] + places, value, mask=mask)
            else:
                tl.store(c + places, value, mask=mask)
            if HOW != "slots":
                # After a barrier, and after the sums have been used: the compiler may let another lane clear an element
                # than the one that loads it.
                tl.debug_barrier()
                tl.store(parts + place, tl.zeros_like(total))
    if PUSHED:
        signal(pads, member, SIZE, program, turn + 2)  # my part of every member's c is complete
        wait(pads, SIZE, program, turn + 2)
