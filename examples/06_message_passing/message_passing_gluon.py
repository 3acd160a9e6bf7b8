"""Producer and consumer on two ranks: a block of data, then a flag that marks it as complete.

    python examples/06_message_passing/message_passing_gluon.py
    python examples/06_message_passing/message_passing_gluon.py -t fp16 -s 10000 -b 256 -p 1048576

Rank 0 copies its source into rank 1's buffer, block by block, and sets one flag per block; rank 1 waits for each flag,
doubles the block in place and clears the flag. Every element differs from its neighbours, and the consumer computes the
expected values itself, so a lost, misplaced or unprocessed element is detected. Runs on two GPUs, or on the emulated
device if there is no GPU. Exits with status 1 if the data is wrong. Between AMD GPUs its memory order needs Triton 3.8,
see docs/memory-model.md.
"""

import argparse
import datetime

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

import iris_under_test as iris
from harness import emulator
from iris_under_test.gluon import IrisDeviceCtx

PRODUCER, CONSUMER = 0, 1
DTYPES = {"fp16": torch.float16, "fp32": torch.float32, "int8": torch.int8, "bf16": torch.bfloat16}


@gluon.jit
def producer_kernel(
    IrisDeviceCtx: gl.constexpr,
    context_tensor,
    source,
    target,
    flag,
    size,
    consumer: gl.constexpr,
    BLOCK: gl.constexpr,
    LANES: gl.constexpr,
):
    """Put block ``pid`` of ``source`` into the consumer's ``target``, then set the consumer's ``flag[pid]``.

    Example: size 5, BLOCK 4: program 0 puts elements 0 to 3 and sets flag 0, program 1 puts element 4 and sets flag 1.
    """
    ctx = IrisDeviceCtx.initialize(context_tensor)
    pid = gl.program_id(0)
    offsets = pid * BLOCK + gl.arange(0, BLOCK, layout=gl.BlockedLayout([1], [LANES], [1], [0]))
    ctx.put(source + offsets, target + offsets, consumer, mask=offsets < size)
    # release: the block is visible before the flag; sys: to another rank.
    ctx.atomic_cas(flag + pid, 0, 1, consumer, sem="release", scope="sys")


@gluon.jit
def consumer_kernel(
    IrisDeviceCtx: gl.constexpr, context_tensor, buffer, flag, size, BLOCK: gl.constexpr, LANES: gl.constexpr
):
    """Wait for ``flag[pid]``, double block ``pid`` of ``buffer``; afterwards the flag is 0 again.

    Example: size 5, BLOCK 4: program 1 waits for flag 1 and doubles element 4.
    """
    ctx = IrisDeviceCtx.initialize(context_tensor)
    pid = gl.program_id(0)
    offsets = pid * BLOCK + gl.arange(0, BLOCK, layout=gl.BlockedLayout([1], [LANES], [1], [0]))
    mask = offsets < size
    # The compare-and-swap that sees the flag also clears it: 1 becomes 0.
    while ctx.atomic_cas(flag + pid, 1, 0, ctx.cur_rank, sem="acquire", scope="sys") == 0:
        pass
    gl.store(buffer + offsets, gl.load(buffer + offsets, mask=mask) * 2, mask=mask)


def worker(rank: int, options: argparse.Namespace, port: int) -> None:
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(rank)
    else:
        emulator.activate()
    dist.init_process_group(
        "nccl" if on_gpu else "gloo",
        rank=rank,
        world_size=options.num_ranks,
        store=store,
        timeout=datetime.timedelta(seconds=60),
    )
    ctx = iris.iris(options.heap_size)
    dtype, size, block = DTYPES[options.datatype], options.buffer_size, options.block_size
    lanes = triton.runtime.driver.active.get_current_target().warp_size
    blocks = triton.cdiv(size, block)

    source = ctx.zeros(size, dtype=dtype)
    buffer = ctx.zeros(size, dtype=dtype)
    flag = ctx.zeros(blocks, dtype=torch.int32)
    # Exact in every dtype, also when doubled; 61 is prime, so that no two blocks look the same.
    data = (torch.arange(size) % 61 + 1).to(dtype).to(ctx.get_device())
    if rank == PRODUCER:
        source.copy_(data)
    ctx.barrier()

    ctx.info(f"{'producing' if rank == PRODUCER else 'consuming'} {size} elements of {dtype} in {blocks} blocks")
    context = ctx.get_device_context()
    if rank == PRODUCER:
        producer_kernel[(blocks,)](
            IrisDeviceCtx, context, source, buffer, flag, size, CONSUMER, block, lanes, num_warps=1
        )
    else:
        consumer_kernel[(blocks,)](IrisDeviceCtx, context, buffer, flag, size, block, lanes, num_warps=1)
    ctx.barrier()

    expected = data * 2 if rank == CONSUMER else torch.zeros_like(data)
    wrong = (buffer != expected).nonzero().flatten().tolist()
    if wrong:
        first = wrong[0]
        ctx.error(f"{len(wrong)} elements are wrong, first {first}: {buffer[first]} is not {expected[first]}")
    elif flag.any():
        ctx.error(f"flags are still set: {flag.nonzero().flatten().tolist()}")
    else:
        ctx.info("Validation successful!")
    failed = bool(wrong) or bool(flag.any())
    ctx.barrier()
    dist.destroy_process_group()
    raise SystemExit(1 if failed else 0)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("-t", "--datatype", choices=DTYPES, default="fp32", help="element type")
    parser.add_argument("-s", "--buffer_size", type=int, default=4096, help="elements")
    parser.add_argument("-b", "--block_size", type=int, default=512, help="elements per flag, a power of two")
    parser.add_argument("-p", "--heap_size", type=int, default=2**33, help="bytes of symmetric heap per rank")
    parser.add_argument("-r", "--num_ranks", type=int, default=2, help="must be 2")
    options = parser.parse_args()
    if options.num_ranks != 2:
        raise ValueError(f"one producer and one consumer: --num_ranks must be 2, got {options.num_ranks}")
    if options.buffer_size < 1:
        raise ValueError(f"--buffer_size must be positive, got {options.buffer_size}")
    if options.block_size < 1 or options.block_size & (options.block_size - 1):
        raise ValueError(f"--block_size must be a power of two, got {options.block_size}")
    return options


if __name__ == "__main__":
    options = arguments()
    # Port 0 is any free port; the store stays open here until the ranks have ended.
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    mp.spawn(worker, args=(options, store.port), nprocs=options.num_ranks)
