"""The arguments of a launch through which a kernel reaches other ranks' memory, found by what they hold.

A table of heap bases is known by its entries: addresses in memory that is registered for another rank. An argument may
also hold the address of such a table, or point to another rank's memory itself.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence

import numpy as np

from harness.emulator.execution.allocations import Allocations

Range = tuple[int, int]
# A context has a few entries for each rank; data of int64 elements need not be read as a whole.
_MOST_WORDS = 1024
# Words for which Python is faster than NumPy.
_FEW = 16


def find(
    pointers: Iterable[tuple[int, int]], memory: Sequence[Range], allocations: Allocations, rank: int | None
) -> tuple[tuple[int, ...] | None, tuple[int, ...]]:
    """Return the positions of the arguments that hold addresses of other ranks' memory, and of those that are such.

    ``pointers`` are (position, address) of arguments that may be addresses, ``memory`` the (address, size) of what the
    launch may read besides registered memory. The first result is None if no other rank's memory is registered.
    """
    own, others = allocations.ranges(rank)
    if not others:
        return None, ()
    readable = [*own, *((start, start + size) for start, size in memory)]
    tables, peers = [], []
    bounds = _bounds([*others, *readable]), _bounds(others)
    for position, address in pointers:
        if _inside(address, others):
            peers.append(position)
        elif _reaches(address, others, readable, bounds):
            tables.append(position)
    return tuple(tables), tuple(peers)


def _bounds(ranges: list[Range]) -> tuple[np.uint64, np.uint64]:
    """Return the first address of ranges, and their extent."""
    first = min(start for start, _ in ranges)
    return np.uint64(first), np.uint64(max(end for _, end in ranges) - first)


def _reaches(
    address: int, others: list[Range], readable: list[Range], bounds: Sequence[tuple[np.uint64, np.uint64]]
) -> bool:
    """Return whether memory at an address holds an address of others, or one of memory that does: for the second of
    ``bounds``, no further."""
    room = next((end - address for start, end in readable if start <= address < end), 0)
    count = min(room // 8, _MOST_WORDS)
    if address % 8 or not count:
        return False
    words = np.frombuffer(memoryview((ctypes.c_uint64 * count).from_address(address)), np.uint64)
    # Most memory holds no addresses at all: one comparison finds that out.
    (first, extent), *further = bounds
    words = words[words - first < extent]
    if not words.size:
        return False
    candidates = words[:_FEW].tolist()
    if any(start <= word < end for word in candidates for start, end in others):
        return True
    if any(((words >= start) & (words < end)).any() for start, end in others):
        return True
    return bool(further) and any(
        _reaches(word, others, readable, further)
        for start, end in readable
        for word in words[(words >= start) & (words < end)][:16].tolist()
    )


def _inside(address: int, ranges: list[Range]) -> bool:
    return any(start <= address < end for start, end in ranges)
