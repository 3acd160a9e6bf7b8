"""Memory as a gfx942 kernel sees it, as weak as LLVM allows it to be: the lines and stores of mode ``weak``.

Source: LLVM AMDGPUUsage, "Memory Model gfx942". A store *lands* in the L2 of its XCD. It becomes visible beyond it when
it has been written back: to other XCDs of the agent at agent level, to other agents at system level. A write-back
happens by ``buffer_wbl2``, by the store's own scope bits (a write-through), or when the adversary evicts a line. A load
may return a line that was fetched at any time since the compute unit last invalidated its caches.

This module records history instead of caches: each 128-byte line has the list of its stores, each with the times at
which it landed, reached its agent and reached the system. A load picks the time t of its fetch, not before the last
fetch of that line by the same compute unit (coherence) and not before the last invalidate of the scope that the store
needs. It sees the stores that were visible to its compute unit at t.

Example, two agents, x = 0: agent 0 stores x = 1; it lands at time 1 and is written back to the system at time 5. A load
by agent 1 at time 9 with no invalidate since the start sees 0 or 1; after ``buffer_inv sc0 sc1`` at time 7 only 1;
after ``buffer_inv sc1`` at time 7, which orders nothing between agents, 0 or 1.

All data are structures in memory, at addresses passed as int64; their fields are byte offsets. ``state`` is the address
of the ``STATE_BYTES`` of one model, which ``watch.model`` sets up. Masks of a line's bytes are two int64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from harness.emulator.native.raw import call, clear, copy, get8, get64, put64
from harness.emulator.native.words import cas32, cas64, peek16, peek32, peek64, poke8, poke16, poke32, poke64

LINE = 128
NEVER = 1 << 62
WAVE, WORKGROUP, AGENT, SYSTEM = range(4)
"""Scopes."""
MOST_STORES = 128
"""Stores of a line, beyond which the oldest that reached the system are dropped."""

# The state. Clock; number of stores, promotions and loads that did not see the newest value; whether other processes,
# or the host between launches, may change memory, so that every access checks for such changes; number of acquires that
# made the copies of allocations outdated.
(NOW, CHANGES, OUTSIDE, EPOCH) = range(0, 32, 8)
# Free memory, from NEXT to END; lines by address, their number, and those by age; the unit of changes from outside.
(NEXT, END, HASH, BUCKETS, LINES, FIRST_LINE, LAST_LINE, ELSEWHERE) = range(32, 96, 8)
# Stores that have not reached the system, in the order in which they landed, and their number.
(FIRST_DIRTY, LAST_DIRTY, DIRTY) = range(96, 120, 8)
# Addresses: of int64[2], position in ``words`` and decisions, or 0; of the words and their number; 1 for ``Lazy``.
(PLACE, WORDS, WORD_COUNT, LAZY) = range(120, 152, 8)
# Addresses of Python functions int64(int64, int64): a decision, memory, a load's data, a value that NumPy computes.
(PICK, MORE, DELIVER, FOLD) = range(152, 184, 8)
# Events: address of int64[EVENTS, EVENT_FIELDS], and their number so far.
(LOG, LOGGED) = range(184, 200, 8)
# For ``native.flights``: whether fences cover siblings, operations so far, operations that are not performed yet as a
# sorted list of addresses, its length and capacity, flights so far, how often memory moves, whether caches evict.
(COVERS, ISSUED, MOVING, MOVES, MOVES_CAPACITY, FLIGHTS, DRIFT, EVICTS) = range(200, 264, 8)
# Structures that are free again, by their size as a power of two; a line as a load sees it; scratch memory.
# The address of the function that performs operations, which calls itself.
ACT = 264
FREE, SEEN_LINE, SNAPSHOT, NEW_DATA = 272, 408, 536, 664
STATE_BYTES = 792

# What the service ``MORE`` is for.
MEMORY, TABLE, MOVING_TABLE = range(3)
# Decisions.
AGE, COMPLETES, MOVES_NOW, WHAT_MOVES, WHICH_LINE = range(5)

EVENTS, EVENT_FIELDS = 4000, 5
# Events; their fields are the time, what happened, the line, and the origin: launch << 32 | wavefront, instruction.
(READS_OLD, LANDS, EVICTED, INVALIDATED, WRITTEN_BACK, EXCHANGES) = range(6)
"""WRITTEN_BACK and EXCHANGES with the number of stores, or the scope, << 8."""

# A line: bytes [address, address + size) of one allocation; its stores, oldest first; times of the compute units' last
# fetches; the next line by age, and of the same bucket. ``BASE``: the bytes before its first store; ``CONTENT``: with
# all stores that have reached the system, as memory is unless another process or the host changed it.
(ADDRESS, SIZE, FIRST, LAST, STORES, FETCHES, NEXT_LINE, NEXT_OF_BUCKET) = range(0, 64, 8)
BASE, CONTENT, LINE_BYTES = 64, 192, 320

# A store of the bytes in a mask, and the times when it landed and reached its agent and the system.
(NEXT_STORE, PREVIOUS, OF_LINE, UNIT, LANDED, AT_AGENT, AT_SYSTEM, LOW, HIGH) = range(0, 72, 8)
(NEXT_DIRTY, PREVIOUS_DIRTY, IS_DIRTY, ORIGIN, INSTRUCTION) = range(72, 112, 8)
DATA, STORE_BYTES = 112, 240

# A compute unit, which has one vector L1: its agent, its XCD within the agent, the times of its last invalidates by the
# scope of the stores that they made visible, its flights.
(OF_AGENT, XCD, FLOORS, FIRST_FLIGHT, LAST_FLIGHT) = (0, 8, 16, 48, 56)
UNIT_BYTES = 64

# The last fetch of a line by a compute unit.
(BY_UNIT, AT, NEXT_FETCH) = range(0, 24, 8)
FETCH_BYTES = 32

# A copy of an allocation: its address (0: none), its epoch, start and bytes of the allocation.
(IMAGE, IMAGE_EPOCH, IMAGE_START, IMAGE_SIZE) = range(0, 32, 8)
IMAGE_FIELDS = 4

# Called by compiled functions only.
_helper: Any = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)  # type: ignore[call-overload]


@_helper
def add(address, amount):
    put64(address, get64(address) + amount)


@_helper
def tick(state):
    now = get64(state + NOW) + 1
    put64(state + NOW, now)
    return now


@_helper
def log(state, event, address, origin, instruction):
    number = get64(state + LOGGED)
    put64(state + LOGGED, number + 1)
    at = get64(state + LOG) + 8 * EVENT_FIELDS * (number % EVENTS)
    put64(at, get64(state + NOW))
    put64(at + 8, event)
    put64(at + 16, address)
    put64(at + 24, origin)
    put64(at + 32, instruction)


# -- memory and decisions ----------------------------------------------------------------------------------------------


@_helper
def allocate(state, size):
    """Return the address of a structure, whose content is undefined."""
    power = 5
    while 1 << power < size:
        power += 1
    place = get64(state + FREE + 8 * power)
    if place:
        put64(state + FREE + 8 * power, get64(place))
        return place
    size = 1 << power
    if get64(state + NEXT) + size > get64(state + END):
        call(get64(state + MORE), MEMORY, size)
    place = get64(state + NEXT)
    put64(state + NEXT, place + size)
    return place


@_helper
def release(state, place, size):
    """Make the memory of a structure of ``size`` bytes available again."""
    power = 5
    while 1 << power < size:
        power += 1
    put64(place, get64(state + FREE + 8 * power))
    put64(state + FREE + 8 * power, place)


@_helper
def _draw(state, place, n):
    """Return a number below n as ``choices.Seeded`` does."""
    bits, words, at = 0, get64(state + WORDS), get64(place)
    while n >> bits:
        bits += 1
    while True:
        number = np.int64(peek32(np.uint64(words + 4 * at))) >> (32 - bits)
        at += 1
        if number < n:
            put64(place, at)
            put64(place + 8, get64(place + 8) + 1)
            return number


@_helper
def pick(state, n, decision):
    """Decide between n possibilities; ``choices.Choices`` in Python decides unless it has provided random words."""
    place = get64(state + PLACE)
    # A decision takes one or two words, and a hundred with a probability of 2**-100.
    if place == 0 or get64(place) + 128 > get64(state + WORD_COUNT):
        return call(get64(state + PICK), n, decision)
    choice = _draw(state, place, n)
    if decision == AGE and get64(state + LAZY) and _draw(state, place, 4):
        return n - 1
    return choice


# -- lines -------------------------------------------------------------------------------------------------------------


@_helper
def find_line(state, address, start, end, image):
    """Return the line that holds ``address``, of the allocation [start, end); ``image``: the copy of the allocation.

    Lines are counted from the allocation's start, so that a run does not depend on its address.
    """
    low = address - (address - start) % LINE
    bucket = get64(state + HASH) + 8 * ((low >> 7) & (get64(state + BUCKETS) - 1))
    line = get64(bucket)
    while line:
        if get64(line + ADDRESS) == low:
            return line
        line = get64(line + NEXT_OF_BUCKET)
    line = allocate(state, LINE_BYTES)
    size = min(low + LINE, end) - low
    put64(line + ADDRESS, low)
    put64(line + SIZE, size)
    for field in (FIRST, LAST, STORES, FETCHES, NEXT_LINE):
        put64(line + field, 0)
    source = low
    if image and get64(image + IMAGE):
        # Copied again if an acquire came after the copy. A loop that polls never uses it.
        if get64(image + IMAGE_EPOCH) != get64(state + EPOCH):
            copy(get64(image + IMAGE), get64(image + IMAGE_START), get64(image + IMAGE_SIZE))
            put64(image + IMAGE_EPOCH, get64(state + EPOCH))
        source = get64(image + IMAGE) + low - get64(image + IMAGE_START)
    clear(line + BASE, 2 * LINE)
    copy(line + BASE, source, size)
    copy(line + CONTENT, line + BASE, size)
    put64(line + NEXT_OF_BUCKET, get64(bucket))
    put64(bucket, line)
    last = get64(state + LAST_LINE)
    if last:
        put64(last + NEXT_LINE, line)
    else:
        put64(state + FIRST_LINE, line)
    put64(state + LAST_LINE, line)
    add(state + LINES, 1)
    if get64(state + LINES) > 2 * get64(state + BUCKETS):
        call(get64(state + MORE), TABLE, get64(state + BUCKETS))
        _rehash(state)
    return line


@_helper
def _rehash(state):
    """Enter all lines in a new table, which is empty."""
    line = get64(state + FIRST_LINE)
    while line:
        bucket = get64(state + HASH) + 8 * ((get64(line + ADDRESS) >> 7) & (get64(state + BUCKETS) - 1))
        put64(line + NEXT_OF_BUCKET, get64(bucket))
        put64(bucket, line)
        line = get64(line + NEXT_LINE)


@_helper
def _eight(mask_low, mask_high, i):
    """Return the bits of a mask for bytes 8i to 8i + 7 of a line."""
    return ((mask_low if i < 8 else mask_high) >> (8 * (i & 7))) & 0xFF


@_helper
def write(target, source, low, high):
    """Copy the bytes of a mask from line to line, eight or four at once where possible."""
    if low == -1 and high == -1:
        copy(target, source, LINE)
        return
    for i in range(16):
        bits = _eight(low, high, i)
        if bits == 0:
            continue
        to, of = np.uint64(target + 8 * i), np.uint64(source + 8 * i)
        if bits == 0xFF:
            poke64(to, peek64(of))
            continue
        for half in range(2):
            some = bits >> 4 * half & 0xF
            if some == 0xF:
                poke32(to + np.uint64(4 * half), peek32(of + np.uint64(4 * half)))
                continue
            for pair in range(2):
                two, at = some >> 2 * pair & 3, np.uint64(4 * half + 2 * pair)
                if two == 3:
                    poke16(to + at, peek16(of + at))
                elif two:
                    at += np.uint64(two - 1)
                    poke8(to + at, np.uint8(get8(np.int64(of + at))))


@_helper
def _notice(state, line):
    """Record a change of memory by another process or the host as a store that has reached the system."""
    if get64(state + OUTSIDE):
        enter(state, line)


@_helper
def enter(state, line):
    size, snapshot, content = get64(line + SIZE), state + SNAPSHOT, line + CONTENT
    copy(snapshot, get64(line + ADDRESS), size)  # once, since another process may change it at any time
    same = True
    for i in range(size >> 3):
        same &= get64(snapshot + 8 * i) == get64(content + 8 * i)
    for i in range(size & ~7, size):
        same &= get8(snapshot + i) == get8(content + i)
    if same:
        return
    low, high = 0, 0
    for i in range(size):
        changed = np.int64(get8(snapshot + i) != get8(content + i))
        if i < 64:
            low |= changed << i
        else:
            high |= changed << (i - 64)
    now = tick(state)
    new_store(state, get64(state + ELSEWHERE), line, low, high, snapshot, now, now, now, 0, 0)
    copy(content, snapshot, size)


@_helper
def new_store(state, unit, line, low, high, data, landed, agent, system, origin, instruction):
    """Append a store to a line's; return it."""
    store = allocate(state, STORE_BYTES)
    last = get64(line + LAST)
    put64(store + NEXT_STORE, 0)
    put64(store + PREVIOUS, last)
    put64(store + OF_LINE, line)
    put64(store + UNIT, unit)
    put64(store + LANDED, landed)
    put64(store + AT_AGENT, agent)
    put64(store + AT_SYSTEM, system)
    put64(store + LOW, low)
    put64(store + HIGH, high)
    put64(store + IS_DIRTY, 0)
    put64(store + ORIGIN, origin)
    put64(store + INSTRUCTION, instruction)
    copy(store + DATA, data, LINE)
    if last:
        put64(last + NEXT_STORE, store)
    else:
        put64(line + FIRST, store)
    put64(line + LAST, store)
    add(line + STORES, 1)
    return store


