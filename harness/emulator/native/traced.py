"""Events of a wavefront in mode ``trace``: operations of translated code that append them to the wavefront's queue.

A wavefront runs ahead of virtual time. ``native.replay`` takes its events from the queue when the scheduler of the mode
gets to them, so it knows the order of all wavefronts, and the queue holds only what the code does not determine:

- of a branch whether it is taken, 0 or 1;
- of an access to the data share its extra cycles (``banks``);
- of an access to global memory the words below.

Each operation returns 0, or 1 without an effect if the wavefront has to stop before it: when its queue is full, and, if
the order of accesses matters, until ``ALLOWED``.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba import njit

from harness.emulator.native import memory, record
from harness.emulator.native.banks import _extra
from harness.emulator.native.execute import Function, is_taken
from harness.emulator.native.raw import copy, get64, pointer, put64

_inline = njit(inline="always")
_helper = njit(nogil=True)
carray: Any = numba.carray  # type: ignore[attr-defined]

# A queue, int64 each: words taken and words appended so far, since it was empty last; whether the next ordered access
# may be executed; the operation for which the wavefront needs Python, or -1. Then the words.
TAKEN, APPENDED, ALLOWED, STUCK = range(0, 32, 8)
WORDS_AT = 32
QUEUE_WORDS = 1028
QUEUE_BYTES = WORDS_AT + 8 * QUEUE_WORDS
"""No multiple of a page: the beginnings of queues would share the lines of the processor's caches."""

# Words of an access: form and length; lanes that access memory and that write it; allocations of the lowest and the
# highest address; these addresses, and the first lane's.
# PROGRESSION: then the distance from each accessing lane to the next one. LISTED: then the addresses of all lanes.
FORM, LENGTH, TAKES, WRITES, LOW_ALLOCATION, HIGH_ALLOCATION, LOWEST, HIGHEST, FIRST, STEP = range(10)
NOBODY, PROGRESSION, LISTED = range(3)
_LENGTHS = 3, 10, 9 + 64
_LONGEST = 9 + 64

# A table of patterns of an access to the data share, see ``count_conflicts``: the one that is replaced next, and
# ``PATTERNS`` patterns: their active lanes, 0 for none, the rest of the first address, the extra cycles, and
# uint32[64], the distances of the addresses from the first one.
PATTERNS = 8
_PATTERN_BYTES = 24 + 256
PATTERN_WORDS = 1 + PATTERNS * _PATTERN_BYTES // 8


@_inline
def _append(queue, word):
    appended = get64(queue + APPENDED)
    put64(queue + WORDS_AT + 8 * appended, word)
    put64(queue + APPENDED, appended + 1)


@_inline
def _is_full(queue, words):
    return get64(queue + APPENDED) + words > QUEUE_WORDS


@_helper
def _must_wait(queue, words, ordered):
    """Return whether the wavefront has to stop in front of an event; otherwise it is allowed no further one."""
    if _is_full(queue, words) or (ordered and get64(queue + ALLOWED) == 0):
        return True
    put64(queue + ALLOWED, 0)
    return False


@Function
def branch(wave, p):
    """Before a branch. Parameters: those of ``execute.is_taken``."""
    queue = get64(wave + record.QUEUE)
    if _is_full(queue, 1):
        return 1
    _append(queue, np.int64(is_taken(wave, p - 16)))
    return 0


@Function
def ordered(wave, p):
    """Before another access whose order matters; appends 0."""
    queue = get64(wave + record.QUEUE)
    if _must_wait(queue, 1, True):
        return 1
    _append(queue, 0)
    return 0


# -- global memory -----------------------------------------------------------------------------------------------------


@_inline
def owner(starts, ends, address, hint):
    """Return the last allocation that starts before an address and contains it, or -1; ``hint`` is tried first."""
    n = len(starts)
    if hint < n and starts[hint] <= address and address < ends[hint] and (hint + 1 == n or address < starts[hint + 1]):
        return hint
    low, high = 0, n
    while low < high:
        middle = (low + high) >> 1
        if starts[middle] <= address:
            low = middle + 1
        else:
            high = middle
    while low and ends[low - 1] <= address:
        low -= 1
    return low - 1


