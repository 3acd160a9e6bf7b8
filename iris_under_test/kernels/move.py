"""``move``: moves tiles between the members of a group. ``ccl.plans`` lists the collectives that use it.

Symbols: W members, each with an input and an output at the same offsets of their heaps. A tile of BLOCK_M x BLOCK_N
elements is loaded from FROM, reduced if that is several members, and stored to TO:

    FROM   "own"   this member's input
           "root"  the root's input
           "all"   all inputs, reduced with OP in the members' order, so that every member gets the same bits
           "each"  each member's input in turn, each for another place of the output
    TO     "own" | "root"
           "all"     all outputs
           "others"  all outputs but the root's
           "one"     the output of one member, a different one for each of W programs
           "each"    each member's output in turn, each from another place of this member's input

If places differ from member to member, the input of member m begins at m * ``source.step``, or the output at m *
``target.step``.
"""

# No postponed annotations here: Triton 3.6's aggregate reads the annotations as classes.
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.core import _aggregate as aggregate

from .arguments import Group, Matrix, Tiling
from .reductions import combined, widened
from .tiles import share_of

__all__ = ["move_gluon", "move_triton"]


@aggregate
class Plan:
    """Description of a collective: FROM, TO and SHARED (see ``tiles.share_of``), the code OP of a ``ReduceOp``.

    IN_PLACE: the output is the input, which others read. RUN: input and output are one run of N elements.
    """

    FROM: tl.constexpr
    TO: tl.constexpr
    OP: tl.constexpr
    SHARED: tl.constexpr
    STRIDING: tl.constexpr
    IN_PLACE: tl.constexpr
    RUN: tl.constexpr

    # A plain function here compiles on some Triton versions only.
    @triton.constexpr_function
    def __init__(self, FROM, TO, OP, SHARED, STRIDING, IN_PLACE, RUN):
        self.FROM = tl.constexpr(FROM)
        self.TO = tl.constexpr(TO)
        self.OP = tl.constexpr(OP)
        self.SHARED = tl.constexpr(SHARED)
        self.STRIDING = tl.constexpr(STRIDING)
        self.IN_PLACE = tl.constexpr(IN_PLACE)
        self.RUN = tl.constexpr(RUN)


