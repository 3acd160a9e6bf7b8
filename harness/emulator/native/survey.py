"""Looks through the arguments of a launch for addresses, and through memory for addresses of other ranks' memory.

The control is int64[CONTROL_FIELDS]. Its lists of ranges are int64[n, 2] of (start, end).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
from numba import njit

from harness.emulator import compilation
from harness.emulator.native.raw import get64, pointer

# Fields of the control: address of the arguments; offsets in them of those that may be addresses, and their number;
# ranges that the launch may read besides memory of other ranks; ranges of other ranks' memory; (address, words) of
# tensors whose elements may be addresses, with -1 words if they are not contiguous; address of the results, uint8 for
# each offset.
ARGUMENTS, OFFSETS, CANDIDATES, READABLE, NUMBER_READABLE, OTHERS, NUMBER_OTHERS, TENSORS, NUMBER_TENSORS, RESULTS = (
    range(10)
)
CONTROL_FIELDS = 10

# Results: an address of other ranks' memory, and one of memory that holds such addresses or leads to some.
PEER, TABLE = 1, 2

# Addresses of user space on x86-64 and ARM64 with 48 bits; the first 64 KiB are never mapped.
LOWEST, HIGHEST = 1 << 16, 1 << 47

_MOST_WORDS = 1024
"""Words that are searched: a context has a few entries for each rank, and data need not be read as a whole."""
_FOLLOWED = 16
"""Words in a range that are followed to memory that may hold addresses of other ranks' memory."""

_helper = njit(nogil=True)
carray: Any = numba.carray  # type: ignore[attr-defined]


@_helper
def _inside(word, ranges):
    for i in range(len(ranges)):  # noqa: SIM110  # numba has no any()
        if ranges[i, 0] <= word and word < ranges[i, 1]:
            return True
    return False


@_helper
def _words(address, readable):
    """Return how many words to search at an address."""
    if address & 7:
        return 0
    for i in range(len(readable)):
        if readable[i, 0] <= address and address < readable[i, 1]:
            return min((readable[i, 1] - address) >> 3, _MOST_WORDS)
    return 0


@_helper
def _bounds(ranges):
    first, end = 1 << 62, 0
    for i in range(len(ranges)):
        first, end = min(first, ranges[i, 0]), max(end, ranges[i, 1])
    return first, end


@_helper
def _near(words, first, end):
    """Return whether a word lies in [first, end). No branch in the loop: most memory holds no addresses at all."""
    count = 0
    for i in range(len(words)):
        count += (words[i] >= first) & (words[i] < end)
    return count > 0


@_helper
def _holds(address, count, ranges, first, end):
    """Return whether one of the words at an address lies in a range; ``first`` and ``end`` are the ranges' bounds."""
    words = carray(pointer(address), (count,), np.int64)
    if _near(words, first, end):
        for i in range(count):
            if first <= words[i] and words[i] < end and _inside(words[i], ranges):
                return True
    return False


@_helper
def _leads(address, readable, others, bounds, readable_bounds):
    """Return whether memory at an address holds an address of others, or one of memory that does."""
    count = _words(address, readable)
    if _holds(address, count, others, bounds[0], bounds[1]):
        return True
    words = carray(pointer(address), (count,), np.int64)
    if _near(words, readable_bounds[0], readable_bounds[1]):
        for r in range(len(readable)):
            followed = 0
            for i in range(count):
                if followed < _FOLLOWED and readable[r, 0] <= words[i] and words[i] < readable[r, 1]:
                    followed += 1
                    if _holds(words[i], _words(words[i], readable), others, bounds[0], bounds[1]):
                        return True
    return False


@_helper
def _is_known(word, readable, others):
    return word < LOWEST or word >= HIGHEST or _inside(word, readable) or _inside(word, others)


def _survey(control: int) -> int:
    """Fill in the results; return 1 if all addresses in arguments and tensors lie in one of the ranges, else 0."""
    offsets = carray(pointer(get64(control + 8 * OFFSETS)), (get64(control + 8 * CANDIDATES),), np.int64)
    readable = carray(pointer(get64(control + 8 * READABLE)), (get64(control + 8 * NUMBER_READABLE), 2), np.int64)
    others = carray(pointer(get64(control + 8 * OTHERS)), (get64(control + 8 * NUMBER_OTHERS), 2), np.int64)
    tensors = carray(pointer(get64(control + 8 * TENSORS)), (get64(control + 8 * NUMBER_TENSORS), 2), np.int64)
    results = carray(pointer(get64(control + 8 * RESULTS)), (len(offsets),), np.uint8)
    bounds, readable_bounds = _bounds(others), _bounds(readable)
    known = 1
    for i in range(len(offsets)):
        word = get64(get64(control + 8 * ARGUMENTS) + offsets[i])
        if not _is_known(word, readable, others):
            known = 0
        results[i] = 0
        if len(others):
            if _inside(word, others):
                results[i] = PEER
            elif _leads(word, readable, others, bounds, readable_bounds):
                results[i] = TABLE
    for i in range(len(tensors)):
        if tensors[i, 1] < 0:
            known = 0
            continue
        words = carray(pointer(tensors[i, 0]), (tensors[i, 1],), np.int64)
        if known and _near(words, LOWEST, HIGHEST):
            for j in range(len(words)):
                if not _is_known(words[j], readable, others):
                    known = 0
                    break
    return known


@cache
def survey() -> Callable[[int], int]:
    """Return ``_survey`` as ``compilation.entry`` does."""
    return compilation.entry(_survey)
