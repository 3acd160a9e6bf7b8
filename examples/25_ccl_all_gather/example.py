"""All-gather on the symmetric heap: every rank's rows, stacked by rank, on every rank.

    torchrun --standalone --nproc_per_node=2 examples/25_ccl_all_gather/example.py --validate
    torchrun --standalone --nproc_per_node=2 examples/25_ccl_all_gather/example.py -v --use_gluon -m 13 --datatype bf16

Each rank gathers its own (M, N) into (ranks * M, N). ``--validate`` compares with ``torch.distributed`` bit for bit.
Runs on one GPU per rank, or on the emulated device if there is no GPU. Exits with status 1 on every rank if the data of
any rank is wrong.
"""

import argparse
import datetime
import os
import time

import torch
import torch.distributed as dist

import iris_under_test as iris
from harness import emulator
from iris_under_test.ccl import Config

DTYPES = {"fp16": torch.float16, "fp32": torch.float32, "bf16": torch.bfloat16}


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
    config = Config(
        block_size_m=options.block_size_m,
        block_size_n=options.block_size_n,
        comm_sms=options.comm_sms,
        num_stages=options.num_stages,
        num_warps=options.num_warps,
        waves_per_eu=options.waves_per_eu,
        use_gluon=options.use_gluon,
    )

    m, n, dtype = options.m, options.n, DTYPES[options.datatype]
    source = ctx.zeros((m, n), dtype=dtype)
    gathered = ctx.zeros((ranks * m, n), dtype=dtype)
    # Whole numbers that each dtype holds exactly, different on each rank, so that a misplaced element is detected.
    source.copy_(torch.randint(-128, 129, (m, n), generator=torch.Generator().manual_seed(rank)).to(dtype))
    ctx.barrier()

    started = time.perf_counter()
    ctx.ccl.all_gather(gathered, source, config=config)
    milliseconds = (time.perf_counter() - started) * 1000
    ctx.info(f"all_gather of {m} x {n} {options.datatype} on {ranks} ranks: {milliseconds:.1f} ms with compilation")

    wrong = 0
    if options.validate:
        expected = [torch.empty((m, n), dtype=dtype) for _ in range(ranks)]
        dist.all_gather(expected, source.cpu())
        mine = (gathered.cpu() != torch.cat(expected)).sum()
        if mine:
            ctx.error(f"{int(mine)} of {gathered.numel()} elements are wrong")
        else:
            ctx.info("Validation successful!")
        dist.all_reduce(mine)
        wrong = int(mine)
    ctx.barrier()
    dist.destroy_process_group()
    return 1 if wrong else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("-m", type=int, default=512, help="rows of each rank")
    parser.add_argument("-n", type=int, default=256, help="columns")
    parser.add_argument("--heap_size", type=int, default=2**31, help="bytes of symmetric heap per rank")
    parser.add_argument("--datatype", choices=DTYPES, default="fp16", help="element type")
    parser.add_argument("-v", "--validate", action="store_true", help="compare with torch.distributed")
    parser.add_argument("--block_size_m", type=int, default=32, help="rows of a tile")
    parser.add_argument("--block_size_n", type=int, default=64, help="columns of a tile")
    parser.add_argument("--comm_sms", type=int, default=64, help="largest number of programs")
    parser.add_argument("--num_stages", type=int, default=1, help="compiler option")
    parser.add_argument("--num_warps", type=int, default=4, help="wavefronts of a program")
    parser.add_argument("--waves_per_eu", type=int, default=0, help="occupancy hint for AMD GPUs")
    parser.add_argument("--use_gluon", action="store_true", help="use the Gluon kernel instead of the Triton kernel")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main(arguments()))
