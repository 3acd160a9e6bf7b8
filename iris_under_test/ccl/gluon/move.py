"""The Gluon kernel that moves tiles between the members of a group: ``ccl.triton.move`` says what FROM, TO and the
steps mean, ``ccl.plans`` what it is used for.

A tile of BLOCK_M x BLOCK_N elements is one flat 1-D block whose fastest index runs along N; the layout gives each lane
up to 16 bytes. The compiler proves accesses 16 bytes wide if the strides along M and the pointers are multiples of 16
and the strides along N are 1 (Triton specialises on these).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from iris_under_test.ccl.launch import compiler_options
from iris_under_test.ccl.tiles import grouped_tile, share_of, spread_over_xcds
from iris_under_test.device.gluon.address import translate
from iris_under_test.device.signals import first_turn, signal, wait
from iris_under_test.host.platform.base import warp_size
from iris_under_test.host.tracing.kernel_artifacts import iris_launch

if TYPE_CHECKING:
    from iris_under_test.ccl.config import Config
    from iris_under_test.ccl.plans import Plan

__all__ = ["launch_move", "move"]


# Not specialised: what differs between ranks and groups, so that all ranks run one binary.
@gluon.jit(do_not_specialize=["M", "tiles_m", "tiles_n", "member", "root"])
def move(
    context, pads, input_ptr, output_ptr, M, N, in_m, in_n, out_m, out_n, in_step, out_step, tiles_m, tiles_n,
    member, root,
    FROM: gl.constexpr, TO: gl.constexpr, OP: gl.constexpr, SHARED: gl.constexpr, STRIDING: gl.constexpr,
    IN_PLACE: gl.constexpr, SIZE: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr,
    GROUP_M: gl.constexpr, NUM_XCDS: gl.constexpr, CHUNK: gl.constexpr,
    ELEMENTS_PER_LANE: gl.constexpr, LANES: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """Programs stride over the tiles that are this member's to move."""
    pid = gl.program_id(0)
    turn = first_turn(pads, member, SIZE, pid)
    # What is enqueued before this kernel has ended: others may read my input now, and write to my output.
    signal(pads, member, SIZE, pid, turn)
    heap_bases = context + 2
    step = gl.num_programs(0)
    first = spread_over_xcds(pid, step, NUM_XCDS, CHUNK)
    begin, count, stride = share_of(tiles_m * tiles_n, member, root, SHARED, STRIDING, SIZE)

    sources = ()
    if FROM == "own":
        sources += (input_ptr,)
    elif FROM == "root":
        sources += (translate(input_ptr, heap_bases, member, root),)
    else:
        for other in gl.static_range(SIZE):
            peer = other if FROM == "all" else (member + other) % SIZE
            sources += (translate(input_ptr, heap_bases, member, peer),)
    targets = ()
    if TO == "own":
        targets += (output_ptr,)
    elif TO == "root":
        targets += (translate(output_ptr, heap_bases, member, root),)
    elif TO == "others":
        place = (member + SIZE - root - 1) % SIZE
        for other in gl.static_range(SIZE - 1):
            peer = (root + 1 + (place + other) % (SIZE - 1)) % SIZE
            targets += (translate(output_ptr, heap_bases, member, peer),)
    else:
        # Starting with the own one, so that at any time the members write to different ones.
        for other in gl.static_range(SIZE):
            targets += (translate(output_ptr, heap_bases, member, (member + other) % SIZE),)

    # 64-bit before the first multiplication: tensors of 2^31 elements and more are ordinary here.
    flat = gl.arange(0, BLOCK_M * BLOCK_N, layout=gl.BlockedLayout([ELEMENTS_PER_LANE], [LANES], [WARPS], [0]))
    rows = (flat // BLOCK_N).to(gl.int64)
    columns = (flat % BLOCK_N).to(gl.int64)
    wait(pads, member, SIZE, pid, turn)
    for index in range(first, count, step):
        tile_m, tile_n = grouped_tile(begin + index * stride, tiles_m, tiles_n, GROUP_M)
        row = tile_m.to(gl.int64) * BLOCK_M
        column = tile_n.to(gl.int64) * BLOCK_N
        in_offsets = (row * in_m + column * in_n) + (rows * in_m + columns * in_n)
        out_offsets = (row * out_m + column * out_n) + (rows * out_m + columns * out_n)
        mask = (row + rows < M) & (column + columns < N)
        # A whole tile moves without a mask, so that accesses are 16 bytes wide whatever the tensor's edge is.
        whole = (M - row >= BLOCK_M) & (N - column >= BLOCK_N)
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


@gluon.jit
def _move_tile(
    sources, targets, in_offsets, out_offsets, mask, in_step, out_step, member,
    pads, pid, turn, FROM: gl.constexpr, TO: gl.constexpr, OP: gl.constexpr, IN_PLACE: gl.constexpr,
    SIZE: gl.constexpr,
):  # fmt: skip
    own = member.to(gl.int64)
    if FROM == "each":
        # All loads before the first store: a load behind a store would wait for it.
        loaded = ()
        for other in gl.static_range(SIZE):
            loaded += (gl.load(sources[other] + in_offsets, mask=mask),)  # remote
        for other in gl.static_range(SIZE):
            peer = ((member + other) % SIZE).to(gl.int64)
            gl.store(targets[0] + peer * out_step + out_offsets, loaded[other], mask=mask)
    elif TO == "each":
        loaded = ()
        for other in gl.static_range(SIZE):
            peer = ((member + other) % SIZE).to(gl.int64)
            loaded += (gl.load(sources[0] + peer * in_step + in_offsets, mask=mask),)
        for other in gl.static_range(SIZE):
            gl.store(targets[other] + own * out_step + out_offsets, loaded[other], mask=mask)  # remote
    else:
        if FROM == "all":
            loaded = ()
            for other in gl.static_range(SIZE):
                loaded += (gl.load(sources[other] + in_offsets, mask=mask),)  # remote
            data = _widened(loaded[0])
            for other in gl.static_range(SIZE - 1):
                data = _combined(data, _widened(loaded[other + 1]), OP)
            data = data.to(targets[0].dtype.element_ty)
        elif FROM == "root":
            data = gl.load(sources[0] + in_offsets, mask=mask)  # remote
        else:
            data = gl.load(sources[0] + in_offsets, mask=mask)
        if IN_PLACE:
            # My input, which the tile lies in as well, is what others read.
            signal(pads, member, SIZE, pid, turn)
            wait(pads, member, SIZE, pid, turn)
        if TO == "own":
            gl.store(targets[0] + out_offsets, data, mask=mask)
        else:
            for other in gl.static_range(len(targets)):
                gl.store(targets[other] + own * out_step + out_offsets, data, mask=mask)  # remote


@gluon.jit
def _widened(value):
    """float16 and bfloat16 as float32, in which they are summed; all else as it is."""
    if value.dtype.is_floating() and value.dtype.primitive_bitwidth == 16:
        value = value.to(gl.float32)
    return value


@gluon.jit
def _combined(left, right, OP: gl.constexpr):
    """``OP`` is a code of ``ReduceOp``."""
    if OP == 0:
        result = left + right
    elif OP == 1:
        result = left * right
    elif OP == 2:
        result = gl.minimum(left, right)
    elif OP == 3:
        result = gl.maximum(left, right)
    elif OP == 4:
        result = left & right
    elif OP == 5:
        result = left | right
    else:
        result = left ^ right
    return result


def launch_move(
    plan: Plan,
    grid: tuple[int],
    tensors: tuple[Any, ...],
    places: tuple[int, ...],
    *,
    op: int,
    in_place: bool,
    size: int,
    tile: tuple[int, int],
    alignments: tuple[int, int],
    config: Config,
    rank: int,
) -> None:
    """Enqueues the kernel on the current stream; arguments have been checked. ``rank`` is the global one.

    ``alignments`` are Triton's affair: what Gluon knows of a pointer survives its move to another heap.
    """
    lanes = warp_size()
    per_lane = tile[0] * tile[1] // (lanes * config.num_warps)
    iris_launch(
        move, grid, *tensors, *places,
        plan.source, plan.target, op if plan.reduces else 0, plan.shared, config.all_reduce_distribution == 0,
        in_place, size, *tile, config.swizzle_size, config.num_xcds, config.chunk_size,
        min(per_lane, max(1, 16 // tensors[2].element_size())), lanes, config.num_warps,
        algorithm=plan.op, rank=rank, dtype=tensors[2].dtype, **compiler_options(config),
    )  # fmt: skip