@_helper
def _bits(takes):
    word = np.uint64(0)
    for lane in range(64):
        word |= np.uint64(takes[lane]) << np.uint64(lane)
    return np.int64(word)


@Function
def access(wave, p):
    """Before an access to global memory.

    Parameters: the form of its address, bytes of a lane, whether its order matters, and whether it writes. At ``HINT``:
    the allocation of the last access.
    """
    queue = get64(wave + record.QUEUE)
    if _must_wait(queue, _LONGEST, get64(p + 48) != 0):
        return 1
    form, areg, sreg, soffset, offset = get64(p), get64(p + 8), get64(p + 16), get64(p + 24), get64(p + 32)
    size, active = get64(p + 40), get64(wave + record.EXEC_BYTES)
    v = carray(pointer(wave + record.VECTORS), (256, 1, 64, 2), np.uint32)
    s = carray(pointer(wave), (1, 128), np.uint32)
    mask = carray(pointer(wave + record.MASK), (1, 64), np.bool_)
    for lane in range(64):
        mask[0, lane] = (active >> lane) & 1 != 0
    at = carray(pointer(wave + record.ADDRESSES), (64,), np.uint64)
    takes = carray(pointer(wave + record.TAKES), (64,), np.bool_)
    count, lowest, highest = memory._lanes(form, v, s, mask, 0, areg, sreg, soffset, offset, size, at, takes)
    place = queue + WORDS_AT + 8 * get64(queue + APPENDED)
    words = carray(pointer(place), (_LONGEST,), np.int64)
    bits = np.int64(-1) if count == 64 else _bits(takes)
    words[TAKES] = bits
    if count == 0:
        words[FORM], words[LENGTH] = NOBODY, 3
        put64(queue + APPENDED, get64(queue + APPENDED) + 3)
        return 0
    words[WRITES] = bits if get64(p + 56) else 0
    context = get64(wave + record.CONTEXT)
    n = get64(context + 8 * record.ALLOCATIONS)
    starts = carray(pointer(get64(context + 8 * record.STARTS)), (n,), np.uint64)
    ends = carray(pointer(get64(context + 8 * record.ENDS)), (n,), np.uint64)
    low = owner(starts, ends, lowest, get64(p + 8 * record.HINT))
    words[LOW_ALLOCATION] = low
    words[HIGH_ALLOCATION] = owner(starts, ends, highest, max(low, 0))
    put64(p + 8 * record.HINT, max(low, 0))
    words[LOWEST], words[HIGHEST] = np.int64(lowest), np.int64(highest)
    if count == 64:
        first, step = at[0], at[1] - at[0]
        differ = np.uint64(0)
        for lane in range(64):
            differ |= at[lane] ^ (first + step * np.uint64(lane))
        regular = differ == 0
    else:
        first, step, seen, regular = np.uint64(0), np.uint64(0), 0, True
        last = np.uint64(0)
        for lane in range(64):
            if takes[lane]:
                if seen == 0:
                    first = at[lane]
                elif seen == 1:
                    step = at[lane] - first
                elif at[lane] - last != step:
                    regular = False
                last = at[lane]
                seen += 1
    words[FIRST] = np.int64(first)
    if regular:
        words[FORM], words[LENGTH], words[STEP] = PROGRESSION, 10, np.int64(step)
        put64(queue + APPENDED, get64(queue + APPENDED) + 10)
        return 0
    words[FORM], words[LENGTH] = LISTED, _LONGEST
    copy(place + 8 * STEP, wave + record.ADDRESSES, 512)
    put64(queue + APPENDED, get64(queue + APPENDED) + _LONGEST)
    return 0


@Function
def keep_compared(wave, p):
    """Before a compare-and-swap: keep the values that it compares. Parameters: address of uint64[64] for them, their
    first register, bytes."""
    _words(get64(p), wave, get64(p + 8), get64(p + 16))
    return 0


@_helper
def _words(place, wave, register, size):
    v = carray(pointer(wave + record.VECTORS), (256, 64, 2), np.uint32)
    values = carray(pointer(place), (64,), np.uint64)
    for lane in range(64):
        value = np.uint64(v[register >> 1, lane, register & 1])
        if size == 8:
            value |= np.uint64(v[(register + 1) >> 1, lane, (register + 1) & 1]) << np.uint64(32)
        values[lane] = value


