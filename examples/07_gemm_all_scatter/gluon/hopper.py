"""The kernel for Hopper (sm_90): three kinds of warps, each at its own pace.

    loader    1 warp       TMA of tiles of A and B into a ring of STAGES
    products  4 or 8       wgmma from the ring into registers; a finished tile goes to a ring of C_TILES
    sender    2 warps      rows from that ring to every member, 16 bytes per lane and store

So the next tile is computed while a tile is being sent, however slow the links are at the time. Rings are guarded by
pairs of mbarriers: ``full`` signals that a place was filled, ``free`` that it was emptied.
"""

from __future__ import annotations

import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from iris_under_test import TraceEvent
from iris_under_test.device.signals import first_turn, signal, wait

from .work import add_arrival, item_count, item_of, outputs_of, scatter, send_sum

__all__ = ["hopper_kernel"]

# Triton 3.6 has only the older names, 3.9 only the newer ones.
load_tile = tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared
seen_as = getattr(gl.shared_memory_descriptor, "reinterpret", None) or gl.shared_memory_descriptor._reinterpret


@gluon.jit(do_not_specialize=["split"])
def hopper_kernel(
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
    stride_cm,
    split,
    B_TRANSPOSED: gl.constexpr,
    WORLD_SIZE: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    GROUP_M: gl.constexpr,
    STAGES: gl.constexpr,
    C_TILES: gl.constexpr,
    ROWS: gl.constexpr,
    SUMS: gl.constexpr,
    C_SHARED: gl.constexpr,
    SENT: gl.constexpr,
    LOCAL: gl.constexpr,
    TRACED: gl.constexpr,
):
    """C[:, member * N : (member + 1) * N] = A @ B at every member of the group.

    ``a``: descriptor of A (M, K). ``b``: of B (K, N) or, if B_TRANSPOSED, of its transpose (N, K). ``c``: (M, W * N) on
    the heap, columns next to each other. ``partials``, ``counters``: for split tiles, see ``work``. Layouts: SUMS of
    the sums in registers, C_SHARED of a tile of C in shared memory, SENT of the ROWS that are sent at a time.

    Example: W = 2, M = N = K = 1, A = [[2]], B = [[3]] at member 0 and [[4]] at member 1: C is [[6, 8]] at both.
    """
    ctx = IrisDeviceCtx.initialize(context_tensor)
    program = gl.program_id(0)
    turn = first_turn(pads, ctx.cur_rank, WORLD_SIZE, program)
    signal(pads, ctx.cur_rank, WORLD_SIZE, program, turn)

    a_ring = gl.allocate_shared_memory(a.dtype, [STAGES, BLOCK_M, BLOCK_K], a.layout)
    B_BLOCK: gl.constexpr = [STAGES, BLOCK_N, BLOCK_K] if B_TRANSPOSED else [STAGES, BLOCK_K, BLOCK_N]
    b_ring = gl.allocate_shared_memory(b.dtype, B_BLOCK, b.layout)
    c_ring = gl.allocate_shared_memory(c.dtype.element_ty, [C_TILES, BLOCK_M, BLOCK_N], C_SHARED)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    c_full = gl.allocate_shared_memory(gl.int64, [C_TILES, 1], mbarrier.MBarrierLayout())
    c_free = gl.allocate_shared_memory(gl.int64, [C_TILES, 1], mbarrier.MBarrierLayout())
    for place in gl.static_range(STAGES):
        mbarrier.init(full.index(place), count=1)
        mbarrier.init(free.index(place), count=1)
    for place in gl.static_range(C_TILES):
        mbarrier.init(c_full.index(place), count=1)
        mbarrier.init(c_free.index(place), count=1)
    fence_async_shared()

    tiles_m = gl.cdiv(M, BLOCK_M)
    tiles_n = gl.cdiv(N, BLOCK_N)
    steps = gl.cdiv(K, BLOCK_K)
    # From here on members may write into each other's C.
    wait(pads, WORLD_SIZE, program, turn)
    gl.warp_specialize(
        [
            (
                _products,
                (a_ring, b_ring, c_ring, full, free, c_full, c_free, partials, counters, tiles_m, tiles_n, steps, split,
                 B_TRANSPOSED, GROUP_M, SUMS),
            ),
            (_loader, (a, b, a_ring, b_ring, full, free, tiles_m, tiles_n, steps, split, B_TRANSPOSED, GROUP_M)),
            (
                _sender,
                (IrisDeviceCtx, context_tensor, c, c_ring, c_full, c_free, partials, counters, M, N, stride_cm,
                 tiles_m, tiles_n, steps, split, WORLD_SIZE, GROUP_M, ROWS, SENT, LOCAL, TRACED),
            ),
        ],
        [1, 2],
        [24, 96],
    )  # fmt: skip
    signal(pads, ctx.cur_rank, WORLD_SIZE, program, turn + 1)
    wait(pads, WORLD_SIZE, program, turn + 1)


