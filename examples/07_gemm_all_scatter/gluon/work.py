"""Work that every target's kernel shares: the tiles of a program, sums of split tiles, and the scatter of rows.

A program processes *items*. First come whole tiles, one per program in each round. The remaining tiles, fewer than
programs, would keep some programs busy for a whole further round, and no product would hide their transfer to the
peers. So these tiles are split along K into equal *pieces*: all programs end at the same time, and only this small part
of C is sent without a product to hide it.
"""

from __future__ import annotations

import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from iris_under_test import TraceEvent
from iris_under_test.device.bounds import bound
from iris_under_test.device.fences import observe, pause, peek, publish
from iris_under_test.device.gluon.address import translate
from iris_under_test.kernels.tiles import grouped_tile

__all__ = ["add_arrival", "item_count", "item_of", "outputs_of", "scatter", "send_sum"]


@gluon.jit
def item_count(program, programs, tiles, split):
    """Return the number of items of the program.

    Example: 10 tiles, 4 programs, split 2: 3 each, of which the last is a piece. With split 1: 3, 3, 2, 2.
    """
    left = tiles % programs
    return tiles // programs + (program < left * split).to(gl.int32)


@gluon.jit
def item_of(number, program, programs, tiles_m, tiles_n, steps, split, GROUP_M: gl.constexpr):
    """Return item ``number`` of the program: (tile_m, tile_n, first step, end of the steps, piece, place).

    A step is BLK_K of K. ``piece`` is -1 for whole tiles. ``place`` counts the split tiles.

    Example: 10 tiles in one row, 4 programs, 8 steps, split 2: program 1 has tiles 1 and 5, steps 0 to 8, then steps
    4 to 8 of tile 8, as piece 1 of 2 of place 0.
    """
    tiles = tiles_m * tiles_n
    rounds = tiles // programs
    tile, first, end = number * programs + program, number * 0, number * 0 + steps
    piece, place = number * 0 - 1, number * 0
    if (number >= rounds) & (split > 1):
        place = program // split
        piece = program % split
        tile = rounds * programs + place
        first = piece * steps // split
        end = (piece + 1) * steps // split
    tile_m, tile_n = grouped_tile(tile, tiles_m, tiles_n, GROUP_M)
    return tile_m, tile_n, first, end, piece, place


@gluon.jit
def outputs_of(c, heap_bases, member, WORLD_SIZE: gl.constexpr):
    """Return ``c`` on every member, the caller first and then round the group, so that members write to different
    ones.
    """
    outputs = ()
    for step in gl.static_range(WORLD_SIZE):
        outputs += (translate(c, heap_bases, member, (member + step) % WORLD_SIZE),)
    return outputs


@gluon.jit
def scatter(outputs, offsets, data, mask, WORLD_SIZE: gl.constexpr, LOCAL: gl.constexpr):
    """Store a block of C on every member; only on the caller if LOCAL, which is for measurements."""
    for step in gl.static_range(1 if LOCAL else WORLD_SIZE):
        gl.store(outputs[step] + offsets, data, mask=mask)


@gluon.jit
def add_arrival(counter):
    """Add 1 to the counter after all stores of the calling warps so far have become visible."""
    publish()
    gl.atomic_add(counter, 1, sem="relaxed", scope="gpu")


@gluon.jit
def _await_arrivals(counter, count):
    """Wait until the counter has reached ``count``; the stores before that are then visible."""
    polls = 0
    while peek(counter) < count:
        pause()
        polls += 1
        bound(polls, "a piece of a tile has not arrived")
    observe()


@gluon.jit
def send_sum(
    ctx,
    outputs,
    partials,
    counters,
    tile_m,
    tile_n,
    piece,
    place,
    M,
    N,
    stride_cm,
    split,
    WORLD_SIZE: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    ROWS: gl.constexpr,
    SENT: gl.constexpr,
    LOCAL: gl.constexpr,
):
    """Add the pieces of a split tile, always in their order, and scatter the sum.

    Each of the tile's programs calls it, and does every ``split``-th chunk of ROWS rows, in layout SENT.
    """
    _await_arrivals(counters + place, split)
    event = ctx.tracing.record_event_start(TraceEvent().store, ctx.cur_rank, outputs[0], tile_m, tile_n)
    tile = partials + place * split * (BLOCK_M * BLOCK_N)
    row = gl.arange(0, ROWS, layout=gl.SliceLayout(1, SENT))
    column = gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, SENT))
    columns = tile_n * BLOCK_N + column
    for chunk in range(piece, BLOCK_M // ROWS, split):
        inside = (chunk * ROWS + row)[:, None] * BLOCK_N + column[None, :]
        total = gl.load(tile + inside)
        for other in range(1, split):
            total += gl.load(tile + other * (BLOCK_M * BLOCK_N) + inside)
        rows = tile_m * BLOCK_M + chunk * ROWS + row
        offsets = rows.to(gl.int64)[:, None] * stride_cm + columns[None, :]
        mask = (rows < M)[:, None] & (columns < N)[None, :]
        scatter(outputs, offsets, total.to(outputs[0].dtype.element_ty), mask, WORLD_SIZE, LOCAL)
    ctx.tracing.record_event_end(event)
    _leave(counters + place, split)


@gluon.jit
def _leave(counter, count):
    """Each of ``count`` programs that awaited the counter leaves it; the last one sets it to zero for the next kernel.

    Example: count 2: 2 when both have arrived, 3 when one has left, 4 and then 0 when both have.
    """
    tl.debug_barrier()
    if gl.atomic_add(counter, 1, sem="relaxed", scope="gpu") == 2 * count - 1:
        gl.store(counter, 0)
