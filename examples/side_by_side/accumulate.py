"""Accumulate: every rank adds to counters on rank 0.

    python examples/side_by_side/accumulate.py

``relaxed``: additions need no order among themselves; ``sys``: they come from several GPUs. After the barrier all ranks
have added. With torch.distributed the ranks reduce arrays of their own.
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

SIZE, BLOCK, BINS = 1000, 256, 10


@triton.jit
def triton_count(context, samples, bins, n, RANK: tl.constexpr, WORLD: tl.constexpr, BLOCK: tl.constexpr):
    ctx = DeviceContext.initialize(context, RANK, WORLD)
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    place = tl.load(samples + offsets, mask=mask, other=0)
    ctx.atomic_add(bins + place, 1, 0, mask=mask, sem="relaxed", scope="sys")


@triton.jit
def functional_count(heap_bases, samples, bins, n, rank, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    place = tl.load(samples + offsets, mask=mask, other=0)
    iris.atomic_add(bins + place, 1, rank, 0, heap_bases, mask=mask, sem="relaxed", scope="sys")


@gluon.jit
def gluon_count(IrisDeviceCtx: gl.constexpr, context, samples, bins, n, BLOCK: gl.constexpr, LANES: gl.constexpr):
    ctx = IrisDeviceCtx.initialize(context)
    layout: gl.constexpr = gl.BlockedLayout([1], [LANES], [4], [0])
    offsets = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    mask = offsets < n
    place = gl.load(samples + offsets, mask=mask, other=0)
    ones = gl.full([BLOCK], 1, gl.int32, layout=layout)
    ctx.atomic_add(bins + place, ones, 0, mask=mask, sem="relaxed", scope="sys")


def by_triton(ctx, samples, bins):
    context, rank, world = ctx.get_device_context(), ctx.get_rank(), ctx.get_num_ranks()
    triton_count[(triton.cdiv(SIZE, BLOCK),)](context, samples, bins, SIZE, rank, world, BLOCK)
    ctx.barrier()


def by_functions(ctx, samples, bins):
    bases, rank = ctx.get_heap_bases(), ctx.get_rank()
    functional_count[(triton.cdiv(SIZE, BLOCK),)](bases, samples, bins, SIZE, rank, BLOCK)
    ctx.barrier()


def by_gluon(ctx, samples, bins):
    context = ctx.get_device_context()
    gluon_count[(triton.cdiv(SIZE, BLOCK),)](IrisDeviceCtx, context, samples, bins, SIZE, BLOCK, lanes())
    ctx.barrier()


def by_torch(ctx, samples, bins):
    bins.copy_(torch.bincount(samples, minlength=BINS))
    dist.reduce(bins, 0)


def main(ctx):
    rank, world = ctx.get_rank(), ctx.get_num_ranks()
    drawn = [(torch.arange(SIZE) ** 2 + r) % 7 + r % 2 for r in range(world)]
    samples = drawn[rank].to(torch.int32).to(ctx.get_device())
    expected = torch.bincount(torch.cat(drawn), minlength=BINS).to(torch.int32).to(ctx.get_device())
    bins = ctx.zeros(BINS, dtype=torch.int32)
    for count in (by_triton, by_functions, by_gluon, by_torch):
        bins.zero_()
        ctx.barrier()
        count(ctx, samples, bins)
        if rank == 0:
            assert torch.equal(bins, expected), f"{count.__name__}: {bins.tolist()}, not {expected.tolist()}"
            ctx.info(f"{count.__name__}: {bins.tolist()}")
        ctx.barrier()


if __name__ == "__main__":
    run(main)
