"""Shadow memory of mode ``race`` for native functions: the accesses to each granule of global memory.

A granule is 4 bytes; its shadow is the int32 number of a *cell*, which granules with the same history share. Numbers
below the run's first one stand for no access, and that one for accesses that Python judges. Cells, like those of
``watch.race_history``, have the last writes, and the reads since. ``may_conflict`` may find a conflict where there is
none, since it knows only part of what orders accesses; the opposite never happens.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from harness.emulator.native import race_state as st
from harness.emulator.native import weak_state as ws
from harness.emulator.native.issuing import LOAD
from harness.emulator.native.race_state import distance
from harness.emulator.native.raw import call, get64, put32, put64
from harness.emulator.native.weak_state import allocate, helper
from harness.emulator.native.words import peek32

PAGE_BITS = 14
PAGE_SHADOW_BYTES = 1 << PAGE_BITS

# A cell: its writes, its reads, and how many they are, or ``SEVERAL``: an unknown number of them. Or, with ``SPLIT``,
# the numbers of the cells of each byte, two in each of the other fields, the lower one first.
(WRITES, READS, READS_COUNT) = range(0, 24, 8)
CELL_BYTES = 24
SEVERAL, SPLIT = -1, -2
MOST_READS, MOST_READS_UNWRITTEN = 64, 2
"""Reads that a cell remembers: if there is a write, which another will probably follow, and otherwise."""

# An access: its thread, its number, kind, scope, whether it is atomic, the next of a list.
(OF_THREAD, NUMBER, KIND, SCOPE, ATOMIC, NEXT) = range(0, 48, 8)
EVENT_BYTES = 64
"""With two numbers for ``note`` at the end, while the access is judged."""


@helper
def _cell(rs, number):
    return get64(rs + st.CELLS) + CELL_BYTES * (number - get64(rs + st.FIRST_CELL))


@helper
def _new_cell(rs, writes, reads, count):
    number = get64(rs + st.NEXT_CELL)
    if number == get64(rs + st.CELLS_END):
        call(get64(get64(rs + st.MODEL) + ws.MORE), st.CELL, 0)
    put64(rs + st.NEXT_CELL, number + 1)
    cell = _cell(rs, number)
    put64(cell + WRITES, writes)
    put64(cell + READS, reads)
    put64(cell + READS_COUNT, count)
    return number


@helper
def _listed(rs, event, following):
    """Return a copy of an event with another next one."""
    copied = allocate(get64(rs + st.MODEL), EVENT_BYTES)
    for field in (OF_THREAD, NUMBER, KIND, SCOPE, ATOMIC):
        put64(copied + field, get64(event + field))
    put64(copied + NEXT, following)
    return copied


@njit
def place_of(page, mask):
    """Return the index in the table of pages from which on a page is looked for."""
    return (page ^ page >> 10) & mask


@helper
def shadow_of(rs, address):
    """Return the address of the shadow of a byte's granule; the shadow of its page is contiguous."""
    page, mask = address >> PAGE_BITS, get64(rs + st.PAGES_MASK)
    at = place_of(page, mask)
    while True:
        entry = get64(rs + st.PAGES) + 16 * at
        if get64(entry) == page:
            return get64(entry + 8) + (address & PAGE_SHADOW_BYTES - 1 & ~3)
        if get64(entry) == 0:
            call(get64(get64(rs + st.MODEL) + ws.MORE), st.PAGE, page)
            return shadow_again(rs, address)
        at = (at + 1) & mask


@helper
def shadow_again(rs, address):
    """Return ``shadow_of`` a page that has a shadow."""
    page, mask = address >> PAGE_BITS, get64(rs + st.PAGES_MASK)
    at = place_of(page, mask)
    while get64(get64(rs + st.PAGES) + 16 * at) != page:
        at = (at + 1) & mask
    return get64(get64(rs + st.PAGES) + 16 * at + 8) + (address & PAGE_SHADOW_BYTES - 1 & ~3)