@Function
def note_swapped(wave, p):
    """After a compare-and-swap: it wrote only where the old value is the one compared. Parameters: as before it, and
    the first register of the old values."""
    queue = get64(wave + record.QUEUE)
    place = queue + WORDS_AT + 8 * get64(queue + TAKEN)  # its order matters, so its words are the only ones
    if get64(place + 8 * FORM) == NOBODY:
        return 0
    _words(wave + record.ADDRESSES, wave, get64(p + 24), get64(p + 16))
    old = carray(pointer(wave + record.ADDRESSES), (64,), np.uint64)
    compared = carray(pointer(get64(p)), (64,), np.uint64)
    word = np.uint64(0)
    for lane in range(64):
        word |= np.uint64(old[lane] == compared[lane]) << np.uint64(lane)
    put64(place + 8 * WRITES, get64(place + 8 * WRITES) & np.int64(word))
    return 0


# -- the data share ----------------------------------------------------------------------------------------------------


@Function
def count_conflicts(wave, p):
    """Before an access to the data share.

    Parameters: address register, or -1 for M0 plus the next number for each lane; that number; the bits of M0; a
    multiple to which the address is rounded down; dwords; banks; the lanes of the passes int64[n, m]: address, n, m;
    a table of patterns; number of parts, and their offsets.

    Lanes conflict as before if all addresses have changed by the same number of dwords, so patterns are looked up.
    """
    queue = get64(wave + record.QUEUE)
    if _is_full(queue, 1):
        return 1
    active = get64(wave + record.EXEC_BYTES)
    if active == 0:
        _append(queue, 0)
        return 0
    areg, aligned, table = get64(p), get64(p + 24), get64(p + 72)
    places = carray(pointer(wave + record.ADDRESSES), (64,), np.uint32)
    if areg >= 0:
        row, half = carray(pointer(wave + record.VECTORS), (256, 64, 2), np.uint32)[areg >> 1], areg & 1
        for lane in range(64):
            places[lane] = row[lane, half]
    else:
        base = np.uint32(get64(wave + 4 * 124) & ((1 << get64(p + 16)) - 1))
        for lane in range(64):
            places[lane] = base + np.uint32(get64(p + 8) * lane)
    begin = places[0]
    if active != -1:
        lane = 0
        while not (active >> lane) & 1:
            lane += 1
        begin = places[lane]
        for lane in range(64):
            if not (active >> lane) & 1:
                places[lane] = begin
    for lane in range(64):
        places[lane] -= begin
    rest = np.int64(begin) & (max(4, aligned) - 1)
    for i in range(PATTERNS):
        pattern = table + 8 + _PATTERN_BYTES * i
        if get64(pattern) == active and get64(pattern + 8) == rest:
            known = carray(pointer(pattern + 24), (64,), np.uint32)
            differ = np.uint32(0)
            for lane in range(64):
                differ |= places[lane] ^ known[lane]
            if differ == 0:
                _append(queue, get64(pattern + 16))
                return 0
    extra = _conflicts(p, active, begin, places)
    replaced = get64(table)
    put64(table, (replaced + 1) % PATTERNS)
    pattern = table + 8 + _PATTERN_BYTES * replaced
    put64(pattern, active)
    put64(pattern + 8, rest)
    put64(pattern + 16, extra)
    copy(pattern + 24, wave + record.ADDRESSES, 256)
    _append(queue, extra)
    return 0


@_helper
def _conflicts(p, active, begin, distances):
    """Return the extra cycles of all parts. Parameters ``p`` as of ``count_conflicts``."""
    lanes = carray(pointer(get64(p + 48)), (get64(p + 56), get64(p + 64)), np.int64)
    addresses, mask = np.empty((1, 64), np.int64), np.empty((1, 64), np.bool_)
    total = 0
    for part in range(get64(p + 80)):
        for lane in range(64):
            mask[0, lane] = (active >> lane) & 1 != 0
            inner = np.int64(np.uint32(begin + distances[lane])) + get64(p + 88 + 8 * part)
            addresses[0, lane] = inner & -get64(p + 24)
        total += _extra(addresses, mask, get64(p + 32), get64(p + 40), lanes)
    return total
