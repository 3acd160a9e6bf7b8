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

The structures are those of ``weak_state``, and lines those of ``lines``.
"""

from __future__ import annotations

import numpy as np

from harness.emulator.native import spans
from harness.emulator.native.lines import (
    enter,
    line_of,
    new_store,
    notice,
    prune,
    set_clean,
    set_dirty,
    set_span_clean,
    span_of,
    write,
)
from harness.emulator.native.raw import bit_count, copy, get8, get64, put64
from harness.emulator.native.weak_state import (
    ADDRESS,
    AGE,
    AGENT,
    AT,
    AT_AGENT,
    AT_SYSTEM,
    BASE,
    BY_UNIT,
    CHANGES,
    CONTENT,
    DATA,
    DIRTY,
    DIRTY_TABLE,
    EPOCH,
    EVICTED,
    FETCH_BYTES,
    FETCHES,
    FIRST,
    FIRST_DIRTY,
    FIRST_LINE,
    FLOORS,
    HIGH,
    INSTRUCTION,
    IS_DIRTY,
    LANDED,
    LINE,
    LOW,
    NEVER,
    NEW_DATA,
    NEXT_DIRTY,
    NEXT_FETCH,
    NEXT_LINE,
    NEXT_STORE,
    NOW,
    OF_AGENT,
    OF_LINE,
    ORIGIN,
    OUTSIDE,
    SEEN_LINE,
    SIZE,
    SPAN_AT,
    SPAN_AT_AGENT,
    SPAN_DATA,
    SPAN_HELD,
    SPAN_INDICES,
    SPAN_LINES,
    STORES,
    SYSTEM,
    UNIT,
    WORKGROUP,
    XCD,
    add,
    allocate,
    helper,
    log,
    pick,
    release,
    tick,
)  # fmt: skip
from harness.emulator.native.words import cas32, cas64, peek32, poke32


@helper
def _same_xcd(a, b):
    return get64(a + OF_AGENT) == get64(b + OF_AGENT) and get64(a + XCD) == get64(b + XCD)


@helper
def _overlap(store, low, high):
    return (get64(store + LOW) & low) != 0 or (get64(store + HIGH) & high) != 0


@helper
def _older(a, b):
    """Return whether an agent's store comes before another: those that reached the agent, then those still in an L2."""
    first, second = get64(a + AT_AGENT), get64(b + AT_AGENT)
    return first < second or (first == second and get64(a + LANDED) < get64(b + LANDED))


@helper
def _before(a, b):
    """Return whether a line's store is the older one for the system."""
    first, second = get64(a + AT_SYSTEM), get64(b + AT_SYSTEM)
    return first < second or (first == second and _older(a, b))


@helper
def _promote(state, store, scope):
    if get64(store + AT_AGENT) == NEVER:
        put64(store + AT_AGENT, get64(state + NOW))
    if scope == SYSTEM and get64(store + AT_SYSTEM) == NEVER:
        line = get64(store + OF_LINE)
        notice(state, line)
        put64(store + AT_SYSTEM, tick(state))
        add(state + CHANGES, 1)
        low, high = get64(store + LOW), get64(store + HIGH)
        write(line + CONTENT, store + DATA, low, high)
        write(get64(line + ADDRESS), store + DATA, low, high)
        set_clean(state, store)


@helper
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


@helper
def store_line(state, unit, line, low, high, data, scope, origin, instruction):
    """Let a store land; with agent or system scope it is written through."""
    notice(state, line)
    add(state + CHANGES, 1)
    store = new_store(state, unit, line, low, high, data, tick(state), NEVER, NEVER, origin, instruction)
    set_dirty(state, store)
    if scope >= AGENT:
        _promote_older(state, store, scope)
    prune(state, line)


@helper
def _reached_agent(state, store, unit):
    now = get64(state + NOW)
    return get64(store + AT_SYSTEM) <= now or (
        get64(get64(store + UNIT) + OF_AGENT) == get64(unit + OF_AGENT) and get64(store + AT_AGENT) <= now
    )


@helper
def read_for_exchange(state, unit, line, at, size, scope):
    """Return the 4 or 8 bytes at offset ``at`` of a line as a read-modify-write at agent or system scope reads them.

    It reads the value at that level, after its own XCD's stores to these bytes were written back to it.
    """
    low, high = mask_of(at, size)
    notice(state, line)
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


@helper
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


@helper
def mask_of(at, size):
    """Return the mask of ``size`` bytes at offset ``at`` of a line, which they do not leave."""
    end = at + size
    return _ones(min(end, 64)) & ~_ones(min(at, 64)), _ones(max(end - 64, 0)) & ~_ones(max(at - 64, 0))


