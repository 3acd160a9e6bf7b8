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
_DEEPEST = 2


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
    for position, address in pointers:
        if _inside(address, others):
            peers.append(position)
        elif _reaches(address, others, readable, _DEEPEST):
            tables.append(position)
    return tuple(tables), tuple(peers)


def _reaches(address: int, others: list[Range], readable: list[Range], depth: int) -> bool:
    room = next((end - address for start, end in readable if start <= address < end), 0)
    count = min(room // 8, _MOST_WORDS)
    if address % 8 or not count:
        return False
    words = np.ctypeslib.as_array((ctypes.c_uint64 * count).from_address(address))
    # Most memory holds no addresses at all: one comparison finds that out.
    ranges = [*others, *readable] if depth > 1 else others
    first, last = min(start for start, _ in ranges), max(end for _, end in ranges)
    words = words[words - np.uint64(first) < np.uint64(last - first)]
    if not words.size:
        return False
    if any(((words >= start) & (words < end)).any() for start, end in others):
        return True
    if depth == 1:
        return False
    return any(
        _reaches(word, others, readable, depth - 1)
        for start, end in readable
        for word in words[(words >= start) & (words < end)][:16].tolist()
    )


def _inside(address: int, ranges: list[Range]) -> bool:
    return any(start <= address < end for start, end in ranges)