@gluon.jit
def _loader(
    a,
    b,
    a_ring,
    b_ring,
    full,
    free,
    tiles_m,
    tiles_n,
    steps,
    split,
    B_TRANSPOSED: gl.constexpr,
    GROUP_M: gl.constexpr,
):
    """Keeps the ring of A and B filled. TMA puts zeros where a block reaches beyond its tensor."""
    STAGES: gl.constexpr = a_ring.shape[0]
    BLOCK_M: gl.constexpr = a_ring.shape[1]
    BLOCK_K: gl.constexpr = a_ring.shape[2]
    BLOCK_N: gl.constexpr = b_ring.shape[1] if B_TRANSPOSED else b_ring.shape[2]
    program, programs = gl.program_id(0), gl.num_programs(0)
    loaded = 0
    for number in range(item_count(program, programs, tiles_m * tiles_n, split)):
        tile_m, tile_n, first, end, _, _ = item_of(number, program, programs, tiles_m, tiles_n, steps, split, GROUP_M)
        for step in range(first, end):
            stage = loaded % STAGES
            # A new barrier counts as one whose phase of the other parity is over: the first round does not wait.
            mbarrier.wait(free.index(stage), (loaded // STAGES + 1) & 1)
            mbarrier.expect(full.index(stage), a.block_type.nbytes + b.block_type.nbytes)
            load_tile(a, [tile_m * BLOCK_M, step * BLOCK_K], full.index(stage), a_ring.index(stage))
            if B_TRANSPOSED:
                load_tile(b, [tile_n * BLOCK_N, step * BLOCK_K], full.index(stage), b_ring.index(stage))
            else:
                load_tile(b, [step * BLOCK_K, tile_n * BLOCK_N], full.index(stage), b_ring.index(stage))
            loaded += 1


@gluon.jit
def _products(
    a_ring,
    b_ring,
    c_ring,
    full,
    free,
    c_full,
    c_free,
    partials,
    counters,
    tiles_m,
    tiles_n,
    steps,
    split,
    B_TRANSPOSED: gl.constexpr,
    GROUP_M: gl.constexpr,
    SUMS: gl.constexpr,
):
    """Computes tiles. Two products are in flight: a place of the ring is free when the one after its own has begun."""
    STAGES: gl.constexpr = a_ring.shape[0]
    C_TILES: gl.constexpr = c_ring.shape[0]
    BLOCK_M: gl.constexpr = c_ring.shape[1]
    BLOCK_N: gl.constexpr = c_ring.shape[2]
    program, programs = gl.program_id(0), gl.num_programs(0)
    used, made = 0, 0
    for number in range(item_count(program, programs, tiles_m * tiles_n, split)):
        _, _, first, end, piece, place = item_of(number, program, programs, tiles_m, tiles_n, steps, split, GROUP_M)
        sums = gl.zeros([BLOCK_M, BLOCK_N], partials.dtype.element_ty, SUMS)
        for step in range(first, end):
            stage = used % STAGES
            mbarrier.wait(full.index(stage), (used // STAGES) & 1)
            right = b_ring.index(stage).permute((1, 0)) if B_TRANSPOSED else b_ring.index(stage)
            sums = warpgroup_mma(a_ring.index(stage), right, sums, is_async=True)
            sums = warpgroup_mma_wait(1, deps=(sums,))
            tl.debug_barrier()
            mbarrier.arrive(free.index((used - 1) % STAGES), count=1, pred=step > first)
            used += 1
        sums = warpgroup_mma_wait(0, deps=(sums,))
        tl.debug_barrier()
        mbarrier.arrive(free.index((used - 1) % STAGES), count=1)

        if piece < 0:
            slot = made % C_TILES
            mbarrier.wait(c_free.index(slot), (made // C_TILES + 1) & 1)
            c_ring.index(slot).store(sums.to(c_ring.dtype))
            tl.debug_barrier()
            mbarrier.arrive(c_full.index(slot), count=1)
            made += 1
        else:
            rows = gl.arange(0, BLOCK_M, layout=gl.SliceLayout(1, SUMS))
            columns = gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, SUMS))
            part = partials + (place * split + piece) * (BLOCK_M * BLOCK_N)
            gl.store(part + (rows[:, None] * BLOCK_N + columns[None, :]), sums)
            add_arrival(counters + place)


@gluon.jit
def _sender(
    IrisDeviceCtx: gl.constexpr,
    context_tensor,
    c,
    c_ring,
    c_full,
    c_free,
    partials,
    counters,
    M,
    N,
    stride_cm,
    tiles_m,
    tiles_n,
    steps,
    split,
    WORLD_SIZE: gl.constexpr,
    GROUP_M: gl.constexpr,
    ROWS: gl.constexpr,
    SENT: gl.constexpr,
    LOCAL: gl.constexpr,
    TRACED: gl.constexpr,
):
    """Send finished tiles; of a split tile, every piece's program sends an equal part of the rows.

    Few rows at a time are in transfer, some 8 to 28 KiB of a compute unit: when its queue to the links is full, its
    loads of A and B stand in it behind stores, and the products wait.
    """
    BURST: gl.constexpr = 4 if WORLD_SIZE == 2 else 2
    C_TILES: gl.constexpr = c_ring.shape[0]
    BLOCK_M: gl.constexpr = c_ring.shape[1]
    BLOCK_N: gl.constexpr = c_ring.shape[2]
    CHUNKS: gl.constexpr = BLOCK_M // ROWS
    ctx = IrisDeviceCtx.initialize(context_tensor, TRACED)
    # This member's columns, at every member.
    outputs = outputs_of(c + ctx.cur_rank * N, ctx.heap_bases, ctx.cur_rank, WORLD_SIZE)
    row = gl.arange(0, ROWS, layout=gl.SliceLayout(1, SENT))
    column = gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, SENT))
    program, programs = gl.program_id(0), gl.num_programs(0)
    sent = 0
    for number in range(item_count(program, programs, tiles_m * tiles_n, split)):
        tile_m, tile_n, _, _, piece, place = item_of(number, program, programs, tiles_m, tiles_n, steps, split, GROUP_M)
        columns = tile_n * BLOCK_N + column
        if piece < 0:
            slot = sent % C_TILES
            mbarrier.wait(c_full.index(slot), (sent // C_TILES) & 1)
            event = ctx.tracing.record_event_start(TraceEvent().store, ctx.cur_rank, outputs[0], tile_m, tile_n)
            # The same memory as a list of chunks: the swizzle repeats every 8 rows.
            chunks = seen_as(c_ring.index(slot), c_ring.dtype, [CHUNKS, ROWS, BLOCK_N], c_ring.layout)
            for chunk in range(CHUNKS):
                rows = tile_m * BLOCK_M + chunk * ROWS + row
                offsets = rows.to(gl.int64)[:, None] * stride_cm + columns[None, :]
                mask = (rows < M)[:, None] & (columns < N)[None, :]
                scatter(outputs, offsets, chunks.index(chunk).load(SENT), mask, WORLD_SIZE, LOCAL)
                if not LOCAL and chunk % BURST == BURST - 1:
                    _await_stores()
            ctx.tracing.record_event_end(event)
            tl.debug_barrier()
            mbarrier.arrive(c_free.index(slot), count=1)
            sent += 1
        else:
            send_sum(
                ctx, outputs, partials, counters, tile_m, tile_n, piece, place, M, N, stride_cm, split,
                WORLD_SIZE, BLOCK_M, BLOCK_N, ROWS, SENT, LOCAL,
            )  # fmt: skip


@gluon.jit
def _await_stores():
    """Wait until the stores of the calling warp have arrived at their members."""
    tl.inline_asm_elementwise("fence.acq_rel.sys; mov.u32 $0, 0;", "=r,~{memory}", [], tl.int32, is_pure=False, pack=1)
