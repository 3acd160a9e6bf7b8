"""What the programs of ``move`` do, which moves tiles between a group's members: the body of a kernel in Triton and of
one in Gluon, which differ only in who lays out a tile's elements over lanes. ``ccl.plans`` says what it is used for.

Symbols: W members, each with an input and an output at the same offsets of their heaps. A tile of BLOCK_M x BLOCK_N
elements is loaded from FROM, reduced if that is several members, and stored to TO:

    FROM   "own"   this member's input
           "root"  the root's
           "all"   everybody's, reduced with OP in the members' order, so that every member gets the same bits
           "each"  each member's in turn, which goes to another place of the output each
    TO     "own" | "root"
           "all"     everybody's output
           "others"  all but the root's
           "one"     the output of one member, which is another one for each program of W
           "each"    each member's output in turn, with what lies at another place of the own input each

``lanes``: 0 to BLOCK_M * BLOCK_N - 1; the fastest index runs along N. ``in_step`` and ``out_step``, in elements: where
places differ from member to member, the input of member m begins at m * in_step, or the output at m * out_step.
"""

import triton
import triton.language as tl

from iris_under_test.ccl.reductions import combined, widened
from iris_under_test.ccl.tiles import triton_grouped_tile, triton_share_of, triton_spread_over_xcds
from iris_under_test.device.signals import behind, first_turn, signal, wait
from iris_under_test.device.triton.address import translate

__all__ = ["move"]


