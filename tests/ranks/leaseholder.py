"""Processes that hold leases, for the tests: ``python -m tests.ranks.leaseholder MODE TAG COUNT [TIMES]``.

``fight`` takes COUNT of eight GPUs TIMES times and prints when, as JSON; ``fight_without_locks`` believes that it
does. ``hold`` takes COUNT of COUNT and keeps them until it reads a line; ``hold_with_heir`` leaves them to a child
too, whose pid it prints.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

from harness.devices.gpu_kind import UnreadableError
from harness.ranks import leases
from tests.devices import fakes


class NoLock:
    """A lock that every process gets."""

    descriptor = -1

    def __init__(self, path):
        self.path = path

    def take(self):
        return True

    def release(self):
        return None

    close = release


def main(mode: str, tag: str, count: int, times: int) -> None:
    def unreadable(gpu):
        raise UnreadableError("not there")

    leases.memory_in_use = unreadable
    leases.users_of = lambda gpu: []
    if mode.startswith("fight"):
        if mode == "fight_without_locks":
            leases.FileLock = NoLock
        print(json.dumps([fight(tag, count) for _ in range(times)]))
        return
    lease = leases.acquire(fakes.infos(count, tag=tag), count, 10, lambda line: None)
    if mode == "hold_with_heir":
        heir = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(600)"],
            pass_fds=lease.descriptors,
            stdout=subprocess.DEVNULL,
        )
        print(heir.pid, flush=True)
    else:
        print("holds", flush=True)
    sys.stdin.readline()
    lease.release()


def fight(tag: str, count: int) -> dict:
    lease = leases.acquire(fakes.infos(8, tag=tag), count, 50, lambda line: None)
    start = time.monotonic()
    time.sleep(0.004)
    end = time.monotonic()
    lease.release()
    return {"start": start, "end": end, "gpus": [gpu.index for gpu in lease.gpus]}


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else 1)