@_helper
def _set_dirty(state, store):
    last = get64(state + LAST_DIRTY)
    put64(store + IS_DIRTY, 1)
    put64(store + NEXT_DIRTY, 0)
    put64(store + PREVIOUS_DIRTY, last)
    if last:
        put64(last + NEXT_DIRTY, store)
    else:
        put64(state + FIRST_DIRTY, store)
    put64(state + LAST_DIRTY, store)
    add(state + DIRTY, 1)


@_helper
def _set_clean(state, store):
    before, after = get64(store + PREVIOUS_DIRTY), get64(store + NEXT_DIRTY)
    put64(store + IS_DIRTY, 0)
    if before:
        put64(before + NEXT_DIRTY, after)
    else:
        put64(state + FIRST_DIRTY, after)
    if after:
        put64(after + PREVIOUS_DIRTY, before)
    else:
        put64(state + LAST_DIRTY, before)
    add(state + DIRTY, -1)


@_helper
def _prune(state, line):
    """Drop old history: the oldest stores that reached the system become the base."""
    while get64(line + STORES) > MOST_STORES:
        old = store = get64(line + FIRST)
        while store:
            if get64(store + AT_SYSTEM) < get64(old + AT_SYSTEM):
                old = store
            store = get64(store + NEXT_STORE)
        if get64(old + AT_SYSTEM) == NEVER:
            return
        write(line + BASE, old + DATA, get64(old + LOW), get64(old + HIGH))
        before, after = get64(old + PREVIOUS), get64(old + NEXT_STORE)
        if before:
            put64(before + NEXT_STORE, after)
        else:
            put64(line + FIRST, after)
        if after:
            put64(after + PREVIOUS, before)
        else:
            put64(line + LAST, before)
        add(line + STORES, -1)
        release(state, old, STORE_BYTES)