@triton.jit
def move(
    context, pads, input_ptr, output_ptr, lanes, M, N, in_m, in_n, out_m, out_n, in_step, out_step, tiles_m, tiles_n,
    member, root,
    FROM: tl.constexpr, TO: tl.constexpr, OP: tl.constexpr, SHARED: tl.constexpr, STRIDING: tl.constexpr,
    IN_PLACE: tl.constexpr, SIZE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    GROUP_M: tl.constexpr, NUM_XCDS: tl.constexpr, CHUNK: tl.constexpr,
    IN_ALIGNMENT: tl.constexpr, OUT_ALIGNMENT: tl.constexpr, RUN: tl.constexpr,
):  # fmt: skip
    """Programs stride over the tiles that are this member's to move.

    Example, all_gather: W = 4, member 2, input (3, 8), tiles 2 x 8: tile 0 goes to rows 6 and 7 of members 2, 3, 0, 1;
    tile 1, whose second row is masked, to row 8.
    """
    pid = tl.program_id(0)
    turn = first_turn(pads, member, SIZE, pid)
    # What is enqueued before this kernel has ended: others may read my input now, and write to my output.
    signal(pads, member, SIZE, pid, turn)
    heap_bases = context + 2
    SERVERS: tl.constexpr = SIZE if TO == "one" else 1  # programs that work on the same tiles
    step = tl.num_programs(0) // SERVERS
    first = triton_spread_over_xcds(pid // SERVERS, step, NUM_XCDS, CHUNK)
    begin, count, stride = triton_share_of(tiles_m * tiles_n, member, root, SHARED, STRIDING, SIZE)

    sources = ()
    if FROM == "own":
        sources += (input_ptr,)
    elif FROM == "root":
        sources += (translate(input_ptr, heap_bases, member, root, IN_ALIGNMENT),)
    else:
        for other in tl.static_range(SIZE):
            peer = other if FROM == "all" else behind(member, other, SIZE)
            sources += (translate(input_ptr, heap_bases, member, peer, IN_ALIGNMENT),)
    targets = ()
    if TO == "own":
        targets += (output_ptr,)
    elif TO == "root":
        targets += (translate(output_ptr, heap_bases, member, root, OUT_ALIGNMENT),)
    elif TO == "one":
        targets += (translate(output_ptr, heap_bases, member, behind(member, pid, SIZE), OUT_ALIGNMENT),)
    elif TO == "others":
        place = behind(member, SIZE - root - 1, SIZE)
        for other in tl.static_range(SIZE - 1):
            peer = (root + 1 + (place + other) % (SIZE - 1)) % SIZE
            targets += (translate(output_ptr, heap_bases, member, peer, OUT_ALIGNMENT),)
    else:
        # Starting with the own one, so that at any time the members write to different ones.
        for other in tl.static_range(SIZE):
            targets += (translate(output_ptr, heap_bases, member, behind(member, other, SIZE), OUT_ALIGNMENT),)

    # 64-bit before the first multiplication: tensors of 2^31 elements and more are ordinary here.
    rows = (lanes // BLOCK_N).to(tl.int64)
    columns = (lanes % BLOCK_N).to(tl.int64)
    elements = tl.cast(N, tl.int64)
    wait(pads, member, SIZE, pid, turn)
    for index in range(first, count, step):
        tile = begin + index * stride
        if RUN:
            # One run of N elements: no rows to tell apart.
            start = tile.to(tl.int64) * (BLOCK_M * BLOCK_N)
            in_offsets = start + lanes
            out_offsets = in_offsets
            mask = in_offsets < elements
            whole = elements - start >= BLOCK_M * BLOCK_N
        else:
            tile_m, tile_n = triton_grouped_tile(tile, tiles_m, tiles_n, GROUP_M)
            row = tile_m.to(tl.int64) * BLOCK_M
            column = tile_n.to(tl.int64) * BLOCK_N
            in_offsets = (row * in_m + column * in_n) + (rows * in_m + columns * in_n)
            out_offsets = (row * out_m + column * out_n) + (rows * out_m + columns * out_n)
            mask = (row + rows < M) & (column + columns < N)
            whole = (M - row >= BLOCK_M) & (N - column >= BLOCK_N)
        # A whole tile moves without a mask, so that accesses are 16 bytes wide whatever the tensor's edge is.
        if IN_PLACE:
            turn += 1
        if whole:
            _move_tile(
                sources, targets, in_offsets, out_offsets, None, in_step, out_step, member,
                pads, pid, turn, FROM, TO, OP, IN_PLACE, SIZE,
            )  # fmt: skip
        else:
            _move_tile(
                sources, targets, in_offsets, out_offsets, mask, in_step, out_step, member,
                pads, pid, turn, FROM, TO, OP, IN_PLACE, SIZE,
            )  # fmt: skip
    # All that I moved has arrived, and I read nobody's input any more.
    signal(pads, member, SIZE, pid, turn + 1)
    wait(pads, member, SIZE, pid, turn + 1)


@triton.jit
def _move_tile(
    sources, targets, in_offsets, out_offsets, mask, in_step, out_step, member,
    pads, pid, turn, FROM: tl.constexpr, TO: tl.constexpr, OP: tl.constexpr, IN_PLACE: tl.constexpr,
    SIZE: tl.constexpr,
):  # fmt: skip
    own = member.to(tl.int64)
    if FROM == "each":
        # All loads before the first store: a load behind a store would wait for it.
        loaded = ()
        for other in tl.static_range(SIZE):
            loaded += (tl.load(sources[other] + in_offsets, mask=mask),)  # remote
        for other in tl.static_range(SIZE):
            peer = behind(member, other, SIZE).to(tl.int64)
            tl.store(targets[0] + peer * out_step + out_offsets, loaded[other], mask=mask)
    elif TO == "each":
        loaded = ()
        for other in tl.static_range(SIZE):
            peer = behind(member, other, SIZE).to(tl.int64)
            loaded += (tl.load(sources[0] + peer * in_step + in_offsets, mask=mask),)
        for other in tl.static_range(SIZE):
            tl.store(targets[other] + own * out_step + out_offsets, loaded[other], mask=mask)  # remote
    else:
        if FROM == "all":
            loaded = ()
            for other in tl.static_range(SIZE):
                loaded += (tl.load(sources[other] + in_offsets, mask=mask),)  # remote
            data = widened(loaded[0])
            for other in tl.static_range(SIZE - 1):
                data = combined(data, widened(loaded[other + 1]), OP)
            data = data.to(targets[0].dtype.element_ty)
        elif FROM == "root":
            data = tl.load(sources[0] + in_offsets, mask=mask)  # remote
        else:
            data = tl.load(sources[0] + in_offsets, mask=mask)
        if IN_PLACE:
            # My input, which the tile lies in as well, is what others read.
            signal(pads, member, SIZE, pid, turn)
            wait(pads, member, SIZE, pid, turn)
        if TO == "own":
            tl.store(targets[0] + out_offsets, data, mask=mask)
        else:
            for other in tl.static_range(len(targets)):
                tl.store(targets[other] + own * out_step + out_offsets, data, mask=mask)  # remote
