"""Shadow memory of mode ``race`` for native functions: the accesses to each granule of global memory.

A granule is 4 bytes; its shadow is the int32 number of a *cell*, which granules with the same history share. Those of a
sector of 32 bytes have one number together, after those of all granules of the page, as long as it is the same. Numbers
below the run's first one stand for no access, and that one for accesses that Python judges. Cells, like those of
``watch.race_history``, have the last writes, and the reads since. ``may_conflict`` may find a conflict where there is
none, since it knows only part of what orders accesses; the opposite never happens.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from harness.emulator.native import race_order as order
from harness.emulator.native import race_state as st
from harness.emulator.native import weak_state as ws
from harness.emulator.native.flight_state import ATOMIC as ATOMIC_KIND
from harness.emulator.native.flight_state import LOAD, STORE
from harness.emulator.native.raw import call, copy, get64, put32, put64
from harness.emulator.native.weak_state import allocate, helper
from harness.emulator.native.words import peek32

PAGE_BITS = 14
PAGE_SHADOW_BYTES = 1 << PAGE_BITS
SECTOR_BITS = 5
SECTOR = 1 << SECTOR_BITS
SHADOW_BYTES = PAGE_SHADOW_BYTES + (PAGE_SHADOW_BYTES >> SECTOR_BITS - 2)
"""Bytes of the numbers of a page's granules, and also of its sectors."""
MIXED = 0xFFFFFFFF
"""Stands for a sector whose granules have their own numbers."""

# A cell: its writes, its reads, how many they are, or ``SEVERAL``: an unknown number of them, and released values. Or,
# with ``SPLIT``, the numbers of the cells of each byte, two in each of the first fields, the lower one first.
(WRITES, READS, READS_COUNT, RELEASED) = range(0, 32, 8)
CELL_BYTES = 32
SEVERAL, SPLIT = -1, -2
MOST_READS, MOST_READS_UNWRITTEN = 64, 8
"""Reads that a cell remembers: if there is a write, which another will probably follow, and otherwise."""

# An access: its thread, its number, kind, scope, whether it is atomic, its description (see ``race_steps``), the next
# of a list. While it is judged, also the cell that ``note`` saw last, and that which followed; the released values that
# it reads, see ``race_order``; whether
# it releases, and the order.
(OF_THREAD, NUMBER, KIND, SCOPE, ATOMIC, SITE, NEXT) = range(0, 56, 8)
EVENT_BYTES = 56
(CELL, FOLLOWING, TAKEN, RELEASES, ORDER) = range(56, 96, 8)
JUDGED_BYTES = 128

# A released value: scope and rank of the release; launch and work-group of the thread, or 0 for several; the order that
# a reader gains; the next of a list.
(BY_SCOPE, BY_RANK, BY_LAUNCH, BY_GROUP, GIVES, NEXT_RELEASED) = (0, 8, 16, 24, 32, 72)
RELEASED_BYTES = 80


@helper
def _cell(rs, number):
    return get64(rs + st.CELLS) + CELL_BYTES * (number - get64(rs + st.FIRST_CELL))


@helper
def _new_cell(rs, writes, reads, count, released):
    number = get64(rs + st.NEXT_CELL)
    if number == get64(rs + st.CELLS_END):
        call(get64(get64(rs + st.MODEL) + ws.MORE), st.CELL, 0)
    put64(rs + st.NEXT_CELL, number + 1)
    cell = _cell(rs, number)
    put64(cell + WRITES, writes)
    put64(cell + READS, reads)
    put64(cell + READS_COUNT, count)
    put64(cell + RELEASED, released)
    return number


