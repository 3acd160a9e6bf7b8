"""The number of rank groups of a run that work at the same time.

A group keeps about one core busy: its kernels are compiled one after the other, and its ranks wait for each other.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from command_line.preflight import Request
from fixtures.levels import LEVELS
from fixtures.rig import uses_gpus
from harness import evidence
from harness.devices import inventory
from harness.errors import UsageError

CONTROLLER, RANK = 700 << 20, 250 << 20
"""Bytes of memory, at most, of a group's controller and of each emulated rank, as measured with the level gate; ranks
share the pages of what they import."""

APART = 250 << 20
"""The same of a rank's judge and the library's process that it has besides, where a run judges apart."""

CGROUP = Path("/sys/fs/cgroup")

MOST_GROUPS = 256


@dataclass(frozen=True)
class Machine:
    """Cores that this process may use, and bytes of memory that are free for it."""

    cores: int
    memory: int


def number(request: Request, given: str | None) -> int:
    """Return the number of groups for a request: the one ``given`` on the command line, or what fits the machine.

    Raises UsageError for a wrong number, and for more groups than GPUs allow.
    """
    if request.endpoint is not None:  # the other machines join one group
        if given is not None and _count(given) > 1:
            raise UsageError(f"--groups: one group at a time on several machines, got {given}")
        return 1
    sizes = request.ranks or LEVELS[request.level].world_sizes
    if not uses_gpus(request.device):
        return _count(given) if given is not None else fitting(measured(), sizes, apart=request.judge == evidence.APART)
    gpus = len(inventory.visible(request.device))
    fit = [size for size in sizes if size <= gpus * request.ranks_per_gpu]
    limit = gpus // inventory.gpus_for(max(fit, default=gpus * request.ranks_per_gpu), request.ranks_per_gpu)
    if given is None:
        return max(1, min(limit, measured().cores))
    if _count(given) > limit:
        raise UsageError(f"--groups: {given} groups need more GPUs than the {gpus} visible ones: at most {limit} fit")
    return _count(given)


def fitting(machine: Machine, world_sizes: Iterable[int], *, apart: bool = False) -> int:
    """Return how many groups on the emulated device fit: one for each core, within the memory that is free.

    ``apart``: the run judges apart. Example: 16 cores and 8 GiB free hold 4 groups of 4 ranks, of 1.7 GiB each, or 3
    that judge apart, of 2.6 GiB each.
    """
    rank = RANK + (APART if apart else 0)
    return max(1, min(machine.cores, machine.memory // (CONTROLLER + rank * max(world_sizes))))


def measured(cgroup: Path = CGROUP) -> Machine:
    """Return what this process may use of the machine, within the limits of its container."""
    cores, memory = len(os.sched_getaffinity(0)), psutil.virtual_memory().available
    quota, _, period = _read(cgroup / "cpu.max").partition(" ")
    if quota.isdigit() and period.isdigit():
        cores = min(cores, max(1, int(quota) // int(period)))
    limit, used = _read(cgroup / "memory.max"), _read(cgroup / "memory.current")
    if limit.isdigit() and used.isdigit():
        memory = min(memory, max(0, int(limit) - int(used) + _reclaimable(cgroup / "memory.stat")))
    return Machine(cores, memory)


def options(groups: int) -> list[str]:
    """Return pytest's options for this many groups."""
    return ["-p", "xdist", "-n", str(groups)] if groups > 1 else []


def _reclaimable(stat: Path) -> int:
    """Return the bytes of a container's memory that only hold copies of files: the kernel drops them if it must."""
    words = dict(line.split() for line in _read(stat).splitlines() if len(line.split()) == 2)
    return int(words.get("inactive_file", 0))


def _count(text: str) -> int:
    short = len(text) <= len(str(MOST_GROUPS))
    if not (short and text.isascii() and text.isdigit() and 1 <= int(text) <= MOST_GROUPS):
        raise UsageError(f"--groups: expected a whole number from 1 to {MOST_GROUPS}, got {text!r:.60}")
    return int(text)


def _read(path: Path) -> str:
    """Return the content of a small file, "" if there is none: cgroup v1, or no container."""
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
