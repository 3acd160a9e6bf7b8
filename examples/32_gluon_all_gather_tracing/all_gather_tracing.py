"""All-gather by a traced Gluon kernel: every store to another rank is an event in a file for Perfetto.

    torchrun --standalone --nproc_per_node=2 examples/32_gluon_all_gather_tracing/all_gather_tracing.py --validate
    torchrun --standalone --nproc_per_node=2 examples/32_gluon_all_gather_tracing/all_gather_tracing.py -v -m 13 -n 70

Each rank stores its own (M, N) into its rows of (ranks * M, N) on every rank, block by block, and records one event
per block and destination. It writes its events to ``trace_rank<r>.json``; rank 0 also writes those of all ranks to
``trace.json`` (``--output_file``). ``--validate`` compares the data with ``torch.distributed`` bit for bit, and the
events with the stores that the kernel makes. Runs on one GPU per rank, or on the emulated device if there is no GPU.
Exits with status 1 on every rank if the data or the events of any rank are wrong.
"""

import argparse
import datetime
import os

import torch
import torch.distributed as dist
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

import iris_under_test as iris
from harness import emulator
from iris_under_test import TraceEvent
from iris_under_test.gluon import IrisDeviceCtx

DTYPES = {"fp16": torch.float16, "fp32": torch.float32, "bf16": torch.bfloat16}


@gluon.jit
def traced_all_gather_kernel(
    IrisDeviceCtx: gl.constexpr,
    context_tensor,
    source,
    gathered,
    size,
    BLOCK: gl.constexpr,
    LANES: gl.constexpr,
    WARPS: gl.constexpr,
):
    """Store block ``pid`` of ``source`` (``size`` elements) into the caller's part of every rank's ``gathered``.

    Example: rank 1, size 5, BLOCK 4: program 0 stores elements 0 to 3 at 5 to 8 of each rank's ``gathered``.
    """
    ctx = IrisDeviceCtx.initialize(context_tensor, tracing=True)
    pid = gl.program_id(0)
    offsets = pid * BLOCK + gl.arange(0, BLOCK, layout=gl.BlockedLayout([1], [LANES], [WARPS], [0]))
    mask = offsets < size
    values = gl.load(source + offsets, mask=mask)
    target = gathered + ctx.cur_rank * size + offsets
    # Each rank starts with itself, so that the ranks do not all store to one rank at the same time.
    for step in range(ctx.num_ranks):
        to_rank = (ctx.cur_rank + step) % ctx.num_ranks
        event = ctx.tracing.record_event_start(TraceEvent().store, to_rank, target, pid, step, mask)
        ctx.store(target, values, to_rank, mask=mask)
        ctx.tracing.record_event_end(event)


def main(options: argparse.Namespace) -> int:
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    else:
        emulator.activate()
    # The matrices stay on the device: gloo serves the host side.
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    ctx = iris.iris(options.heap_size)
    rank, ranks = ctx.get_rank(), ctx.get_num_ranks()

    m, n, dtype = options.m, options.n, DTYPES[options.datatype]
    source = ctx.zeros((m, n), dtype=dtype)
    gathered = ctx.zeros((ranks * m, n), dtype=dtype)
    # Whole numbers that each dtype holds exactly, different on each rank, so that a misplaced element is detected.
    source.copy_(torch.randint(-128, 129, (m, n), generator=torch.Generator().manual_seed(rank)).to(dtype))
    programs = triton.cdiv(m * n, options.block_size)
    ctx.tracing.enable(max_events=programs * ranks)  # before the context tensor is fetched
    ctx.barrier()

    lanes = triton.runtime.driver.active.get_current_target().warp_size
    traced_all_gather_kernel[(programs,)](
        IrisDeviceCtx, ctx.get_device_context(), source, gathered, m * n, options.block_size, lanes,
        options.num_warps, num_warps=options.num_warps,
    )  # fmt: skip
    ctx.barrier()
    ctx.tracing.export(options.output_file, merge=True, unit="us")
    ctx.info(f"{int(ctx.tracing.trace_counter)} stores recorded, see {options.output_file}")

    wrong = 0
    if options.validate:
        expected = [torch.empty((m, n), dtype=dtype) for _ in range(ranks)]
        dist.all_gather(expected, source.cpu())
        elements = int((gathered.cpu() != torch.cat(expected)).sum())
        events = wrong_events(ctx, programs, source)
        if elements or events:
            ctx.error(f"{elements} of {gathered.numel()} elements and {events} events are wrong")
        else:
            ctx.info("Validation successful!")
        total = torch.tensor(elements + events)
        dist.all_reduce(total)
        wrong = int(total)
    ctx.barrier()
    dist.destroy_process_group()
    return 1 if wrong else 0


def wrong_events(ctx: iris.Iris, programs: int, source: torch.Tensor) -> int:
    """Return how many destinations lack an event of a program, have one too many, or the wrong number of bytes."""
    count = int(ctx.tracing.trace_counter)
    columns = {name: column[:count].cpu() for name, column in ctx.tracing.trace_buffers.items()}
    wrong = 0
    for to_rank in range(ctx.get_num_ranks()):
        own = columns["target_rank"] == to_rank
        complete = sorted(columns["pid"][own].tolist()) == list(range(programs))
        sent = int(columns["payload_size"][own].sum())
        wrong += not complete or sent != source.nbytes
    return wrong


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("-m", type=int, default=512, help="rows of each rank")
    parser.add_argument("-n", type=int, default=256, help="columns")
    parser.add_argument("--heap_size", type=int, default=2**31, help="bytes of symmetric heap per rank")
    parser.add_argument("--datatype", choices=DTYPES, default="fp16", help="element type")
    parser.add_argument("-v", "--validate", action="store_true", help="check the data and the events")
    parser.add_argument("--block_size", type=int, default=4096, help="elements of a program, a power of two")
    parser.add_argument("--num_warps", type=int, default=4, help="wavefronts of a program")
    parser.add_argument("--output_file", default="trace.json", help="trace of all ranks, from rank 0")
    options = parser.parse_args()
    if options.block_size <= 0 or options.block_size & (options.block_size - 1):
        raise ValueError(f"--block_size must be a power of two, got {options.block_size}")
    return options


if __name__ == "__main__":
    raise SystemExit(main(arguments()))