# -- stores ------------------------------------------------------------------------------------------------------------


@_helper
def _same_xcd(a, b):
    return get64(a + OF_AGENT) == get64(b + OF_AGENT) and get64(a + XCD) == get64(b + XCD)


@_helper
def _overlap(store, low, high):
    return (get64(store + LOW) & low) != 0 or (get64(store + HIGH) & high) != 0


@_helper
def _older(a, b):
    """Return whether an agent's store comes before another: those that reached the agent, then those still in an L2."""
    first, second = get64(a + AT_AGENT), get64(b + AT_AGENT)
    return first < second or (first == second and get64(a + LANDED) < get64(b + LANDED))


@_helper
def _before(a, b):
    """Return whether a line's store is the older one for the system."""
    first, second = get64(a + AT_SYSTEM), get64(b + AT_SYSTEM)
    return first < second or (first == second and _older(a, b))


@_helper
def _promote(state, store, scope):
    if get64(store + AT_AGENT) == NEVER:
        put64(store + AT_AGENT, get64(state + NOW))
    if scope == SYSTEM and get64(store + AT_SYSTEM) == NEVER:
        line = get64(store + OF_LINE)
        _notice(state, line)
        put64(store + AT_SYSTEM, tick(state))
        add(state + CHANGES, 1)
        low, high = get64(store + LOW), get64(store + HIGH)
        write(line + CONTENT, store + DATA, low, high)
        write(get64(line + ADDRESS), store + DATA, low, high)
        _set_clean(state, store)


