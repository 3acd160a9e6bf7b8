"""Lines of mode ``weak``, and the stores that each of them has; ``caches`` decides which of them a load sees."""

from __future__ import annotations

import numpy as np

from harness.emulator.native.raw import call, clear, copy, get8, get64, put64
from harness.emulator.native.weak_state import (
    ADDRESS,
    AT_AGENT,
    AT_SYSTEM,
    BASE,
    BUCKETS,
    CONTENT,
    DATA,
    DIRTY,
    DIRTY_CAPACITY,
    DIRTY_INDEX,
    DIRTY_TABLE,
    ELSEWHERE,
    ENTRIES,
    EPOCH,
    FETCHES,
    FIRST,
    FIRST_DIRTY,
    FIRST_LINE,
    HASH,
    HIGH,
    IMAGE,
    IMAGE_EPOCH,
    IMAGE_SIZE,
    IMAGE_START,
    INSTRUCTION,
    IS_DIRTY,
    LANDED,
    LAST,
    LAST_DIRTY,
    LAST_LINE,
    LAST_PAGE,
    LINE,
    LINE_BYTES,
    LOW,
    MORE,
    MORE_DIRTY,
    MOST_STORES,
    NEVER,
    NEXT_DIRTY,
    NEXT_LINE,
    NEXT_OF_BUCKET,
    NEXT_STORE,
    OF_LINE,
    ORIGIN,
    OUTSIDE,
    PAGE_ADDRESS,
    PAGE_BEFORE,
    PAGE_BYTES,
    PAGE_LINES,
    PAGES,
    PENDING,
    PENDING_WRITES,
    PREVIOUS,
    PREVIOUS_DIRTY,
    SIZE,
    SNAPSHOT,
    SPAN_AT_AGENT,
    SPAN_HELD,
    SPAN_INDICES,
    SPAN_LINES,
    STORE_BYTES,
    STORES,
    TABLE,
    UNIT,
    add,
    allocate,
    helper,
    release,
    tick,
)  # fmt: skip
from harness.emulator.native.words import peek16, peek32, peek64, poke8, poke16, poke32, poke64


@helper
def page_of(state, low, start):
    """Return the page of the line at ``low``, of an allocation that begins at ``start``, or 0 if there is none.

    Lines are counted from the allocation's start, so that a run does not depend on its address.
    """
    address = low - (low - start) % (LINE * PAGE_LINES)
    page = get64(get64(state + HASH) + 8 * ((address >> 12) & (get64(state + BUCKETS) - 1)))
    while page and get64(page + PAGE_ADDRESS) != address:
        page = get64(page + NEXT_OF_BUCKET)
    return page


@helper
def entry_of(state, low, start):
    """Return the address of the entry of a line in its page, which is made if there is none."""
    page = page_of(state, low, start)
    if page == 0:
        page = allocate(state, PAGE_BYTES)
        clear(page, PAGE_BYTES)
        put64(page + PAGE_ADDRESS, low - (low - start) % (LINE * PAGE_LINES))
        put64(page + PAGE_BEFORE, get64(state + LAST_PAGE))
        put64(state + LAST_PAGE, page)
        _hash(state, page)
        add(state + PAGES, 1)
        if get64(state + PAGES) > 2 * get64(state + BUCKETS):
            call(get64(state + MORE), TABLE, get64(state + BUCKETS))
            _rehash(state)
    return page + ENTRIES + 8 * ((low - get64(page + PAGE_ADDRESS)) >> 7)


@helper
def _hash(state, page):
    bucket = get64(state + HASH) + 8 * ((get64(page + PAGE_ADDRESS) >> 12) & (get64(state + BUCKETS) - 1))
    put64(page + NEXT_OF_BUCKET, get64(bucket))
    put64(bucket, page)


@helper
def _rehash(state):
    """Enter all pages in a new table, which is empty."""
    page = get64(state + LAST_PAGE)
    while page:
        _hash(state, page)
        page = get64(page + PAGE_BEFORE)


@helper
def new_line(state, low, end, image):
    """Return a new line at ``low``, of an allocation that ends at ``end``; ``image``: the copy of the allocation."""
    line = allocate(state, LINE_BYTES)
    size = min(low + LINE, end) - low
    put64(line + ADDRESS, low)
    put64(line + SIZE, size)
    for field in (FIRST, LAST, STORES, FETCHES, NEXT_LINE, PENDING, PENDING_WRITES):
        put64(line + field, 0)
    source = low
    if image and get64(image + IMAGE):
        # Copied again if an acquire came after the copy. A loop that polls never uses it.
        if get64(image + IMAGE_EPOCH) != get64(state + EPOCH):
            copy(get64(image + IMAGE), get64(image + IMAGE_START), get64(image + IMAGE_SIZE))
            put64(image + IMAGE_EPOCH, get64(state + EPOCH))
        source = get64(image + IMAGE) + low - get64(image + IMAGE_START)
    if size == LINE:
        copy(line + BASE, source, LINE)
        copy(line + CONTENT, line + BASE, LINE)
    else:
        clear(line + BASE, 2 * LINE)
        copy(line + BASE, source, size)
        copy(line + CONTENT, line + BASE, size)
    last = get64(state + LAST_LINE)
    if last:
        put64(last + NEXT_LINE, line)
    else:
        put64(state + FIRST_LINE, line)
    put64(state + LAST_LINE, line)
    return line


