"""``give_and_take``: a collective under the "ll" protocol.

The members do not synchronise. Each writes the data that another member needs into that member's slots, as words that
carry their own flag (``device.flagged``), and reads its own slots until all words have arrived. So the data cross the
link once and no answer is needed, while "simple", the protocol of ``move``, synchronises before and after; but the
words have twice the bytes, so the protocol is for small sizes.

Every member sends every other one at least one word in every epoch. So a member that has received the words of epoch e
knows that all others have read those of e - 1, and may overwrite them in e + 1, without a request or
clearing anything. Epochs are stored on the devices, so that a graph can be replayed; they may wrap.

A member reads only its own input and writes only its own output, which may be the same.
"""

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from iris_under_test.device.flagged import EPOCH_WORDS, await_words, next_epoch, send_words, word_address
from iris_under_test.device.signals import behind

from .arguments import Matrix, Tiling
from .move import Plan
from .reductions import combined, widened
from .tiles import share_of

__all__ = ["flagged_gluon", "flagged_triton"]


@triton.jit
def give_and_take(
    slots, bases, source, target, tiling, member, root, SIZE: tl.constexpr, plan,
    ORDER: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """In each epoch, send a piece of a tile to each member, the same or a different one, and receive one from each.

    Symbols are those of ``move``; if FROM is "all", the received pieces are reduced. ``tiling.lanes``: 0 to WORDS - 1,
    the words of a piece. ``slots``: this member's; ``bases``: int64 (SIZE,), where each member's slots are mapped in
    this process. ORDER of the elements, in which all members must have the same tiles: "tiles" of BLOCK_M rows; a "run"
    of M * N elements row by row; a "line", the order of contiguous tensors, M = 1.

    Example, all_gather of float32, W = 2, epoch 7: member 0 writes each element next to a 7 into its slot of set 1 at
    both members, and stores the words that arrive in both slots of its own set 1 to rows 0 and 1.
    """
    words = tiling.lanes
    TYPE: tl.constexpr = source.ptr.dtype.element_ty
    PER_WORD: tl.constexpr = 32 // TYPE.primitive_bitwidth
    PIECES: tl.constexpr = tiling.BLOCK_M * tiling.BLOCK_N // (PER_WORD * WORDS)
    pid, programs = tl.program_id(0), tl.num_programs(0)
    epochs = slots.to(tl.pointer_type(tl.int32), bitcast=True)
    epoch = tl.load(epochs + pid)
    theirs = ()
    for other in tl.static_range(SIZE):
        # Starting with the next member, so that the members write to different ones at any time; the caller is last.
        theirs += (tl.load(bases + behind(member, 1 + other, SIZE)),)
    tiles = tiling.tiles_m * tiling.tiles_n
    for first in range(0, (tl.cdiv(tiles, SIZE) if plan.SHARED == "all" else tiles) * PIECES, programs):
        epoch = next_epoch(epoch)
        turn = (first + pid) // PIECES
        elements = (words + (first + pid) % PIECES * WORDS) * PER_WORD
        given = ()
        for other in tl.static_range(SIZE):
            if other == 0 or plan.TO == "each" or plan.SHARED == "all":
                peer = behind(member, 1 + other, SIZE)
                tile, there = _tile(plan, turn, tiles, peer, SIZE)
                start = source.ptr
                if plan.TO == "each":
                    start += peer.to(tl.int64) * source.step
                data = words * 0
                for part in tl.static_range(1 if source.WIDE else PER_WORD):
                    offsets, mask = _offsets(elements + part, tile, there, source, tiling, ORDER)
                    if source.WIDE:
                        data = tl.load(_words_at(start) + offsets // PER_WORD, mask=mask, other=0)
                    else:
                        data |= _packed(tl.load(start + offsets, mask=mask, other=0), part)
            given += (data,)
        for other in tl.static_range(SIZE):
            place = word_address(theirs[other], epoch, member, pid * WORDS + words, SIZE)
            if plan.FROM == "root":
                # A member without data sends one word to show that it is ready, and writes the rest to its own slots.
                own = word_address(slots.to(tl.int64), epoch, member, pid * WORDS + words, SIZE)
                place = tl.where((words == 0) | (member == root), place, own)
            send_words(place, given[other], epoch)

        places = ()
        for other in tl.static_range(SIZE):
            sender = behind(root, other, SIZE) if plan.FROM == "root" else tl.cast(other, tl.int32)
            word = words
            if plan.FROM == "root":
                word = words * (sender == root)
            places += (word_address(slots.to(tl.int64), epoch, sender, pid * WORDS + word, SIZE),)
        taken = await_words(places, epoch)
        if plan.FROM == "all":
            taken = (_reduced(taken, TYPE, plan.OP, SIZE),)
        tile, there = _tile(plan, turn, tiles, member, SIZE)
        if plan.FROM == "root":
            there = there & (member != root)
        for part in tl.static_range(1 if target.WIDE else PER_WORD):
            offsets, mask = _offsets(elements + part, tile, there, target, tiling, ORDER)
            for other in tl.static_range(SIZE if plan.FROM == "own" else 1):
                start = target.ptr + tl.cast(other, tl.int64) * target.step
                if target.WIDE:
                    tl.store(_words_at(start) + offsets // PER_WORD, taken[other], mask=mask)
                else:
                    tl.store(start + offsets, _element(taken[other], part, TYPE), mask=mask)
        # All wavefronts have read the number of this epoch, and the words sent in it.
        tl.debug_barrier()
    # Advance also the epochs of programs that this call does not have: no member reads their words now.
    for first in range(pid, EPOCH_WORDS, programs * WORDS):
        places = first + words * programs
        tl.store(epochs + places, words * 0 + epoch, mask=places < EPOCH_WORDS)


@triton.jit
def _tile(plan, index, tiles, peer, SIZE: tl.constexpr):
    """Return the number of a member's tile, and whether it exists."""
    tile, there = index, index < tiles
    if plan.SHARED == "all":
        begin, count, stride = share_of(tiles, peer, 0, plan.SHARED, plan.STRIDING, SIZE)
        tile, there = begin + index * stride, index < count
    return tl.minimum(tile, tiles - 1), there


@triton.jit
def _offsets(index, tile, there, matrix, tiling, ORDER: tl.constexpr):
    """Return the offsets (int64, in elements) of elements of a tile, and a mask of those that exist."""
    BLOCK_M: tl.constexpr = tiling.BLOCK_M
    BLOCK_N: tl.constexpr = tiling.BLOCK_N
    if ORDER == "tiles":
        tile_m, tile_n = tiling.place(tile)
        rows = tile_m.to(tl.int64) * BLOCK_M + index // BLOCK_N
        columns = tile_n.to(tl.int64) * BLOCK_N + index % BLOCK_N
    else:
        element = tile.to(tl.int64) * (BLOCK_M * BLOCK_N) + index
        rows, columns = element * 0, element
        if ORDER == "run":
            rows, columns = element // tiling.N, element % tiling.N
    return matrix.offsets(rows, columns), (rows < tiling.M) & (columns < tiling.N) & there


@triton.jit
def _words_at(pointer):
    """Return the same address as a pointer to words."""
    return pointer.to(tl.pointer_type(tl.int32), bitcast=True)


@triton.jit
def _reduced(taken, TYPE: tl.constexpr, OP: tl.constexpr, SIZE: tl.constexpr):
    """Return words whose elements are the reductions of those of all members, in the members' order."""
    words = taken[0] * 0
    for part in tl.static_range(32 // TYPE.primitive_bitwidth):
        total = widened(_element(taken[0], part, TYPE))
        for other in tl.static_range(SIZE - 1):
            total = combined(total, widened(_element(taken[other + 1], part, TYPE)), OP)
        words |= _packed(total.to(TYPE), part)
    return words


@triton.jit
def _packed(data, part: tl.constexpr):
    """Return int32 with the elements as part ``part`` of their words, the first part lowest."""
    BITS: tl.constexpr = data.dtype.primitive_bitwidth
    return data.to(_integer(BITS, True), bitcast=True).to(_integer(BITS, False), bitcast=True).to(tl.int32) << (
        part * BITS
    )


@triton.jit
def _element(words, part: tl.constexpr, TYPE: tl.constexpr):
    """Return the elements that are part ``part`` of int32 ``words``."""
    BITS: tl.constexpr = TYPE.primitive_bitwidth
    return (words >> (part * BITS)).to(_integer(BITS, True)).to(TYPE, bitcast=True)


@triton.constexpr_function
def _integer(bits, signed):
    return tl.dtype(f"{'int' if signed else 'uint'}{bits}")


# Not specialised: what differs between ranks and groups, so that all ranks run one binary.
@triton.jit(do_not_specialize=["M", "tiles_m", "tiles_n", "member", "root"])
def flagged_triton(
    slots, bases, input_ptr, output_ptr, M, N, in_m, in_n, out_m, out_n, in_step, out_step, tiles_m, tiles_n,
    member, root,
    FROM: tl.constexpr, TO: tl.constexpr, OP: tl.constexpr, SHARED: tl.constexpr, STRIDING: tl.constexpr,
    SIZE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr, ORDER: tl.constexpr,
    WORDS: tl.constexpr, IN_WIDE: tl.constexpr, OUT_WIDE: tl.constexpr,
):  # fmt: skip
    """See ``give_and_take``."""
    words = tl.arange(0, WORDS)
    give_and_take(
        slots, bases, Matrix(input_ptr, in_m, in_n, in_step, 1, IN_WIDE),
        Matrix(output_ptr, out_m, out_n, out_step, 1, OUT_WIDE),
        Tiling(M, N, tiles_m, tiles_n, words, BLOCK_M, BLOCK_N, GROUP_M), member, root, SIZE,
        Plan(FROM, TO, OP, SHARED, STRIDING, False, False), ORDER, WORDS,
    )  # fmt: skip


# Not specialised: what differs between ranks and groups, so that all ranks run one binary.
@gluon.jit(do_not_specialize=["M", "tiles_m", "tiles_n", "member", "root"])
def flagged_gluon(
    slots, bases, input_ptr, output_ptr, M, N, in_m, in_n, out_m, out_n, in_step, out_step, tiles_m, tiles_n,
    member, root,
    FROM: gl.constexpr, TO: gl.constexpr, OP: gl.constexpr, SHARED: gl.constexpr, STRIDING: gl.constexpr,
    SIZE: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, GROUP_M: gl.constexpr, ORDER: gl.constexpr,
    WORDS: gl.constexpr, IN_WIDE: gl.constexpr, OUT_WIDE: gl.constexpr, LANES: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """See ``give_and_take``."""
    layout: gl.constexpr = gl.BlockedLayout([1], [LANES], [WARPS], [0])
    words = gl.arange(0, WORDS, layout=layout)
    give_and_take(
        slots, bases, Matrix(input_ptr, in_m, in_n, in_step, 1, IN_WIDE),
        Matrix(output_ptr, out_m, out_n, out_step, 1, OUT_WIDE),
        Tiling(M, N, tiles_m, tiles_n, words, BLOCK_M, BLOCK_N, GROUP_M), member, root, SIZE,
        Plan(FROM, TO, OP, SHARED, STRIDING, False, False), ORDER, WORDS,
    )  # fmt: skip
