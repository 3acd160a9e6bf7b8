"""``exchange``: send, recv and sendrecv."""

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from iris_under_test.device.mailboxes import announce, await_receiver, await_sender, is_last_sender, notify_receiver

__all__ = ["exchange_gluon", "exchange_triton"]


@triton.jit
def exchange(
    context, boxes, source_ptr, target_ptr, report, lanes, M, N, source_m, source_n, rows, columns, target_m, target_n,
    dst, src, tag, source_kind, target_kind, SEND: tl.constexpr, RECV: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Announce the target to ``src``, write the source to the place that ``dst`` has announced, then wait for ``src``.

    In this order, members that all send to one neighbour and receive from another do not wait for each other. If source
    and target differ in shape or kind, nothing is moved. ``report``, int64 (6,): rows, columns and kind of ``dst``,
    then those of ``src``.

    Example: rank 1 receives: it announces address 0x100 of its heap to rank 0, whose programs read that, store at 0x100
    of rank 1's heap, and the last of them sets the flag that rank 1's program waits for.
    """
    pid = tl.program_id(0)
    heap_bases = context + 2
    rank = tl.load(context).to(tl.int32)
    if RECV and pid == 0:
        place = target_ptr.to(tl.int64) - tl.load(heap_bases + rank)
        announce(boxes, rank, src, tag, place, rows, columns, target_m, target_n, target_kind)
    if SEND:
        place, their_rows, their_columns, their_m, their_n, their_kind = await_receiver(boxes, rank, dst, tag)
        if (their_rows == M) & (their_columns == N) & (their_kind == source_kind) & (source_kind >= 0):
            theirs = tl.load(heap_bases + dst) + place
            _push(
                source_ptr, theirs, lanes, their_rows, their_columns, tl.cast(source_m, tl.int64),
                tl.cast(source_n, tl.int64), their_m, their_n, BLOCK_M, BLOCK_N,
            )  # fmt: skip
        if is_last_sender(boxes, rank, dst, tag):
            tl.store(report, their_rows)
            tl.store(report + 1, their_columns)
            tl.store(report + 2, their_kind)
            notify_receiver(boxes, rank, dst, tag, M, N, source_kind)
    if RECV and pid == 0:
        their_rows, their_columns, their_kind = await_sender(boxes, rank, src, tag)
        tl.store(report + 3, their_rows)
        tl.store(report + 4, their_columns)
        tl.store(report + 5, their_kind)


@triton.jit
def _push(
    source_ptr, target, lanes, M, N, source_m, source_n, target_m, target_n,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Copy M x N elements from ``source_ptr`` to the address ``target``.

    Sizes and strides are int64; with one row (column) the strides are N (and 1). The receiver's strides are known only
    at run time, so alignment is determined then: if both sides are contiguous or have aligned rows, tiles of whole
    vectors of 16 bytes move first, and the rest element by element.

    Example: 2-byte elements, both sides contiguous, M x N = 5 x 200, BLOCK_N 64: 15 rows of 64 in vectors, then 40.
    """
    VECTOR: tl.constexpr = 16 // (source_ptr.dtype.element_ty.primitive_bitwidth // 8)
    target_ptr = target.to(source_ptr.dtype)
    straight = (source_n == 1) & (target_n == 1) & (((source_ptr.to(tl.int64) | target) & 15) == 0)
    run = straight & (source_m == N) & (target_m == N)
    wide = run | (straight & (source_m % VECTOR == 0) & (target_m % VECTOR == 0))
    rows = tl.where(wide, tl.where(run, M * N // BLOCK_N, M), 0)
    columns = tl.where(run, BLOCK_N, N) // VECTOR * VECTOR
    source_step = tl.where(run, BLOCK_N, source_m) // VECTOR * VECTOR
    target_step = tl.where(run, BLOCK_N, target_m) // VECTOR * VECTOR
    tiles_n = tl.cdiv(columns, BLOCK_N)
    for tile in range(tl.program_id(0), (tl.cdiv(rows, BLOCK_M) * tiles_n).to(tl.int32), tl.num_programs(0)):
        row = tile // tiles_n * BLOCK_M + lanes // BLOCK_N
        column = tile % tiles_n * BLOCK_N + lanes % BLOCK_N
        mask = (row < rows) & (column < columns)
        data = tl.load(_aligned(source_ptr, row * source_step + column, VECTOR), mask=mask)
        tl.store(_aligned(target_ptr, row * target_step + column, VECTOR), data, mask=mask)

    done = tl.where(wide, tl.where(run, rows * BLOCK_N, columns), 0)
    rows, columns = tl.where(run, 1, M), tl.where(run, M * N, N) - done
    tiles_n = tl.cdiv(columns, BLOCK_N)
    for tile in range(tl.program_id(0), (tl.cdiv(rows, BLOCK_M) * tiles_n).to(tl.int32), tl.num_programs(0)):
        row = tile // tiles_n * BLOCK_M + lanes // BLOCK_N
        column = tile % tiles_n * BLOCK_N + lanes % BLOCK_N
        mask = (row < rows) & (column < columns)
        column += done
        data = tl.load(source_ptr + (row * source_m + column * source_n), mask=mask)
        tl.store(target_ptr + (row * target_m + column * target_n), data, mask=mask)


@triton.jit
def _aligned(pointer, offsets, VECTOR: tl.constexpr):
    # Added here: a hint about a function's parameter would be lost.
    return tl.max_contiguous(tl.multiple_of(pointer + offsets, 16), VECTOR)


# Not specialised: one binary for all ranks and shapes, since the receiver announces its tensor only at run time.
_PLAIN = [
    "M", "N", "source_m", "source_n", "rows", "columns", "target_m", "target_n", "dst", "src", "tag", "source_kind",
    "target_kind",
]  # fmt: skip
_ANNOUNCED = ["target_ptr"]
"""Its address alone is used, as a number."""


@triton.jit(do_not_specialize=_PLAIN, do_not_specialize_on_alignment=_ANNOUNCED)
def exchange_triton(
    context, boxes, source_ptr, target_ptr, report, M, N, source_m, source_n, rows, columns, target_m, target_n,
    dst, src, tag, source_kind, target_kind, SEND: tl.constexpr, RECV: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """See ``exchange``."""
    exchange(
        context, boxes, source_ptr, target_ptr, report, tl.arange(0, BLOCK_M * BLOCK_N), M, N, source_m, source_n,
        rows, columns, target_m, target_n, dst, src, tag, source_kind, target_kind, SEND, RECV, BLOCK_M, BLOCK_N,
    )  # fmt: skip


@gluon.jit(do_not_specialize=_PLAIN, do_not_specialize_on_alignment=_ANNOUNCED)
def exchange_gluon(
    context, boxes, source_ptr, target_ptr, report, M, N, source_m, source_n, rows, columns, target_m, target_n,
    dst, src, tag, source_kind, target_kind, SEND: gl.constexpr, RECV: gl.constexpr,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr,
    ELEMENTS_PER_LANE: gl.constexpr, LANES: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """See ``exchange``."""
    layout: gl.constexpr = gl.BlockedLayout([ELEMENTS_PER_LANE], [LANES], [WARPS], [0])
    exchange(
        context, boxes, source_ptr, target_ptr, report, gl.arange(0, BLOCK_M * BLOCK_N, layout=layout), M, N, source_m,
        source_n, rows, columns, target_m, target_n, dst, src, tag, source_kind, target_kind, SEND, RECV, BLOCK_M,
        BLOCK_N,
    )  # fmt: skip