@triton.jit
def move(group, source, target, tiling, root, plan):
    """Move the tiles of this member; its programs stride over them.

    Example, all_gather: W = 4, member 2, input (3, 8), tiles 2 x 8: tile 0 goes to rows 6 and 7 of members 2, 3, 0, 1;
    tile 1, whose second row is masked, to row 8.
    """
    pid = tl.program_id(0)
    member = group.member
    SIZE: tl.constexpr = group.SIZE
    turn = group.first_turn(pid)
    # Work enqueued before this kernel has ended: others may now read my input and write to my output.
    group.signal(pid, turn)
    SERVERS: tl.constexpr = SIZE if plan.TO == "one" else 1  # programs that work on the same tiles
    step = tl.num_programs(0) // SERVERS
    first = tiling.first(pid // SERVERS, step)
    begin, count, stride = share_of(tiling.tiles_m * tiling.tiles_n, member, root, plan.SHARED, plan.STRIDING, SIZE)

    sources = ()
    if plan.FROM == "own":
        sources += (source.ptr,)
    elif plan.FROM == "root":
        sources += (group.translate(source.ptr, root, source.ALIGNMENT),)
    else:
        for other in tl.static_range(SIZE):
            peer = other if plan.FROM == "all" else group.behind(other)
            sources += (group.translate(source.ptr, peer, source.ALIGNMENT),)
    targets = ()
    if plan.TO == "own":
        targets += (target.ptr,)
    elif plan.TO == "root":
        targets += (group.translate(target.ptr, root, target.ALIGNMENT),)
    elif plan.TO == "one":
        targets += (group.translate(target.ptr, group.behind(pid), target.ALIGNMENT),)
    elif plan.TO == "others":
        place = group.behind(SIZE - root - 1)
        for other in tl.static_range(SIZE - 1):
            peer = (root + 1 + (place + other) % (SIZE - 1)) % SIZE
            targets += (group.translate(target.ptr, peer, target.ALIGNMENT),)
    else:
        # Starting with the caller, so that the members write to different ones at any time.
        for other in tl.static_range(SIZE):
            targets += (group.translate(target.ptr, group.behind(other), target.ALIGNMENT),)

    BLOCK_M: tl.constexpr = tiling.BLOCK_M
    BLOCK_N: tl.constexpr = tiling.BLOCK_N
    # 64-bit before the first multiplication: tensors of 2^31 elements and more are ordinary here.
    rows = (tiling.lanes // BLOCK_N).to(tl.int64)
    columns = (tiling.lanes % BLOCK_N).to(tl.int64)
    elements = tl.cast(tiling.N, tl.int64)
    group.wait(pid, turn)
    for index in range(first, count, step):
        tile = begin + index * stride
        if plan.RUN:
            # One run of N elements, without rows.
            start = tile.to(tl.int64) * (BLOCK_M * BLOCK_N)
            in_offsets = start + tiling.lanes
            out_offsets = in_offsets
            mask = in_offsets < elements
            whole = elements - start >= BLOCK_M * BLOCK_N
        else:
            tile_m, tile_n = tiling.place(tile)
            row = tile_m.to(tl.int64) * BLOCK_M
            column = tile_n.to(tl.int64) * BLOCK_N
            in_offsets = source.offsets(row, column) + source.offsets(rows, columns)
            out_offsets = target.offsets(row, column) + target.offsets(rows, columns)
            mask = (row + rows < tiling.M) & (column + columns < tiling.N)
            whole = (tiling.M - row >= BLOCK_M) & (tiling.N - column >= BLOCK_N)
        # A whole tile moves without a mask, so that accesses are 16 bytes wide whatever the tensor's edge is.
        if plan.IN_PLACE:
            turn += 1
        if whole:
            _move_tile(
                group, plan, sources, targets, in_offsets, out_offsets, source.step, target.step, None, pid, turn
            )
        else:
            _move_tile(
                group, plan, sources, targets, in_offsets, out_offsets, source.step, target.step, mask, pid, turn
            )
    # All elements that I moved have arrived, and I have finished reading inputs.
    group.signal(pid, turn + 1)
    group.wait(pid, turn + 1)


@triton.jit
def _move_tile(group, plan, sources, targets, in_offsets, out_offsets, in_step, out_step, mask, pid, turn):
    SIZE: tl.constexpr = group.SIZE
    own = group.member.to(tl.int64)
    if plan.FROM == "each":
        # All loads before the first store: a load after a store would wait for it.
        loaded = ()
        for other in tl.static_range(SIZE):
            loaded += (tl.load(sources[other] + in_offsets, mask=mask),)
        for other in tl.static_range(SIZE):
            peer = group.behind(other).to(tl.int64)
            tl.store(targets[0] + peer * out_step + out_offsets, loaded[other], mask=mask)
    elif plan.TO == "each":
        loaded = ()
        for other in tl.static_range(SIZE):
            peer = group.behind(other).to(tl.int64)
            loaded += (tl.load(sources[0] + peer * in_step + in_offsets, mask=mask),)
        for other in tl.static_range(SIZE):
            tl.store(targets[other] + own * out_step + out_offsets, loaded[other], mask=mask)
    else:
        if plan.FROM == "all":
            loaded = ()
            for other in tl.static_range(SIZE):
                loaded += (tl.load(sources[other] + in_offsets, mask=mask),)
            data = widened(loaded[0])
            for other in tl.static_range(SIZE - 1):
                data = combined(data, widened(loaded[other + 1]), plan.OP)
            data = data.to(targets[0].dtype.element_ty)
        elif plan.FROM == "root":
            data = tl.load(sources[0] + in_offsets, mask=mask)
        else:
            data = tl.load(sources[0] + in_offsets, mask=mask)
        if plan.IN_PLACE:
            # The tile is also in my input, which others read.
            group.signal(pid, turn)
            group.wait(pid, turn)
        if plan.TO == "own":
            tl.store(targets[0] + out_offsets, data, mask=mask)
        else:
            for other in tl.static_range(len(targets)):
                tl.store(targets[other] + own * out_step + out_offsets, data, mask=mask)


# Not specialised: what differs between ranks and groups, so that all ranks run one binary.
@triton.jit(do_not_specialize=["M", "tiles_m", "tiles_n", "member", "root"])
def move_triton(
    context, pads, input_ptr, output_ptr, M, N, in_m, in_n, out_m, out_n, in_step, out_step, tiles_m, tiles_n,
    member, root,
    FROM: tl.constexpr, TO: tl.constexpr, OP: tl.constexpr, SHARED: tl.constexpr, STRIDING: tl.constexpr,
    IN_PLACE: tl.constexpr, SIZE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    GROUP_M: tl.constexpr, NUM_XCDS: tl.constexpr, CHUNK: tl.constexpr,
    IN_ALIGNMENT: tl.constexpr, OUT_ALIGNMENT: tl.constexpr, RUN: tl.constexpr,
):  # fmt: skip
    """See ``move``."""
    lanes = tl.arange(0, BLOCK_M * BLOCK_N)
    move(
        Group(context, pads, member, SIZE),
        Matrix(input_ptr, in_m, in_n, in_step, IN_ALIGNMENT),
        Matrix(output_ptr, out_m, out_n, out_step, OUT_ALIGNMENT),
        Tiling(M, N, tiles_m, tiles_n, lanes, BLOCK_M, BLOCK_N, GROUP_M, NUM_XCDS, CHUNK),
        root,
        Plan(FROM, TO, OP, SHARED, STRIDING, IN_PLACE, RUN),
    )


# Not specialised: what differs between ranks and groups, so that all ranks run one binary.
@gluon.jit(do_not_specialize=["M", "tiles_m", "tiles_n", "member", "root"])
def move_gluon(
    context, pads, input_ptr, output_ptr, M, N, in_m, in_n, out_m, out_n, in_step, out_step, tiles_m, tiles_n,
    member, root,
    FROM: gl.constexpr, TO: gl.constexpr, OP: gl.constexpr, SHARED: gl.constexpr, STRIDING: gl.constexpr,
    IN_PLACE: gl.constexpr, SIZE: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr,
    GROUP_M: gl.constexpr, NUM_XCDS: gl.constexpr, CHUNK: gl.constexpr,
    IN_ALIGNMENT: gl.constexpr, OUT_ALIGNMENT: gl.constexpr, RUN: gl.constexpr,
    ELEMENTS_PER_LANE: gl.constexpr, LANES: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """See ``move``."""
    lanes = gl.arange(0, BLOCK_M * BLOCK_N, layout=gl.BlockedLayout([ELEMENTS_PER_LANE], [LANES], [WARPS], [0]))
    move(
        Group(context, pads, member, SIZE),
        Matrix(input_ptr, in_m, in_n, in_step, IN_ALIGNMENT),
        Matrix(output_ptr, out_m, out_n, out_step, OUT_ALIGNMENT),
        Tiling(M, N, tiles_m, tiles_n, lanes, BLOCK_M, BLOCK_N, GROUP_M, NUM_XCDS, CHUNK),
        root,
        Plan(FROM, TO, OP, SHARED, STRIDING, IN_PLACE, RUN),
    )