@helper
def _listed(rs, event, following):
    """Return a copy of an event with another next one."""
    copied = allocate(get64(rs + st.MODEL), EVENT_BYTES)
    for field in (OF_THREAD, NUMBER, KIND, SCOPE, ATOMIC, SITE):
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
    one, other, scope = get64(first + OF_THREAD), get64(second + OF_THREAD), get64(first + SCOPE)
    relation = st.distance(one, other)
    if relation == st.WORKGROUP:
        level = order.ISSUED
    elif get64(first + KIND) == LOAD or scope >= relation:
        level = order.COMPLETE
    else:
        level = order.AGENT_WIDE if relation == st.AGENT else order.SYSTEM_WIDE
    # Only plain loads can hit old lines: those with scope bits bypass the caches, and siblings share theirs.
    fresh = get64(second + KIND) == STORE or get64(first + KIND) == LOAD or relation == st.WORKGROUP
    number, thread = get64(first + NUMBER), get64(one + st.THREAD_NUMBER)
    for reach in (0, st.AGENT, st.SYSTEM):
        if reach == 0:
            known = other + st.KNOWN
        else:
            if not fresh and reach > get64(second + SCOPE):
                continue
            known = other + (st.SEEN_AGENT if reach == st.AGENT else st.SEEN_SYSTEM)
        if order.includes(known, level, one, number):
            return True
        if scope >= relation and order.last_of(get64(known + order.READ), thread) == number:
            return True
    return False


@helper
def _stands(rs, first, second, cell):
    """Return 1 if ``first`` stays in the history when ``second`` follows, 0 if not, and -1 if they may conflict."""
    if get64(first + OF_THREAD) == get64(second + OF_THREAD) or is_ordered(first, second):
        return 0
    if get64(first + ATOMIC) and get64(second + ATOMIC):
        reach = min(get64(first + SCOPE), get64(second + SCOPE))
        if reach >= st.distance(get64(first + OF_THREAD), get64(second + OF_THREAD)):
            return 1
    return 0 if get64(rs + st.COPIES_COUNT) and _are_known_copies(rs, first, second, cell) else -1


@helper
def _are_known_copies(rs, first, second, cell):
    """Return True for accesses that Python has reported as those of copies; see ``race_history.are_copies``."""
    load, store = (first, second) if get64(first + KIND) == LOAD else (second, first)
    if get64(load + KIND) != LOAD or get64(cell + READS_COUNT) == SEVERAL:
        return False
    if st.distance(get64(load + OF_THREAD), get64(store + OF_THREAD)) != st.WORKGROUP:
        return False
    copied, read = False, get64(cell + READS)
    while read:
        own = get64(read + OF_THREAD) == get64(store + OF_THREAD)
        copied |= own and get64(read + SITE) == get64(load + SITE)
        read = get64(read + NEXT)
    if not copied:
        return False
    for i in range(get64(rs + st.COPIES_COUNT)):
        pair = get64(rs + st.COPIES) + 16 * i
        if get64(pair) == get64(load + SITE) and get64(pair + 8) == get64(store + SITE):
            return True
    return False


@helper
def conflicts(rs, number, event):
    """Return whether an access may conflict with the earlier ones in a cell."""
    first = get64(rs + st.FIRST_CELL)
    if number <= first:
        return number == first
    cell = _cell(rs, number)
    other = get64(cell + WRITES)
    while other:
        if _stands(rs, other, event, cell) < 0:
            return True
        other = get64(other + NEXT)
    if get64(event + KIND) == LOAD:
        return False
    if get64(cell + READS_COUNT) == SEVERAL:
        return True
    other = get64(cell + READS)
    while other:
        if _stands(rs, other, event, cell) < 0:
            return True
        other = get64(other + NEXT)
    return False


@helper
def _take(rs, event, released):
    """Add the released values that an access reads to those it has read."""
    thread, scope = get64(event + OF_THREAD), get64(event + SCOPE)
    if get64(event + KIND) == STORE or scope == st.WAVE:
        return
    launch = get64(thread + st.OF_LAUNCH)
    while released:
        if get64(released + BY_LAUNCH) == launch and get64(released + BY_GROUP) == get64(thread + st.GROUP):
            relation = st.WORKGROUP
        else:
            relation = st.AGENT if get64(released + BY_RANK) == get64(launch + st.RANK) else st.SYSTEM
        if min(get64(released + BY_SCOPE), scope) >= relation:
            taken = allocate(get64(rs + st.MODEL), order.TAKEN_BYTES)
            put64(taken + order.DISTANCE, relation)
            copy(taken + order.TAKEN_ORDER, released + GIVES, order.ORDER_BYTES)
            put64(taken + order.NEXT_TAKEN, get64(event + TAKEN))
            put64(event + TAKEN, taken)
        released = get64(released + NEXT_RELEASED)