@_helper
def _promote_older(state, store, scope):
    """Promote a store after the older stores to the same bytes: caches keep the newest only, and order is kept."""
    line, unit, low, high = get64(store + OF_LINE), get64(store + UNIT), get64(store + LOW), get64(store + HIGH)
    other = get64(line + FIRST)
    while other:  # those that have reached the agent are there
        if (
            other != store and get64(other + IS_DIRTY) and _overlap(other, low, high)
            and get64(other + AT_AGENT) == NEVER and _same_xcd(get64(other + UNIT), unit)
            and get64(other + LANDED) < get64(store + LANDED)
        ):  # fmt: skip
            _promote(state, other, AGENT)
        other = get64(other + NEXT_STORE)
    _promote(state, store, AGENT)
    if scope != SYSTEM:
        return
    while True:
        oldest = 0
        other = get64(line + FIRST)
        while other:
            if (
                other != store and get64(other + IS_DIRTY) and _overlap(other, low, high)
                and get64(get64(other + UNIT) + OF_AGENT) == get64(unit + OF_AGENT) and _older(other, store)
                and (oldest == 0 or _older(other, oldest))
            ):  # fmt: skip
                oldest = other
            other = get64(other + NEXT_STORE)
        if oldest == 0:
            break
        _promote(state, oldest, SYSTEM)
    _promote(state, store, SYSTEM)


