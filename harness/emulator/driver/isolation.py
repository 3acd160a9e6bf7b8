"""Isolation of launches: no other process or thread can change their memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from harness import standstill, threads
from harness.emulator.execution.allocations import Allocation
from harness.emulator.execution.launch import Launch

_SMALL = 1 << 20
"""Bytes that are copied in less time than it takes to read the list of this process's mappings."""


def are_large_and_isolated(streams: Sequence[Sequence[Launch]]) -> bool:
    """Return whether launches with much memory run in a process in which nothing else can change it.

    False for launches with little memory, for which a mode saves less by this than the question costs, and in a rank,
    which shares its heap with others.
    """
    if standstill.reports() or threads.of_the_program() > 1:
        return False
    tables = {id(launch.table): launch.table for stream in streams for launch in stream}.values()
    allocations = [allocation for table in tables for allocation in table.allocations]
    return sum(each.end - each.address for each in allocations) > _SMALL and is_private(allocations)


def is_private(allocations: Iterable[Allocation]) -> bool:
    """Return whether none of the allocations is in a mapping that this process may share with others."""
    shared = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        bounds, permissions = line.split(maxsplit=2)[:2]
        if permissions.endswith("s"):
            start, end = (int(bound, 16) for bound in bounds.split("-"))
            shared.append((start, end))
    return not any(start < a.end and a.address < end for a in allocations for start, end in shared)