@helper
def _release(rs, event, released):
    """Return the released values of a cell after a store or an atomic."""
    thread, scope = get64(event + OF_THREAD), get64(event + SCOPE)
    if scope == st.WAVE:
        return 0
    if not get64(event + RELEASES):
        put64(event + RELEASES, 1)
        order.publish(rs, thread, event + ORDER)
    launch = get64(thread + st.OF_LAUNCH)
    mine = allocate(get64(rs + st.MODEL), RELEASED_BYTES)
    put64(mine + BY_SCOPE, scope)
    put64(mine + BY_RANK, get64(launch + st.RANK))
    put64(mine + BY_LAUNCH, launch)
    put64(mine + BY_GROUP, get64(thread + st.GROUP))
    copy(mine + GIVES, event + ORDER, order.ORDER_BYTES)
    others = 0
    # A read-modify-write continues the release sequences of the value that it replaces.
    while released and get64(event + KIND) == ATOMIC_KIND:
        if get64(released + BY_SCOPE) == scope and get64(released + BY_RANK) == get64(launch + st.RANK):
            order.join(rs, mine + GIVES, released + GIVES)
            same = get64(released + BY_LAUNCH) == get64(mine + BY_LAUNCH)
            if not same or get64(released + BY_GROUP) != get64(mine + BY_GROUP):
                put64(mine + BY_LAUNCH, 0)
        else:
            other = allocate(get64(rs + st.MODEL), RELEASED_BYTES)
            copy(other, released, RELEASED_BYTES)
            put64(other + NEXT_RELEASED, others)
            others = other
        released = get64(released + NEXT_RELEASED)
    put64(mine + NEXT_RELEASED, others)
    return mine


@helper
def _own_read(reads, event):
    """Return the read in a list that a load may stand for too, since the same thread made it, or 0.

    It is the newest one; among the reads of several wavefronts that poll in turn it may be any.
    """
    while reads:
        if get64(reads + OF_THREAD) == get64(event + OF_THREAD) and _reaches(reads, event):
            return reads
        reads = get64(reads + NEXT) if get64(event + ATOMIC) else 0
    return np.int64(0)


@helper
def _followed(rs, number, event):
    """Return the cell of granules that had another cell before an access without conflict."""
    cell, writes, reads, count, released = np.int64(0), 0, 0, 0, 0
    if number > get64(rs + st.FIRST_CELL):
        cell = _cell(rs, number)
        writes, reads, count = get64(cell + WRITES), get64(cell + READS), get64(cell + READS_COUNT)
        released = get64(cell + RELEASED)
    if released:
        _take(rs, event, released)
    if get64(event + KIND) == LOAD:
        if count == SEVERAL:
            return number
        own = _own_read(reads, event)
        if own and get64(own + SITE) == get64(event + SITE):
            # Other granules may have this read as well: for them it seems to be later than it was, which may at most
            # find a conflict where there is none. So a wavefront that polls needs no more memory.
            put64(own + NUMBER, get64(event + NUMBER))
            return number
        if own and own == reads:  # the instruction decides what are copies
            return _new_cell(rs, writes, _listed(rs, event, get64(reads + NEXT)), count, released)
        if count >= (MOST_READS if writes else MOST_READS_UNWRITTEN):
            return _new_cell(rs, writes, 0, SEVERAL, released)
        return _new_cell(rs, writes, _listed(rs, event, reads), count + 1, released)
    kept, other = 0, writes
    while other:
        own = get64(other + OF_THREAD) == get64(event + OF_THREAD)
        if _stands(rs, other, event, cell) > 0 and not (own and _reaches(other, event)):
            kept = _listed(rs, other, kept)
        other = get64(other + NEXT)
    # Own reads are kept: a later access may be ordered after this one, and not after them.
    still, count, other = 0, 0, reads
    while other:
        if get64(other + OF_THREAD) == get64(event + OF_THREAD) or _stands(rs, other, event, cell) > 0:
            still = _listed(rs, other, still)
            count += 1
        other = get64(other + NEXT)
    return _new_cell(rs, _listed(rs, event, kept), still, count, _release(rs, event, released))


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
    return _new_cell(rs, low, high, SPLIT, 0)


