"""Memory that a library holds on this rank, to show that a repeated call needs no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fixtures.worker import Env

_MAPS = Path("/proc/self/maps")


def held(env: Env, iris: Any) -> list[int]:
    """Return the bytes up to which the heap is in use, and the number of memory mappings shared with other processes.

    The emulated device's memory outside the heap is such mappings. On other devices the second number is 0.
    """
    used = int(iris.heap.allocator.heap_offset)
    if env.device.name != "emulated":
        return [used, 0]
    return [used, sum(line.split()[1].endswith("s") for line in _MAPS.read_text(encoding="utf-8").splitlines())]
