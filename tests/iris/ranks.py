"""Runs checks on real ranks: spawned processes in a gloo group, each with an Iris instance.

A *check* is ``check(ctx, rank, num_ranks)``, called on every rank; it raises where the library is wrong.
"""

from __future__ import annotations

import datetime
import time
import traceback
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

import iris_under_test

Check = Callable[[iris_under_test.Iris, int, int], None]
LIMIT_S = 240


class HostOnlyDriver:
    """A Triton driver that launches nothing and remembers which memory it was told of."""

    def __init__(self) -> None:
        self.registered: dict[int, tuple[int, int | None]] = {}

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("hip", "gfx942", 64)

    def register_memory(self, address: int, size: int, label: str, peer: int | None = None) -> None:
        assert address not in self.registered, label
        self.registered[address] = (size, peer)

    def unregister_memory(self, address: int) -> None:
        del self.registered[address]


def run_checks(checks: list[Check], num_ranks: int, heap_size: int, emulated: bool) -> dict[str, str]:
    """Name of each check -> the tracebacks of the ranks on which it failed, empty where it passed on all."""
    context = mp.get_context("spawn")
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    results = context.SimpleQueue()
    ranks = [
        context.Process(target=_rank, args=(rank, num_ranks, store.port, checks, heap_size, emulated, results))
        for rank in range(num_ranks)
    ]
    for process in ranks:
        process.start()
    try:
        failures = {check.__name__: "not run" for check in checks}
        deadline = time.monotonic() + LIMIT_S
        done = 0
        while done < num_ranks and time.monotonic() < deadline:
            if results.empty():
                if any(process.exitcode not in (None, 0) for process in ranks):
                    break
                time.sleep(0.01)
                continue
            rank, failed = results.get()
            done += 1
            for name, text in failed.items():
                failures[name] = failures[name].removeprefix("not run") + (text and f"rank {rank}:\n{text}\n")
        assert done == num_ranks, f"{done} of {num_ranks} ranks ended, exit codes {[p.exitcode for p in ranks]}"
        return failures
    finally:
        for process in ranks:
            process.join(5)
            process.kill()
            process.join()


def _rank(rank, num_ranks, port, checks, heap_size, emulated, results):
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    limit = datetime.timedelta(seconds=60)
    dist.init_process_group("gloo", rank=rank, world_size=num_ranks, store=store, timeout=limit)
    if emulated:
        from harness import emulator

        emulator.activate()
    else:
        driver.set_active(HostOnlyDriver())
    ctx = iris_under_test.iris(heap_size)
    failed = {}
    for check in checks:
        try:
            check(ctx, rank, num_ranks)
            failed[check.__name__] = ""
        except Exception:  # noqa: BLE001 - carried to the test, whatever it is
            failed[check.__name__] = traceback.format_exc()
        ctx.barrier()
    results.put((rank, failed))
    ctx.close()
    dist.destroy_process_group()
