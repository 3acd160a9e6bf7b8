"""The second program of the published Gluon overview: a producer and a consumer on two ranks.

    python examples/published_message_passing.py

As printed there, except for imports and for the lines that choose device and rendezvous; lines that are not in print
are between ``# added`` and ``# as printed``. One of those lines mends the printed check: ``source`` is filled on the
producer alone, so that the consumer compared a right result, 84, with twice its own zeros. The layouts are for 64
lanes: AMD GPUs, or the emulated device where there is no GPU. 06_message_passing is the same pattern with options, for
any GPU, with data that shows a misplaced element. Exit status 1 if the data is wrong.
"""

import datetime
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

import iris_under_test.experimental.iris_gluon as iris_gl
from harness import emulator


@gluon.jit
def producer_kernel(
    IrisDeviceCtx: gl.constexpr,
    context_tensor,
    source_buffer,
    target_buffer,
    flag,
    buffer_size,
    producer_rank: gl.constexpr,
    consumer_rank: gl.constexpr,
    BLOCK_SIZE: gl.constexpr,
):
    ctx = IrisDeviceCtx.initialize(context_tensor)
    pid = gl.program_id(0)

    block_start = pid * BLOCK_SIZE
    layout: gl.constexpr = gl.BlockedLayout([1], [64], [1], [0])
    offsets = block_start + gl.arange(0, BLOCK_SIZE, layout=layout)
    mask = offsets < buffer_size

    # Load from producer's buffer
    values = ctx.load(source_buffer + offsets, producer_rank, mask=mask)

    # Store to consumer's buffer
    ctx.store(target_buffer + offsets, values, consumer_rank, mask=mask)

    # Signal completion
    ctx.atomic_cas(flag + pid, 0, 1, consumer_rank, sem="release", scope="sys")


@gluon.jit
def consumer_kernel(
    IrisDeviceCtx: gl.constexpr,
    context_tensor,
    buffer,
    flag,
    buffer_size,
    consumer_rank: gl.constexpr,
    BLOCK_SIZE: gl.constexpr,
):
    ctx = IrisDeviceCtx.initialize(context_tensor)
    pid = gl.program_id(0)

    block_start = pid * BLOCK_SIZE
    layout: gl.constexpr = gl.BlockedLayout([1], [64], [1], [0])
    offsets = block_start + gl.arange(0, BLOCK_SIZE, layout=layout)
    mask = offsets < buffer_size

    # Wait for producer
    done = 0
    while done == 0:
        done = ctx.atomic_cas(flag + pid, 1, 0, consumer_rank, sem="acquire", scope="sys")

    # Read from buffer
    values = ctx.load(buffer + offsets, consumer_rank, mask=mask)

    # Process values...
    values = values * 2

    # Store back
    ctx.store(buffer + offsets, values, consumer_rank, mask=mask)


def worker(rank, world_size):
    # Initialize distributed
    # added
    store = dist.TCPStore("127.0.0.1", int(os.environ["PORT"]), is_master=False)
    on_gpu = torch.cuda.is_available()
    if not on_gpu:
        emulator.activate()
    dist.init_process_group(
        "nccl" if on_gpu else "gloo",
        rank=rank,
        world_size=world_size,
        store=store,
        timeout=datetime.timedelta(seconds=60),
    )
    # as printed

    # Initialize Iris Gluon
    ctx = iris_gl.iris(heap_size=2**30)
    context_tensor = ctx.get_device_context()

    # Allocate buffers
    buffer_size = 1024
    block_size = 256
    source = ctx.zeros(buffer_size, dtype=torch.float32)
    target = ctx.zeros(buffer_size, dtype=torch.float32)
    num_blocks = triton.cdiv(buffer_size, block_size)
    flag = ctx.zeros(num_blocks, dtype=torch.int32)

    # Initialize source data on producer
    producer_rank = 0
    consumer_rank = 1
    if rank == producer_rank:
        source.fill_(42.0)

    # Launch kernels based on rank
    grid = (num_blocks,)
    if rank == producer_rank:
        ctx.info(f"Rank {rank} producing data...")
        producer_kernel[grid](
            iris_gl.IrisDeviceCtx,
            context_tensor,
            source,
            target,
            flag,
            buffer_size,
            producer_rank,
            consumer_rank,
            block_size,
            num_warps=1,
        )
    else:
        ctx.info(f"Rank {rank} consuming data...")
        consumer_kernel[grid](
            iris_gl.IrisDeviceCtx,
            context_tensor,
            target,
            flag,
            buffer_size,
            consumer_rank,
            block_size,
            num_warps=1,
        )

    ctx.barrier()

    # Validate on consumer
    if rank == consumer_rank:
        # added
        source.fill_(42.0)
        # as printed
        expected = source * 2  # Consumer doubles the values
        if torch.allclose(target, expected, atol=1):
            ctx.info("Validation successful!")
        else:
            ctx.error("Validation failed!")
            # added
            raise SystemExit(1)
            # as printed

    ctx.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    world_size = 2
    # added
    # Port 0 is any free port; the store stays open here until the workers have ended.
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    os.environ["PORT"] = str(store.port)
    # as printed
    mp.spawn(worker, args=(world_size,), nprocs=world_size, join=True)
