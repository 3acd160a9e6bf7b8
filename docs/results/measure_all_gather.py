"""Count what ``ccl.all_gather`` executes on the emulated device, by size and number of programs.

    python docs/results/measure_all_gather.py    # writes docs/results/data/all-gather-emulated.json; minutes

Counted are the launches of rank 0. Stores and bytes are the same in each run. Instructions include the polls of ranks
that wait for each other, whose number depends on when the others come.
"""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import triton

import iris_under_test as iris
from harness import emulator

ARCH, RANKS, COLUMNS = "gfx942", 4, 1024
SIZES = [64 << 10, 256 << 10, 1 << 20, 4 << 20]
PROGRAMS = [1, 4, 16, 64]
OUTPUT = Path(__file__).resolve().parent / "data/all-gather-emulated.json"


def main() -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    mp.spawn(measure, args=(store.port,), nprocs=RANKS)


def measure(rank: int, port: int) -> None:
    """Run the sweep on one rank; rank 0 writes the file."""
    driver = emulator.activate(ARCH)
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    limit = datetime.timedelta(minutes=10)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS, store=store, timeout=limit)
    ctx = iris.iris(1 << 26)
    rows = [counts(ctx, driver, size, programs) for size in SIZES for programs in PROGRAMS]
    if rank == 0:
        data = {
            "command": "python docs/results/measure_all_gather.py",
            "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
            "arch": ARCH,
            "ranks": RANKS,
            "triton": triton.__version__,
            "torch": torch.__version__,
            "rows": rows,
        }
        OUTPUT.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    ctx.barrier()
    dist.destroy_process_group()


def counts(ctx: iris.Iris, driver: emulator.EmulatedDriver, size: int, programs: int) -> dict[str, Any]:
    """Return what one call executed on this rank; ``size``: bytes of the output."""
    rows = size // RANKS // COLUMNS // 2
    mine = ctx.full((rows, COLUMNS), ctx.get_rank() + 1, dtype=torch.float16)
    gathered = ctx.zeros(RANKS * rows, COLUMNS, dtype=torch.float16)
    config = iris.ccl.Config(comm_sms=programs)
    ctx.barrier()
    driver.drain_launches()
    ctx.ccl.all_gather(gathered, mine, config=config)
    ctx.barrier()
    launches = driver.drain_launches()
    for rank, share in enumerate(gathered.chunk(RANKS)):
        assert bool((share == rank + 1).all()), f"all_gather of {size} bytes: the rows of rank {rank} are wrong"
    stores = [
        access
        for launch in launches
        for access in launch.accesses
        if (access.kind, access.where, access.width) == ("store", "peer", 16)
    ]
    return {
        "bytes": size,
        "programs": programs,
        "wavefronts": sum(launch.grid[0] * launch.grid[1] * launch.grid[2] * launch.num_warps for launch in launches),
        "wavefront_instructions": sum(sum(launch.instructions.values()) for launch in launches),
        "peer_stores": sum(access.executions for access in stores),
        "peer_bytes": sum(access.bytes for access in stores),
        "kernels": sorted({launch.kernel for launch in launches}),
    }


if __name__ == "__main__":
    main()
