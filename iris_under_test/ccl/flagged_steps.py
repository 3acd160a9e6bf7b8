"""What the programs of a collective do under the "ll" protocol: the body of a kernel in Triton and of one in Gluon.

The members do not meet. Each writes what another one needs into that one's slots, as words that say themselves that
they have come (``device.flagged``), and reads its own slots until all words have. So the data go over the link once and
nobody answers, where "simple", the protocol of ``move``, has them meet before and behind; but they are twice as many
bytes: it is for small sizes.

Every member gives every other one something in every epoch, at least one word, so that who has got the words of epoch e
knows that all others have read those of e - 1, and may overwrite them in e + 1: nobody asks for permission, and nothing
is cleared. Epochs live on the devices, so that a graph can be replayed; they may wrap.

Only the own input is read and only the own output written, which may be the same.
"""

import triton
import triton.language as tl

from iris_under_test.ccl.reductions import combined, widened
from iris_under_test.ccl.tiles import triton_grouped_tile, triton_share_of
from iris_under_test.device.flagged import EPOCH_WORDS, await_words, give_words, next_epoch, word_address
from iris_under_test.device.signals import behind

__all__ = ["give_and_take"]


@triton.jit
def give_and_take(
    slots, bases, input_ptr, output_ptr, words, M, N, in_m, in_n, out_m, out_n, in_step, out_step, tiles_m, tiles_n,
    member, root,
    FROM: tl.constexpr, TO: tl.constexpr, OP: tl.constexpr, SHARED: tl.constexpr, STRIDING: tl.constexpr,
    SIZE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr, ORDER: tl.constexpr,
    WORDS: tl.constexpr, IN_WIDE: tl.constexpr, OUT_WIDE: tl.constexpr,
):  # fmt: skip
    """In each epoch a program gives a piece of a tile to each member, the same or another one, and takes one from each.

    Symbols are those of ``move_steps``; where FROM is "all", what has been taken is reduced. ``words``: 0 to WORDS - 1,
    those of a piece. ``slots``: this member's; ``bases``: int64 (SIZE,), where each member's are mapped here. ORDER of
    the elements, in which all members must have the same tiles: "tiles" of BLOCK_M rows; a "run" of M * N elements row
    by row; a "line", which is that of contiguous tensors, M = 1. IN_WIDE, OUT_WIDE: the elements of a word of the input
    (output) lie side by side, none of them beyond its edge, and on a multiple of 4 bytes.

    Example, all_gather of float32, W = 2, epoch 7: member 0 writes each element beside a 7 into its slot of set 1 at
    both members, and stores what comes into both slots of its own set 1 to rows 0 and 1.
    """
    TYPE: tl.constexpr = input_ptr.dtype.element_ty
    PER_WORD: tl.constexpr = 32 // TYPE.primitive_bitwidth
    PIECES: tl.constexpr = BLOCK_M * BLOCK_N // (PER_WORD * WORDS)
    pid, programs = tl.program_id(0), tl.num_programs(0)
    epochs = slots.to(tl.pointer_type(tl.int32), bitcast=True)
    epoch = tl.load(epochs + pid)
    theirs = ()
    for other in tl.static_range(SIZE):
        # Starting with the next one, so that at any time the members write to different ones; the own one is last.
        theirs += (tl.load(bases + behind(member, 1 + other, SIZE)),)
    tiles = tiles_m * tiles_n
    for first in range(0, (tl.cdiv(tiles, SIZE) if SHARED == "all" else tiles) * PIECES, programs):
        epoch = next_epoch(epoch)
        turn = (first + pid) // PIECES
        elements = (words + (first + pid) % PIECES * WORDS) * PER_WORD
        given = ()
        for other in tl.static_range(SIZE):
            if other == 0 or TO == "each" or SHARED == "all":
                peer = behind(member, 1 + other, SIZE)
                tile, there = _tile(turn, tiles, peer, root, SHARED, STRIDING, SIZE)
                start = input_ptr
                if TO == "each":
                    start += peer.to(tl.int64) * in_step
                data = words * 0
                for part in tl.static_range(1 if IN_WIDE else PER_WORD):
                    offsets, mask = _offsets(
                        elements + part, tile, there, tiles_m, tiles_n, M, N, in_m, in_n,
                        BLOCK_M, BLOCK_N, GROUP_M, ORDER,
                    )  # fmt: skip
                    if IN_WIDE:
                        data = tl.load(_words_at(start) + offsets // PER_WORD, mask=mask, other=0)
                    else:
                        data |= _packed(tl.load(start + offsets, mask=mask, other=0), part)
            given += (data,)
        for other in tl.static_range(SIZE):
            place = word_address(theirs[other], epoch, member, pid * WORDS + words, SIZE)
            if FROM == "root":
                # Who has nothing to say but that it is there says one word, and the others to itself.
                own = word_address(slots.to(tl.int64), epoch, member, pid * WORDS + words, SIZE)
                place = tl.where((words == 0) | (member == root), place, own)
            give_words(place, given[other], epoch)  # remote

        places = ()
        for other in tl.static_range(SIZE):
            giver = behind(root, other, SIZE) if FROM == "root" else tl.cast(other, tl.int32)
            word = words
            if FROM == "root":
                word = words * (giver == root)
            places += (word_address(slots.to(tl.int64), epoch, giver, pid * WORDS + word, SIZE),)
        taken = await_words(places, epoch)
        if FROM == "all":
            taken = (_reduced(taken, TYPE, OP, SIZE),)
        tile, there = _tile(turn, tiles, member, root, SHARED, STRIDING, SIZE)
        if FROM == "root":
            there = there & (member != root)
        for part in tl.static_range(1 if OUT_WIDE else PER_WORD):
            offsets, mask = _offsets(
                elements + part, tile, there, tiles_m, tiles_n, M, N, out_m, out_n, BLOCK_M, BLOCK_N, GROUP_M, ORDER
            )
            for other in tl.static_range(SIZE if FROM == "own" else 1):
                start = output_ptr + tl.cast(other, tl.int64) * out_step
                if OUT_WIDE:
                    tl.store(_words_at(start) + offsets // PER_WORD, taken[other], mask=mask)
                else:
                    tl.store(start + offsets, _element(taken[other], part, TYPE), mask=mask)
        # All wavefronts have read the number of this epoch, and what was given in it.
        tl.debug_barrier()
    # The programs count for those, too, that this call has none of: nobody reads their words now.
    for first in range(pid, EPOCH_WORDS, programs * WORDS):
        places = first + words * programs
        tl.store(epochs + places, words * 0 + epoch, mask=places < EPOCH_WORDS)


@triton.jit
def _tile(index, tiles, peer, root, SHARED: tl.constexpr, STRIDING: tl.constexpr, SIZE: tl.constexpr):
    """The number of a member's tile, and whether there is one."""
    tile, there = index, index < tiles
    if SHARED == "all":
        begin, count, stride = triton_share_of(tiles, peer, root, SHARED, STRIDING, SIZE)
        tile, there = begin + index * stride, index < count
    return tl.minimum(tile, tiles - 1), there


@triton.jit
def _offsets(
    index, tile, there, tiles_m, tiles_n, M, N, stride_m, stride_n,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr, ORDER: tl.constexpr,
):  # fmt: skip
    """Where elements of a tile lie (int64, in elements), and which of them there are."""
    if ORDER == "tiles":
        tile_m, tile_n = triton_grouped_tile(tile, tiles_m, tiles_n, GROUP_M)
        rows = tile_m.to(tl.int64) * BLOCK_M + index // BLOCK_N
        columns = tile_n.to(tl.int64) * BLOCK_N + index % BLOCK_N
        mask = (rows < M) & (columns < N) & there
    else:
        element = tile.to(tl.int64) * (BLOCK_M * BLOCK_N) + index
        rows, columns = element * 0, element
        if ORDER == "run":
            rows, columns = element // N, element % N
        mask = (rows < M) & (columns < N) & there
    return rows * stride_m + columns * stride_n, mask


@triton.jit
def _words_at(pointer):
    """The same place as a pointer to words."""
    return pointer.to(tl.pointer_type(tl.int32), bitcast=True)


@triton.jit
def _reduced(taken, TYPE: tl.constexpr, OP: tl.constexpr, SIZE: tl.constexpr):
    """Words whose elements are the reductions of those of all members, in their order."""
    words = taken[0] * 0
    for part in tl.static_range(32 // TYPE.primitive_bitwidth):
        total = widened(_element(taken[0], part, TYPE))
        for other in tl.static_range(SIZE - 1):
            total = combined(total, widened(_element(taken[other + 1], part, TYPE)), OP)
        words |= _packed(total.to(TYPE), part)
    return words


@triton.jit
def _packed(data, part: tl.constexpr):
    """int32: elements as part ``part`` of their words, the first one lowest."""
    BITS: tl.constexpr = data.dtype.primitive_bitwidth
    return data.to(_integer(BITS, True), bitcast=True).to(_integer(BITS, False), bitcast=True).to(tl.int32) << (
        part * BITS
    )


@triton.jit
def _element(words, part: tl.constexpr, TYPE: tl.constexpr):
    """The elements that are part ``part`` of int32 ``words``."""
    BITS: tl.constexpr = TYPE.primitive_bitwidth
    return (words >> (part * BITS)).to(_integer(BITS, True)).to(TYPE, bitcast=True)


@triton.constexpr_function
def _integer(bits, signed):
    return tl.dtype(f"{'int' if signed else 'uint'}{bits}")
