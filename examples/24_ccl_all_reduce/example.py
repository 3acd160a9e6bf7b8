"""All-reduce on the symmetric heap: the sum of every rank's matrix, on every rank.

    torchrun --standalone --nproc_per_node=2 examples/24_ccl_all_reduce/example.py --validate
    torchrun --standalone --nproc_per_node=2 examples/24_ccl_all_reduce/example.py -v --all_reduce_variant ring -m 13

Each rank adds its own (M, N) into (M, N). ``--validate`` compares with ``torch.distributed`` bit for bit. Runs on one
GPU per rank, or on the emulated device if there is no GPU. Exits with status 1 on every rank if the data of any rank is
wrong.
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
from iris_under_test.ccl.config import ALL_REDUCE_VARIANTS

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
        all_reduce_variant=options.all_reduce_variant,
        all_reduce_distribution=options.all_reduce_distribution,
        all_reduce_num_rings=options.all_reduce_num_rings,
        all_reduce_ring_slice_n=options.all_reduce_ring_slice_n,
    )

    m, n, dtype = options.m, options.n, DTYPES[options.datatype]
    source = ctx.zeros((m, n), dtype=dtype)
    total = ctx.zeros((m, n), dtype=dtype)
    # Small whole numbers: each dtype holds the sums of up to 16 ranks exactly, in any order of the additions.
    source.copy_(torch.randint(-16, 17, (m, n), generator=torch.Generator().manual_seed(rank)).to(dtype))
    # The preamble allocates the memory that some variants need; without it the first call does.
    workspace = ctx.ccl.all_reduce_preamble(total, source, config=config)
    ctx.barrier()

    started = time.perf_counter()
    ctx.ccl.all_reduce(total, source, config=config, workspace=workspace)
    milliseconds = (time.perf_counter() - started) * 1000
    ctx.info(f"all_reduce of {m} x {n} {options.datatype} on {ranks} ranks: {milliseconds:.1f} ms with compilation")

    wrong = 0
    if options.validate:
        expected = source.cpu().float()
        dist.all_reduce(expected)
        mine = (total.cpu() != expected.to(dtype)).sum()
        if mine:
            ctx.error(f"{int(mine)} of {total.numel()} elements are wrong")
        else:
            ctx.info("Validation successful!")
        dist.all_reduce(mine)
        wrong = int(mine)
    ctx.barrier()
    dist.destroy_process_group()
    return 1 if wrong else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("-m", type=int, default=512, help="rows")
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
    parser.add_argument("--all_reduce_variant", choices=ALL_REDUCE_VARIANTS, default="two_shot", help="algorithm")
    parser.add_argument("--all_reduce_distribution", type=int, default=1, help="tiles of a rank: 0 strided, 1 a block")
    parser.add_argument("--all_reduce_num_rings", type=int, default=1, help="rings of the ring variant")
    parser.add_argument("--all_reduce_ring_slice_n", type=int, help="columns per ring step [the columns of a tile]")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main(arguments()))
