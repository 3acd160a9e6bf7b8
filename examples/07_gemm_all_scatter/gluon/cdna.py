"""The kernel for CDNA3 and CDNA4 (gfx942, gfx950): products by MFMA, with the finished tile sent in between.

All wavefronts do the same work. Tiles of A and B pass through registers into local memory, one step ahead. A finished
tile stays in registers as *pending*, 16 adjacent bytes of a row per lane, and goes to one member in each of the next
tile's first steps. The stores come after the loads of that step: the memory counter of AMD GPUs is waited for in order,
so a store has the time of a whole step's products to reach its peer before a wait includes it.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.target_info import is_hip_cdna4

from iris_under_test import TraceEvent
from iris_under_test.device.signals import first_turn, signal, wait
from iris_under_test.kernels.tiles import spread_over_xcds

from .work import add_arrival, item_count, item_of, outputs_of, send_sum

__all__ = ["cdna_kernel"]


@gluon.jit(do_not_specialize=["split"])
def cdna_kernel(
    IrisDeviceCtx: gl.constexpr,
    context_tensor,
    pads,
    a,
    b,
    c,
    partials,
    counters,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    split,
    WORLD_SIZE: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    GROUP_M: gl.constexpr,
    NUM_XCDS: gl.constexpr,
    ROWS: gl.constexpr,
    SUMS: gl.constexpr,
    WIDTH: gl.constexpr,
    A_LOADED: gl.constexpr,
    A_SHARED: gl.constexpr,
    B_LOADED: gl.constexpr,
    B_SHARED: gl.constexpr,
    SENT: gl.constexpr,
    LOCAL: gl.constexpr,
    TRACED: gl.constexpr,
):
    """C[:, member * N : (member + 1) * N] = A @ B at every member of the group.

    ``a`` (M, K) and ``b`` (K, N): any strides. ``c``: (M, W * N) on the heap, columns next to each other.
    ``partials``, ``counters``: for split tiles, see ``work``. Layouts: SUMS of the sums, of which each lane multiplies
    WIDTH successive k; A_ and B_LOADED of what a step loads, A_ and B_SHARED in local memory; SENT of a tile of C.

    Example: W = 2, M = N = K = 1, A = [[2]], B = [[3]] at member 0 and [[4]] at member 1: C is [[6, 8]] at both.
    """
    ctx = IrisDeviceCtx.initialize(context_tensor, TRACED)
    turn = first_turn(pads, ctx.cur_rank, WORLD_SIZE, gl.program_id(0))
    signal(pads, ctx.cur_rank, WORLD_SIZE, gl.program_id(0), turn)
    # This member's columns, at every member.
    outputs = outputs_of(c + ctx.cur_rank * N, ctx.heap_bases, ctx.cur_rank, WORLD_SIZE)

    out: gl.constexpr = c.dtype.element_ty
    a_tile = gl.allocate_shared_memory(a.dtype.element_ty, [BLOCK_M, BLOCK_K], A_SHARED)
    b_tile = gl.allocate_shared_memory(b.dtype.element_ty, [BLOCK_K, BLOCK_N], B_SHARED)
    LEFT: gl.constexpr = gl.DotOperandLayout(0, SUMS, WIDTH)
    RIGHT: gl.constexpr = gl.DotOperandLayout(1, SUMS, WIDTH)

    tiles_m = gl.cdiv(M, BLOCK_M)
    tiles_n = gl.cdiv(N, BLOCK_N)
    steps = gl.cdiv(K, BLOCK_K)
    programs = gl.num_programs(0)
    program = spread_over_xcds(gl.program_id(0), programs, NUM_XCDS, 1)
    # From here on members may write into each other's C.
    wait(pads, WORLD_SIZE, gl.program_id(0), turn)

    DESTINATIONS: gl.constexpr = 1 if LOCAL else WORLD_SIZE
    pending = gl.zeros([BLOCK_M, BLOCK_N], out, SENT)
    pending_m, pending_n, sent = 0, 0, DESTINATIONS
    for number in range(item_count(program, programs, tiles_m * tiles_n, split)):
        tile_m, tile_n, first, end, piece, place = item_of(
            number, program, programs, tiles_m, tiles_n, steps, split, GROUP_M
        )
        sums = gl.zeros([BLOCK_M, BLOCK_N], partials.dtype.element_ty, SUMS)
        left = _load(a, tile_m, first, stride_am, stride_ak, M, K, BLOCK_M, BLOCK_K, A_LOADED, 1)
        right = _load(b, first, tile_n, stride_bk, stride_bn, K, N, BLOCK_K, BLOCK_N, B_LOADED, 0)
        for step in range(first, end):
            a_tile.store(left)
            b_tile.store(right)
            # Behind the last step lies nothing that is used: all lanes are masked.
            following = gl.where(step + 1 < end, step + 1, steps)
            left = _load(a, tile_m, following, stride_am, stride_ak, M, K, BLOCK_M, BLOCK_K, A_LOADED, 1)
            right = _load(b, following, tile_n, stride_bk, stride_bn, K, N, BLOCK_K, BLOCK_N, B_LOADED, 0)
            if sent < DESTINATIONS:
                _send(ctx, outputs, sent, pending, pending_m, pending_n, M, N, stride_cm, BLOCK_M, BLOCK_N, SENT)
                sent += 1
            x = a_tile.load(LEFT)
            y = b_tile.load(RIGHT)
            sums = gl.amd.cdna4.mfma(x, y, sums) if is_hip_cdna4() else gl.amd.cdna3.mfma(x, y, sums)

        for destination in range(sent, DESTINATIONS):  # there are more members than steps
            _send(ctx, outputs, destination, pending, pending_m, pending_n, M, N, stride_cm, BLOCK_M, BLOCK_N, SENT)
        sent = DESTINATIONS
        if piece < 0:
            pending = gl.convert_layout(sums.to(out), SENT)
            pending_m, pending_n, sent = tile_m, tile_n, 0
        else:
            rows = gl.arange(0, BLOCK_M, layout=gl.SliceLayout(1, SUMS))
            columns = gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, SUMS))
            part = partials + (place * split + piece) * (BLOCK_M * BLOCK_N)
            gl.store(part + (rows[:, None] * BLOCK_N + columns[None, :]), sums)
            add_arrival(counters + place)
            send_sum(
                ctx, outputs, partials, counters, tile_m, tile_n, piece, place, M, N, stride_cm, split,
                WORLD_SIZE, BLOCK_M, BLOCK_N, ROWS, SENT, LOCAL,
            )  # fmt: skip

    for destination in range(sent, DESTINATIONS):
        _send(ctx, outputs, destination, pending, pending_m, pending_n, M, N, stride_cm, BLOCK_M, BLOCK_N, SENT)
    signal(pads, ctx.cur_rank, WORLD_SIZE, gl.program_id(0), turn + 1)
    wait(pads, WORLD_SIZE, gl.program_id(0), turn + 1)


@gluon.jit
def _load(
    tensor,
    block_i,
    block_j,
    stride_i,
    stride_j,
    size_i,
    size_j,
    BLOCK_I: gl.constexpr,
    BLOCK_J: gl.constexpr,
    LAYOUT: gl.constexpr,
    OVER_K: gl.constexpr,
):
    """Block (block_i, block_j) of a tensor of which dimension OVER_K is K: zeros beyond the end of K, anything beyond
    that of the other dimension.

    A buffer load out of range returns zero (CDNA3 ISA, "Range checking"), and a masked lane is sent out of range. Rows
    beyond the end repeat the last one where that keeps loads wide: a mask for each would take a pair of SGPRs. Offsets
    inside the block are 32-bit, so a block must span less than 2 GiB.
    """
    i = gl.arange(0, BLOCK_I, layout=gl.SliceLayout(1, LAYOUT))
    j = gl.arange(0, BLOCK_J, layout=gl.SliceLayout(0, LAYOUT))
    start = tensor + (block_i.to(gl.int64) * BLOCK_I * stride_i + block_j.to(gl.int64) * BLOCK_J * stride_j)
    mask_i = block_i * BLOCK_I + i < size_i
    mask_j = block_j * BLOCK_J + j < size_j
    if OVER_K == 1 and LAYOUT.order[0] == 1:
        i = gl.minimum(i, size_i - 1 - block_i * BLOCK_I)
        mask = mask_j[None, :]
    elif OVER_K == 0 and LAYOUT.order[0] == 0:
        j = gl.minimum(j, size_j - 1 - block_j * BLOCK_J)
        mask = mask_i[:, None]
    else:
        mask = mask_i[:, None] & mask_j[None, :]
    return gl.amd.cdna3.buffer_load(start, i[:, None] * stride_i + j[None, :] * stride_j, mask=mask)


@gluon.jit
def _send(
    ctx,
    outputs,
    destination,
    data,
    tile_m,
    tile_n,
    M,
    N,
    stride_cm,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    SENT: gl.constexpr,
):
    """Store a tile on one member, number ``destination`` of the outputs."""
    output = outputs[0]
    for other in gl.static_range(1, len(outputs)):
        output = gl.where(destination == other, outputs[other], output)
    rows = tile_m * BLOCK_M + gl.arange(0, BLOCK_M, layout=gl.SliceLayout(1, SENT))
    columns = tile_n * BLOCK_N + gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, SENT))
    offsets = rows.to(gl.int64)[:, None] * stride_cm + columns[None, :]
    event = ctx.tracing.record_event_start(
        TraceEvent().store, (ctx.cur_rank + destination) % ctx.num_ranks, outputs[0], tile_m, tile_n
    )
    gl.store(output + offsets, data, mask=(rows < M)[:, None] & (columns < N)[None, :])
    ctx.tracing.record_event_end(event)
