"""A first run of everything on emulated gfx942 ranks, and the published example. The conformance suite goes deeper."""

from __future__ import annotations

import functools
import pathlib

import pytest
import torch
import torch.distributed as dist
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.runtime import driver

from iris_under_test.ccl import Config
from iris_under_test.gluon import IrisDeviceCtx
from iris_under_test.kernels.tiles import grouped_tile, spread_over_xcds
from tests.iris import kernels
from tests.iris.ranks import run_checks

ROOT = pathlib.Path(__file__).parents[2]
HEAP = 2**35  # sparse: only what is written takes memory


def values(rank: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Distinct per rank and, up to 61 in a row, per element; exact in every dtype but bool."""
    count = functools.reduce(lambda a, b: a * b, shape, 1)
    return (torch.arange(count) % 61 + 61 * rank - 100).view(shape).to(dtype)


@gluon.jit
def tile_order_kernel(tiles, programs, num_programs, tiles_m, tiles_n, GROUP_M: gl.constexpr, CHUNK: gl.constexpr):
    pid = gl.program_id(0)
    gl.store(programs + pid, spread_over_xcds(pid, num_programs, 8, CHUNK))
    if pid < tiles_m * tiles_n:
        tile_m, tile_n = grouped_tile(pid, tiles_m, tiles_n, GROUP_M)
        gl.store(tiles + 2 * pid, tile_m)
        gl.store(tiles + 2 * pid + 1, tile_n)


@gluon.jit
def mixed_copy_kernel(Ctx: gl.constexpr, context, a, b, peer):
    ctx = Ctx.initialize(context)
    layout: gl.constexpr = gl.BlockedLayout([1], [64], [1], [0])
    offsets = gl.arange(0, 64, layout=layout)
    ctx.copy(a + offsets, b + offsets, ctx.cur_rank, peer)


@gluon.jit
def extremes_kernel(Ctx: gl.constexpr, context, values, least, greatest, peer):
    ctx = Ctx.initialize(context)
    layout: gl.constexpr = gl.BlockedLayout([1], [64], [1], [0])
    offsets = gl.arange(0, 64, layout=layout)
    value = gl.load(values + offsets)
    # All lanes address one element, and no lane reads the old value.
    ctx.atomic_min(least + offsets // 64, value, peer, sem="relaxed", scope="sys")
    ctx.atomic_max(greatest + offsets // 64, value, peer, sem="relaxed", scope="sys")


@gluon.jit
def scalar_kernel(Ctx: gl.constexpr, context, out, cell, peer):
    ctx = Ctx.initialize(context)
    gl.store(out, ctx.cur_rank)
    gl.store(out + 1, ctx.num_ranks)
    gl.store(out + 2, ctx.atomic_sub(cell, 3, peer, sem="acq_rel", scope="sys"))
    gl.store(out + 3, ctx.load(cell, peer, volatile=True))


def rma_reaches_the_right_rank(ctx, rank, num_ranks):
    peer, back = (rank + 1) % num_ranks, (rank - 1) % num_ranks
    sources = {"load": peer, "store": back, "get": peer, "put": back, "copy": peer}
    cases = [(op, "fp16", torch.float16, 4000) for op in sources]
    cases += [("put", "fp16", torch.float16, 4096), ("get", "i8", torch.int8, 4096), ("store", "i1", torch.bool, 500)]
    for op, name, dtype, count in cases:
        per_lane = 16 // kernels.ITEM_SIZES[name]
        grid = (triton.cdiv(count, 256 * per_lane),)
        a, b = ctx.empty(count, dtype=dtype), ctx.zeros(count + 7, dtype=dtype)
        a.copy_(values(rank, (count,), dtype))
        ctx.barrier()
        kernels.rma_kernel[grid](
            IrisDeviceCtx, ctx.get_device_context(), a, b, count, peer, 256 * per_lane, per_lane, op, None, None
        )
        ctx.barrier()
        assert torch.equal(b[:count], values(sources[op], (count,), dtype)), (op, name, count)
        assert not b[count:].any(), (op, name, count)


def scalars_and_subtraction(ctx, rank, num_ranks):
    cell = ctx.full((1,), 100, dtype=torch.int32)
    out = ctx.zeros(4, dtype=torch.int32)
    scalar_kernel[(1,)](IrisDeviceCtx, ctx.get_device_context(), out, cell, (rank + 1) % num_ranks)
    ctx.barrier()
    assert out.tolist() == [rank, num_ranks, 100, 97]
    assert cell.item() == 97


def signed_extremes_of_lanes_that_collide(ctx, rank, num_ranks):
    for dtype in (torch.int32, torch.int64):
        values = torch.arange(64, dtype=dtype) - 32
        least, greatest = ctx.full((1,), 7, dtype=dtype), ctx.full((1,), -7, dtype=dtype)
        peer = (rank + 1) % num_ranks
        extremes_kernel[(1,)](IrisDeviceCtx, ctx.get_device_context(), values, least, greatest, peer, num_warps=1)
        ctx.barrier()
        assert (least.item(), greatest.item()) == (-32, 31), dtype


def copy_keeps_each_side_s_type(ctx, rank, num_ranks):
    a, b = ctx.arange(64, dtype=torch.float32), ctx.zeros(64, dtype=torch.int32)
    a += 64 * rank
    ctx.barrier()
    mixed_copy_kernel[(1,)](IrisDeviceCtx, ctx.get_device_context(), a, b, (rank + 1) % num_ranks, num_warps=1)
    ctx.barrier()
    back = (rank - 1) % num_ranks
    assert torch.equal(b, torch.arange(64, dtype=torch.int32) + 64 * back)


def gather_and_compare(ctx, output, source, members, **options):
    """All-gathers and compares with torch.distributed's own result, ranks outside ``members`` aside."""
    m, n = source.shape
    source.copy_(values(ctx.get_rank(), (m, n), source.dtype))
    ctx.barrier()
    ctx.ccl.all_gather(output, source, **options)
    expected = torch.cat([values(member, (m, n), source.dtype) for member in members])
    assert torch.equal(output, expected), (tuple(source.shape), source.dtype, options)


def all_gather_shapes(ctx, rank, num_ranks):
    world = range(num_ranks)
    for dtype in (torch.float16, torch.float32):
        for m, n in ((13, 100), (37, 528), (0, 5), (3, 0)):
            gather_and_compare(ctx, ctx.zeros(num_ranks * m, n, dtype=dtype), ctx.zeros(m, n, dtype=dtype), world)
    gather_and_compare(ctx, ctx.zeros(num_ranks, 1), ctx.zeros(1, 1), world)
    for dtype in (torch.float64, torch.int8, torch.bool):
        gather_and_compare(ctx, ctx.zeros(num_ranks * 5, 48, dtype=dtype), ctx.zeros(5, 48, dtype=dtype), world)


def all_gather_strides_and_tiles(ctx, rank, num_ranks):
    m, n, world = 20, 48, range(num_ranks)
    gather_and_compare(ctx, ctx.zeros(num_ranks * m, 2 * n)[:, ::2], ctx.zeros(n, m).t(), world)
    for options in (
        {"block_size_m": 4, "block_size_n": 64, "comm_sms": 3, "swizzle_size": 2},
        {"block_size_m": 1, "block_size_n": 128, "num_warps": 2, "comm_sms": 9, "num_xcds": 4, "chunk_size": 2},
    ):
        config = Config(use_gluon=True, **options)
        gather_and_compare(ctx, ctx.zeros(num_ranks * m, n), ctx.zeros(m, n), world, config=config)


def all_gather_offsets_are_64_bit(ctx, rank, num_ranks):
    """Rows, or columns, a GiB apart: 32-bit offsets, of elements or bytes, would wrap."""
    far, world = 2**30, range(num_ranks)
    output, source = (ctx.empty(count * far, dtype=torch.int8) for count in (3 * num_ranks, 4))
    for (m, n), strides in (((3, 32), (far, 1)), ((3, 4), (1, far))):
        rows = num_ranks * m
        gather_and_compare(ctx, output.as_strided((rows, n), strides), source.as_strided((m, n), strides), world)


def all_gather_in_groups(ctx, rank, num_ranks):
    halves = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    members = [rank % 2, rank % 2 + 2]
    gather_and_compare(ctx, ctx.zeros(10, 32), ctx.zeros(5, 32), members, group=halves[rank % 2])
    output, source = ctx.zeros(10, 32), ctx.zeros(5, 32)
    gather_and_compare(ctx, output, source, members, group=halves[rank % 2], async_op=False)
    source.add_(1)
    ctx.barrier()
    ctx.ccl.all_gather(output, source, group=halves[rank % 2], async_op=True)
    ctx.barrier()
    assert torch.equal(output, torch.cat([values(member, (5, 32), source.dtype) + 1 for member in members]))


def one_binary_serves_all_ranks(ctx, rank, num_ranks):
    driver.active.drain_launches()
    gather_and_compare(ctx, ctx.zeros(num_ranks * 3, 64), ctx.zeros(3, 64), range(num_ranks))
    (launch,) = driver.active.drain_launches()
    hashes = [None] * num_ranks
    dist.all_gather_object(hashes, launch.hash)
    assert len(set(hashes)) == 1
    stores = [(access.where, access.width) for access in launch.accesses if access.kind == "store"]
    assert sorted(stores) == [("local", 16)] + [("peer", 16)] * (num_ranks - 1)


def tile_orders_are_permutations(ctx, rank, num_ranks):
    for programs, chunk, m, n, group in ((64, 8, 8, 8, 4), (21, 2, 5, 3, 2), (40, 5, 1, 40, 4), (17, 1, 17, 1, 3)):
        tiles = torch.full((m * n, 2), -1, dtype=torch.int32)
        order = torch.full((programs,), -1, dtype=torch.int32)
        tile_order_kernel[(max(programs, m * n),)](
            tiles, torch.cat([order, order, order]), programs, m, n, group, chunk, num_warps=1
        )
        assert {tuple(tile) for tile in tiles.tolist()} == {(i, j) for i in range(m) for j in range(n)}
        tile_order_kernel[(programs,)](tiles, order, programs, 0, 0, group, chunk, num_warps=1)
        assert sorted(order.tolist()) == list(range(programs))
    spread = [0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15]
    order = torch.zeros(16, dtype=torch.int32)
    tile_order_kernel[(16,)](order, order, 16, 0, 0, 1, 2, num_warps=1)
    assert [order.tolist().index(number) for number in range(16)] == spread


CHECKS = [
    rma_reaches_the_right_rank, scalars_and_subtraction, signed_extremes_of_lanes_that_collide,
    copy_keeps_each_side_s_type, all_gather_shapes, all_gather_strides_and_tiles, all_gather_offsets_are_64_bit,
    all_gather_in_groups, one_binary_serves_all_ranks, tile_orders_are_permutations,
]  # fmt: skip


@pytest.fixture(scope="module")
def failures():
    return run_checks(CHECKS, num_ranks=4, heap_size=HEAP, emulated=True)


@pytest.mark.nightly
@pytest.mark.parametrize("name", [check.__name__ for check in CHECKS])
def test_on_four_emulated_ranks(failures, name):
    assert failures[name] == "", failures[name]
