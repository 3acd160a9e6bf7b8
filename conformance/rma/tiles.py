"""Kernels that move a tile by an op of ``conformance.rma.operations``, one for each form, and their launches."""

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from conformance.rma.kernels import PEERS

ROWS, COLUMNS = 8, 16

MASKS = {"holes": "elements", "rows": "rows", "columns": "columns"}
"""The parts of a tile for which a mask has one entry each, by the pattern of the case."""


@gluon.jit(do_not_specialize=["n", "from_rank", "to_rank"])
def tile_kernel(
    IrisDeviceCtx: gl.constexpr, context_tensor, call: gl.constexpr, source, target, keep, n, from_rank, to_rank,
    ROWS: gl.constexpr, COLUMNS: gl.constexpr, MASK: gl.constexpr, LANES: gl.constexpr,
):  # fmt: skip
    ctx = IrisDeviceCtx.initialize(context_tensor)
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [LANES // 4, 4], [1, 1], [1, 0])
    row = gl.arange(0, ROWS, layout=gl.SliceLayout(1, layout))
    column = gl.arange(0, COLUMNS, layout=gl.SliceLayout(0, layout))
    offsets = row[:, None] * COLUMNS + column[None, :]
    places = offsets if MASK == "elements" else row[:, None] * COLUMNS if MASK == "rows" else column[None, :]
    mask = places < n
    mask = mask & (gl.load(keep + places, mask=mask, other=0) != 0)
    call(ctx, source + offsets, target + offsets, from_rank, to_rank, mask, None, None, None, False)


@triton.jit
def tile_of(keep, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr, MASK: tl.constexpr):
    """Return the offsets and the mask of a tile, which is turned if MASK is "elements".

    For 2 x 2, n = 3 and keep = [1, 0, 1] they are [[0, 2], [1, 3]] and [[True, True], [False, False]]; a mask of rows
    is [[True], [True]], the entries of their first elements, of the tile that is not turned.
    """
    row, column = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    if MASK == "elements":
        column *= ROWS
    else:
        row *= COLUMNS
    places = row + column if MASK == "elements" else row if MASK == "rows" else column
    mask = places < n
    return row + column, mask & (tl.load(keep + places, mask=mask, other=0) != 0)


@triton.jit(do_not_specialize=["n", "from_rank", "to_rank"])
def tile_by_context(
    DeviceContext: tl.constexpr, context_tensor, RANK: tl.constexpr, RANKS: tl.constexpr, call: tl.constexpr,
    source, target, keep, n, from_rank, to_rank, ROWS: tl.constexpr, COLUMNS: tl.constexpr, MASK: tl.constexpr,
    HINT: tl.constexpr,
):  # fmt: skip
    ctx = DeviceContext.initialize(context_tensor, RANK, RANKS)
    offsets, mask = tile_of(keep, n, ROWS, COLUMNS, MASK)
    call(ctx, source + offsets, target + offsets, from_rank, to_rank, mask, None, None, None, False, HINT)


@triton.jit(do_not_specialize=[*PEERS, "n"])
def tile_by_function(
    function: tl.constexpr, heap_bases, rank, call: tl.constexpr, source, target, keep, n, from_rank, to_rank,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, MASK: tl.constexpr, HINT: tl.constexpr,
):  # fmt: skip
    offsets, mask = tile_of(keep, n, ROWS, COLUMNS, MASK)
    call(
        function, heap_bases, rank, source + offsets, target + offsets, from_rank, to_rank, mask, None, None, None,
        False, HINT,
    )  # fmt: skip


def launch(env, op, case, source, slot, keep, peer):
    hint = (ROWS, 1) if MASKS[case.mask] == "elements" else (1, COLUMNS)
    launch_tile(env, op, case, source, slot, keep, *op.ranks(case, env.rank, peer), hint)


def launch_tile(env, op, case, source, slot, keep, from_rank, to_rank, hint):
    """Move a tile between two ranks; ``hint`` is for the forms of Triton."""
    call, tile = op.calls[case.form], (ROWS, COLUMNS, MASKS[case.mask])
    data = (source, slot, keep, case.n, from_rank, to_rank)
    if case.form == "gluon":
        tile_kernel[(1,)](env.device_context, env.context, call, *data, *tile, env.device.lanes, num_warps=1)
    elif case.form == "context":
        context = (env.under_test.triton_context, env.context, env.rank, env.world_size)
        tile_by_context[(1,)](*context, call, *data, *tile, hint, num_warps=1)
    else:
        function = (env.under_test.function(op.name), env.iris.get_heap_bases(), env.rank)
        tile_by_function[(1,)](*function, call, *data, *tile, hint, num_warps=1)
