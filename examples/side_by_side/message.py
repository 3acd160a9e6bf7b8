"""Message: rank 0 writes a payload into rank 1's memory and raises a flag; rank 1 waits for the flag and reads.

    python examples/side_by_side/message.py

``release`` on the flag makes the payload arrive before it, ``acquire`` makes the reader read the data that has arrived,
``sys`` means: between GPUs. docs/memory-model.md explains the failures without them. One flag per block lets the reader
begin with the first block while others are still on their way; torch.distributed reports only the whole message. The
compare-and-swap with which the reader sees the flag also clears it for the next message.
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
BLOCKS = triton.cdiv(SIZE, BLOCK)


@triton.jit
def triton_send(context, source, inbox, flag, n, WORLD: tl.constexpr, BLOCK: tl.constexpr):
    ctx = DeviceContext.initialize(context, 0, WORLD)
    block = tl.program_id(0)
    offsets = block * BLOCK + tl.arange(0, BLOCK)
    ctx.put(source + offsets, inbox + offsets, 1, mask=offsets < n)
    ctx.atomic_xchg(flag + block, 1, 1, sem="release", scope="sys")


@triton.jit
def triton_receive(context, inbox, flag, out, n, WORLD: tl.constexpr, BLOCK: tl.constexpr):
    ctx = DeviceContext.initialize(context, 1, WORLD)
    block = tl.program_id(0)
    offsets = block * BLOCK + tl.arange(0, BLOCK)
    while ctx.atomic_xchg(flag + block, 0, 1, sem="acquire", scope="sys") != 1:
        pass
    tl.store(out + offsets, tl.load(inbox + offsets, mask=offsets < n), mask=offsets < n)


@triton.jit
def functional_send(heap_bases, source, inbox, flag, n, BLOCK: tl.constexpr):
    block = tl.program_id(0)
    offsets = block * BLOCK + tl.arange(0, BLOCK)
    iris.put(source + offsets, inbox + offsets, 0, 1, heap_bases, mask=offsets < n)
    iris.atomic_xchg(flag + block, 1, 0, 1, heap_bases, sem="release", scope="sys")


@triton.jit
def functional_receive(heap_bases, inbox, flag, out, n, BLOCK: tl.constexpr):
    block = tl.program_id(0)
    offsets = block * BLOCK + tl.arange(0, BLOCK)
    while iris.atomic_xchg(flag + block, 0, 1, 1, heap_bases, sem="acquire", scope="sys") != 1:
        pass
    tl.store(out + offsets, tl.load(inbox + offsets, mask=offsets < n), mask=offsets < n)


@gluon.jit
def gluon_send(IrisDeviceCtx: gl.constexpr, context, source, inbox, flag, n, BLOCK: gl.constexpr, LANES: gl.constexpr):
    ctx = IrisDeviceCtx.initialize(context)
    block = gl.program_id(0)
    offsets = block * BLOCK + gl.arange(0, BLOCK, layout=gl.BlockedLayout([1], [LANES], [1], [0]))
    ctx.put(source + offsets, inbox + offsets, 1, mask=offsets < n)
    ctx.atomic_xchg(flag + block, 1, 1, sem="release", scope="sys")


@gluon.jit
def gluon_receive(IrisDeviceCtx: gl.constexpr, context, inbox, flag, out, n, BLOCK: gl.constexpr, LANES: gl.constexpr):
    ctx = IrisDeviceCtx.initialize(context)
    block = gl.program_id(0)
    offsets = block * BLOCK + gl.arange(0, BLOCK, layout=gl.BlockedLayout([1], [LANES], [1], [0]))
    while ctx.atomic_xchg(flag + block, 0, 1, sem="acquire", scope="sys") != 1:
        pass
    gl.store(out + offsets, gl.load(inbox + offsets, mask=offsets < n), mask=offsets < n)


# One wavefront to a block: its release covers all that it has stored.
def by_triton(ctx, source, inbox, flag, out):
    context, world = ctx.get_device_context(), ctx.get_num_ranks()
    if ctx.get_rank() == 0:
        triton_send[(BLOCKS,)](context, source, inbox, flag, SIZE, world, BLOCK, num_warps=1)
    if ctx.get_rank() == 1:
        triton_receive[(BLOCKS,)](context, inbox, flag, out, SIZE, world, BLOCK, num_warps=1)


def by_functions(ctx, source, inbox, flag, out):
    bases = ctx.get_heap_bases()
    if ctx.get_rank() == 0:
        functional_send[(BLOCKS,)](bases, source, inbox, flag, SIZE, BLOCK, num_warps=1)
    if ctx.get_rank() == 1:
        functional_receive[(BLOCKS,)](bases, inbox, flag, out, SIZE, BLOCK, num_warps=1)


def by_gluon(ctx, source, inbox, flag, out):
    context = ctx.get_device_context()
    if ctx.get_rank() == 0:
        gluon_send[(BLOCKS,)](IrisDeviceCtx, context, source, inbox, flag, SIZE, BLOCK, lanes(), num_warps=1)
    if ctx.get_rank() == 1:
        gluon_receive[(BLOCKS,)](IrisDeviceCtx, context, inbox, flag, out, SIZE, BLOCK, lanes(), num_warps=1)


def by_torch(ctx, source, inbox, flag, out):
    if ctx.get_rank() == 0:
        dist.send(source, 1)
    if ctx.get_rank() == 1:
        dist.recv(out, 0)


def main(ctx):
    rank = ctx.get_rank()
    data = torch.arange(SIZE, dtype=torch.int32, device=ctx.get_device())
    source = ctx.zeros(SIZE, dtype=torch.int32)
    inbox = ctx.zeros(SIZE, dtype=torch.int32)
    out = ctx.zeros(SIZE, dtype=torch.int32)
    flag = ctx.zeros(BLOCKS, dtype=torch.int32)
    for number, send in enumerate((by_triton, by_functions, by_gluon, by_torch), start=1):
        source.copy_(data * number + rank)
        ctx.barrier()
        send(ctx, source, inbox, flag, out)
        if rank == 1:
            assert torch.equal(out, data * number), f"{send.__name__}: {out}"
            assert not flag.any(), f"{send.__name__}: {flag}"
            ctx.info(f"{send.__name__}: message {number} is here")
        ctx.barrier()


if __name__ == "__main__":
    run(main)
