"""``accumulate`` and ``ring``: the atomic, spinlock and ring all-reduce.

Symbols: W = SIZE members, (M, N) input and output. ``bases``: int64 (W,), where each member's workspace is mapped
here.
"""

import math

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from iris_under_test.device.fences import await_count, poke, publish
from iris_under_test.device.locks import acquire, release
from iris_under_test.device.signals import behind, first_turn, signal, wait

from .arguments import Group, Matrix, tiled
from .reductions import atomically_combine, combined, widened

__all__ = ["accumulate_gluon", "accumulate_triton", "ring_gluon", "ring_triton"]


@triton.jit
def accumulate(group, bases, source, target, tiling, OP: tl.constexpr, LOCKED: tl.constexpr):
    """Start each member's output with its own input, then let the other members reduce their inputs into it.

    They do so by atomics, or if LOCKED one after another, each while it holds the tile's lock, a word in the workspace
    of the output's owner. A tile belongs to one program, with the same number on every member, and these programs
    synchronise before any of them accesses another member's output. So the output may be the input. A program that
    holds a lock waits for nothing else, so it does not matter how many programs are resident.

    Example: W = 2, inputs 1 and 5: outputs are 1 and 5; the members synchronise; member 0 adds 1 to member 1's output,
    and member 1 adds 5 to member 0's.
    """
    pid = tl.program_id(0)
    turn = group.first_turn(pid)
    step = tl.num_programs(0)
    for tile in range(tiling.first(pid, step), tiling.tiles_m * tiling.tiles_n, step):
        tile_m, tile_n = tiling.place(tile)
        # 64-bit before the first multiplication: tensors of 2^31 elements and more are ordinary here.
        rows = tile_m.to(tl.int64) * tiling.BLOCK_M + tiling.lanes // tiling.BLOCK_N
        columns = tile_n.to(tl.int64) * tiling.BLOCK_N + tiling.lanes % tiling.BLOCK_N
        mask = (rows < tiling.M) & (columns < tiling.N)
        mine = tl.load(source.ptr + source.offsets(rows, columns), mask=mask)
        places = target.offsets(rows, columns)
        tl.store(target.ptr + places, mine, mask=mask)
        group.signal(pid, turn)
        group.wait(pid, turn)
        turn += 1
        for other in range(1, group.SIZE):
            peer = group.behind(other)
            pointers = group.translate(target.ptr, peer, target.ALIGNMENT) + places
            if LOCKED:
                lock = tl.load(bases + peer).to(tl.pointer_type(tl.int32)) + tile
                acquire(lock)
                held = tl.load(pointers, mask=mask)
                total = combined(widened(held), widened(mine), OP)
                tl.store(pointers, total.to(held.dtype), mask=mask)
                release(lock)
            else:
                atomically_combine(pointers, mine, mask, OP)
    # All reductions into other members' outputs are complete, and so are theirs into mine.
    group.signal(pid, turn)
    group.wait(pid, turn)