@helper
def _eight(mask_low, mask_high, i):
    """Return the bits of a mask for bytes 8i to 8i + 7 of a line."""
    return ((mask_low if i < 8 else mask_high) >> (8 * (i & 7))) & 0xFF


@helper
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


@helper
def notice(state, line):
    """Record a change of memory by another process or the host as a store that has reached the system."""
    if get64(state + OUTSIDE):
        enter(state, line)


@helper
def enter(state, line):
    size, address, snapshot, content = get64(line + SIZE), get64(line + ADDRESS), state + SNAPSHOT, line + CONTENT
    if size == LINE:
        different = np.int64(0)
        for i in range(16):
            different |= get64(address + 8 * i) ^ get64(content + 8 * i)
        if different == 0:
            return
    copy(snapshot, address, size)  # once, since another process may change it at any time
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


@helper
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


@helper
def set_dirty(state, store):
    _append_dirty(state, store)
    put64(store + DIRTY_INDEX, _enter_dirty(state, store))


@helper
def _append_dirty(state, store):
    last = get64(state + LAST_DIRTY)
    put64(store + IS_DIRTY, 1)
    put64(store + NEXT_DIRTY, 0)
    put64(store + PREVIOUS_DIRTY, last)
    if last:
        put64(last + NEXT_DIRTY, store)
    else:
        put64(state + FIRST_DIRTY, store)
    put64(state + LAST_DIRTY, store)


@helper
def _enter_dirty(state, entry):
    """Append to the table; return the place."""
    count = get64(state + DIRTY)
    if count == get64(state + DIRTY_CAPACITY):
        call(get64(state + MORE), MORE_DIRTY, count)
    put64(get64(state + DIRTY_TABLE) + 8 * count, entry)
    put64(state + DIRTY, count + 1)
    return count


@helper
def set_clean(state, store):
    _unlink_dirty(state, store)
    _leave_dirty(state, get64(store + DIRTY_INDEX))


@helper
def _unlink_dirty(state, store):
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


@helper
def _leave_dirty(state, index):
    """Remove what is at a place of the table: the last one takes it."""
    count, table = get64(state + DIRTY) - 1, get64(state + DIRTY_TABLE)
    last = get64(table + 8 * count)
    put64(table + 8 * index, last)
    if last & 1:
        put64(span_of(last) + SPAN_INDICES + 8 * line_of(last), index)
    else:
        put64(last + DIRTY_INDEX, index)
    put64(state + DIRTY, count)


# -- spans -------------------------------------------------------------------------------------------------------------


@helper
def tagged(span, i):
    """Return what stands for the store to line ``i`` of a span in the table."""
    return span | i << 1 | 1


@helper
def span_of(entry):
    return entry & ~31


@helper
def line_of(entry):
    return entry >> 1 & 15


@helper
def set_span_dirty(state, span):
    _append_dirty(state, span)
    for i in range(get64(span + SPAN_LINES)):
        if get64(span + SPAN_HELD) >> i & 1:
            put64(span + SPAN_AT_AGENT + 8 * i, NEVER)
            put64(span + SPAN_INDICES + 8 * i, _enter_dirty(state, tagged(span, i)))


@helper
def set_span_clean(state, span):
    _unlink_dirty(state, span)
    for i in range(get64(span + SPAN_LINES)):
        if get64(span + SPAN_HELD) >> i & 1:
            _leave_dirty(state, get64(span + SPAN_INDICES + 8 * i))


@helper
def replace_dirty(state, span, first, last):
    """Put a span's stores, which are linked from ``first`` to ``last``, in its place among those in landing order."""
    before, after = get64(span + PREVIOUS_DIRTY), get64(span + NEXT_DIRTY)
    put64(first + PREVIOUS_DIRTY, before)
    put64(last + NEXT_DIRTY, after)
    if before:
        put64(before + NEXT_DIRTY, first)
    else:
        put64(state + FIRST_DIRTY, first)
    if after:
        put64(after + PREVIOUS_DIRTY, last)
    else:
        put64(state + LAST_DIRTY, last)


@helper
def prune(state, line):
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