@helper
def _ones(count):
    """Return a word whose lowest bits are 1."""
    return np.int64(-1) if count == 64 else (np.int64(1) << count) - 1


@helper
def _value(address, size):
    return np.int64(peek32(np.uint64(address))) if size == 4 else get64(address)


@helper
def _promote_all(state, unit, agent, scope):
    """Promote the stores of ``agent``, or of a unit's XCD and those that reached its agent, oldest first.

    Returns their number. At agent scope the order does not matter: time stands still.
    """
    count = get64(state + DIRTY) if scope == SYSTEM else 0
    reached, landed = np.empty(count, np.int64), np.empty(count, np.int64)
    n, m, written = 0, 0, 0
    store = get64(state + FIRST_DIRTY)
    while store:
        if get64(store + OF_LINE) == 0:
            own = get64(store + UNIT)
            if get64(own + OF_AGENT) != (get64(unit + OF_AGENT) if unit else agent):
                store = get64(store + NEXT_DIRTY)
                continue
            if scope != SYSTEM:
                written += _span_to_agent(state, store) if _same_xcd(own, unit) else 0
                store = get64(store + NEXT_DIRTY)
                continue
            store = _split_dirty(state, store)  # a line remembers what it was before
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


@helper
def write_back(state, unit, scope):
    """``buffer_wbl2``: write back an XCD's stores, at system scope its agent's too; return their number."""
    tick(state)
    return _promote_all(state, unit, 0, scope)


@helper
def flush(state, agent, is_last):
    """Perform the release at the end of a kernel: all stores of an agent reach the system.

    ``is_last``: no wavefront will load anything any more.
    """
    tick(state)
    if is_last:
        _write_spans(state, agent)
    return _promote_all(state, 0, agent, SYSTEM)


@helper
def _write_spans(state, agent):
    """Let the spans of an agent reach memory."""
    span = get64(state + FIRST_DIRTY)
    while span:
        after = get64(span + NEXT_DIRTY)
        if get64(span + OF_LINE) == 0 and get64(get64(span + UNIT) + OF_AGENT) == agent:
            n, held = get64(span + SPAN_LINES), get64(span + SPAN_HELD)
            if bit_count(held) == n:
                copy(get64(span + SPAN_AT), span + SPAN_DATA, LINE * n)
            else:
                for i in range(n):
                    if held >> i & 1:
                        copy(get64(span + SPAN_AT) + LINE * i, span + SPAN_DATA + LINE * i, LINE)
            add(state + NOW, bit_count(held))
            add(state + CHANGES, bit_count(held))
            set_span_clean(state, span)
        span = after


@helper
def _split_dirty(state, span):
    """Split a span that has landed; return its first store."""
    i = 0
    while get64(span + SPAN_HELD) >> i & 1 == 0:
        i += 1
    index = get64(span + SPAN_INDICES + 8 * i)
    spans.split_span(state, span)
    return get64(get64(state + DIRTY_TABLE) + 8 * index)


@helper
def _span_to_agent(state, span):
    """Let the stores of a span reach their agent; return how many had not."""
    reached = 0
    for i in range(get64(span + SPAN_LINES)):
        if get64(span + SPAN_HELD) >> i & 1 and get64(span + SPAN_AT_AGENT + 8 * i) == NEVER:
            put64(span + SPAN_AT_AGENT + 8 * i, get64(state + NOW))
            reached += 1
    return reached


@helper
def evict(state, index):
    """Let a cache write one store back by itself, by one level."""
    store = get64(get64(state + DIRTY_TABLE) + 8 * index)
    if store & 1:
        span = span_of(store)
        at_agent = span + SPAN_AT_AGENT + 8 * line_of(store)
        if get64(at_agent) == NEVER:
            put64(at_agent, tick(state))
            log(state, EVICTED, 0, get64(span + ORIGIN), get64(span + INSTRUCTION))
            return 0
        spans.split_span(state, span)
        store = get64(get64(state + DIRTY_TABLE) + 8 * index)
    tick(state)
    origin, instruction = get64(store + ORIGIN), get64(store + INSTRUCTION)
    _promote_older(state, store, AGENT if get64(store + AT_AGENT) == NEVER else SYSTEM)
    log(state, EVICTED, 0, origin, instruction)
    return 0


# -- loads -------------------------------------------------------------------------------------------------------------