@helper
def _have(place, number):
    """Return whether sixteen successive granules, or sectors, have a cell."""
    both, different = number << 32 | number, np.int64(0)
    for i in range(0, 64, 8):
        different |= get64(place + i) ^ both
    return different == 0


@helper
def _sector_of(shadow):
    """Return the address of the number of a sector, given that of the number of one of its granules."""
    page = shadow & ~(PAGE_SHADOW_BYTES - 1)
    return page + PAGE_SHADOW_BYTES + ((shadow - page) >> SECTOR_BITS) * 4


@helper
def _stop_of(address, end, size):
    """Return where the part of [address, end) ends that is in one sector, or page, of ``size`` bytes."""
    return min(end, (address | size - 1) + 1)


@helper
def _mix(shadow):
    """Give the granules of a sector, of which ``shadow`` belongs to one, their own numbers."""
    sector, first = _sector_of(shadow), shadow & ~(SECTOR - 1)
    number = np.int64(peek32(np.uint64(sector)))
    if number != MIXED:
        for i in range(0, SECTOR, 8):
            put64(first + i, number << 32 | number)
        put32(sector, MIXED)


@helper
def may_conflict(rs, address, size, event):
    """Return whether an access to bytes may conflict with an earlier one."""
    end, known = address + size, np.int64(-1)
    while address < end:
        shadow, past = shadow_of(rs, address), _stop_of(address, end, 1 << PAGE_BITS)
        sector = _sector_of(shadow)
        while address < past:
            stop = _stop_of(address, past, SECTOR)
            number = np.int64(peek32(np.uint64(sector)))
            if number == MIXED:
                place = shadow & ~(PAGE_SHADOW_BYTES - 1) | address & PAGE_SHADOW_BYTES - 1 & ~3
                known = _known_of(rs, place, address, stop, event, known)
                if known == -2:
                    return True
            elif number != known:
                if conflicts(rs, number, event):
                    return True
                known = number
            address = stop
            sector += 4
            # The next sectors that have the same cell, sixteen at once, or two.
            while known >= 0 and address + 16 * SECTOR <= past and _have(sector, known):
                address += 16 * SECTOR
                sector += 64
            while known >= 0 and address + 2 * SECTOR <= past and get64(sector) == known << 32 | known:
                address += 2 * SECTOR
                sector += 8
    return False


@helper
def _known_of(rs, shadow, address, stop, event, known):
    """Return the last cell of the granules of [address, stop) that does not conflict with an access, -1 if there is
    none, and -2 if one may conflict. ``known``: a cell that does not."""
    past = shadow + ((stop + 3 & ~3) - (address & ~3))
    while shadow < past:
        number = np.int64(peek32(np.uint64(shadow)))
        if number != known:
            if _is_split(rs, number):
                mask = _mask(shadow, address, stop)
                if _split_conflicts(rs, number, mask, event):
                    return np.int64(-2)
            else:
                if conflicts(rs, number, event):
                    return np.int64(-2)
                known = number
        shadow += 4
        while shadow + 8 <= past and get64(shadow) == known << 32 | known:
            shadow += 8
    return known


@helper
def _follow(rs, number, event):
    """Return ``_followed`` of a cell, which is the same for all granules that have it."""
    if number != get64(event + CELL):
        put64(event + CELL, number)
        put64(event + FOLLOWING, _followed(rs, number, event))
    return get64(event + FOLLOWING)


@helper
def note(rs, address, size, event):
    """Add an access, which has no conflict, to the history of bytes."""
    end = address + size
    while address < end:
        shadow, past = shadow_of(rs, address), _stop_of(address, end, 1 << PAGE_BITS)
        sector = _sector_of(shadow)
        while address < past:
            stop = _stop_of(address, past, SECTOR)
            number = np.int64(peek32(np.uint64(sector)))
            if number == MIXED or stop - address < SECTOR:
                place = shadow & ~(PAGE_SHADOW_BYTES - 1) | address & PAGE_SHADOW_BYTES - 1 & ~3
                _note_granules(rs, place, address, stop, event)
                if stop & SECTOR - 1 == 0:
                    _unmix(rs, sector, place & ~(SECTOR - 1))
                address = stop
                sector += 4
                continue
            following = _follow(rs, _number_at(rs, sector), event)
            both = following << 32 | following
            put32(sector, following)
            address = stop
            sector += 4
            # The next sectors that have the same cell, sixteen at once, or two.
            while address + 16 * SECTOR <= past and _have(sector, number):
                for i in range(0, 64, 8):
                    put64(sector + i, both)
                address += 16 * SECTOR
                sector += 64
            while address + 2 * SECTOR <= past and get64(sector) == number << 32 | number:
                put64(sector, both)
                address += 2 * SECTOR
                sector += 8