@_helper
def store_line(state, unit, line, low, high, data, scope, origin, instruction):
    """Let a store land; with agent or system scope it is written through."""
    _notice(state, line)
    add(state + CHANGES, 1)
    store = new_store(state, unit, line, low, high, data, tick(state), NEVER, NEVER, origin, instruction)
    _set_dirty(state, store)
    if scope >= AGENT:
        _promote_older(state, store, scope)
    _prune(state, line)


@_helper
def _reached_agent(state, store, unit):
    now = get64(state + NOW)
    return get64(store + AT_SYSTEM) <= now or (
        get64(get64(store + UNIT) + OF_AGENT) == get64(unit + OF_AGENT) and get64(store + AT_AGENT) <= now
    )


@_helper
def read_for_exchange(state, unit, line, at, size, scope):
    """Return the 4 or 8 bytes at offset ``at`` of a line as a read-modify-write at agent or system scope reads them.

    It reads the value at that level, after its own XCD's stores to these bytes were written back to it.
    """
    low, high = mask_of(at, size)
    _notice(state, line)
    tick(state)
    if scope == SYSTEM:
        while True:
            oldest = 0
            store = get64(line + FIRST)
            while store:
                if (
                    get64(store + IS_DIRTY)
                    and (
                        (_same_xcd(get64(store + UNIT), unit) and _overlap(store, low, high))
                        or _reached_agent(state, store, unit)
                    )
                    and (oldest == 0 or _older(store, oldest))
                ):
                    oldest = store
                store = get64(store + NEXT_STORE)
            if oldest == 0:
                break
            _promote(state, oldest, SYSTEM)
        return _value(get64(line + ADDRESS) + at, size)
    store = get64(line + FIRST)
    while store:
        if (
            get64(store + IS_DIRTY) and get64(store + AT_AGENT) == NEVER and _overlap(store, low, high)
            and _same_xcd(get64(store + UNIT), unit)
        ):  # fmt: skip
            _promote(state, store, AGENT)
        store = get64(store + NEXT_STORE)
    value = 0
    for i in range(size):
        newest, bit = 0, at + i
        store = get64(line + FIRST)
        while store:
            has = (get64(store + LOW) >> bit if bit < 64 else get64(store + HIGH) >> (bit - 64)) & 1
            if has and _reached_agent(state, store, unit) and (newest == 0 or _before(newest, store)):
                newest = store
            store = get64(store + NEXT_STORE)
        octet = get8(newest + DATA + bit) if newest else get8(line + BASE + bit)
        value |= octet << (8 * i)
    return value


