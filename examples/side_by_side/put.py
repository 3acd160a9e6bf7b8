"""Put: every rank writes its data into its right neighbour's memory.

    python examples/side_by_side/put.py

The receiver only takes part in a barrier, after which all ranks have written. With torch.distributed both sides call.
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
def triton_put(context, source, target, n, to_rank, RANK: tl.constexpr, WORLD: tl.constexpr, BLOCK: tl.constexpr):
    ctx = DeviceContext.initialize(context, RANK, WORLD)
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ctx.put(source + offsets, target + offsets, to_rank, mask=offsets < n)


@triton.jit
def functional_put(heap_bases, source, target, n, rank, to_rank, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    iris.put(source + offsets, target + offsets, rank, to_rank, heap_bases, mask=offsets < n)


@gluon.jit
def gluon_put(
    IrisDeviceCtx: gl.constexpr, context, source, target, n, to_rank, BLOCK: gl.constexpr, LANES: gl.constexpr
):
    ctx = IrisDeviceCtx.initialize(context)
    layout: gl.constexpr = gl.BlockedLayout([1], [LANES], [4], [0])
    offsets = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    ctx.put(source + offsets, target + offsets, to_rank, mask=offsets < n)


def by_triton(ctx, source, target, right, left):
    context, rank, world = ctx.get_device_context(), ctx.get_rank(), ctx.get_num_ranks()
    triton_put[(triton.cdiv(SIZE, BLOCK),)](context, source, target, SIZE, right, rank, world, BLOCK)
    ctx.barrier()


def by_functions(ctx, source, target, right, left):
    bases, rank = ctx.get_heap_bases(), ctx.get_rank()
    functional_put[(triton.cdiv(SIZE, BLOCK),)](bases, source, target, SIZE, rank, right, BLOCK)
    ctx.barrier()


def by_gluon(ctx, source, target, right, left):
    context = ctx.get_device_context()
    gluon_put[(triton.cdiv(SIZE, BLOCK),)](IrisDeviceCtx, context, source, target, SIZE, right, BLOCK, lanes())
    ctx.barrier()


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
    for put in (by_triton, by_functions, by_gluon, by_torch):
        target.fill_(-1)
        ctx.barrier()
        put(ctx, source, target, right, left)
        assert torch.equal(target, data + 10_000 * left), f"rank {rank}, {put.__name__}: {target}"
        ctx.info(f"{put.__name__}: rank {left}'s data is here")


if __name__ == "__main__":
    run(main)