@helper
def _note_granules(rs, shadow, address, stop, event):
    """Do what ``note`` does for [address, stop) in a sector, whose granules get their own numbers."""
    _mix(shadow)
    past, partial = shadow + ((stop + 3 & ~3) - (address & ~3)), (address | stop) & 3
    whole = past - 4 if stop & 3 else past
    while shadow < past:
        number = _number_at(rs, shadow)
        mask = _mask(shadow, address, stop) if partial else 15
        if mask != 15 or _is_split(rs, number):
            put32(shadow, _split_followed(rs, number, mask, event))
            shadow += 4
            continue
        following = _follow(rs, number, event)
        number = np.int64(peek32(np.uint64(shadow)))
        put32(shadow, following)
        shadow += 4
        while shadow + 8 <= whole and get64(shadow) == number << 32 | number:
            put64(shadow, following << 32 | following)
            shadow += 8


@helper
def _unmix(rs, sector, first):
    """Give a sector one number, if its granules, of which ``first`` is the first one, have the same history."""
    number, different = np.int64(peek32(np.uint64(first))), np.int64(0)
    for i in range(0, SECTOR, 8):
        different |= get64(first + i) ^ (number << 32 | number)
    if different == 0 and not _is_split(rs, number):
        put32(sector, number)


@helper
def fill(rs, address, size, cell):
    """Give bytes a cell."""
    end = address + size
    while address < end:
        shadow = shadow_of(rs, address)
        stop = _stop_of(address, end, SECTOR)
        past = shadow + ((stop + 3 & ~3) - (address & ~3))
        _mix(shadow)
        while shadow < past:
            mask = _mask(shadow, address, stop)
            put32(shadow, cell if mask == 15 else _partly(rs, _number_at(rs, shadow), mask, cell))
            shadow += 4
        address = stop


@helper
def _partly(rs, number, mask, cell):
    """Return the cell of a granule of which some bytes get a cell."""
    low, high = 0, 0
    for byte in range(4):
        own = cell if mask >> byte & 1 else _byte_cell(rs, number, byte)
        if byte & 2:
            high |= own << (32 if byte & 1 else 0)
        else:
            low |= own << (32 if byte & 1 else 0)
    return _new_cell(rs, low, high, SPLIT, 0)


@helper
def cell_of(rs, accesses, count):
    """Return a cell with ``count`` accesses, each ``EVENT_BYTES`` from an address on. The number of a thread stands for
    the thread, and ``NEXT`` is 1 for a read."""
    writes, reads, reads_count = 0, 0, 0
    for i in range(count):
        event = accesses + EVENT_BYTES * i
        thread = get64(get64(rs + st.THREADS) + 8 * get64(event + OF_THREAD))
        if thread == 0:
            return get64(rs + st.FIRST_CELL)  # of a wavefront that native code does not know
        put64(event + OF_THREAD, thread)
        if get64(event + NEXT):
            reads = _listed(rs, event, reads)
            reads_count += 1
        else:
            writes = _listed(rs, event, writes)
    return _new_cell(rs, writes, reads, reads_count, 0)


@helper
def event_of(rs, thread, kind, scope, size, site):
    """Return the next access of a thread; ``atomic`` as ``race_report.Event``, if it is aligned."""
    event = allocate(get64(rs + st.MODEL), JUDGED_BYTES)
    put64(event + OF_THREAD, thread)
    put64(event + NUMBER, get64(thread + st.REACHED) + 1)
    put64(event + KIND, kind)
    put64(event + SCOPE, scope)
    put64(event + ATOMIC, scope > st.WAVE and size <= 8)
    put64(event + SITE, site)
    put64(event + NEXT, 0)
    put64(event + CELL, -1)
    put64(event + TAKEN, 0)
    put64(event + RELEASES, 0)
    return event
