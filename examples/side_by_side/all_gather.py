"""All-gather: every rank's row on every rank.

    python examples/side_by_side/all_gather.py

By hand (each rank stores its row into every rank's memory, then a barrier of the devices), by the library's collective
with its Triton and its Gluon kernel, and by torch.distributed.
"""

import torch
import torch.distributed as dist
import triton
import triton.language as tl
from ranks import lanes, run
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from iris_under_test import DeviceContext
from iris_under_test.ccl import Config
from iris_under_test.gluon import IrisDeviceCtx

SIZE, BLOCK = 1024, 256


@triton.jit
def triton_push(context, row, rows, n, RANK: tl.constexpr, WORLD: tl.constexpr, BLOCK: tl.constexpr):
    ctx = DeviceContext.initialize(context, RANK, WORLD)
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    values = tl.load(row + offsets, mask=mask)
    for step in range(WORLD):
        ctx.store(rows + RANK * n + offsets, values, (RANK + step) % WORLD, mask=mask)


@gluon.jit
def gluon_push(IrisDeviceCtx: gl.constexpr, context, row, rows, n, BLOCK: gl.constexpr, LANES: gl.constexpr):
    ctx = IrisDeviceCtx.initialize(context)
    layout: gl.constexpr = gl.BlockedLayout([1], [LANES], [4], [0])
    offsets = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    mask = offsets < n
    values = gl.load(row + offsets, mask=mask)
    for step in range(ctx.num_ranks):
        ctx.store(rows + ctx.cur_rank * n + offsets, values, (ctx.cur_rank + step) % ctx.num_ranks, mask=mask)


def by_triton(ctx, row, rows):
    context, rank, world = ctx.get_device_context(), ctx.get_rank(), ctx.get_num_ranks()
    triton_push[(triton.cdiv(SIZE, BLOCK),)](context, row, rows, SIZE, rank, world, BLOCK)
    ctx.device_barrier()


def by_gluon(ctx, row, rows):
    context = ctx.get_device_context()
    gluon_push[(triton.cdiv(SIZE, BLOCK),)](IrisDeviceCtx, context, row, rows, SIZE, BLOCK, lanes())
    ctx.device_barrier()


def by_ccl_triton(ctx, row, rows):
    ctx.ccl.all_gather(rows, row)


def by_ccl_gluon(ctx, row, rows):
    ctx.ccl.all_gather(rows, row, config=Config(use_gluon=True))


def by_torch(ctx, row, rows):
    dist.all_gather(list(rows.split(1)), row)


def main(ctx):
    rank, world = ctx.get_rank(), ctx.get_num_ranks()
    data = torch.arange(SIZE, device=ctx.get_device()) % 2048
    expected = torch.stack([(data + 97 * r) % 2048 for r in range(world)]).to(torch.float16)
    row = ctx.zeros((1, SIZE), dtype=torch.float16)
    rows = ctx.zeros((world, SIZE), dtype=torch.float16)
    row.copy_(expected[rank])
    for gather in (by_triton, by_gluon, by_ccl_triton, by_ccl_gluon, by_torch):
        rows.fill_(-1)
        ctx.barrier()
        gather(ctx, row, rows)
        assert torch.equal(rows, expected), f"rank {rank}, {gather.__name__}: {rows}"
        ctx.info(f"{gather.__name__}: all {world} rows are here")
        ctx.barrier()


if __name__ == "__main__":
    run(main)
