"""Get: every rank reads its left neighbour's data.

    python examples/side_by_side/get.py

The neighbour does not take part, once its data is written. With torch.distributed it must send.
"""

import torch
import torch.distributed as dist
import triton
import triton.language as tl
from ranks import lanes, run
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

import iris_under_test as iris
from iris_under_test import DeviceContext
from iris_under_test.gluon import IrisDeviceCtx

SIZE, BLOCK = 1000, 256


@triton.jit
def triton_get(context, source, target, n, from_rank, RANK: tl.constexpr, WORLD: tl.constexpr, BLOCK: tl.constexpr):
    ctx = DeviceContext.initialize(context, RANK, WORLD)
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = ctx.load(source + offsets, from_rank, mask=offsets < n)
    tl.store(target + offsets, values, mask=offsets < n)


@triton.jit
def functional_get(heap_bases, source, target, n, rank, from_rank, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = iris.load(source + offsets, rank, from_rank, heap_bases, mask=offsets < n)
    tl.store(target + offsets, values, mask=offsets < n)


@gluon.jit
def gluon_get(
    IrisDeviceCtx: gl.constexpr, context, source, target, n, from_rank, BLOCK: gl.constexpr, LANES: gl.constexpr
):
    ctx = IrisDeviceCtx.initialize(context)
    layout: gl.constexpr = gl.BlockedLayout([1], [LANES], [4], [0])
    offsets = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    values = ctx.load(source + offsets, from_rank, mask=offsets < n)
    gl.store(target + offsets, values, mask=offsets < n)


@triton.jit
def triton_copy(context, source, target, n, from_rank, RANK: tl.constexpr, WORLD: tl.constexpr, BLOCK: tl.constexpr):
    ctx = DeviceContext.initialize(context, RANK, WORLD)
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ctx.copy(source + offsets, target + offsets, from_rank, RANK, mask=offsets < n)


def by_triton(ctx, source, target, right, left):
    context, rank, world = ctx.get_device_context(), ctx.get_rank(), ctx.get_num_ranks()
    triton_get[(triton.cdiv(SIZE, BLOCK),)](context, source, target, SIZE, left, rank, world, BLOCK)


def by_functions(ctx, source, target, right, left):
    bases, rank = ctx.get_heap_bases(), ctx.get_rank()
    functional_get[(triton.cdiv(SIZE, BLOCK),)](bases, source, target, SIZE, rank, left, BLOCK)


def by_gluon(ctx, source, target, right, left):
    context = ctx.get_device_context()
    gluon_get[(triton.cdiv(SIZE, BLOCK),)](IrisDeviceCtx, context, source, target, SIZE, left, BLOCK, lanes())


def by_copy(ctx, source, target, right, left):
    context, rank, world = ctx.get_device_context(), ctx.get_rank(), ctx.get_num_ranks()
    triton_copy[(triton.cdiv(SIZE, BLOCK),)](context, source, target, SIZE, left, rank, world, BLOCK)


def by_torch(ctx, source, target, right, left):
    sending = dist.P2POp(dist.isend, source, right)
    receiving = dist.P2POp(dist.irecv, target, left)
    for work in dist.batch_isend_irecv([sending, receiving]):
        work.wait()


def main(ctx):
    rank, world = ctx.get_rank(), ctx.get_num_ranks()
    right, left = (rank + 1) % world, (rank - 1) % world
    data = torch.arange(SIZE, dtype=torch.int32, device=ctx.get_device())
    source = ctx.zeros(SIZE, dtype=torch.int32)
    target = ctx.zeros(SIZE, dtype=torch.int32)
    source.copy_(data + 10_000 * rank)
    ctx.barrier()
    for get in (by_triton, by_functions, by_gluon, by_copy, by_torch):
        target.fill_(-1)
        get(ctx, source, target, right, left)
        assert torch.equal(target, data + 10_000 * left), f"rank {rank}, {get.__name__}: {target}"
        ctx.info(f"{get.__name__}: rank {left}'s data is here")


if __name__ == "__main__":
    run(main)
