"""Tiles: pointers and masks of two dimensions, as matrix kernels have them, in every transfer and every form.

A tile of 8 rows of 16 elements; its mask is a pattern over the first 100. In Triton the hint has two dimensions too:
the columns of a row are contiguous, rows are not said to be.
"""

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from conformance.rma.transfer import PEERS, run_transfers
from fixtures.requirement import requirement
from harness.cases import FORMS, TransferCase

ROWS, COLUMNS = 8, 16


@gluon.jit(do_not_specialize=["n", "me", "peer"])
def tile_kernel(
    IrisDeviceCtx: gl.constexpr, context_tensor, source, target, keep, n, me, peer, OP: gl.constexpr,
    ROWS: gl.constexpr, COLUMNS: gl.constexpr, LANES: gl.constexpr,
):  # fmt: skip
    ctx = IrisDeviceCtx.initialize(context_tensor)
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [LANES // 4, 4], [1, 1], [1, 0])
    row = gl.arange(0, ROWS, layout=gl.SliceLayout(1, layout))
    column = gl.arange(0, COLUMNS, layout=gl.SliceLayout(0, layout))
    offsets = row[:, None] * COLUMNS + column[None, :]
    mask = offsets < n
    mask = mask & (gl.load(keep + offsets, mask=mask, other=0) != 0)
    if OP == "put":
        ctx.put(source + offsets, target + offsets, peer, mask=mask)
    elif OP == "store":
        ctx.store(target + offsets, gl.load(source + offsets, mask=mask), peer, mask=mask)
    elif OP == "get":
        ctx.get(source + offsets, target + offsets, peer, mask=mask)
    elif OP == "load":
        gl.store(target + offsets, ctx.load(source + offsets, peer, mask=mask), mask=mask)
    else:
        ctx.copy(source + offsets, target + offsets, me, peer, mask=mask)


@triton.jit
def tile_of(keep, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Offsets and mask: of 2 x 2 with n 3 and keep [1, 0, 1], [[0, 1], [2, 3]] and [[True, False], [True, False]]."""
    offsets = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    mask = offsets < n
    return offsets, mask & (tl.load(keep + offsets, mask=mask, other=0) != 0)


@triton.jit(do_not_specialize=["n", "peer"])
def tile_by_context(
    DeviceContext: tl.constexpr, context_tensor, source, target, keep, n, RANK: tl.constexpr, RANKS: tl.constexpr,
    peer, OP: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, HINT: tl.constexpr,
):  # fmt: skip
    ctx = DeviceContext.initialize(context_tensor, RANK, RANKS)
    offsets, mask = tile_of(keep, n, ROWS, COLUMNS)
    if OP == "put":
        ctx.put(source + offsets, target + offsets, peer, mask=mask, hint=HINT)
    elif OP == "store":
        ctx.store(target + offsets, tl.load(source + offsets, mask=mask), peer, mask=mask, hint=HINT)
    elif OP == "get":
        ctx.get(source + offsets, target + offsets, peer, mask=mask, hint=HINT)
    elif OP == "load":
        tl.store(target + offsets, ctx.load(source + offsets, peer, mask=mask, hint=HINT), mask=mask)
    else:
        ctx.copy(source + offsets, target + offsets, RANK, peer, mask=mask, hint=HINT)


@triton.jit(do_not_specialize=[*PEERS, "n", "peer"])
def tile_by_function(
    function: tl.constexpr, heap_bases, source, target, keep, n, rank, peer, OP: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, HINT: tl.constexpr,
):  # fmt: skip
    offsets, mask = tile_of(keep, n, ROWS, COLUMNS)
    if OP == "store":
        value = tl.load(source + offsets, mask=mask)
        function(target + offsets, value, rank, peer, heap_bases, mask=mask, hint=HINT)
    elif OP == "load":
        value = function(source + offsets, rank, peer, heap_bases, mask=mask, hint=HINT)
        tl.store(target + offsets, value, mask=mask)
    elif OP == "copy":
        function(source + offsets, target + offsets, rank, peer, rank, heap_bases, mask=mask, hint=HINT)
    else:
        function(source + offsets, target + offsets, rank, peer, heap_bases, mask=mask, hint=HINT)


def move_tiles(env, case, op):
    def launch(env, case, source, slot, keep, peer):
        data, tile, hint = (source, slot, keep, case.n), (ROWS, COLUMNS), (1, COLUMNS)
        if case.form == "gluon":
            tile_kernel[(1,)](
                env.device_context, env.context, *data, env.rank, peer, op, *tile, env.device.lanes, num_warps=1
            )
        elif case.form == "context":
            context = (env.under_test.triton_context, env.context)
            tile_by_context[(1,)](*context, *data, env.rank, env.world_size, peer, op, *tile, hint, num_warps=1)
        else:
            function = (env.under_test.function(op), env.iris.get_heap_bases())
            tile_by_function[(1,)](*function, *data, env.rank, peer, op, *tile, hint, num_warps=1)

    return run_transfers(env, case, launch, push=op in ("put", "store", "copy"))


def run_put(env, case):
    return move_tiles(env, case, "put")


def run_store(env, case):
    return move_tiles(env, case, "store")


def run_get(env, case):
    return move_tiles(env, case, "get")


def run_load(env, case):
    return move_tiles(env, case, "load")


def run_copy(env, case):
    return move_tiles(env, case, "copy")


RUNS = {"put": run_put, "store": run_store, "get": run_get, "load": run_load, "copy": run_copy}


def cases(ranks, op):
    targets = tuple(((rank + 1) % ranks,) for rank in range(ranks))
    return [
        TransferCase(dtype=dtype, n=100, targets=targets, mask="holes", form=form)
        for form in FORMS
        for dtype in ("fp16", "int32")
    ]


@requirement("RMA-TILE-001", cases=cases, op=tuple(RUNS))
def test_tiles(check, case, op):
    check(RUNS[op], case)
