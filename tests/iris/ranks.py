"""Runs checks on real ranks: processes in a gloo group, each with an Iris instance.

A *check* is ``check(ctx, rank, num_ranks)``, called on every rank; it raises where the library is wrong.

Ranks are forked from a server that has imported what they need and done nothing else: three seconds of imports per rank
are saved. They have the environment of the process that starts them.
"""

from __future__ import annotations

import datetime
import os
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
LIMIT_S = 200


class HostOnlyDriver:
    """A Triton driver that launches nothing and remembers the memory that was registered."""

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
    """Name of each check -> what went wrong on which ranks, empty where it passed on all.

    After a failure the ranks may be out of step: their collectives then fail by the group's timeout, or a rank ends,
    and what it did not run counts as failed.
    """
    context = mp.get_context("forkserver")
    context.set_forkserver_preload([__name__, "harness.emulator"])
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    results = context.SimpleQueue()
    common = (num_ranks, store.port, checks, heap_size, emulated, results, dict(os.environ))
    ranks = [context.Process(target=_rank, args=(rank, *common)) for rank in range(num_ranks)]
    for process in ranks:
        process.start()
    outcome = {(check.__name__, rank): "not run" for check in checks for rank in range(num_ranks)}
    deadline = time.monotonic() + LIMIT_S
    try:
        while any(process.is_alive() for process in ranks) or not results.empty():
            if not results.empty():
                name, rank, text = results.get()
                outcome[name, rank] = text
            elif time.monotonic() > deadline:
                break
            else:
                time.sleep(0.01)
    finally:
        for process in ranks:
            process.kill()
            process.join()
    return {
        check.__name__: "\n".join(
            f"rank {rank}: {outcome[check.__name__, rank]}"
            for rank in range(num_ranks)
            if outcome[check.__name__, rank]
        )
        for check in checks
    }


def _rank(rank, num_ranks, port, checks, heap_size, emulated, results, environment):
    os.environ.clear()
    os.environ.update(environment)
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    limit = datetime.timedelta(seconds=30)
    dist.init_process_group("gloo", rank=rank, world_size=num_ranks, store=store, timeout=limit)
    if emulated:
        from harness import emulator

        emulator.activate()
    else:
        driver.set_active(HostOnlyDriver())
    ctx = iris_under_test.iris(heap_size)
    for check in checks:
        text = ""
        try:
            check(ctx, rank, num_ranks)
        except Exception:  # noqa: BLE001 - carried to the test, whatever it is
            text = traceback.format_exc()
        results.put((check.__name__, rank, text))
        ctx.barrier()
    ctx.close()
    dist.destroy_process_group()
