"""Kernels that have several ops of ``conformance.rma.operations`` and move a block or a tile by one of them, which they
select when they run: one kernel for each form, however many ops there are.

A block has one dimension, a tile two. The kernel parameter ``part`` is a jitted function that returns offsets and mask.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from conformance.rma.cases import TransferCase
from conformance.rma.kernels import PEERS
from conformance.rma.operations import TRANSFERS, Transfer
from fixtures.worker import Env

ROWS, COLUMNS = 8, 16

MASKS = {"holes": "elements", "rows": "rows", "columns": "columns"}
"""The parts of a tile for which a mask has one entry each, by the pattern of the case."""

ALL = tuple(TRANSFERS.values())


def launch_block(
    env: Env, op: Transfer, case: TransferCase, source: torch.Tensor, slot: torch.Tensor, keep: torch.Tensor, peer: int
) -> None:
    """Move a block of ROWS * COLUMNS elements, by the kernel of all ops."""
    ranks = op.ranks(case, env.rank, peer)
    _launch(env, ALL, op, case, (source, slot, keep, case.n, *ranks), (block_in_gluon, block), "elements", None)


def launch_tile(
    env: Env, op: Transfer, case: TransferCase, source: torch.Tensor, slot: torch.Tensor, keep: torch.Tensor, peer: int
) -> None:
    """Move a tile, by the kernel of all ops."""
    hint = (ROWS, 1) if MASKS[case.mask] == "elements" else (1, COLUMNS)
    launch_tile_between(env, op, case, source, slot, keep, *op.ranks(case, env.rank, peer), hint, ALL)


def launch_tile_between(
    env: Env, op: Transfer, case: TransferCase, source: torch.Tensor, slot: torch.Tensor, keep: torch.Tensor,
    from_rank: int, to_rank: int, hint: Any, ops: Sequence[Transfer] = (),
) -> None:  # fmt: skip
    """Move a tile between two ranks by the kernel of ``ops``, of the one op by default. ``hint`` is for the forms of
    Triton."""
    data = (source, slot, keep, case.n, from_rank, to_rank)
    _launch(env, ops or (op,), op, case, data, (tile_in_gluon, tile), MASKS[case.mask], hint)


def _launch(
    env: Env, ops: Sequence[Transfer], op: Transfer, case: TransferCase, data: tuple[Any, ...], parts: tuple[Any, Any],
    mask: str, hint: Any,
) -> None:  # fmt: skip
    calls = tuple(each.calls[case.form] for each in ops)
    number, shape = list(ops).index(op), (ROWS, COLUMNS, mask)
    if case.form == "gluon":
        first = (env.device_context, env.context, calls, sources_of(calls), parts[0], number)
        several_by_gluon[(1,)](*first, *data, *shape, env.device.lanes, num_warps=1)
    elif case.form == "context":
        context = (env.under_test.triton_context, env.context, env.rank, env.world_size)
        several_by_context[(1,)](*context, calls, sources_of(calls), parts[1], number, *data, *shape, hint, num_warps=1)
    else:
        functions = tuple(env.under_test.function(each.name) for each in ops)
        first = (functions, env.iris.get_heap_bases(), env.rank, calls, sources_of([*calls, *functions]), parts[1])
        several_by_function[(1,)](*first, number, *data, *shape, hint, num_warps=1)


def sources_of(functions: Sequence[Any]) -> str:
    """Return a hash of the sources of jitted functions: of those of a tuple, Triton's disk cache knows only the
    names."""
    return hashlib.sha256("".join(each.cache_key for each in functions).encode()).hexdigest()


@gluon.jit(do_not_specialize=["number", "n", "from_rank", "to_rank"])
def several_by_gluon(
    IrisDeviceCtx: gl.constexpr, context_tensor, calls: gl.constexpr, SOURCES: gl.constexpr, part: gl.constexpr,
    number, source, target, keep, n, from_rank, to_rank,
    ROWS: gl.constexpr, COLUMNS: gl.constexpr, MASK: gl.constexpr, LANES: gl.constexpr,
):  # fmt: skip
    ctx = IrisDeviceCtx.initialize(context_tensor)
    offsets, mask = part(keep, n, ROWS, COLUMNS, MASK, LANES)
    for i in gl.static_range(len(calls)):
        if number == i:
            calls[i](ctx, source + offsets, target + offsets, from_rank, to_rank, mask, None, None, None, False)


@gluon.jit
def tile_in_gluon(
    keep, n, ROWS: gl.constexpr, COLUMNS: gl.constexpr, MASK: gl.constexpr, LANES: gl.constexpr
):  # fmt: skip
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [LANES // 4, 4], [1, 1], [1, 0])
    row = gl.arange(0, ROWS, layout=gl.SliceLayout(1, layout))
    column = gl.arange(0, COLUMNS, layout=gl.SliceLayout(0, layout))
    offsets = row[:, None] * COLUMNS + column[None, :]
    places = offsets if MASK == "elements" else row[:, None] * COLUMNS if MASK == "rows" else column[None, :]
    mask = places < n
    return offsets, mask & (gl.load(keep + places, mask=mask, other=0) != 0)


@gluon.jit
def block_in_gluon(
    keep, n, ROWS: gl.constexpr, COLUMNS: gl.constexpr, MASK: gl.constexpr, LANES: gl.constexpr
):  # fmt: skip
    offsets = gl.arange(0, ROWS * COLUMNS, layout=gl.BlockedLayout([ROWS * COLUMNS // LANES], [LANES], [1], [0]))
    mask = offsets < n
    return offsets, mask & (gl.load(keep + offsets, mask=mask, other=0) != 0)


@triton.jit
def tile(keep, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr, MASK: tl.constexpr):
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


@triton.jit
def block(keep, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr, MASK: tl.constexpr):
    offsets = tl.arange(0, ROWS * COLUMNS)
    mask = offsets < n
    return offsets, mask & (tl.load(keep + offsets, mask=mask, other=0) != 0)


@triton.jit(do_not_specialize=["number", "n", "from_rank", "to_rank"])
def several_by_context(
    DeviceContext: tl.constexpr, context_tensor, RANK: tl.constexpr, RANKS: tl.constexpr, calls: tl.constexpr,
    SOURCES: tl.constexpr, part: tl.constexpr, number, source, target, keep, n, from_rank, to_rank,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, MASK: tl.constexpr, HINT: tl.constexpr,
):  # fmt: skip
    ctx = DeviceContext.initialize(context_tensor, RANK, RANKS)
    offsets, mask = part(keep, n, ROWS, COLUMNS, MASK)
    for i in tl.static_range(len(calls)):
        if number == i:
            calls[i](ctx, source + offsets, target + offsets, from_rank, to_rank, mask, None, None, None, False, HINT)


@triton.jit(do_not_specialize=[*PEERS, "number", "n"])
def several_by_function(
    functions: tl.constexpr, heap_bases, rank, calls: tl.constexpr, SOURCES: tl.constexpr, part: tl.constexpr,
    number, source, target, keep, n, from_rank, to_rank,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, MASK: tl.constexpr, HINT: tl.constexpr,
):  # fmt: skip
    """``functions`` has the function under test of each of ``calls``."""
    offsets, mask = part(keep, n, ROWS, COLUMNS, MASK)
    for i in tl.static_range(len(calls)):
        if number == i:
            calls[i](
                functions[i], heap_bases, rank, source + offsets, target + offsets, from_rank, to_rank, mask, None,
                None, None, False, HINT,
            )  # fmt: skip