@helper
def _reaches(event, other):
    """Return whether two accesses of a thread reach equally far."""
    return get64(event + SCOPE) == get64(other + SCOPE) and get64(event + ATOMIC) == get64(other + ATOMIC)


@helper
def is_ordered(first, second):
    """Return whether an access is known to happen before another one, of another thread."""
    one, other = get64(first + OF_THREAD), get64(second + OF_THREAD)
    launch = get64(one + st.OF_LAUNCH)
    # The launches of a rank run one after the other.
    return get64(launch + st.ENDED) != 0 and distance(one, other) < st.SYSTEM


@helper
def _stands(first, second):
    """Return 1 if ``first`` stays in the history when ``second`` follows, 0 if not, and -1 if they may conflict."""
    if get64(first + OF_THREAD) == get64(second + OF_THREAD) or is_ordered(first, second):
        return 0
    if get64(first + ATOMIC) and get64(second + ATOMIC):
        reach = min(get64(first + SCOPE), get64(second + SCOPE))
        if reach >= distance(get64(first + OF_THREAD), get64(second + OF_THREAD)):
            return 1
    return -1


@helper
def conflicts(rs, number, event):
    """Return whether an access may conflict with the earlier ones in a cell."""
    first = get64(rs + st.FIRST_CELL)
    if number <= first:
        return number == first
    cell = _cell(rs, number)
    other = get64(cell + WRITES)
    while other:
        if _stands(other, event) < 0:
            return True
        other = get64(other + NEXT)
    if get64(event + KIND) == LOAD:
        return False
    if get64(cell + READS_COUNT) == SEVERAL:
        return True
    other = get64(cell + READS)
    while other:
        if _stands(other, event) < 0:
            return True
        other = get64(other + NEXT)
    return False


@helper
def _followed(rs, number, event):
    """Return the cell of granules that had another cell before an access without conflict."""
    cell, writes, reads, count = 0, 0, 0, 0
    if number > get64(rs + st.FIRST_CELL):
        cell = _cell(rs, number)
        writes, reads, count = get64(cell + WRITES), get64(cell + READS), get64(cell + READS_COUNT)
    if get64(event + KIND) == LOAD:
        if count == SEVERAL:
            return number
        if reads and get64(reads + OF_THREAD) == get64(event + OF_THREAD) and _reaches(reads, event):
            # Other granules may have this read as well: for them it seems to be later than it was, which may at most
            # find a conflict where there is none. So a wavefront that polls needs no more memory.
            put64(reads + NUMBER, get64(event + NUMBER))
            return number
        if count >= (MOST_READS if writes else MOST_READS_UNWRITTEN):
            return _new_cell(rs, writes, 0, SEVERAL)
        return _new_cell(rs, writes, _listed(rs, event, reads), count + 1)
    kept, other = 0, writes
    while other:
        own = get64(other + OF_THREAD) == get64(event + OF_THREAD)
        if _stands(other, event) > 0 and not (own and _reaches(other, event)):
            kept = _listed(rs, other, kept)
        other = get64(other + NEXT)
    still, count, other = 0, 0, reads
    while other:
        if _stands(other, event) > 0:
            still = _listed(rs, other, still)
            count += 1
        other = get64(other + NEXT)
    return _new_cell(rs, _listed(rs, event, kept), still, count)


@helper
def _number_at(rs, shadow):
    """Return the number of a granule's cell; that before the run's first one for every earlier number."""
    return max(np.int64(peek32(np.uint64(shadow))), get64(rs + st.FIRST_CELL) - 1)


@helper
def _is_split(rs, number):
    return number > get64(rs + st.FIRST_CELL) and get64(_cell(rs, number) + READS_COUNT) == SPLIT


@helper
def _byte_cell(rs, number, byte):
    """Return the number of the cell of one byte of a granule that has a cell."""
    if not _is_split(rs, number):
        return number
    both = get64(_cell(rs, number) + (READS if byte & 2 else WRITES))
    return both >> 32 if byte & 1 else both & 0xFFFFFFFF