@_helper
def write_for_exchange(state, unit, line, at, size, scope, old, new, origin, instruction):
    """Write the new value of a read-modify-write; return False if another process has changed memory meanwhile."""
    low, high = mask_of(at, size)
    data = state + NEW_DATA
    if size == 4:
        poke32(np.uint64(data + at), np.uint32(new & 0xFFFFFFFF))
    else:
        put64(data + at, new)
    if scope != SYSTEM:
        store_line(state, unit, line, low, high, data, scope, origin, instruction)
        return True
    # Other processes see only the system level, so there it must be one of the host's own atomics.
    address = np.uint64(get64(line + ADDRESS) + at)
    if size == 4:
        expected = np.uint32(old & 0xFFFFFFFF)
        if cas32(address, expected, np.uint32(new & 0xFFFFFFFF)) != expected:
            return False
    elif cas64(address, np.uint64(old), np.uint64(new)) != np.uint64(old):
        return False
    now = tick(state)
    new_store(state, unit, line, low, high, data, now, now, now, origin, instruction)
    write(line + CONTENT, data, low, high)
    add(state + CHANGES, 1)
    return True


@_helper
def mask_of(at, size):
    """Return the mask of ``size`` bytes, at most 16, at offset ``at`` of a line, which they do not leave."""
    bits = (1 << size) - 1
    if at >= 64:
        return 0, bits << (at - 64)
    return bits << at, (bits >> (64 - at)) if at + size > 64 else 0


@_helper
def _value(address, size):
    return np.int64(peek32(np.uint64(address))) if size == 4 else get64(address)


@_helper
def _promote_all(state, unit, agent, scope):
    """Promote the stores of ``agent``, or of a unit's XCD and those that reached its agent, oldest first.

    Returns their number. At agent scope the order does not matter: time stands still.
    """
    count = get64(state + DIRTY) if scope == SYSTEM else 0
    reached, landed = np.empty(count, np.int64), np.empty(count, np.int64)
    n, m, written = 0, 0, 0
    store = get64(state + FIRST_DIRTY)
    while store:
        after, own, at_agent = get64(store + NEXT_DIRTY), get64(store + UNIT), get64(store + AT_AGENT)
        if unit:
            mine = _same_xcd(own, unit) or (at_agent != NEVER and get64(own + OF_AGENT) == get64(unit + OF_AGENT))
        else:
            mine = get64(own + OF_AGENT) == agent
        if mine and scope != SYSTEM:
            if at_agent == NEVER:
                _promote(state, store, scope)
                written += 1
        elif mine and at_agent == NEVER:
            landed[m] = store  # stores land in this order
            m += 1
        elif mine:
            i = n
            while i > 0 and _older(store, reached[i - 1]):
                reached[i] = reached[i - 1]
                i -= 1
            reached[i] = store
            n += 1
        store = after
    for i in range(n):
        _promote(state, reached[i], scope)
    for i in range(m):
        _promote(state, landed[i], scope)
    return written + n + m


@_helper
def write_back(state, unit, scope):
    """``buffer_wbl2``: write back an XCD's stores, at system scope its agent's too; return their number."""
    tick(state)
    return _promote_all(state, unit, 0, scope)


@_helper
def flush(state, agent):
    """Perform the release at the end of a kernel: all stores of an agent reach the system."""
    tick(state)
    return _promote_all(state, 0, agent, SYSTEM)


@_helper
def evict(state, index):
    """Let a cache write one store back by itself, by one level."""
    store = get64(state + FIRST_DIRTY)
    for _ in range(index):
        store = get64(store + NEXT_DIRTY)
    tick(state)
    origin, instruction = get64(store + ORIGIN), get64(store + INSTRUCTION)
    _promote_older(state, store, AGENT if get64(store + AT_AGENT) == NEVER else SYSTEM)
    log(state, EVICTED, 0, origin, instruction)
    return 0


# -- loads -------------------------------------------------------------------------------------------------------------


