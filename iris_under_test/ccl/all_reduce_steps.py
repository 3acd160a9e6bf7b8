"""What the programs of the atomic, spinlock and ring all-reduce do: the bodies of kernels in Triton and in Gluon, which
differ only in who lays out a tile's elements over lanes.

Symbols: W = SIZE members, (M, N) input and output. ``lanes``: 0 to elements of a tile - 1; the fastest index runs along
N. ``context`` and ``pads``: see ``host.groups.Members``. ``bases``: int64 (W,), where each member's workspace is mapped
here.
"""

import math

import triton
import triton.language as tl

from iris_under_test.ccl.reductions import atomically_combine, combined, widened
from iris_under_test.ccl.tiles import triton_grouped_tile, triton_spread_over_xcds
from iris_under_test.device.fences import await_count, poke, publish
from iris_under_test.device.locks import give_back, take
from iris_under_test.device.signals import behind, first_turn, signal, wait
from iris_under_test.device.triton.address import translate

__all__ = ["accumulate", "ring"]


@triton.jit
def accumulate(
    context, pads, bases, input_ptr, output_ptr, lanes, M, N, in_m, in_n, out_m, out_n, member,
    OP: tl.constexpr, LOCKED: tl.constexpr, SIZE: tl.constexpr, ALIGNMENT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    GROUP_M: tl.constexpr, NUM_XCDS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Each member's output begins as its own input, and the others reduce theirs into it: by atomics, or LOCKED, one
    after another, each while it holds the tile's lock, a word of the output's owner's workspace.

    A tile is one program's, the same on every member, and its programs meet before anybody touches another one's
    output. So the output may be the input. Who holds a lock waits for nothing, so it does not matter how many programs
    are resident.

    Example: W = 2, inputs 1 and 5: outputs 1 and 5; they meet; member 0 adds 1 to member 1's, and that adds 5 to
    member 0's.
    """
    pid = tl.program_id(0)
    heap_bases = context + 2
    turn = first_turn(pads, member, SIZE, pid)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    step = tl.num_programs(0)
    for tile in range(triton_spread_over_xcds(pid, step, NUM_XCDS, CHUNK), tiles_m * tiles_n, step):
        tile_m, tile_n = triton_grouped_tile(tile, tiles_m, tiles_n, GROUP_M)
        # 64-bit before the first multiplication: tensors of 2^31 elements and more are ordinary here.
        rows = tile_m.to(tl.int64) * BLOCK_M + lanes // BLOCK_N
        columns = tile_n.to(tl.int64) * BLOCK_N + lanes % BLOCK_N
        mask = (rows < M) & (columns < N)
        mine = tl.load(input_ptr + (rows * in_m + columns * in_n), mask=mask)
        places = rows * out_m + columns * out_n
        tl.store(output_ptr + places, mine, mask=mask)
        signal(pads, member, SIZE, pid, turn)
        wait(pads, member, SIZE, pid, turn)
        turn += 1
        for other in range(1, SIZE):
            peer = behind(member, other, SIZE)
            pointers = translate(output_ptr, heap_bases, member, peer, ALIGNMENT) + places
            if LOCKED:
                lock = tl.load(bases + peer).to(tl.pointer_type(tl.int32)) + tile
                take(lock)
                held = tl.load(pointers, mask=mask)  # remote
                total = combined(widened(held), widened(mine), OP)
                tl.store(pointers, total.to(held.dtype), mask=mask)  # remote
                give_back(lock)
            else:
                atomically_combine(pointers, mine, mask, OP)
    # All that I reduced into others' outputs is there, and so is theirs in mine.
    signal(pads, member, SIZE, pid, turn)
    wait(pads, member, SIZE, pid, turn)


@triton.jit
def ring(
    pads, bases, input_ptr, output_ptr, lanes, M, N, in_m, in_n, out_m, out_n, member, flag_bytes, slot_bytes,
    OP: tl.constexpr, SIZE: tl.constexpr, RINGS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SLICE: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """W slices at a time go round a ring of the members, each beginning at another one: W - 1 steps in which each
    member reduces its own elements into what has come, then W - 1 steps in which the result is passed on and stored.

    A slice is BLOCK_M x SLICE elements of a tile. Programs p of all members are a ring, in which the next member is
    ``_stride`` further on. A member's workspace has an int32 flag per program, which counts the slices that have come
    in this call, and ``flag_bytes`` behind its begin W slots of ``slot_bytes`` per program, used in turn.

    Nothing is overwritten before it has been read: slice n is sent when slice n - 1 has come, which was sent when n - 2
    had come to its sender, and so on back round the ring; so whoever n goes to has read all up to n - W. At the end the
    members set their flags to zero and meet, so that a call of any other shape may follow.

    Example: W = 3, slices a, b, c, members 0, 1, 2. Member 0 sends its a; c comes from 2, it adds its own and sends it;
    b comes, which 1 and 2 have in it, and with its own is the sum. It sends b, gets the sum of a, sends that, gets c.
    """
    pid = tl.program_id(0)
    turn = first_turn(pads, member, SIZE, pid)
    next_one, place = member, member
    for which in tl.static_range(RINGS):
        if pid % RINGS == which:
            next_one = behind(member, _stride(which, SIZE), SIZE)
            place = member * _inverse(which, SIZE) % SIZE
    mine, theirs = tl.load(bases + member), tl.load(bases + next_one)
    area = flag_bytes + pid.to(tl.int64) * slot_bytes * SIZE
    inbox, outbox = mine + area, theirs + area
    came, sent = (mine + pid * 4).to(tl.pointer_type(tl.int32)), (theirs + pid * 4).to(tl.pointer_type(tl.int32))

    slices = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N) * (BLOCK_N // SLICE)
    count = 0
    for begin in range(pid * SIZE, slices, tl.num_programs(0) * SIZE):
        rows, columns, mask = _slice(begin + place, M, N, lanes, BLOCK_M, BLOCK_N, SLICE, GROUP_M)
        partial = widened(tl.load(input_ptr + (rows * in_m + columns * in_n), mask=mask, other=0))
        for back in range(1, SIZE):
            _send(partial, outbox, sent, count, lanes, slot_bytes, SIZE)
            held = _receive(inbox, came, count, lanes, slot_bytes, SIZE, partial.dtype)
            count += 1
            index = begin + (place + SIZE - back) % SIZE
            rows, columns, mask = _slice(index, M, N, lanes, BLOCK_M, BLOCK_N, SLICE, GROUP_M)
            own = widened(tl.load(input_ptr + (rows * in_m + columns * in_n), mask=mask, other=0))
            partial = combined(held, own, OP)
        result = partial.to(output_ptr.dtype.element_ty)
        tl.store(output_ptr + (rows * out_m + columns * out_n), result, mask=mask)
        for back in range(SIZE, 2 * SIZE - 1):
            _send(result, outbox, sent, count, lanes, slot_bytes, SIZE)
            result = _receive(inbox, came, count, lanes, slot_bytes, SIZE, result.dtype)
            count += 1
            index = begin + (place + 2 * SIZE - back) % SIZE
            rows, columns, mask = _slice(index, M, N, lanes, BLOCK_M, BLOCK_N, SLICE, GROUP_M)
            tl.store(output_ptr + (rows * out_m + columns * out_n), result, mask=mask)
    poke(came, 0)
    signal(pads, member, SIZE, pid, turn)
    wait(pads, member, SIZE, pid, turn)


@triton.constexpr_function
def _stride(which, size):
    """How far the next member of a ring is: another number for each ring, while there are such that reach everybody."""
    reaching = [step for step in range(1, size) if math.gcd(step, size) == 1] or [1]
    return reaching[which % len(reaching)]


@triton.constexpr_function
def _inverse(which, size):
    """What a member's number times this is, modulo ``size``, is how many steps it is from member 0.

    Example: 5 members, stride 2: 0, 2, 4, 1, 3; the inverse is 3, and member 4 * 3 = 12 is 2 steps away.
    """
    reaching = [step for step in range(1, size) if math.gcd(step, size) == 1] or [1]
    return pow(reaching[which % len(reaching)], -1, size)


@triton.jit
def _slice(
    index, M, N, lanes, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SLICE: tl.constexpr, GROUP_M: tl.constexpr
):
    """Rows and columns (int64) of a slice, and which of them there are: none behind the last slice."""
    PER_TILE: tl.constexpr = BLOCK_N // SLICE
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    slices = tiles_m * tiles_n * PER_TILE
    there = tl.minimum(index, slices - 1)
    tile_m, tile_n = triton_grouped_tile(there // PER_TILE, tiles_m, tiles_n, GROUP_M)
    rows = tile_m.to(tl.int64) * BLOCK_M + lanes // SLICE
    columns = tile_n.to(tl.int64) * BLOCK_N + there % PER_TILE * SLICE + lanes % SLICE
    return rows, columns, (rows < M) & (columns < N) & (index < slices)


@triton.jit
def _send(data, outbox, sent, count, lanes, slot_bytes, SIZE: tl.constexpr):
    slot = tl.multiple_of((outbox + count % SIZE * slot_bytes).to(tl.pointer_type(data.dtype)), 16)
    tl.store(slot + lanes, data)  # remote
    publish()
    poke(sent, count + 1)


@triton.jit
def _receive(inbox, came, count, lanes, slot_bytes, SIZE: tl.constexpr, DTYPE: tl.constexpr):
    await_count(came, count + 1)
    slot = tl.multiple_of((inbox + count % SIZE * slot_bytes).to(tl.pointer_type(DTYPE)), 16)
    return tl.load(slot + lanes)