@helper
def _mask(shadow, address, end):
    """Return which bytes of a granule are in [address, end) as 4 bits, given the place of its shadow in the page."""
    first = (address & ~(PAGE_SHADOW_BYTES - 1)) + (shadow & PAGE_SHADOW_BYTES - 1)
    mask = 15
    if first < address:
        mask &= 15 << (address - first)
    if first + 4 > end:
        mask &= 15 >> (first + 4 - end)
    return mask & 15


@helper
def _split_conflicts(rs, number, mask, event):
    conflict = False
    for byte in range(4):
        conflict |= mask >> byte & 1 != 0 and conflicts(rs, _byte_cell(rs, number, byte), event)
    return conflict


@helper
def _split_followed(rs, number, mask, event):
    """Return the cell of a granule after an access to some of its bytes."""
    low, high, last, following = 0, 0, -1, 0
    for byte in range(4):
        cell = _byte_cell(rs, number, byte)
        if mask >> byte & 1:
            if cell != last:
                last, following = cell, _followed(rs, cell, event)
            cell = following
        if byte & 2:
            high |= cell << (32 if byte & 1 else 0)
        else:
            low |= cell << (32 if byte & 1 else 0)
    return _new_cell(rs, low, high, SPLIT)


@helper
def may_conflict(rs, address, size, event):
    """Return whether an access to bytes may conflict with an earlier one."""
    end, known = address + size, np.int64(-1)
    while address < end:
        shadow = shadow_of(rs, address)
        stop = min(end, (address | PAGE_SHADOW_BYTES - 1) + 1)
        past = shadow + ((stop + 3 & ~3) - (address & ~3))
        while shadow < past:
            number = np.int64(peek32(np.uint64(shadow)))
            if number != known:
                if _is_split(rs, number):
                    mask = _mask(shadow, address, stop)
                    if _split_conflicts(rs, number, mask, event):
                        return True
                else:
                    if conflicts(rs, number, event):
                        return True
                    known = number
            shadow += 4
        address = stop
    return False


@helper
def note(rs, address, size, event, memory):
    """Add an access, which has no conflict, to the history of bytes.

    ``memory``: address of two numbers, of the cell seen last and of that which followed.
    """
    end = address + size
    while address < end:
        shadow = shadow_of(rs, address)
        stop = min(end, (address | PAGE_SHADOW_BYTES - 1) + 1)
        past = shadow + ((stop + 3 & ~3) - (address & ~3))
        partial = (address | stop) & 3
        while shadow < past:
            number = _number_at(rs, shadow)
            mask = _mask(shadow, address, stop) if partial else 15
            if mask != 15 or _is_split(rs, number):
                put32(shadow, _split_followed(rs, number, mask, event))
                shadow += 4
                continue
            if number != get64(memory):
                put64(memory, number)
                put64(memory + 8, _followed(rs, number, event))
            following = get64(memory + 8)
            whole = past - 4 if stop & 3 else past
            # All granules with the same cell at once.
            while True:
                put32(shadow, following)
                shadow += 4
                if shadow >= whole or _number_at(rs, shadow) != number:
                    break
        address = stop


@helper
def leave_to_python(rs, address, size):
    """Mark bytes: Python judges all accesses to them."""
    end = address + size
    while address < end:
        shadow = shadow_of(rs, address)
        stop = min(end, (address | PAGE_SHADOW_BYTES - 1) + 1)
        past = shadow + ((stop + 3 & ~3) - (address & ~3))
        while shadow < past:
            put32(shadow, get64(rs + st.FIRST_CELL))
            shadow += 4
        address = stop


@helper
def event_of(rs, thread, kind, scope, size):
    """Return the next access of a thread; ``atomic`` as ``race_report.Event``."""
    event = allocate(get64(rs + st.MODEL), EVENT_BYTES)
    put64(event + OF_THREAD, thread)
    put64(event + NUMBER, get64(thread + st.ISSUED) + 1)
    put64(event + KIND, kind)
    put64(event + SCOPE, scope)
    put64(event + ATOMIC, scope > st.WAVE and size <= 8)
    put64(event + NEXT, 0)
    return event