@triton.jit
def ring(
    pads, bases, source, target, tiling, member, flag_bytes, slot_bytes,
    OP: tl.constexpr, SIZE: tl.constexpr, RINGS: tl.constexpr, SLICE: tl.constexpr,
):  # fmt: skip
    """Send W slices at a time round a ring of the members, each starting at another member.

    In the first W - 1 steps each member reduces its own elements into the slice that it received; in the next W - 1
    steps the result is passed on and stored.

    A slice is BLOCK_M x SLICE elements of a tile. Programs p of all members form a ring, in which the next member is
    ``_stride`` further on. A member's workspace has an int32 flag per program, which counts the slices received in this
    call, and from byte ``flag_bytes`` on W slots of ``slot_bytes`` per program, used in turn.

    No slot is overwritten before it has been read: slice n is sent after slice n - 1 was received, which was sent after
    n - 2 had arrived at its sender, and so on back round the ring; so the receiver of n has read all slices up to n -
    W. At the end the members set their flags to zero and synchronise, so that a call of any other shape may follow.

    Example: W = 3, slices a, b, c, members 0, 1, 2. Member 0 sends its a; it receives c from 2, adds its own and sends
    it; it receives b, which contains those of 1 and 2, and with its own is the sum. It sends b, receives the sum of a,
    sends that, receives c.
    """
    pid = tl.program_id(0)
    turn = first_turn(pads, member, SIZE, pid)
    next_one, place = member, member
    for number in tl.static_range(RINGS):
        if pid % RINGS == number:
            next_one = behind(member, _stride(number, SIZE), SIZE)
            place = member * _inverse(number, SIZE) % SIZE
    mine, theirs = tl.load(bases + member), tl.load(bases + next_one)
    area = flag_bytes + pid.to(tl.int64) * slot_bytes * SIZE
    inbox, outbox = mine + area, theirs + area
    came, sent = (mine + pid * 4).to(tl.pointer_type(tl.int32)), (theirs + pid * 4).to(tl.pointer_type(tl.int32))

    slices = tiling.tiles_m * tiling.tiles_n * (tiling.BLOCK_N // SLICE)
    count = 0
    for begin in range(pid * SIZE, slices, tl.num_programs(0) * SIZE):
        rows, columns, mask = _slice(begin + place, tiling, SLICE)
        partial = widened(tl.load(source.ptr + source.offsets(rows, columns), mask=mask, other=0))
        for back in range(1, SIZE):
            _send(partial, outbox, sent, count, tiling.lanes, slot_bytes, SIZE)
            held = _receive(inbox, came, count, tiling.lanes, slot_bytes, SIZE, partial.dtype)
            count += 1
            index = begin + (place + SIZE - back) % SIZE
            rows, columns, mask = _slice(index, tiling, SLICE)
            own = widened(tl.load(source.ptr + source.offsets(rows, columns), mask=mask, other=0))
            partial = combined(held, own, OP)
        result = partial.to(target.ptr.dtype.element_ty)
        tl.store(target.ptr + target.offsets(rows, columns), result, mask=mask)
        for back in range(SIZE, 2 * SIZE - 1):
            _send(result, outbox, sent, count, tiling.lanes, slot_bytes, SIZE)
            result = _receive(inbox, came, count, tiling.lanes, slot_bytes, SIZE, result.dtype)
            count += 1
            index = begin + (place + 2 * SIZE - back) % SIZE
            rows, columns, mask = _slice(index, tiling, SLICE)
            tl.store(target.ptr + target.offsets(rows, columns), result, mask=mask)
    poke(came, 0)
    signal(pads, member, SIZE, pid, turn)
    wait(pads, SIZE, pid, turn)


@triton.constexpr_function
def _stride(which, size):
    """Return the distance to the next member of a ring: different for each ring, as long as distances that reach all
    members remain.
    """
    reaching = [step for step in range(1, size) if math.gcd(step, size) == 1] or [1]
    return reaching[which % len(reaching)]


@triton.constexpr_function
def _inverse(which, size):
    """Return the number that, times a member's number and modulo ``size``, gives the member's steps from member 0.

    Example: 5 members, stride 2: 0, 2, 4, 1, 3; the inverse is 3, and member 4 * 3 = 12 is 2 steps away.
    """
    reaching = [step for step in range(1, size) if math.gcd(step, size) == 1] or [1]
    return pow(reaching[which % len(reaching)], -1, size)


@triton.jit
def _slice(index, tiling, SLICE: tl.constexpr):
    """Return rows and columns (int64) of a slice, and a mask of valid elements: all false after the last slice."""
    PER_TILE: tl.constexpr = tiling.BLOCK_N // SLICE
    slices = tiling.tiles_m * tiling.tiles_n * PER_TILE
    there = tl.minimum(index, slices - 1)
    tile_m, tile_n = tiling.place(there // PER_TILE)
    rows = tile_m.to(tl.int64) * tiling.BLOCK_M + tiling.lanes // SLICE
    columns = tile_n.to(tl.int64) * tiling.BLOCK_N + there % PER_TILE * SLICE + tiling.lanes % SLICE
    return rows, columns, (rows < tiling.M) & (columns < tiling.N) & (index < slices)


@triton.jit
def _send(data, outbox, sent, count, lanes, slot_bytes, SIZE: tl.constexpr):
    slot = tl.multiple_of((outbox + count % SIZE * slot_bytes).to(tl.pointer_type(data.dtype)), 16)
    tl.store(slot + lanes, data)
    publish()
    poke(sent, count + 1)


@triton.jit
def _receive(inbox, came, count, lanes, slot_bytes, SIZE: tl.constexpr, DTYPE: tl.constexpr):
    await_count(came, count + 1, "a slice of the ring has not arrived")
    slot = tl.multiple_of((inbox + count % SIZE * slot_bytes).to(tl.pointer_type(DTYPE)), 16)
    return tl.load(slot + lanes)


# Not specialised: what differs between ranks and groups, so that all ranks run one binary.
@triton.jit(do_not_specialize=["member"])
def accumulate_triton(
    context, pads, bases, input_ptr, output_ptr, M, N, in_m, in_n, out_m, out_n, member,
    OP: tl.constexpr, LOCKED: tl.constexpr, SIZE: tl.constexpr, ALIGNMENT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    GROUP_M: tl.constexpr, NUM_XCDS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """See ``accumulate``."""
    lanes = tl.arange(0, BLOCK_M * BLOCK_N)
    accumulate(
        Group(context, pads, member, SIZE), bases, Matrix(input_ptr, in_m, in_n),
        Matrix(output_ptr, out_m, out_n, 0, ALIGNMENT),
        tiled(M, N, lanes, BLOCK_M, BLOCK_N, GROUP_M, NUM_XCDS, CHUNK), OP, LOCKED,
    )  # fmt: skip


@triton.jit(do_not_specialize=["member"])
def ring_triton(
    pads, bases, input_ptr, output_ptr, M, N, in_m, in_n, out_m, out_n, member, flag_bytes, slot_bytes,
    OP: tl.constexpr, SIZE: tl.constexpr, RINGS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SLICE: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """See ``ring``."""
    lanes = tl.arange(0, BLOCK_M * SLICE)
    ring(
        pads, bases, Matrix(input_ptr, in_m, in_n), Matrix(output_ptr, out_m, out_n),
        tiled(M, N, lanes, BLOCK_M, BLOCK_N, GROUP_M), member, flag_bytes, slot_bytes, OP, SIZE, RINGS, SLICE,
    )  # fmt: skip


# Not specialised: what differs between ranks and groups, so that all ranks run one binary.
@gluon.jit(do_not_specialize=["member"])
def accumulate_gluon(
    context, pads, bases, input_ptr, output_ptr, M, N, in_m, in_n, out_m, out_n, member,
    OP: gl.constexpr, LOCKED: gl.constexpr, SIZE: gl.constexpr, ALIGNMENT: gl.constexpr,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr,
    GROUP_M: gl.constexpr, NUM_XCDS: gl.constexpr, CHUNK: gl.constexpr,
    ELEMENTS_PER_LANE: gl.constexpr, LANES: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """See ``accumulate``."""
    layout: gl.constexpr = gl.BlockedLayout([ELEMENTS_PER_LANE], [LANES], [WARPS], [0])
    lanes = gl.arange(0, BLOCK_M * BLOCK_N, layout=layout)
    accumulate(
        Group(context, pads, member, SIZE), bases, Matrix(input_ptr, in_m, in_n),
        Matrix(output_ptr, out_m, out_n, 0, ALIGNMENT),
        tiled(M, N, lanes, BLOCK_M, BLOCK_N, GROUP_M, NUM_XCDS, CHUNK), OP, LOCKED,
    )  # fmt: skip


@gluon.jit(do_not_specialize=["member"])
def ring_gluon(
    pads, bases, input_ptr, output_ptr, M, N, in_m, in_n, out_m, out_n, member, flag_bytes, slot_bytes,
    OP: gl.constexpr, SIZE: gl.constexpr, RINGS: gl.constexpr,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, SLICE: gl.constexpr, GROUP_M: gl.constexpr,
    ELEMENTS_PER_LANE: gl.constexpr, LANES: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """See ``ring``."""
    layout: gl.constexpr = gl.BlockedLayout([ELEMENTS_PER_LANE], [LANES], [WARPS], [0])
    lanes = gl.arange(0, BLOCK_M * SLICE, layout=layout)
    ring(
        pads, bases, Matrix(input_ptr, in_m, in_n), Matrix(output_ptr, out_m, out_n),
        tiled(M, N, lanes, BLOCK_M, BLOCK_N, GROUP_M), member, flag_bytes, slot_bytes, OP, SIZE, RINGS, SLICE,
    )  # fmt: skip
