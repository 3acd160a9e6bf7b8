"""Utilities: the device of a rank, the environment of a simulation, and ``do_bench``."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from .kinds import current
from .timing import do_bench

__all__ = ["HEAP_BASES_VARIABLE", "do_bench", "get_device_id_for_rank", "is_simulation_env", "write_heap_bases"]

HEAP_BASES_VARIABLE = "IRIS_HEAP_BASES_PREFIX"


def get_device_id_for_rank(rank: int) -> int:
    """Return the ordinal of the device that ``rank`` uses: the rank modulo the visible GPUs; emulated, the rank itself.

    Raises:
        ValueError: the rank is negative.
        RuntimeError: no GPU is visible and no emulated device active.
    """
    if rank < 0:
        raise ValueError(f"rank must not be negative, got {rank}")
    return current().device_id(rank)


def is_simulation_env() -> bool:
    """Return True if the environment variable ``IRIS_SIMULATION`` is 1, true or yes, in any case."""
    return os.environ.get("IRIS_SIMULATION", "").strip().lower() in {"1", "true", "yes"}


def write_heap_bases(rank: int, heap_size: int, bases: Sequence[int]) -> None:
    """In a simulation, write the address of each rank's heap in this process to a file for the simulator.

    The file is ``<prefix>_rank<rank>.json``, its prefix that of the environment variable ``IRIS_HEAP_BASES_PREFIX``;
    without the variable none is written. It holds ``{"rank": int, "heap_size": bytes, "heap_bases": [address, ...]}``.

    Raises:
        OSError: it cannot be written.
    """
    prefix = os.environ.get(HEAP_BASES_VARIABLE)
    if prefix and is_simulation_env():
        content = {"rank": rank, "heap_size": heap_size, "heap_bases": list(bases)}
        Path(f"{prefix}_rank{rank}.json").write_text(json.dumps(content) + "\n", encoding="utf-8")