@_helper
def load_line(state, unit, line, scope):
    """Put a line as a compute unit's load of ``scope`` sees it at ``SEEN_LINE``; return how many stores are hidden."""
    _notice(state, line)
    now = get64(state + NOW)
    fetch = get64(line + FETCHES)
    while fetch and get64(fetch + BY_UNIT) != unit:
        fetch = get64(fetch + NEXT_FETCH)
    if fetch == 0:
        fetch = allocate(state, FETCH_BYTES)
        put64(fetch + BY_UNIT, unit)
        put64(fetch + AT, 0)
        put64(fetch + NEXT_FETCH, get64(line + FETCHES))
        put64(line + FETCHES, fetch)
    copy(state + SEEN_LINE, line + BASE, LINE)
    count = get64(line + STORES)
    if count == 0:
        put64(fetch + AT, now)
        return 0
    seen = get64(fetch + AT)
    # The times by which a store must have become visible to be seen for certain: of its own XCD, agent, system. The
    # load's own scope bits make it miss all caches up to that scope.
    missed = scope if scope >= AGENT else 0
    near = now if missed >= WORKGROUP else max(get64(unit + FLOORS + 8 * WORKGROUP), seen)
    middle = now if missed >= AGENT else max(get64(unit + FLOORS + 8 * AGENT), seen)
    far = now if missed >= SYSTEM else max(get64(unit + FLOORS + 8 * SYSTEM), seen)
    # Each store with the first time at which the compute unit could see it, and with the time of the above.
    stores, visible, certain = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.int64)
    optional = np.empty(count, np.int64)
    n, options = 0, 0
    store = get64(line + FIRST)
    while store:
        own = get64(store + UNIT)
        if _same_xcd(own, unit):
            first, sure = 0 if own == unit else get64(store + LANDED), near
        elif get64(own + OF_AGENT) == get64(unit + OF_AGENT):
            first, sure = get64(store + AT_AGENT), middle
        else:
            first, sure = get64(store + AT_SYSTEM), far
        stores[n], visible[n], certain[n] = store, first, sure
        n += 1
        if sure < first <= now:  # one more time; they come almost in ascending order
            i = options
            while i > 0 and optional[i - 1] > first:
                i -= 1
            if i == 0 or optional[i - 1] != first:
                for k in range(options, i, -1):
                    optional[k] = optional[k - 1]
                optional[i] = first
                options += 1
        store = get64(store + NEXT_STORE)
    hidden = pick(state, options + 1, AGE) if options else 0
    # The line was fetched just before the oldest hidden store became visible.
    fetched = now if hidden == 0 else optional[options - hidden] - 1
    put64(fetch + AT, max(seen, fetched))
    if hidden:
        add(state + CHANGES, 1)
    # The stores that are seen, the oldest first: the system's in order, then the agent's, then the XCD's.
    shown = 0
    for i in range(n):
        if visible[i] <= max(fetched, certain[i]):
            store, k = stores[i], shown
            while k > 0 and _before(store, stores[k - 1]):
                stores[k] = stores[k - 1]
                k -= 1
            stores[k] = store
            shown += 1
    # Later stores hide earlier ones.
    first, low, high = shown, 0, 0
    while first > 0 and (low != -1 or high != -1):
        first -= 1
        low |= get64(stores[first] + LOW)
        high |= get64(stores[first] + HIGH)
    for i in range(first, shown):
        write(state + SEEN_LINE, stores[i] + DATA, get64(stores[i] + LOW), get64(stores[i] + HIGH))
    return hidden


@_helper
def invalidate(state, unit, scope):
    """``buffer_inv``: later loads see everything that has become visible at that scope."""
    if get64(state + OUTSIDE) and scope == SYSTEM:
        # Stores of other processes up to now are seen for certain, whenever they were made.
        line = get64(state + FIRST_LINE)
        while line:
            enter(state, line)
            line = get64(line + NEXT_LINE)
        add(state + EPOCH, 1)
    now = tick(state)
    for level in range(WORKGROUP, scope + 1):
        put64(unit + FLOORS + 8 * level, now)


@_helper
def answered(state, address, size):
    """Take in what the host wrote within [address, address + size) for a kernel that waits for its answer."""
    line = get64(state + FIRST_LINE)
    while line:
        at = get64(line + ADDRESS)
        if at < address + size and address < at + get64(line + SIZE):
            enter(state, line)
        line = get64(line + NEXT_LINE)
    return 0