@helper
def load_line(state, unit, line, scope):
    """Put a line as a compute unit's load of ``scope`` sees it at ``SEEN_LINE``; return how many stores are hidden."""
    notice(state, line)
    now = get64(state + NOW)
    count = get64(line + STORES)
    if count == 0:
        # No fetch is recorded: all stores will be later, and this load requires none to be seen.
        copy(state + SEEN_LINE, line + BASE, LINE)
        return 0
    fetch = _fetch_of(state, unit, line)
    seen = get64(fetch + AT)
    # The times by which a store must have become visible to be seen for certain: of its own XCD, agent, system. The
    # load's own scope bits make it miss all caches up to that scope.
    missed = scope if scope >= AGENT else 0
    near = now if missed >= WORKGROUP else max(get64(unit + FLOORS + 8 * WORKGROUP), seen)
    middle = now if missed >= AGENT else max(get64(unit + FLOORS + 8 * AGENT), seen)
    far = now if missed >= SYSTEM else max(get64(unit + FLOORS + 8 * SYSTEM), seen)
    # Each store with the first time at which the compute unit could see it, and with the time of the above; and the
    # times at which more of them could be seen.
    stores = allocate(state, 32 * count)
    visible, certain, optional = stores + 8 * count, stores + 16 * count, stores + 24 * count
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
        put64(stores + 8 * n, store)
        put64(visible + 8 * n, first)
        put64(certain + 8 * n, sure)
        n += 1
        if sure < first <= now:  # one more time; they come almost in ascending order
            i = options
            while i > 0 and get64(optional + 8 * i - 8) > first:
                i -= 1
            if i == 0 or get64(optional + 8 * i - 8) != first:
                for k in range(options, i, -1):
                    put64(optional + 8 * k, get64(optional + 8 * k - 8))
                put64(optional + 8 * i, first)
                options += 1
        store = get64(store + NEXT_STORE)
    hidden = pick(state, options + 1, AGE) if options else 0
    # The line was fetched just before the oldest hidden store became visible.
    fetched = now if hidden == 0 else get64(optional + 8 * (options - hidden)) - 1
    put64(fetch + AT, max(seen, fetched))
    if hidden:
        add(state + CHANGES, 1)
    # The stores that are seen, the oldest first: the system's in order, then the agent's, then the XCD's.
    shown = 0
    for i in range(n):
        if get64(visible + 8 * i) <= max(fetched, get64(certain + 8 * i)):
            store, k = get64(stores + 8 * i), shown
            while k > 0 and _before(store, get64(stores + 8 * k - 8)):
                put64(stores + 8 * k, get64(stores + 8 * k - 8))
                k -= 1
            put64(stores + 8 * k, store)
            shown += 1
    # Later stores hide earlier ones.
    first, low, high = shown, 0, 0
    while first > 0 and (low != -1 or high != -1):
        first -= 1
        low |= get64(get64(stores + 8 * first) + LOW)
        high |= get64(get64(stores + 8 * first) + HIGH)
    if low != -1 or high != -1:
        copy(state + SEEN_LINE, line + BASE, LINE)
    for i in range(first, shown):
        store = get64(stores + 8 * i)
        write(state + SEEN_LINE, store + DATA, get64(store + LOW), get64(store + HIGH))
    release(state, stores, 32 * count)
    return hidden


@helper
def _fetch_of(state, unit, line):
    """Return the last fetch of a line by a compute unit, which becomes the first of the list."""
    before, fetch = line + FETCHES - NEXT_FETCH, get64(line + FETCHES)
    while fetch and get64(fetch + BY_UNIT) != unit:
        before, fetch = fetch, get64(fetch + NEXT_FETCH)
    if fetch == 0:
        fetch = allocate(state, FETCH_BYTES)
        put64(fetch + BY_UNIT, unit)
        put64(fetch + AT, 0)
    elif before == line + FETCHES - NEXT_FETCH:
        return fetch
    else:
        put64(before + NEXT_FETCH, get64(fetch + NEXT_FETCH))
    put64(fetch + NEXT_FETCH, get64(line + FETCHES))
    put64(line + FETCHES, fetch)
    return fetch


@helper
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


@helper
def answered(state, address, size):
    """Take in what the host wrote within [address, address + size) for a kernel that waits for its answer."""
    store = get64(state + FIRST_DIRTY)
    while store:
        after = get64(store + NEXT_DIRTY)
        if get64(store + OF_LINE) == 0:
            at = get64(store + SPAN_AT)
            if at < address + size and address < at + LINE * get64(store + SPAN_LINES):
                spans.split_span(state, store)
        store = after
    line = get64(state + FIRST_LINE)
    while line:
        at = get64(line + ADDRESS)
        if at < address + size and address < at + get64(line + SIZE):
            enter(state, line)
        line = get64(line + NEXT_LINE)
    return 0
