"""Tiles: every transfer in every form accepts two-dimensional pointers and masks, as matrix kernels use them.

A tile has 8 rows of 16 elements; its mask has an entry for each element, for each row or for each column: blocks of
8 x 16, 8 x 1 and 1 x 16, of which the last two are broadcast. In Triton the hint has two dimensions too: it states that
the columns of a row are contiguous, and nothing about rows. A tile whose mask has an entry for each element is turned
there: its columns lie one after another, and the hint states that the rows of a column are contiguous.
"""

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from conformance.rma.cases import TransferCase
from conformance.rma.kernels import PEERS
from conformance.rma.operations import TRANSFERS
from conformance.rma.transfer import run_transfers
from conformance.support.forms import FORMS, neighbours
from fixtures.requirement import requirement

ROWS, COLUMNS = 8, 16

MASKS = {"holes": "elements", "rows": "rows", "columns": "columns"}
"""The parts of a tile for which a mask has one entry each, by the pattern of the case."""

KINDS = (("holes", 100), ("rows", ROWS * COLUMNS), ("columns", ROWS * COLUMNS))
"""Patterns, and the elements of a tile: a mask of rows or columns leaves out whole ones."""


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


def run(env, case, op):
    return run_transfers(env, TRANSFERS[op], case, launch)


def cases(ranks, op):
    """Return a case for each form, with two element types and the kinds of masks in turn."""
    number = list(TRANSFERS).index(op)
    return [
        TransferCase(
            dtype=("fp16", "int32")[(number + place) % 2], targets=neighbours(ranks, form, number), form=form,
            **dict(zip(("mask", "n"), KINDS[(number + place) % 3], strict=True)),
        )
        for place, form in enumerate(FORMS)
    ]  # fmt: skip


@requirement("RMA-TILE-001", cases=cases, op=tuple(TRANSFERS))
def test_tiles(check, case, op):
    check(run, case, op=op)
