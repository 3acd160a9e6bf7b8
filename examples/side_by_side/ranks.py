"""Start of a program's ranks: one process each, on GPUs if there are any, else on the emulated device."""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import triton

import iris_under_test as iris
from harness import emulator

LIMIT = datetime.timedelta(seconds=60)


def run(main: Callable[[iris.Iris], None], heap_size: int = 2**24) -> None:
    """Call ``main(ctx)`` on every rank; an exception on one of them ends all, with exit status 1."""
    parser = argparse.ArgumentParser()
    parser.add_argument("-r", "--num_ranks", type=int, default=2)
    num_ranks = parser.parse_args().num_ranks
    if num_ranks < 2:
        parser.error(f"--num_ranks must be at least 2, got {num_ranks}")
    # Port 0 is any free port; the store stays open here until the ranks have ended.
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    mp.spawn(_rank, args=(num_ranks, store.port, main, heap_size), nprocs=num_ranks)


def lanes() -> int:
    """Return the threads of a wavefront or warp on this device: 64 on AMD GPUs, 32 on NVIDIA's. Gluon layouts need
    it.
    """
    return triton.runtime.driver.active.get_current_target().warp_size


def _rank(rank: int, num_ranks: int, port: int, main: Callable[[iris.Iris], None], heap_size: int) -> None:
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(rank % torch.cuda.device_count())
    else:
        emulator.activate()
    backend = "nccl" if on_gpu else "gloo"
    dist.init_process_group(backend, rank=rank, world_size=num_ranks, store=store, timeout=LIMIT)
    ctx = iris.iris(heap_size)
    main(ctx)
    ctx.barrier()
    dist.destroy_process_group()
