"""Isolation of launches: no other process or thread can change their memory."""

from __future__ import annotations

import errno
import fcntl
import struct
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
    bounds = [(each.address, each.end) for each in allocations]
    try:
        with _MAPS.open("rb") as maps:
            return not any(_is_shared(maps.fileno(), start, end) for start, end in bounds)
    except OSError as error:
        if error.errno not in _UNKNOWN:
            raise
    shared = _shared()
    return not any(first < end and start < past for start, end in bounds for first, past in shared)


_MAPS = Path("/proc/self/maps")
# The request PROCMAP_QUERY of Linux 6.11 and later (linux/fs.h): which mapping is at an address, or follows it. Its
# structure: own size, flags of the question, address; start, end and flags of the mapping, and fields not used here.
_QUERY, _FIELDS = 0xC0686611, "=9Q4I2Q"
_SHARED, _COVERING_OR_NEXT = 0x08, 0x10
_UNKNOWN = (errno.ENOTTY, errno.EINVAL)


def _is_shared(maps: int, start: int, end: int) -> bool:
    """Return whether a part of [start, end) is in a shared mapping. ``maps``: the descriptor of ``_MAPS``.

    Raises an OSError with one of ``_UNKNOWN`` where Linux lacks the request.
    """
    size = struct.calcsize(_FIELDS)
    while start < end:
        fields = bytearray(struct.pack(_FIELDS, size, _COVERING_OR_NEXT, start, *12 * (0,)))
        try:
            fcntl.ioctl(maps, _QUERY, fields)
        except FileNotFoundError:
            return False
        first, start, flags = struct.unpack(_FIELDS, fields)[3:6]
        if flags & _SHARED and first < end:
            return True
    return False


def _shared() -> list[tuple[int, int]]:
    """Return start and end of all shared mappings, from the list of all mappings, which may be a thousand."""
    shared = []
    for line in _MAPS.read_text().splitlines():
        bounds, permissions = line.split(maxsplit=2)[:2]
        if permissions.endswith("s"):
            start, end = (int(bound, 16) for bound in bounds.split("-"))
            shared.append((start, end))
    return shared
